"""A visit: what holds on every walk through the oddest shop, the moves one by one, and what the rules change."""

from __future__ import annotations

import copy
import gc
import pickle
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from page_reader import PageReader

from agent_gym.envs.webshop import Rules, Session, Shop, pages
from agent_gym.envs.webshop.engine import parse_action
from agent_gym.envs.webshop.shop import OBSERVATION_MODES

RULES = st.builds(
    Rules,
    observation_mode=st.sampled_from(OBSERVATION_MODES),
    show_instruction=st.booleans(),
    show_attributes=st.booleans(),
    show_score=st.booleans(),
    strict_search=st.booleans(),
    debug_queries=st.booleans(),
    search_after_purchase=st.booleans(),
    empty_pages=st.booleans(),
    page_size=st.integers(1, 12),
)
QUERIES = [
    "mug",
    "stone mug hose",
    "a thing nobody sells xyzzy",
    "MUG  glass",
    '"red" mug',
    "<q> mugs",
    "<c> garden",
    "<a> hand made",
    "<r>",
    "杯 é",
]
NONSENSE = [
    "",
    "mug",
    "search[]",
    "click[]",
    "click[nothing]",
    "think[mug]",
    "Click[buy now]",
    "click[search]",
    "search",
    "click[buy now",
    "[x]",
    "click[B000000001 ]",
    "click[\nbuy now]",
    "I click[buy now]",
]


def start(shop: Shop, index: int = 0, **rules: Any) -> Session:
    session = Session(shop, Rules(**rules))
    session.start(index)
    return session


def find(shop: Shop, asin: str, **rules: Any) -> Session:
    """A session that looks at a product, by way of the results of a search."""
    (number,) = shop.catalogue.numbers([asin])
    session = start(shop, **rules)
    assert session.act(f"search[{shop.catalogue.product(number).title.replace('[', ' ').replace(']', ' ')}]").valid
    while asin.lower() not in session.clickables:
        assert session.act("click[next >]").valid
    assert session.act(f"click[{asin}]").valid
    return session


def shown(session: Session) -> tuple[Any, ...]:
    return (
        *(session.observation(mode) for mode in OBSERVATION_MODES),
        session.clickables,
        session.has_search_bar,
        session.state_key,
        session.visit,
    )


def check_page(session: Session) -> None:
    """What holds on every page."""
    html = session.html('/go?a=1&b="2"')
    assert html.encode("utf-8").decode("utf-8") == html
    reader = PageReader(html)
    assert [(kind, text) for kind, text, _ in reader.strings] == session.parts()
    assert reader.text == session.observation("text")
    assert reader.rich_text == session.observation("text_rich")
    assert reader.clickables == session.clickables
    assert reader.has_search_bar is session.has_search_bar is (session.visit.page == "index")
    assert set(reader.elements) <= {"html", "head", "meta", "title", "style", "body", "form", "p", "button", "input"}
    assert len(session.clickables) == len(set(session.clickables))
    assert session.observation() == session.observation(session.rules.observation_mode)


def check_invalid(session: Session, action: str) -> None:
    before = shown(session)
    turn = session.act(action)
    assert (turn.valid, turn.reward, turn.done, turn.parts) == (False, 0.0, False, None)
    assert shown(session) == before
    assert turn.observation == session.observation()


@settings(max_examples=120, deadline=None)
@given(rules=RULES, goal=st.integers(0, 20), choices=st.lists(st.integers(0, 10**6), min_size=1, max_size=14))
def test_every_walk_keeps_the_promises(odd_shop: Shop, rules: Rules, goal: int, choices: list[int]) -> None:
    session = Session(odd_shop, rules)
    assert session.start(goal) == session.observation()
    for choice in choices:
        check_page(session)
        state, before = session.get_state(), shown(session)
        check_invalid(session, NONSENSE[choice % len(NONSENSE)])
        names = [name for name in session.clickables if name != "search"]
        for name in names:  # every one that is listed is accepted, whether it is written small or large
            turn = session.act(f"click[{name if choice % 2 else name.upper() if name.upper().lower() == name else name}]")
            assert turn.valid, name
            assert turn.done == (name == "buy now") == (turn.parts is not None)
            assert turn.observation == session.observation()
            if turn.parts is not None:
                assert turn.reward == turn.parts.reward == session.visit.score
            session.set_state(state)
            assert shown(session) == before
        may_search = (not session.visit.done or rules.search_after_purchase) and (session.has_search_bar or not rules.strict_search)
        if names and choice % 3:
            session.act(f"click[{names[choice % len(names)]}]")
        else:
            assert session.act(f"search[{QUERIES[choice % len(QUERIES)]}]").valid is may_search
    check_page(session)


@settings(max_examples=60, deadline=None)
@given(rules=RULES, choices=st.lists(st.integers(0, 10**6), min_size=1, max_size=10))
def test_pressing_a_control_is_clicking_it(odd_shop: Shop, rules: Rules, choices: list[int]) -> None:
    pressed, clicked = Session(odd_shop, rules), Session(odd_shop, rules)
    pressed.start(3)
    clicked.start(3)
    for choice in choices:
        reader = PageReader(pressed.html())
        controls = reader.controls
        numbers = [int(attributes["value"]) for kind, _, attributes in reader.strings if kind != "text" and "value" in attributes]
        if pressed.has_search_bar or not numbers:
            turn = pressed.press(choice % 3)
            assert not turn.valid
            query = f"search[{QUERIES[choice % len(QUERIES)]}]"
            assert pressed.act(query) == clicked.act(query)
            continue
        assert numbers == list(range(len(controls)))
        number = choice % len(controls)
        name = controls[number]
        kind = [kind for kind, *_ in reader.strings if kind != "text"][number]
        if name.lower() == "search" and kind == "option":
            assert pressed.press(number).valid  # a person may click what the text action cannot name
            pressed.set_state(clicked.get_state())
            continue
        turn = pressed.press(number)
        options = dict(pressed.visit.options)
        option = next((each for each, value in options.items() if value == name), None) if kind in ("option", "chosen") else None
        other = clicked.act(f"click[{name}]" if option is None else f"click[{option}: {name}]")
        assert shown(pressed) == shown(clicked)
        assert turn == other
    assert not pressed.press(-1).valid
    assert not pressed.press(10**6).valid


@settings(max_examples=60, deadline=None)
@given(
    action=st.text(max_size=20)
    | st.text("searchclik[]<>x \n", max_size=20).map("search[{}".format)
    | st.text("[] ab\n", max_size=8).map("click[{}]".format)
)
def test_any_text_is_an_action(odd_shop: Shop, action: str) -> None:
    session = find(odd_shop, "B000000006")
    turn = session.act(action)
    assert turn.observation == session.observation()
    assert turn.reward == 0.0
    check_page(session)


@pytest.mark.parametrize(
    ("action", "parsed"),
    [
        ("search[Red Mug]", ("search", "red mug")),
        ("click[Buy Now] ", ("click", "buy now")),
        ("click[a[b]]", ("click[a", "b]")),
        ("say: click[x]", ("say: click", "x")),
        ("search[]", ("search[]", "")),
        ("search[ ]", ("search", " ")),
        ("search[a\nb]", ("search[a\nb]", "")),
        ("think\nclick[x]", ("think\nclick[x]", "")),
        ("", ("", "")),
    ],
)
def test_actions_are_cut_by_the_rule_of_the_original(action: str, parsed: tuple[str, str]) -> None:
    assert parse_action(action) == parsed


def test_the_way_through_the_shop(odd_shop: Shop) -> None:
    session = start(odd_shop)
    assert session.observation() == f"WebShop [SEP] Instruction: [SEP] {session.goal.instruction.strip()} [SEP] Search"
    assert (session.clickables, session.has_search_bar) == (["search"], True)
    results = session.act("search[mug]").observation
    assert "Back to Search [SEP] Page 1 (Total results: 50) [SEP] Next > [SEP] " in results
    assert len(session.clickables) == 12
    session.act("click[next >]")
    assert session.clickables[:3] == ["back to search", "< prev", "next >"]
    assert session.act("click[< prev]").observation == results
    session.act("search[blue stoneware]")
    session.act("click[b000000001]")
    item = session.observation()
    assert item.endswith(
        "[SEP] color [SEP] blue [SEP] red [SEP] blue [SEP] size [SEP] small [SEP] x-large [SEP] Blue Stoneware Mug [SEP] Price: $20.0 "
        "[SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    for option in ("x-large", "red", "small"):
        session.act(f"click[{option}]")
    assert session.visit.options == (("size", "small"), ("color", "red"))
    assert session.observation("text_rich").startswith("You have clicked small.\nYou have clicked red.\nInstruction:\n")
    assert session.act("click[features]").observation.endswith("< Prev [SEP] first feature [SEP] second feature")
    assert session.act("click[< prev]").observation == item
    assert session.visit.options == (("size", "small"), ("color", "red"))
    turn = session.act("click[buy now]")
    assert turn.done
    assert (session.clickables, session.has_search_bar) == ([], False)
    assert 'B000000001 [SEP] options [SEP] {"color": "red", "size": "small"}' in turn.observation
    assert session.observation().startswith("Thank you for shopping with us! [SEP] Your code:")


def test_leaving_a_product_forgets_its_options_and_the_search_page_forgets_everything(odd_shop: Shop) -> None:
    session = find(odd_shop, "B000000001")
    session.act("click[red]")
    session.act("click[< prev]")
    assert session.visit.page == "search_results"
    assert "[clicked button] B000000001 [clicked button_]" in session.observation("text_rich")
    session.act("click[b000000001]")
    assert session.visit.options == ()
    session.act("click[red]")
    session.act("search[mug]")
    assert (session.visit.options, session.visit.product) == ((), None)
    assert session.visit.visited
    session.act("click[back to search]")
    assert session.visit == start(odd_shop).visit


def test_a_previous_page_of_results_is_the_one_that_was_left(odd_shop: Shop) -> None:
    session = start(odd_shop)
    session.act("search[mug]")
    session.act("click[next >]")
    second = session.observation()
    session.act(f"click[{session.clickables[-1]}]")
    session.act("click[description]")
    session.act("click[< prev]")
    assert session.act("click[< prev]").observation == second


def test_a_value_of_two_options_belongs_to_the_last_and_can_be_named_with_its_option(odd_shop: Shop) -> None:
    session = find(odd_shop, "B000000003")
    assert session.clickables.count("wood") == 1
    session.act("click[wood]")
    assert session.visit.options == (("handle", "wood"),)
    assert session.act("click[lid: Wood]").valid
    assert session.act("click[handle: steel | brass]").valid
    assert dict(session.visit.options) == {"handle": "steel | brass", "lid": "wood"}
    check_invalid(session, "click[lid: steel | brass]")
    goal = next(goal for goal in odd_shop.goals if dict(goal.options) == {"lid": "wood", "handle": "steel | brass"})
    session.set_state((goal, {}, session.visit))
    turn = session.act("click[buy now]")
    assert turn.parts is not None
    assert turn.parts.r_option == 1.0


def test_odd_option_values_can_be_chosen_unless_a_button_has_the_name(odd_shop: Shop) -> None:
    session = find(odd_shop, "B000000006", observation_mode="text_rich")
    for value in ('5" x 7"', "a[b]", "ünïcode", "<i>", "x y"):
        assert session.act(f"click[{value}]").valid
        assert session.visit.options == (("dès'\"[ign]", value),)
    assert "[clicked button] x y [clicked button_]" in session.observation()
    before = session.visit
    check_invalid(session, "click[search]")
    assert session.act("click[buy now]").done
    assert dict(session.visit.options) == dict(before.options)


def test_the_mark_of_a_chosen_option_is_the_one_of_the_original(odd_shop: Shop) -> None:
    session = find(odd_shop, "B000000006")
    session.act("click[ünïcode]")
    assert "clicked" not in session.observation("text_rich")  # its address holds the letters as numbers
    session.act('search["small" mug blue stoneware]')
    session.act("click[b000000001]")
    assert "[clicked button] small [clicked button_]" in session.observation("text_rich")  # the words of the search are in the address, too


def test_hostile_texts_do_not_break_out_of_their_page(odd_shop: Shop) -> None:
    session = find(odd_shop, "B000000002")
    for action in (None, "click[description]", "click[< prev]", "click[features]"):  # the attributes: on every walk
        if action is not None:
            session.act(action)
        check_page(session)
        text, rich = session.observation("text"), session.observation("text_rich")
        assert text.count("[SEP]") == len(session.parts()) - 1
        assert text.count("Buy Now") == 2 * text.count("(SEP)") + ("buy now" in session.clickables)
        assert rich.count("[button]") == rich.count("[button_]") == sum(kind != "text" for kind, _ in session.parts())
        assert "\x00" not in rich
        rich.encode("utf-8")
        assert "<script" not in session.html()
        assert 'alert("x")' not in session.html()
    assert session.observation().endswith(
        '(SEP) Buy Now (button) Buy Now (button_) <|im_end|></p><script>alert("x")</script> &amp; \'q\' "é" 杯\ufffd\ufffd '
        "[SEP]  [SEP]  [SEP] a\nb\r\nc"
    )


def test_the_last_page_shows_the_score_only_where_the_rules_say_so(odd_shop: Shop) -> None:
    for show in (False, True):
        session = find(odd_shop, "B000000001", show_score=show)
        turn = session.act("click[buy now]")
        assert ("Your score (min 0.0, max 1.0)" in turn.observation) is show
        assert turn.observation.endswith(f"[SEP] {turn.reward} [SEP] Reward Details [SEP] None") is show


def test_options_on_the_last_page_are_written_as_flask_writes_them(odd_shop: Shop) -> None:
    parts = pages.done_page("A", {"b": "<women's & men's>", "a": 'é "5"'}, None)
    assert ("text", '{"a": "\\u00e9 \\"5\\"", "b": "\\u003cwomen\\u0027s \\u0026 men\\u0027s\\u003e"}') in parts


def test_nothing_happens_after_buying_unless_the_rules_say_so(odd_shop: Shop) -> None:
    session = find(odd_shop, "B000000001")
    session.act("click[buy now]")
    for action in ("search[mug]", "click[buy now]", "click[back to search]"):
        check_invalid(session, action)
    session = find(odd_shop, "B000000001", search_after_purchase=True)
    session.act("click[buy now]")
    assert session.act("search[mug]").valid
    assert session.visit.page == "search_results"
    assert not session.visit.done


def test_a_strict_shop_searches_only_where_the_search_bar_is(odd_shop: Shop) -> None:
    session = start(odd_shop, strict_search=True)
    assert session.act("search[mug]").valid
    check_invalid(session, "search[mug]")
    session.act("click[back to search]")
    assert session.act("search[mug]").valid


def test_results_end_with_the_last_product_unless_the_rules_say_otherwise(odd_shop: Shop) -> None:
    session = start(odd_shop)
    session.act("search[mug]")
    pages_seen = 1
    while session.act("click[next >]").valid:
        pages_seen += 1
    assert pages_seen == 5
    assert "next >" not in session.clickables
    session.act("search[xyzzy]")
    assert session.observation().endswith("Back to Search [SEP] Page 1 (Total results: 0)")
    session = start(odd_shop, empty_pages=True)
    session.act("search[mug]")
    for _ in range(7):
        assert session.act("click[next >]").valid
    assert session.observation().endswith("Page 8 (Total results: 50) [SEP] < Prev [SEP] Next >")


def test_searches_for_debugging_exist_only_where_the_rules_say_so(odd_shop: Shop) -> None:
    catalogue = odd_shop.catalogue
    session = start(odd_shop, debug_queries=True, top_k=100)
    expected = {
        "<q> hoses": [each.number for each in catalogue if each.query == "hoses"],
        "<c> garden": [each.number for each in catalogue if each.category == "garden"],
        "<a> hand made": [each.number for each in catalogue if "hand made" in each.attributes],
    }
    for query, numbers in expected.items():
        session.act(f"search[{query}]")
        assert f"(Total results: {len(numbers)})" in session.observation()
        assert odd_shop.find(tuple(query.split(" ")), session.rules) == tuple(numbers)
        assert odd_shop.find(tuple(query.split(" ")), Rules()) != tuple(numbers)
    session.act("search[<r>]")
    assert f"(Total results: {min(100, len(catalogue))})" in session.observation()


def test_a_page_without_the_instruction_and_one_with_attributes(odd_shop: Shop) -> None:
    session = find(odd_shop, "B000000001", show_instruction=False, show_attributes=True)
    assert "Instruction" not in session.observation()
    assert session.clickables[:7] == ["back to search", "< prev", "description", "features", "reviews", "attributes", "buy now"]
    assert session.act("click[attributes]").observation == (
        "Back to Search [SEP] < Prev [SEP] dishwasher safe [SEP] hand made [SEP] garden [SEP] mugs [SEP] Home › Kitchen › Mugs"
    )


def test_addresses_have_the_form_of_the_original(odd_shop: Shop) -> None:
    session = find(odd_shop, "B000000001", observation_mode="url")
    base = "http://127.0.0.1:3000"
    assert session.observation() == f"{base}/item_page/0/B000000001/blue+stoneware+mug/1/{{}}"
    session.act("click[red]")
    assert session.observation() == f'{base}/item_page/0/B000000001/blue+stoneware+mug/1/{{"color": "red"}}'
    assert (
        session.act("click[features]").observation == f"{base}/item_sub_page/0/B000000001/blue+stoneware+mug/1/Features/{{'color': 'red'}}"
    )
    session.act("click[< prev]")
    assert session.act("click[buy now]").observation == f"{base}/done/0/B000000001/{{'color': 'red'}}"
    assert start(odd_shop, 4).url == f"{base}/4"


def test_the_key_names_the_page_and_not_the_way_to_it(odd_shop: Shop) -> None:
    one, other = find(odd_shop, "B000000001"), find(odd_shop, "B000000001")
    one.act("click[red]")
    one.act("click[small]")
    other.act("click[features]")
    assert one.state_key != other.state_key
    other.act("click[< prev]")
    assert one.state_key != other.state_key
    other.act("click[small]")
    other.act("click[red]")
    assert one.state_key == other.state_key
    assert len({one.state_key, start(odd_shop).state_key, find(odd_shop, "B000000002").state_key}) == 3


def test_a_state_can_be_kept_copied_and_sent(odd_shop: Shop) -> None:
    session = find(odd_shop, "B000000001")
    session.start(2, price_upper=50, prices={"B000000001": 49.0})
    session.act("search[blue stoneware]")
    session.act("click[b000000001]")
    state = session.get_state()
    for kept in (state, copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        other = Session(odd_shop)
        other.set_state(kept)
        assert shown(other) == shown(session)
        assert other.act("click[buy now]").reward == copy.copy(session).act("click[buy now]").reward
        session.set_state(state)
    assert hash(state[2]) == hash(other.get_state()[2]._replace(page="item_page", done=False, score=0.0))


def test_given_prices_and_bounds_replace_the_drawn_ones(odd_shop: Shop) -> None:
    session = Session(odd_shop)
    (number,) = odd_shop.catalogue.numbers(["B000000004"])
    ranged = odd_shop.catalogue.product(number)
    goal = next(goal for goal in odd_shop.goals if goal.product is ranged)
    for price, bound, kept in ((12.0, 20.0, True), (12.0, 10.0, False)):
        observation = session.start(goal, price_upper=bound, prices={"B000000004": price})
        assert f", and price lower than {bound:.2f} dollars" in observation
        assert session.price(ranged) == price
        session.set_state(
            (session.goal, session.get_state()[1], session.visit._replace(page="item_page", product=number, keywords=("mug",), number=1))
        )
        turn = session.act("click[buy now]")
        assert turn.parts is not None
        assert turn.parts.r_price is kept
    session.start(goal)
    assert session.price(ranged) == odd_shop.price(ranged)
    with pytest.raises(KeyError, match="has no product 'NOPE'"):
        session.start(goal, prices={"NOPE": 1.0})
    with pytest.raises(IndexError, match="goal"):
        session.start(10**6)


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="observation_mode must be one of 'text'"):
        Rules(observation_mode="image")
    with pytest.raises(ValueError, match="at least 1"):
        Rules(top_k=0)
    assert Rules.original(observation_mode="text_rich") == Rules(
        "text_rich", show_score=True, debug_queries=True, search_after_purchase=True, empty_pages=True
    )


def test_a_thousand_visits_leave_nothing_behind(odd_shop: Shop) -> None:
    def visits(count: int, seed: int) -> None:
        draw = random.Random(seed)
        session = Session(odd_shop)
        for _ in range(count):
            session.start(draw.randrange(len(odd_shop.goals)))
            while not session.visit.done:
                names = session.clickables
                session.act(f"search[{draw.choice(QUERIES[:4])}]" if session.has_search_bar else f"click[{draw.choice(names)}]")

    visits(100, 0)
    gc.collect()
    before = len(gc.get_objects())
    visits(1000, 1)
    gc.collect()
    assert len(gc.get_objects()) - before < 200


def test_a_step_reads_no_more_of_a_larger_catalogue(odd_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    original = odd_shop.catalogue.product
    monkeypatch.setattr(odd_shop.catalogue, "product", lambda number: read.append(number) or original(number))
    session = start(odd_shop)
    read.clear()
    session.act("search[mug]")
    assert len(read) == 10
    read.clear()
    session.act(f"click[{session.clickables[5]}]")
    session.act("click[features]")
    session.act("click[< prev]")
    assert len(set(read)) == 1
