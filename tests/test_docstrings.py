"""Every public name says what it is, what it takes, what it gives back and what it raises; arrays say their shape and dtype.

Public are the names in a module's `__all__` and the public methods, properties and nested classes of public classes. Everything is read from the
source, nothing is imported. A method that repeats another's contract may point at it ("See `AgentEnv.reset`.") instead of repeating the words.
"""

import ast
import re
from collections.abc import Iterator, Sequence, Set
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

PACKAGE = Path(__file__).parent.parent / "agent_gym"
SOURCES = sorted(PACKAGE.rglob("*.py"))
# Programs, which run in a process of their own and hold nothing for others. (Nor do modules without any definition, which need no mention.)
WITHOUT_ALL = {"envs/textworld/generator.py", "envs/webshop/guard.py", "tools/sandbox/launcher.py", "tools/sandbox/runner.py"}
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
ARRAYS = {"NDArray", "IdArray", "FloatArray", "Tensor"}
UNDOCUMENTED_ERRORS = {"NotImplementedError", "AssertionError"}  # what is not written yet, and what cannot happen
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")
POINTER = re.compile(r"^(?:See|As) `([\w.]+)`", re.MULTILINE)  # a line or docstring that begins so
ASIDE = re.compile(r"(?:; see|\. See|\(see|\. As)\s`([\w.]+)`")  # counts where it names a method of the same name
FOREIGN = {"gymnasium", "transformers", "trl", "torch", "http", "socketserver"}  # packages whose contracts may be taken over
SHAPE = re.compile(r"\bshapes?\b|\bscalar\b|\([\w .+*/-]+,[\w .,+*/-]*\)")
DTYPE = re.compile(r"\b(?:u?int(?:8|16|32|64)|b?float(?:16|32|64)|bool|dtype)\b")


class Definition(NamedTuple):
    """A public class, function, method or property, by its dotted name inside the module."""

    name: str
    node: ast.ClassDef | Function


# ------------------------------------------------------------------------------------------------ reading a source


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def module_path(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def is_public_module(path: Path) -> bool:
    return not any(part.startswith("_") and not part.startswith("__") for part in path.relative_to(PACKAGE).parts)


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module or class, those behind `if` and `try` included."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from statements([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from statements(
                [*node.body, *(each for handler in node.handlers for each in handler.body), *node.orelse, *node.finalbody]
            )


def exported(tree: ast.Module) -> set[str] | None:
    """The names in `__all__`; None where a module has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets):
            return set(ast.literal_eval(node.value))
    return None


def decorators(node: ast.ClassDef | Function) -> set[str]:
    """The last parts of the names of its decorators."""
    return {ast.unparse(each.func if isinstance(each, ast.Call) else each).rpartition(".")[2] for each in node.decorator_list}


def definitions(body: list[ast.stmt], names: Set[str] | None = None, prefix: str = "") -> Iterator[Definition]:
    """The public definitions of a module (those called `names`) or of a class, and those inside public classes."""
    for node in statements(body):
        if not isinstance(node, ast.ClassDef | Function) or (node.name.startswith("_") if names is None else node.name not in names):
            continue
        if decorators(node) & {"overload", "setter", "deleter"}:
            continue
        yield Definition(prefix + node.name, node)
        if isinstance(node, ast.ClassDef):
            yield from definitions(node.body, prefix=f"{prefix}{node.name}.")


def parameters(node: Function) -> list[ast.arg]:
    """Its public parameters, without self and cls."""
    given = node.args
    every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [each for each in every if each is not None and each.arg not in {"self", "cls"} and not each.arg.startswith("_")]


def raised(body: Sequence[ast.AST]) -> Iterator[str]:
    """The exceptions that statements raise by name and do not catch themselves; those of functions and classes inside are their own affair."""
    for node in body:
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
        elif isinstance(node, ast.Try):
            caught = {ast.unparse(each.type) for each in node.handlers if each.type is not None}
            if not caught & {"Exception", "BaseException"}:
                yield from (each for each in raised(node.body) if each not in caught)
            yield from raised([*node.handlers, *node.orelse, *node.finalbody])
        elif not isinstance(node, ast.ClassDef | Function | ast.Lambda):
            yield from raised(list(ast.iter_child_nodes(node)))


def raises_itself(node: Function) -> bool:
    """Whether its own body raises an exception that its caller may meet."""
    return bool(set(raised(node.body)) - UNDOCUMENTED_ERRORS)


def is_array(annotation: ast.expr | None) -> bool:
    """Whether an annotation speaks of arrays, other than as what a callable takes or gives."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return is_array(ast.parse(annotation.value, mode="eval").body)
    if isinstance(annotation, ast.Name | ast.Attribute):
        return ast.unparse(annotation).rpartition(".")[2] in ARRAYS
    if isinstance(annotation, ast.Subscript):
        return is_array(annotation.value) or (ast.unparse(annotation.value).rpartition(".")[2] != "Callable" and is_array(annotation.slice))
    if isinstance(annotation, ast.BinOp):
        return is_array(annotation.left) or is_array(annotation.right)
    return isinstance(annotation, ast.Tuple | ast.List) and any(is_array(each) for each in annotation.elts)


def gives_something(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation) not in {"None", "NoReturn", "Never", "'None'", "Self"}


# ------------------------------------------------------------------------------------------------ reading a docstring


def section(doc: str, title: str) -> list[str] | None:
    """The lines of a section, without their common indentation; None where there is no such section."""
    lines = doc.splitlines()
    if f"{title}:" not in lines:
        return None
    found = []
    for line in lines[lines.index(f"{title}:") + 1 :]:
        if line and not line.startswith(" "):
            break
        found.append(line[4:])
    return found


def entries(doc: str, title: str) -> dict[str, str]:
    """The entries of a section, name -> text; "a, b: text" is an entry of both."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section(doc, title) or []:
        head = re.match(r"((?:[*`]*\w+`*)(?:(?:, | and )[*`]*\w+`*)*):(?: |$)", line)
        if head:
            names = re.findall(r"\w+", head.group(1).replace(" and ", ", "))
        for name in names:
            found[name] = f"{found.get(name, '')} {line.strip()}"
    return found


def contracts(name: str, doc: str) -> list[str]:
    """The functions whose contract a docstring takes over: "See `AgentEnv.reset`."; beside other words a method of the same name."""
    head = re.split(r"\n\n(?:Args|Returns):", doc)[0]
    return POINTER.findall(head) + [aim for aim in ASIDE.findall(head) if "." in aim and aim.rpartition(".")[2] == name]


def array_faults(what: str, text: str) -> list[str]:
    """What an array's description lacks."""
    return [f"{what}: no {lack}" for lack, pattern in (("shape", SHAPE), ("dtype", DTYPE)) if not pattern.search(text)]


# ------------------------------------------------------------------------------------------------ the rules


def function_faults(node: Function, doc: str) -> list[str]:
    """What the docstring of a function or method lacks."""
    found = []
    given = entries(doc, "Args")
    for each in parameters(node):
        if each.arg not in given:
            found.append(f"argument {each.arg}")
        elif is_array(each.annotation):
            found += array_faults(f"argument {each.arg}", given[each.arg])
    if gives_something(node.returns):
        lines = section(doc, "Returns") or section(doc, "Yields")
        if not lines:
            found.append("no Returns")
        elif is_array(node.returns):
            found += array_faults("Returns", " ".join(lines))
    if raises_itself(node) and not section(doc, "Raises"):
        found.append("no Raises")
    return found


def class_faults(node: ast.ClassDef, doc: str) -> list[str]:
    """What the docstring of a class lacks: the arguments of its constructor, and its array attributes."""
    found = []
    told = {**entries(doc, "Args"), **entries(doc, "Attributes")}
    before: ast.stmt | None = None
    for each in node.body:
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(each, ast.Expr):
            told[before.target.id] = ast.unparse(each)  # a string below an attribute is its docstring
        before = each
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and not each.target.id.startswith("_"):
            if is_array(each.annotation):
                found += array_faults(f"attribute {each.target.id}", told.get(each.target.id, ""))
        elif isinstance(each, ast.FunctionDef) and each.name == "__init__":
            own = {**told, **entries(ast.get_docstring(each) or "", "Args")}
            for parameter in parameters(each):
                if parameter.arg not in own:
                    found.append(f"argument {parameter.arg}")
                elif is_array(parameter.annotation):
                    found += array_faults(f"argument {parameter.arg}", own[parameter.arg])
            if raises_itself(each) and not section(doc + "\n\n" + (ast.get_docstring(each) or ""), "Raises"):
                found.append("no Raises")
    return found


def contracts_in(source: str) -> set[str]:
    """What a docstring may point at in a source: `name` of every function, `Class.name` of every method and property."""
    tree = parsed(source)
    found = {node.name for node in statements(tree.body) if isinstance(node, Function)}
    for each in ast.walk(tree):
        if isinstance(each, ast.ClassDef):
            found |= {f"{each.name}.{inner.name}" for inner in statements(each.body) if isinstance(inner, Function)}
    return found


def is_known(aim: str, name: str, known: Set[str]) -> bool:
    """Whether what the docstring of `name` points at is there: a function, a method, a class with a method of that name, or foreign."""
    last = aim.rpartition(".")[2]
    return aim.partition(".")[0] in FOREIGN or bool({".".join(aim.split(".")[-2:]), last, f"{last}.{name}"} & known)


def faults(source: str, known: Set[str] = frozenset(), names: Set[str] | None = None) -> list[str]:
    """What the public definitions of a source lack: those called `names`, by default those in its `__all__`.

    `known` are the functions whose contract a docstring may point at (see `contracts_in`).
    """
    tree = parsed(source)
    found = []
    for name, node in definitions(tree.body, (exported(tree) or set()) if names is None else names):
        doc = ast.get_docstring(node)
        if not doc:
            lacks = ["no docstring"]
        elif isinstance(node, ast.ClassDef):
            lacks = class_faults(node, doc)
        elif decorators(node) & {"property", "cached_property"}:
            lacks = array_faults("property", doc) if is_array(node.returns) else []
        elif aims := contracts(node.name, doc):
            lacks = [f"points at {aim}, which is nowhere" for aim in aims if not is_known(aim, node.name, known)]
        else:
            lacks = function_faults(node, doc)
        found += [f"{name}: {lack}" for lack in lacks]
    return found


def without_all(source: str, path: str) -> str | None:
    """What is wrong with the `__all__` of a public module: it has none, or a name that is not there."""
    tree = parsed(source)
    names = exported(tree)
    if names is None:
        return (
            None
            if path in WITHOUT_ALL or not any(isinstance(each, Function | ast.ClassDef | ast.Assign) for each in tree.body)
            else "no __all__"
        )
    if "__getattr__" in {each.name for each in tree.body if isinstance(each, Function)}:
        return None  # names come when they are asked for
    bound = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    bound |= {each.name for each in statements(tree.body) if isinstance(each, ast.ClassDef | Function)}
    bound |= {each.asname or each.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for each in node.names}
    return f"{sorted(names - bound)} in __all__, which are nowhere" if names - bound else None


def lent(source: str) -> set[str]:
    """The names that a public module's `__all__` takes from private modules, as `module:name` with the module's last part."""
    tree = parsed(source)
    taken = [
        node
        for node in statements(tree.body)
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2].startswith("_")
    ]
    names = exported(tree) or set()
    return {
        f"{(node.module or '').rpartition('.')[2]}:{each.name}"
        for node in taken
        for each in node.names
        if (each.asname or each.name) in names
    }


# ------------------------------------------------------------------------------------------------ the package


@pytest.fixture(scope="module")
def known() -> set[str]:
    """The functions and methods of the package that a docstring may point at."""
    return set().union(*(contracts_in(path.read_text(encoding="utf-8")) for path in SOURCES))


@pytest.fixture(scope="module")
def public_of_private() -> dict[str, set[str]]:
    """The names of private modules that public ones give on, by module."""
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        for each in lent(path.read_text(encoding="utf-8")) if is_public_module(path) else ():
            module, _, name = each.partition(":")
            found.setdefault(module, set()).add(name)
    return found


@pytest.mark.parametrize("path", SOURCES, ids=module_path)
def test_every_public_name_is_documented(path, known, public_of_private):
    source = path.read_text(encoding="utf-8")
    assert not faults(source, known, None if is_public_module(path) else public_of_private.get(path.stem, set()))


@pytest.mark.parametrize("path", [path for path in SOURCES if is_public_module(path)], ids=module_path)
def test_every_public_module_says_which_names_are_public(path):
    assert without_all(path.read_text(encoding="utf-8"), module_path(path)) is None


def test_modules_that_may_lack_all_are_there_and_do():
    assert {path for path in WITHOUT_ALL if exported(parsed((PACKAGE / path).read_text(encoding="utf-8"))) is None} == WITHOUT_ALL


# ------------------------------------------------------------------------------------------------ controls

GOOD = '''
__all__ = ["Box", "Plan", "f"]

class Box:
    """A box.

    Args:
        size: of it.

    Attributes:
        ids: shape (n,), int64.

    Raises:
        ValueError: for a size below 1.
    """

    ids: NDArray[np.int64]

    def __init__(self, size: int, _inner: int = 0) -> None:
        if size < 1:
            raise ValueError("size")

    @property
    def weights(self) -> torch.Tensor:
        """The weights, float32, shape (n,)."""

    @property
    def size(self) -> int:
        """Its size."""

    def reset(self, seed: int) -> int:
        """Begin; see `AgentEnv.reset`."""

    def step(self, action: int) -> int:
        """See `Base`."""

class Plan:
    """A plan."""

    values: "FloatArray"
    """Float64 numbers: float64, shape (n,)."""

def f(a: IdArray, *b: int, **c: int) -> tuple[NDArray[np.float32], int]:
    """Do it.

    Args:
        a: int64 ids, shape (n,), written over
            two lines.
        *b, **c: more.

    Returns:
        Shape (n,), float32, and a number.

    Raises:
        KeyError: for a missing one.
    """
    def inner():
        raise RuntimeError
    try:
        raise OSError
    except OSError:
        raise KeyError(a) from None

def _private(x):
    pass
'''
KNOWN = {"AgentEnv.reset", "Base.step"}


def test_a_source_with_everything_in_its_place_has_no_fault():
    assert faults(GOOD, KNOWN) == []


@pytest.mark.parametrize(
    ("right", "wrong", "seen"),
    [
        ('"""Its size."""', "return 1", "Box.size: no docstring"),
        ('    """A plan."""\n', "", "Plan: no docstring"),
        ("        a: int64 ids, shape (n,)", "        x: int64 ids, shape (n,)", "f: argument a"),
        ("*b, **c: more", "**c: more", "f: argument b"),
        ("        size: of it.\n", "        sizes: of it.\n", "Box: argument size"),
        ("    Returns:\n        Shape (n,), float32, and a number.\n\n", "", "f: no Returns"),
        ("        Shape (n,), float32, and", "        Shape (n,) and", "f: Returns: no dtype"),
        ("        Shape (n,), float32, and", "        A float32 array and", "f: Returns: no shape"),
        ("a: int64 ids, shape (n,)", "a: ids, shape (n,)", "f: argument a: no dtype"),
        ("    Raises:\n        KeyError: for a missing one.\n", "", "f: no Raises"),
        ("    Raises:\n        ValueError: for a size below 1.\n", "", "Box: no Raises"),
        ("        ids: shape (n,), int64.", "        ids: int64.", "Box: attribute ids: no shape"),
        ('    """Float64 numbers: float64, shape (n,)."""\n', "", "Plan: attribute values: no shape"),
        ("The weights, float32, shape (n,).", "The weights, shape (n,).", "Box.weights: property: no dtype"),
        ("see `AgentEnv.reset`", "see `AgentEnv.rest`", "Box.reset: argument seed"),
        ("see `AgentEnv.reset`", "see `Agent.reset`", "Box.reset: points at Agent.reset, which is nowhere"),
        ("See `Base`", "See `Basis`", "Box.step: points at Basis, which is nowhere"),
        ("    except OSError:\n        raise KeyError(a) from None", "    finally:\n        pass", None),
    ],
)
def test_a_gap_is_seen(right, wrong, seen):
    assert GOOD.count(right) == 1
    found = faults(GOOD.replace(right, wrong), KNOWN)
    assert found == [] if seen is None else seen in found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("raise ValueError('x')", True),
        ("if a:\n        raise error", True),
        ("try:\n        pass\n    except OSError:\n        raise", False),
        ("try:\n        raise OSError\n    except OSError:\n        pass", False),
        ("try:\n        raise OSError\n    except ValueError:\n        pass", True),
        ("try:\n        raise OSError\n    except Exception:\n        pass", False),
        ("try:\n        pass\n    except OSError as e:\n        raise ValueError from e", True),
        ("raise NotImplementedError", False),
        ("raise AssertionError('x')", False),
        ("def g():\n        raise ValueError", False),
        ("with a:\n        for b in c:\n            raise ValueError", True),
    ],
)
def test_what_a_function_raises_itself_is_told_from_what_it_does_not(body, expected):
    node = ast.parse(f"def f():\n    {body}").body[0]
    assert raises_itself(node) is expected


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("NDArray[np.int64]", True),
        ("torch.Tensor | None", True),
        ("list[IdArray]", True),
        ("'FloatArray'", True),
        ("dict[str, tuple[int, torch.Tensor]]", True),
        ("Callable[[torch.Tensor], None]", False),
        ("Sequence[int]", False),
        ("TensorName", False),
    ],
)
def test_arrays_are_known_by_their_annotation(annotation, expected):
    assert is_array(ast.parse(annotation, mode="eval").body) is expected


def test_a_module_without_all_or_with_a_name_of_nothing_is_seen():
    assert without_all("def f(): ...", "x.py") == "no __all__"
    assert without_all('__all__ = ["f", "g"]\ndef f(): ...', "x.py") == "['g'] in __all__, which are nowhere"
    assert without_all('"""Only words."""', "x.py") is None
    assert without_all('__all__ = ["f"]\nfrom a import b as f', "x.py") is None


def test_names_lent_by_private_modules_are_public():
    assert lent('__all__ = ["f"]\nfrom agent_gym._inner import f, g\nfrom agent_gym.other import h') == {"_inner:f"}
