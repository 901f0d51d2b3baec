"""How a game speaks: its grammar, compiled to functions over the running simulator.

A game file carries its own texts in a `.twl2` grammar: for each action the form of the command and of the answer. Rules have alternatives, of which
the first whose condition holds is used; their text may name things (`{r.name}`), call other rules (`#rule#`), and run over all things that fit a
query (`{text | query}`), as a list with separators in square brackets. Queries are conjunctions over the facts. Everything is resolved once: which rule
calls which, which variables are bound where, which predicate is looked up by which argument. What is left at play is the lookup and the joining.

Games differ in their task line alone, so compiled grammars are kept by the text without it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from agent_gym.envs.alfworld.domain import ACTIONS, TYPES
from agent_gym.envs.alfworld.facts import RELATIONS, Relation, World
from agent_gym.envs.alfworld.grammar import (
    TASK_MARK,
    Call,
    Each,
    GrammarFile,
    ListOf,
    Scanner,
    Symbol,
    Text,
    Value,
    WordingError,
    read_file,
    split_task,
)

__all__ = ["ActionWording", "Bindings", "Phrase", "Wording", "WordingError", "compile_wording", "split_task"]

Bindings: TypeAlias = Mapping[str, str]
Phrase: TypeAlias = Callable[[World, Bindings], str]
_Scope: TypeAlias = Mapping[str, str]
_Solver: TypeAlias = Callable[[World, Bindings], Iterable[Bindings]]


@dataclass(frozen=True)
class ActionWording:
    """The texts of one action.

    Attributes:
        command: the admissible command, from the action's parameters.
        feedback: the answer, told after the action was done.
        shape: the command with the kinds of its arguments in place of their names.
    """

    command: Phrase
    feedback: Phrase
    shape: str


@dataclass(frozen=True)
class Wording:
    """A compiled grammar.

    Attributes:
        intro: what a game opens with.
        actions: the texts of each action.
    """

    intro: Phrase
    actions: Mapping[str, ActionWording]


# ----------------------------------------------------------------------------------------------------------------------- queries

_MAX_ATOMS = 4
_ATOM = re.compile(r"\s*(!?)([\w/]+)\s*\(([^()]*)\)\s*")
_VARIABLE = re.compile(r"\s*([\w']+)\s*(?::\s*([\w/-]+)\s*)?")


@dataclass(frozen=True)
class _Atom:
    predicate: str
    relation: Relation
    variables: tuple[str, ...]


def _read_query(text: str, scope: _Scope) -> tuple[list[_Atom], _Scope]:
    """The atoms of a conjunction, and the scope within what runs over it."""
    inner = dict(scope)
    atoms = []
    for part in text.split("&"):
        match = _ATOM.fullmatch(part)
        if match is None:
            raise WordingError(f"its grammar has a query that is not understood: {text!r:.200}")
        predicate = ("not_" if match[1] else "") + match[2]
        relation = RELATIONS.get(predicate)
        if relation is None:
            raise WordingError(f"its grammar asks for the predicate {predicate!r:.60}, which the fast engine does not keep")
        variables = []
        for word in match[3].split(",") if match[3].strip() else []:
            variable = _VARIABLE.fullmatch(word)
            if variable is None:
                raise WordingError(f"its grammar has a query that is not understood: {text!r:.200}")
            name, kind = variable[1], variable[2] or variable[1].rstrip("'")
            if kind not in TYPES or inner.setdefault(name, kind) != kind:
                raise WordingError(f"its grammar asks for {name:.40} as {kind:.40} in {text!r:.200}, which it is not there")
            variables.append(name)
        if tuple(inner[name] for name in variables) != relation.types:
            raise WordingError(f"its grammar asks for {predicate} of other types than {', '.join(relation.types)}: {text!r:.200}")
        atoms.append(_Atom(predicate, relation, tuple(variables)))
    _check_size(text, atoms, scope)
    # The simulator remembers what was taken out of where only as far as this question can tell the difference.
    for atom in atoms:
        if atom.predicate == "not_inreceptacle":
            thing, holder = atom.variables
            lying = [other.variables[1] for other in atoms if other.predicate == "objectatlocation" and other.variables[0] == thing]
            standing = [other.variables for other in atoms if other.predicate == "receptacleatlocation"]
            if not any((holder, place) in standing for place in lying):
                raise WordingError(
                    f"its grammar asks for not_inreceptacle without the place of both in {text!r:.200}, which the fast engine does not keep"
                )
    return atoms, inner


def _check_size(text: str, atoms: list[_Atom], scope: _Scope) -> None:
    """Refuse queries whose answers could be without end: many atoms, or atoms that have nothing to do with those before."""
    seen = set(scope)
    for number, atom in enumerate(atoms):
        if number >= _MAX_ATOMS or (number and atom.variables and seen.isdisjoint(atom.variables)):
            raise WordingError(f"its grammar has a query that could have too many answers: {text!r:.200}")
        seen.update(atom.variables)


def _solver(atoms: list[_Atom], scope: _Scope) -> _Solver:
    """The function that finds every way to bind the open variables, in the order of the ids; no two variables are bound to one thing."""
    known = set(scope)
    solve: _Solver = lambda world, bound: (bound,)  # noqa: E731  # the first of a chain of functions
    for atom in atoms:
        solve = _and_then(solve, atom, frozenset(known))
        known.update(atom.variables)
    return solve


def _and_then(before: _Solver, atom: _Atom, known: frozenset[str]) -> _Solver:
    rows, variables = atom.relation.rows, atom.variables
    if known.issuperset(variables):

        def check(world: World, bound: Bindings) -> Iterator[Bindings]:
            for sofar in before(world, bound):
                if rows(world, tuple([sofar[name] for name in variables])):
                    yield sofar

        return check

    def extend(world: World, bound: Bindings) -> Iterator[Bindings]:
        for sofar in before(world, bound):
            for row in rows(world, tuple([sofar.get(name) for name in variables])):
                new = dict(sofar)
                for name, thing in zip(variables, row, strict=True):
                    if name in new:
                        if new[name] != thing:
                            break
                    elif thing in new.values():
                        break
                    else:
                        new[name] = thing
                else:
                    yield new

    return extend


# -------------------------------------------------------------------------------------------------------------------- compilation

_Piece: TypeAlias = "str | Phrase"

_MAX_EXPRESSION = 200
_MAX_SIZE = 2_000
_MAX_DEPTH = 2
_MAX_NESTING = 50
_HIDDEN = ""  # the type of a variable that a text may not use
# What cannot be told from a command: an object can be in several receptacles of one place, and of these any may be meant. Kinds have no printed names.
_UNSAID: Mapping[str, tuple[str, ...]] = MappingProxyType({"toggleobject": ("r",), "putobject": ("ot", "rt")})
_ARTICLES: Mapping[str, str] = MappingProxyType({"definite": "the", "indefinite": "a"})


class _Compiler:
    """Compiles texts of one grammar file; each rule once for each set of variables that are bound where it is called."""

    def __init__(self, file: GrammarFile) -> None:
        self.file = file
        self._rules: dict[tuple[str, tuple[tuple[str, str], ...], int], tuple[Phrase, int]] = {}
        self._open: list[str] = []
        self._size = 0  # of the text being compiled: its rules, those that they call included, each time
        self._depth = 0  # how many queries run over the text being compiled

    def text(self, text: str, scope: _Scope, *, static: bool = False) -> Phrase:
        """The function that prints a text.

        Args:
            text: in the form of the grammar.
            scope: the bound variables with their types.
            static: refuse a text that depends on anything but its variables.
        """
        return _joined(self._pieces(Scanner(text).symbols(), scope, static))

    def _pieces(self, symbols: list[Symbol], scope: _Scope, static: bool) -> list[_Piece]:
        pieces: list[_Piece] = []
        for symbol in symbols:
            if isinstance(symbol, Text):
                pieces.append(symbol.text)
            elif isinstance(symbol, Call):
                pieces.append(self.rule(symbol.rule, scope, static))
            elif isinstance(symbol, Value):
                pieces.extend(_value(symbol.expression, scope))
            elif isinstance(symbol, Each):
                pieces.extend(self._run_over(symbol, scope, static))
            else:
                pieces.append(self._list(symbol, scope, static))
        return pieces

    def _run_over(self, each: Each, scope: _Scope, static: bool) -> list[_Piece]:
        if each.query is None:
            return self._pieces([each.body], scope, static)
        items = self._items(each, scope, static)
        return [lambda world, bound: "".join(items(world, bound))]

    def _items(self, each: Each, scope: _Scope, static: bool) -> Callable[[World, Bindings], list[str]]:
        if each.query is None:
            only = _joined(self._pieces([each.body], scope, static))
            return lambda world, bound: [only(world, bound)]
        atoms, inner = _read_query(each.query, scope)
        _require_static(atoms, static)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise WordingError(f"its grammar has queries within queries, more than {_MAX_DEPTH} deep: {each.query!r:.200}")
        solve, body = _solver(atoms, scope), _joined(self._pieces([each.body], inner, static))
        self._depth -= 1
        return lambda world, bound: [body(world, found) for found in solve(world, bound)]

    def _list(self, symbol: ListOf, scope: _Scope, static: bool) -> Phrase:
        items = self._items(symbol.each, scope, static)
        empty, separator, last = (self.rule(name, scope, static) for name in ("list_empty", "list_separator", "list_last_separator"))

        def listed(world: World, bound: Bindings) -> str:
            texts = items(world, bound)
            if not texts:
                return empty(world, bound)
            if len(texts) == 1:
                return texts[0]
            return separator(world, bound).join(texts[:-1]) + last(world, bound) + texts[-1]

        return listed

    def rule(self, name: str, scope: _Scope, static: bool = False) -> Phrase:
        """The function that prints a rule: the text of its first alternative whose condition holds."""
        if name == "task":
            return lambda world, bound: world.game.task_line
        key = name, tuple(sorted(scope.items())), self._depth
        if key in self._rules and not static:
            phrase, size = self._rules[key]
            self._grow(size)
            return phrase
        if name in self._open:
            raise WordingError(f"rule {name:.60} of its grammar calls itself")
        if len(self._open) >= _MAX_NESTING:
            raise WordingError(f"its grammar has rules that call rules, more than {_MAX_NESTING} deep")
        if not self.file.rules.get(name):
            raise WordingError(f"its grammar has no rule {name:.60}, which another one calls")
        self._open.append(name)
        outer, self._size = self._size, 0
        alternatives: list[tuple[_Solver | None, Phrase]] = []
        for alternative in self.file.rules[name]:
            solve = None
            if alternative.condition:
                atoms, _ = _read_query(alternative.condition, scope)
                _require_static(atoms, static)
                solve = _solver(atoms, scope)
            alternatives.append((solve, self.text(alternative.text, scope, static=static)))
            if solve is None:
                break
        else:
            raise WordingError(f"rule {name:.60} of its grammar has no alternative without a condition, so it may have nothing to say")
        self._open.pop()
        phrase, size = _first_that_holds(alternatives), self._size + 1
        self._rules[key] = phrase, size
        self._size = outer
        self._grow(size)
        return phrase

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > _MAX_SIZE:
            raise WordingError(f"its grammar has a text of more than {_MAX_SIZE:,} rules")


def _require_static(atoms: list[_Atom], static: bool) -> None:
    for atom in atoms:
        if static and not atom.relation.static:
            raise WordingError(f"its grammar makes a command depend on {atom.predicate}, which changes")


def _first_that_holds(alternatives: list[tuple[_Solver | None, Phrase]]) -> Phrase:
    *conditional, (_, otherwise) = alternatives
    if not conditional:
        return otherwise

    def chosen(world: World, bound: Bindings) -> str:
        for solve, phrase in conditional:
            if solve is not None and any(True for _ in solve(world, bound)):
                return phrase(world, bound)
        return otherwise(world, bound)

    return chosen


def _joined(pieces: Iterable[_Piece]) -> Phrase:
    """One function for a row of pieces; neighbouring constants are one."""
    merged: list[_Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        elif piece != "":
            merged.append(piece)
    if not merged:
        return lambda world, bound: ""
    if len(merged) == 1:
        return _spoken(merged[0])
    if len(merged) == 2:
        one, two = map(_spoken, merged)
        return lambda world, bound: one(world, bound) + two(world, bound)
    phrases = tuple(map(_spoken, merged))
    return lambda world, bound: "".join([phrase(world, bound) for phrase in phrases])


def _spoken(piece: _Piece) -> Phrase:
    if isinstance(piece, str):
        constant = piece
        return lambda world, bound: constant
    return piece


def _value(expression: str, scope: _Scope) -> list[_Piece]:
    """The pieces of a value: a variable's name, an attribute of it, strings, sums of these, and the first of several (which is never empty)."""
    try:
        tree = ast.parse(expression.strip(), mode="eval").body if len(expression) <= _MAX_EXPRESSION else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    pieces = None if tree is None else [_named(tree.id, "name", scope)] if isinstance(tree, ast.Name) else _operand(tree, scope)
    if pieces is None or None in pieces:
        raise WordingError(f"its grammar has an expression that the fast engine does not understand: {expression!r:.{_MAX_EXPRESSION}}")
    return [piece for piece in pieces if piece is not None]


def _operand(tree: ast.expr, scope: _Scope) -> list[_Piece | None]:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        return [tree.value]
    if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name):
        return [_named(tree.value.id, tree.attr, scope)]
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add):
        return [*_operand(tree.left, scope), *_operand(tree.right, scope)]
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.Or):
        choices = [_operand(choice, scope) for choice in tree.values]
        if all(isinstance(choice, ast.Attribute) for choice in tree.values) and not any(None in choice for choice in choices):
            return choices[0]
    return [None]


def _named(variable: str, attribute: str, scope: _Scope) -> _Piece | None:
    """One attribute of what a variable stands for, or None where there is no such variable or attribute."""
    if scope.get(variable, _HIDDEN) == _HIDDEN:
        return None
    if attribute in _ARTICLES:
        return _ARTICLES[attribute]
    if attribute == "type":
        return scope[variable]
    if attribute == "name":
        return lambda world, bound: world.game.names[bound[variable]]
    if attribute == "id":
        return lambda world, bound: bound[variable]
    return None


@lru_cache(maxsize=64)
def compile_wording(text: str, actions: frozenset[str]) -> Wording:
    """Compile a grammar.

    Args:
        text: the grammar without its task line, as `split_task` gives it; the answer is kept per text.
        actions: the actions whose texts are wanted, in lower case.

    Returns:
        The functions that print.

    Raises:
        WordingError: the text is no grammar, lacks an action or a rule that is called, or says what is not understood.
    """
    file = read_file(text)
    if [alternative.text for alternative in file.rules.get("task", ())] != [TASK_MARK]:
        raise WordingError("the rule named task of its grammar is not where it should be")
    compiler = _Compiler(file)
    texts = {name: _compile_action(compiler, name) for name in sorted(actions)}
    shapes: dict[str, str] = {}
    for name, action in texts.items():
        if shapes.setdefault(action.shape, name) != name:
            raise WordingError(f"its grammar gives the actions {shapes[action.shape]} and {name} the same command")
    return Wording(compiler.text("#intro#", {}), MappingProxyType(texts))


def _compile_action(compiler: _Compiler, name: str) -> ActionWording:
    fields = compiler.file.actions.get(name)
    if fields is None or "template" not in fields or "feedback" not in fields:
        raise WordingError(f"its grammar has no action {name} with template and feedback, which its domain has")
    scope = {variable: _HIDDEN if variable in _UNSAID.get(name, ()) else kind for variable, kind in ACTIONS[name].items()}
    command = compiler.text(fields["template"], scope, static=True)
    return ActionWording(command, compiler.text(fields["feedback"], scope), _shape(fields["template"], scope))


def _shape(template: str, scope: _Scope) -> str:
    """A command with the kinds of its arguments in place of their names; two actions of one shape could not be told apart."""
    shape = ""
    for symbol in Scanner(template).symbols():
        if isinstance(symbol, ListOf):
            symbol = symbol.each
        if isinstance(symbol, Each):
            symbol = symbol.body
        if isinstance(symbol, Text):
            shape += symbol.text
        elif isinstance(symbol, Value):
            shape += f"<{scope.get(symbol.expression.partition('.')[0].strip(), '')}>"
    return shape
