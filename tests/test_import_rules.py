"""The rules of the house: imports run one way, nothing below the trainers needs torch, and no file breaks a habit of the project.

Imports are read from the source, those inside functions and behind `TYPE_CHECKING` included, so that a rule cannot be evaded by loading late.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import agent_gym

PACKAGE = Path(agent_gym.__file__).parent
ROOT = PACKAGE.parent
SOURCES = sorted(PACKAGE.rglob("*.py"))

# A room may import itself and whatever stands above it. Names are files or folders of the package; "room.file" puts one file elsewhere.
ORDER = [
    "registration",
    "trajectory",
    "spaces",
    "trajectory_io",
    "compat",
    "tokenizers",
    "_parts",  # the private files beside chat.py, which is made of them
    "chat",
    "context",
    "outcomes",
    "core",
    "search",
    "tools",
    "data",
    "tokenizers.build_default",  # a script that makes the tokenizer from generated tasks; nothing imports it
    "envs",
    "wrappers",
    "adapters",
    "policies",
    "flows",
    "runs",
    "evaluation",
    "trainers",
    "adapters.trl",  # the one adapter that stands beside the trainers
    "report",
    "comparison",
    "testing",
    "cli",
]
TORCH_FREE = ORDER[: ORDER.index("adapters") + 1]
HEAVY = {"torch", "trl", "accelerate", "peft", "datasets", "vllm"}


def room_of(module: str) -> str:
    """The entry of ORDER that a dotted name below `agent_gym.` belongs to; the whole of it where there is none."""
    parts = module.split(".")
    if parts[0].startswith("_"):
        return "_parts"
    return next((name for name in (".".join(parts[:2]), parts[0]) if name in ORDER), parts[0])


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(source: str, module: str = "") -> set[str]:
    """Every absolute dotted name that a source imports, wherever it stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = ["agent_gym", *module.split(".")][: -node.level]
                base = ".".join([*parent, *([base] if base else [])])
            found |= {base} if base != "agent_gym" else {f"agent_gym.{one.name}" for one in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"importlib.import_module", "import_module", "__import__"}:
            found |= {arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}
    return found


def upward(source: str, module: str) -> set[str]:
    """What a module imports from rooms behind its own."""
    own = ORDER.index(room_of(module))
    inner = {name.removeprefix("agent_gym.") for name in imports_of(source, module) if name.startswith("agent_gym.")}
    return {name for name in inner if room_of(name) in ORDER and ORDER.index(room_of(name)) > own}


def test_every_room_has_its_place_in_the_order():
    rooms = {room_of(module_of(path)) for path in SOURCES if module_of(path)}
    assert rooms <= set(ORDER), f"give {sorted(rooms - set(ORDER))} a place in ORDER, behind what they import"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path):
    module = module_of(path)
    if module:
        assert not upward(path.read_text(), module)


def test_an_import_against_the_order_is_seen_wherever_it_stands():
    assert upward("def f():\n    from agent_gym.envs.tool import ToolEnv", "core") == {"envs.tool"}
    assert upward("if TYPE_CHECKING:\n    import agent_gym.trainers.rows", "flows.base") == {"trainers.rows"}
    assert upward("from agent_gym import cli", "report.page") == {"cli"}
    assert upward("from ..flows import base", "policies.base") == {"flows"}
    assert upward("import importlib\nimportlib.import_module('agent_gym.testing')", "core") == {"testing"}
    assert upward("from agent_gym.chat import Chat", "_encoder") == {"chat"}
    assert not upward("from agent_gym.core import AgentEnv\nfrom .types import Hit", "search.bm25")


def test_the_root_of_the_package_holds_ids_and_nothing_else():
    assert imports_of((PACKAGE / "__init__.py").read_text()) == {"agent_gym.registration"}
    outside = imports_of((PACKAGE / "registration.py").read_text())
    assert {name.split(".")[0] for name in outside} - set(sys.stdlib_module_names) == {"gymnasium"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_up_to_the_wrappers_imports_torch(path):
    module = module_of(path)
    if module and room_of(module) in TORCH_FREE:
        assert not {name.split(".")[0] for name in imports_of(path.read_text(), module)} & HEAVY


# ------------------------------------------------------------------------------------------------ in a process of its own


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


WITHOUT_TORCH = """
import importlib.util
import sys

for name in ("torch", "trl", "accelerate", "peft", "datasets", "pyarrow", "stable_baselines3"):
    sys.modules[name] = None  # as if it were not installed: importing it raises ModuleNotFoundError

import gymnasium, agent_gym
from agent_gym.wrappers import DiscreteTokens, StepRecorder, as_token_env

for entry in agent_gym.ENVIRONMENTS:
    if "TextWorld" in entry.id and importlib.util.find_spec("textworld") is None:
        continue  # the one that is nothing without its extra
    env = StepRecorder(gymnasium.make(entry.id))
    env.reset(seed=0)
    ask, ended = env.get_wrapper_attr("expert")(), False
    while not ended:
        _, _, terminated, truncated, info = env.step(env.get_wrapper_attr("encode_action")(ask()))
        ended = terminated or truncated
    assert info["is_success"] or env.unwrapped.chance, entry.id  # a game of chance may be lost by the best play
env = DiscreteTokens(as_token_env(gymnasium.make("FrozenLake-v1")), length=4)
env.reset(seed=0)
env.step(env.action_space.sample())
assert sys.modules["torch"] is None
"""


def test_every_environment_is_made_reset_and_played_without_torch():
    run(WITHOUT_TORCH)


def test_importing_the_package_adds_little_to_gymnasium():
    code = (
        "import sys, gymnasium\nbefore = set(sys.modules)\nimport agent_gym\nprint('\\n'.join(sorted(set(sys.modules) - before)))\n"
        "import agent_gym_pytest\nprint('\\n'.join('later ' + name for name in sorted(set(sys.modules) - before)))"
    )
    lines = run(code).splitlines()
    added = [line for line in lines if not line.startswith("later ")]
    assert added == ["agent_gym", "agent_gym.registration"]
    later = {line.removeprefix("later ").split(".")[0] for line in lines if line.startswith("later ")}
    assert not later & {*HEAVY, "transformers", "tokenizers", "jinja2"}


@pytest.mark.parametrize("link", sorted(path.name for path in ROOT.iterdir() if path.is_symlink() and path.is_dir()))
def test_a_link_at_the_root_refuses_to_be_imported_and_names_the_package(link):
    done = subprocess.run([sys.executable, "-c", f"import {link}"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: the folder {link}/ at the repository's root is a link for people; import agent_gym.{link} instead"
    )


def test_four_rooms_have_a_link():
    assert {path.name for path in ROOT.iterdir() if path.is_symlink()} == {"data", "envs", "trainers", "wrappers"}


# ------------------------------------------------------------------------------------------------ habits


SILENCER = re.compile(r"#\s*(?:type:\s*ignore(?P<kind>\[[^\]]+\])?|noqa(?P<code>:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?)", re.ASCII)


def silenced(source: str) -> list[str]:
    """Complaints of the tools that are silenced without their code, or without a reason behind it or in the comment line above."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or not (silencers := list(SILENCER.finditer(token.string))):
            continue
        number = token.start[0]
        found += [f"line {number}: a complaint silenced without its code" for each in silencers if not (each["kind"] or each["code"])]
        above = source.splitlines()[number - 2].lstrip() if number > 1 else ""
        if not re.search(r"[^\W\d_]", SILENCER.sub("", token.string)) and not above.startswith("# "):
            found.append(f"line {number}: a complaint silenced without a reason")
    return found


def faults(source: str) -> list[str]:
    """Broken habits of a library source."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            found.append(f"line {node.lineno}: print")
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            found.append(f"line {node.lineno}: bare except")
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            defaults = [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
            found += [f"line {one.lineno}: mutable default" for one in defaults if isinstance(one, (ast.List, ast.Dict, ast.Set))]
    for number, line in enumerate(source.splitlines(), start=1):
        found += [f"line {number}: {word}" for word in ("TO" + "DO", "FIX" + "ME", "XX" + "X") if word in line]
    if len(source.splitlines()) > 700:
        found.append(f"{len(source.splitlines())} lines")
    return found + silenced(source)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_library_file_breaks_a_habit(path):
    assert not faults(path.read_text())


def test_no_test_file_has_more_than_700_lines():
    here = Path(__file__).parent
    assert {str(path.relative_to(here)) for path in here.rglob("*.py") if len(path.read_text(encoding="utf-8").splitlines()) > 700} == set()


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("def f():\n    print(1)", "line 2: print"),
        ("try:\n    pass\nexcept:\n    pass", "line 3: bare except"),
        ("def f(a, b=[]): ...", "line 1: mutable default"),
        ("f = lambda *, b={}: b", "line 1: mutable default"),
        ("x = 1  # TO" + "DO", "line 1: TO" + "DO"),
        ("x = 1\n" * 701, "701 lines"),
        ("x = f()  # type: ignore[misc]", "line 1: a complaint silenced without a reason"),
        ("x = f()  # type: ignore[misc, arg-type]  # noqa: E731, F401", "line 1: a complaint silenced without a reason"),
        ("y = 1\nx = f()  # noqa: E731", "line 2: a complaint silenced without a reason"),
        ("x = f()  # type: ignore  # an untyped function", "line 1: a complaint silenced without its code"),
        ("x = f()  # noqa - long", "line 1: a complaint silenced without its code"),
    ],
)
def test_broken_habits_are_seen(source, seen):
    assert faults(source) == [seen]


def test_a_silenced_complaint_with_its_reason_is_no_broken_habit():
    assert not faults("x = f()  # type: ignore[misc]  # the function has no types")
    assert not faults("x = f()  # noqa: E731 - kept short\n# the same\ny = f()  # type: ignore[misc]  # noqa: E731")
    assert not faults('text = "# type: ignore"')


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_opens_by_saying_what_is_inside(path):
    source = path.read_text()
    assert not source.strip() or ast.get_docstring(ast.parse(source))


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT / "tests")))
def test_no_test_is_skipped_for_a_missing_module_where_none_may_be_missing(path):
    assert "pytest.importor" + "skip" not in path.read_text(), "use helpers.require, which heeds AGENT_GYM_REQUIRE_ALL"


def repository_files() -> list[Path]:
    """The text files that are, or could be, committed."""
    try:
        done = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        pytest.skip("not a git repository")
    return [path for name in done.stdout.splitlines() if (path := ROOT / name).is_file() and not path.is_symlink()]


def test_the_repository_speaks_of_no_machine():
    # Written in pieces, so that this file is no exception.
    paths = [f"/{name}/" for name in ("wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers")]
    paths.append("sha" + "red/bench")
    found = []
    for path in repository_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {one}" for one in paths if one in text]
    assert not found
