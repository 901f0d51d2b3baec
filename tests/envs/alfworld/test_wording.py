"""A game's grammar: what its texts print, in the form that the original reads, and that what is not understood is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_house import house

from agent_gym.envs.alfworld.domain import ACTIONS
from agent_gym.envs.alfworld.facts import RELATIONS
from agent_gym.envs.alfworld.game import GameError, parse_game
from agent_gym.envs.alfworld.generator import grammar_text
from agent_gym.envs.alfworld.grammar import Call, Each, ListOf, Scanner, Text, Value, split_task
from agent_gym.envs.alfworld.simulator import Simulator
from agent_gym.envs.alfworld.wording import WordingError, compile_wording


def game_that_says(text: str, rules: dict[str, list[dict[str, str]]] | None = None, **arguments: Any) -> dict[str, Any]:
    """The house, in which going somewhere is answered by the given text (in the form of the grammar)."""
    data = house(**arguments)
    more = {"arrive": [{"rhs": text}], **(rules or {})}
    data["grammar"] += f'\ngrammar :: """{json.dumps(more)}""";\n'
    return data


def said(text: str, rules: dict[str, list[dict[str, str]]] | None = None, *, at: str = "countertop 1", **arguments: Any) -> str:
    """What that text prints on arrival."""
    return Simulator(parse_game(game_that_says(text, rules, **arguments), where="h")).step(f"go to {at}")


def refusal(text: str, rules: dict[str, list[dict[str, str]]] | None = None) -> str:
    with pytest.raises(GameError, match='engine="textworld" may play it') as caught:
        parse_game(game_that_says(text, rules), where="h")
    return caught.value.reason


# ------------------------------------------------------------------------------------------------------------------ what texts print

TEXTS = {
    "plain": ("Hello.", "Hello."),
    "name": ("At {r.name}.", "At countertop 1."),
    "the thing itself": ("At {r}.", "At countertop 1."),
    "blanks in braces": ("At { r.name }.", "At countertop 1."),
    "id": ("{r.id}", "countertop_bar_a"),
    "type": ("{r.type}", "receptacle"),
    "articles": ("{r.indefinite} {r.definite}", "a the"),
    "sum": ("{r.indefinite + ' ' + r.name}", "a countertop 1"),
    "first of two": ("{r.name or r.id}", "countertop 1"),
    "location": ("{lend.name}", "loc 5"),
    "list": ("[{o.name | inreceptacle(o:object, r:receptacle)}]", "apple 2, bowl 1, knife 1, and mug 1"),
    "list of two": ("[{o.name | inreceptacle(o:object, r:receptacle) & isreceptacleobject(o:object)}]", "bowl 1, and mug 1"),
    "list of one": ("[{o.name | inreceptacle(o:object, r:receptacle) & sliceable(o:object)}]", "apple 2"),
    "list of none": ("[{o.name | inreceptacle(o:object, r:receptacle) & toggleable(o:object)}]", "nothing"),
    "no list": ("{o.name | inreceptacle(o:object, r:receptacle)}", "apple 2bowl 1knife 1mug 1"),
    "no query in a list": ("[{r.name}]", "countertop 1"),
    "no blanks in the query": ("[{o.name|inreceptacle(o:object,r:receptacle)&sliceable(o:object)}]", "apple 2"),
    "nothing held": ("[{o.name | holds(a:agent, o:object)}]", "nothing"),
    "negation by a mark": (
        "[{o.name | objectatlocation(o:object, lend:location) & receptacleatlocation(q:receptacle, lend:location) & !inreceptacle(o:object, q:receptacle)}]",
        "nothing",
    ),
    "a first blank is dropped": (" x", "x"),
    "a first newline is dropped": ("\n\n  x\n y", "x\n y"),
    "a comment at the start": ("// no\nyes // yes", "yes // yes"),
    "blanks after a line that ends with a value": ("{r.name}\n  x", "countertop 1\n  x"),
    "blanks after a line": ("x\n{r.name}", "x\ncountertop 1"),
    "blanks after a line before a value": ("x\n  {r.name}", "x\n  countertop 1"),
    "tabs before a symbol": ("x{r.name}\t\ty", "xcountertop 1y"),
    "what cannot be read ends the text": ("x; y", "x"),
    "an open bracket ends the text": ("x [y", "x "),
    "a closed brace ends the text": ("x} y", "x"),
    "empty": ("", ""),
}


@pytest.mark.parametrize(("text", "printed"), TEXTS.values(), ids=TEXTS.keys())
def test_a_text_prints(text: str, printed: str) -> None:
    assert said(text) == printed


def test_marks_around_a_text_are_not_printed() -> None:
    assert Scanner('x "y" z').symbols() == [Text("x "), Text("y"), Text(" z"), Text("")]
    assert Scanner('x "y').symbols() == [Text("x "), Text("")]


def test_rules_are_called_by_their_whole_name() -> None:
    rules = {"f(r)": [{"rhs": "<{r.name}"[1:]}], "f(o)": [{"rhs": "{o.name}!"}]}
    assert said("#f(r)#: {#f(o)# | inreceptacle(o:object, r:receptacle)}", rules) == "countertop 1: apple 2!bowl 1!knife 1!mug 1!"


def test_the_first_alternative_whose_condition_holds_is_printed() -> None:
    rules = {
        "state": [
            {"condition": "openable(r:receptacle) & opened(r:receptacle)", "rhs": "open"},
            {"condition": "openable(r:receptacle)", "rhs": "closed"},
            {"rhs": "bare"},
            {"rhs": "never"},
        ]
    }
    assert said("#state#", rules) == "bare"
    assert said("#state#", rules, at="drawer 1") == "closed"
    assert said("#state#", rules, at="drawer 1", add=["(opened Drawer|A)"]) == "open"


def test_a_condition_finds_something_but_binds_nothing() -> None:
    rules = {"any": [{"condition": "inreceptacle(o:object, r:receptacle)", "rhs": "something"}, {"rhs": "nothing"}]}
    assert said("#any#", rules) == "something"
    assert said("#any#", rules, at="sinkbasin 1") == "nothing"
    rules["any"][0]["rhs"] = "{o.name}"
    assert "does not understand: 'o.name'" in refusal("#any#", rules)


def test_two_variables_are_never_the_same_thing() -> None:
    text = "[{o.name + ' ' + p.name | inreceptacle(o:object, r:receptacle) & sliceable(o:object) & inreceptacle(p:object, r:receptacle)}]"
    assert said(text) == "apple 2 bowl 1, apple 2 knife 1, and apple 2 mug 1"


def test_a_later_block_replaces_a_rule() -> None:
    data = house()
    data["grammar"] += '\n# a comment\naction unused { grammar :: """\n  # a comment\n  {"list_empty": [{"rhs": "naught"}]}"""; }\n'
    assert Simulator(parse_game(data, where="h")).step("go to sinkbasin 1").endswith("you see naught.")


def test_lists_use_the_separators_of_the_grammar() -> None:
    rules = {"list_separator": [{"rhs": "; "[1:] + "/"}], "list_last_separator": [{"rhs": "/or/"}]}
    assert said("[{o.name | inreceptacle(o:object, r:receptacle)}]", rules) == "apple 2/bowl 1/knife 1/or/mug 1"


@pytest.mark.parametrize("predicate", sorted(RELATIONS))
def test_every_predicate_finds_the_same_whichever_of_its_arguments_are_known(predicate: str) -> None:
    """All rows without a known argument are found again from each of their parts, and nothing else is."""
    simulator = Simulator(parse_game(house(add=["(isClean Mug|A)", "(opened Fridge|A)"]), where="h"))
    for command in ("go to countertop 1", "take bowl 1 from countertop 1", "go to cabinet 1", "open cabinet 1", "open cabinet 2"):
        assert simulator.step(command) != "Nothing happens."
    for command in ("move bowl 1 to cabinet 1", "take bowl 1 from cabinet 1", "move bowl 1 to cabinet 2", "take mug 2 from cabinet 2"):
        assert simulator.step(command) != "Nothing happens."
    relation = RELATIONS[predicate]
    everything = list(relation.rows(simulator, (None,) * len(relation.types)))
    assert everything == sorted(everything)
    if predicate not in ("not_istoggled", "ishot", "iscool", "issliced", "istoggled"):
        assert everything
    for row in everything:
        for known in range(1, 2 ** len(row)):
            pattern = tuple(part if known >> place & 1 else None for place, part in enumerate(row))
            fitting = [other for other in everything if all(part in (None, own) for part, own in zip(pattern, other, strict=True))]
            assert list(relation.rows(simulator, pattern)) == fitting


# ------------------------------------------------------------------------------------------------------------------- what is refused

REFUSED = {
    "unknown rule": ("#nowhere#", "has no rule nowhere"),
    "unknown variable": ("{x.name}", "does not understand: 'x.name'"),
    "unknown attribute": ("{r.colour}", "does not understand: 'r.colour'"),
    "a call": ("{r.name.upper()}", "does not understand"),
    "an index": ("{r.name + r}", "does not understand"),
    "a number": ("{3}", "does not understand"),
    "no expression": ("{r.name +}", "does not understand"),
    "something long": ("{" + "r.name + " * 60 + "r.name}", "does not understand"),
    "unknown predicate": ("{o.name | haunts(o:object, r:receptacle)}", "the predicate 'haunts'"),
    "a predicate that is not kept": ("{o.name | checked(o:object)}", "the predicate 'checked'"),
    "a negation that is not kept": ("{o.name | inreceptacle(o:object, r:receptacle) & !ishot(o:object)}", "the predicate 'not_ishot'"),
    "a negation without its place": (
        "{o.name | objectatlocation(o:object, lend:location) & not_inreceptacle(o:object, r:receptacle)}",
        "not_inreceptacle without the place",
    ),
    "no type": ("{o.name | inreceptacle(o, r:receptacle)}", "asks for o as o"),
    "another type": ("{o.name | inreceptacle(o:object, r:object)}", "asks for r as object"),
    "types in another order": ("{o.name | inreceptacle(r:receptacle, o:object)}", "of other types"),
    "no query": ("{o.name | inreceptacle}", "a query that is not understood"),
    "many atoms": ("{o.name | " + " & ".join(["inreceptacle(o:object, r:receptacle)"] * 5) + "}", "too many answers"),
    "unconnected atoms": ("{o.name | inreceptacle(o:object, r:receptacle) & inreceptacle(p:object, q:receptacle)}", "too many answers"),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_understood_is_named_and_points_to_the_other_engine(text: str, reason: str) -> None:
    assert reason in refusal(text)


def test_rules_that_could_go_on_for_ever_or_have_nothing_to_say_are_refused() -> None:
    assert "calls itself" in refusal("#a#", {"a": [{"rhs": "#b#"}], "b": [{"rhs": "#a#"}]})
    assert "no alternative without a condition" in refusal("#a#", {"a": [{"condition": "holdsany(a:agent)", "rhs": "x"}]})
    chain = {f"c{number}": [{"rhs": f"#c{number + 1}#"}] for number in range(2_000)}
    assert "more than 50 deep" in refusal("#c0#", chain)
    doubling: dict[str, list[dict[str, str]]] = {f"r{number}": [{"rhs": f"#r{number + 1}##r{number + 1}#"}] for number in range(40)}
    assert "more than 2,000 rules" in refusal("#r0#", {**doubling, "r40": [{"rhs": "x"}]})
    inner = "receptacleatlocation({0}:receptacle, lend:location)"
    nested = {f"n{depth}": [{"rhs": f"{{#n{depth + 1}# | {inner.format('xyz'[depth])}}}"}] for depth in range(3)}
    assert "more than 2 deep" in refusal("#n0#", {**nested, "n3": [{"rhs": "x"}]})


def test_what_no_action_calls_is_not_looked_at() -> None:
    assert said("x", {"unused": [{"rhs": "{nobody.name}"}], "cyclic": [{"rhs": "#cyclic#"}]}) == "x"


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ('grammar :: """[1]""";', "no JSON object"),
        ('grammar :: """{""";', "is no JSON"),
        ('grammar :: """{"x": 1}""";', "rule x of its grammar is no list"),
        ('grammar :: """{"x": [{"condition": "y"}]}""";', "without a text as rhs"),
        ('grammar :: """{"x": ["y"]}""";', "without a text as rhs"),
        ('grammar :: "x";', "a field without a value"),
        ('grammar """{}""";', "a field without a value"),
        ("action x y", "no opening brace"),
        ('action x { template :: "x";', "action x of its grammar is never closed"),
        ("action x { colour }", "a field 'colour'"),
        ("story x", "holds 'story'"),
        ("§", "cannot be read at '§"),
        ('action look { template :: "look"; }', "no action look with template and feedback"),
        ('action look { template :: "inventory"; feedback :: "#look#"; }', "inventory and look the same command"),
        (
            'action look { template :: "look [{o.name | holds(a:agent, o:object)}]"; feedback :: "#look#"; }',
            "depend on holds, which changes",
        ),
        ('action toggleObject { template :: "use {o}"; feedback :: "{r.name}"; }', "does not understand: 'r.name'"),
        ('action putObject { template :: "move {o} to {r}"; feedback :: "{ot.name}"; }', "does not understand: 'ot.name'"),
        ('grammar :: """{"task": [{"rhs": "x"}]}""";', "one rule named task with one text, and has 2"),
    ],
)
def test_a_broken_file_is_refused(block: str, reason: str) -> None:
    data = house()
    data["grammar"] += "\n" + block
    with pytest.raises(GameError) as caught:
        parse_game(data, where="h")
    assert reason in caught.value.reason


@pytest.mark.parametrize("line", ["put {o.name} away", "see #look#", "[{r.name}]"])
def test_a_task_line_that_is_no_plain_text_is_refused(line: str) -> None:
    with pytest.raises(GameError, match="should be plain text"):
        parse_game(house(task=line), where="h")


def test_a_task_line_may_hold_what_json_escapes() -> None:
    task = "clean a mug — caf\u00e9, \\ and a tab\there."
    simulator = Simulator(parse_game(house(task=task), where="h"))
    assert simulator.game.task == task
    assert simulator.reset().endswith(f"\n\nYour task is to: {task}")


# --------------------------------------------------------------------------------------------------------------------- compilation


def test_games_that_differ_in_their_task_line_share_one_compiled_wording() -> None:
    one, other = (parse_game(house(task=task), where="h") for task in ("put a mug in drawer.", "put some mug on drawer."))
    assert one.wording is other.wording
    assert one.task != other.task and Simulator(one).reset() != Simulator(other).reset()
    assert parse_game(house(grammar="put"), where="h").wording is not one.wording


def test_the_package_grammars_have_every_action() -> None:
    for grammar in ("move", "put"):
        actions = frozenset(ACTIONS) - ({"help"} if grammar == "put" else set())
        text, line = split_task(grammar_text(grammar))
        assert line == "Your task is to: UNKNOWN GOAL."
        assert set(compile_wording(text, actions).actions) == actions
    with pytest.raises(WordingError, match="no action help"):
        compile_wording(split_task(grammar_text("put"))[0], frozenset(ACTIONS))


_PLAIN = st.text(alphabet="abc .,()'-:/", min_size=1).filter(lambda text: not text[0].isspace() and not text.startswith("//"))
_WORD = st.text(alphabet="abc", min_size=1, max_size=4)


@given(st.lists(st.tuples(_PLAIN, st.sampled_from("#{|["), _WORD), min_size=1, max_size=6))
def test_symbols_are_found_where_they_were_put(parts: list[tuple[str, str, str]]) -> None:
    text, expected = "", []
    for plain, kind, word in parts:
        printed, symbol = {
            "#": (f"#{word}#", Call(word)),
            "{": (f"{{{word}.name}}", Each(Value(f"{word}.name"), None)),
            "|": (f"{{#{word}#|f({word})}}", Each(Call(word), f"f({word})")),
            "[": (f"[{{{word}|f({word})}}]", ListOf(Each(Value(word), f"f({word})"))),
        }[kind]
        text += plain + printed
        expected += [Text(plain), symbol]
    assert Scanner(text).symbols() == [*expected, Text("")]


@given(st.text(alphabet='ab {}[]#|"\\\n\t/&():;<>+.', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(GameError):
        assert isinstance(said(text, at="drawer 1"), str)
