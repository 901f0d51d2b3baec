"""The shop in a real browser says what the engine says, at every step, and what is done goes through the page."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser_help import altered, goal_of, nasty_shop, require_browser

from agent_gym.core import EnvFault
from agent_gym.envs.webshop import Rules, Session, Shop, site
from agent_gym.envs.webshop.browser import BrowserFrontEnd

require_browser()

Open = Callable[..., BrowserFrontEnd]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return nasty_shop(tmp_path_factory.mktemp("nasty"))


@pytest.fixture(scope="module")
def _kept(shop: Shop) -> Iterator[BrowserFrontEnd]:
    """A front end that stays open, so that the tests of this module share one browser."""
    kept = BrowserFrontEnd(Session(shop))
    kept.start(0)
    yield kept
    kept.close()


@pytest.fixture
def show(shop: Shop, _kept: BrowserFrontEnd) -> Iterator[Open]:
    """Makes front ends; they are closed behind the test."""
    opened: list[BrowserFrontEnd] = []

    def make(session: Session | None = None, **rules: Any) -> BrowserFrontEnd:
        opened.append(BrowserFrontEnd(session or Session(shop, Rules(**rules))))
        return opened[-1]

    yield make
    for front in opened:
        front.close()


def assert_equal(front: BrowserFrontEnd, text: Session) -> None:
    assert front.observation() == text.observation()
    assert front.clickables() == text.clickables
    assert front.has_search_bar() == text.has_search_bar


def walk_together(front: BrowserFrontEnd, text: Session, goal: int, actions: list[str], **start: Any) -> None:
    assert front.start(goal, **start) == text.start(goal, **start)
    assert_equal(front, text)
    for action in actions:
        expected = text.act(action)
        assert front.act(action) == expected, action
        assert_equal(front, text)


@pytest.mark.parametrize(
    ("seed", "rules"),
    [
        (1, {"observation_mode": "text"}),
        (2, {"observation_mode": "text_rich", "show_attributes": True}),
        (3, {"observation_mode": "html", "strict_search": True}),
        (4, {"observation_mode": "url"}),
        (
            5,
            {
                "observation_mode": "text_rich",
                "search_after_purchase": True,
                "show_score": True,
                "empty_pages": True,
                "debug_queries": True,
            },
        ),
        (6, {"observation_mode": "text", "show_instruction": False, "page_size": 3}),
    ],
)
def test_random_walks_read_the_same_in_the_browser(show: Open, shop: Shop, seed: int, rules: dict[str, Any]) -> None:
    front, text, rng = show(**rules), Session(shop, Rules(**rules)), random.Random(seed)
    goal = rng.randrange(len(shop.goals))
    assert front.start(goal) == text.start(goal)
    for _ in range(14):
        assert_equal(front, text)
        names = text.clickables
        action = rng.choice(
            ["search[mug 😀 & +ü]", "search[Mug]", "search[<q> mugs]", "click[nothing]", "look", *(f"click[{name}]" for name in names * 3)]
        )
        assert front.act(action) == text.act(action), action
    assert_equal(front, text)


def test_a_hostile_product_reads_the_same_on_all_its_pages_and_each_of_its_options_can_be_chosen(show: Open, shop: Shop) -> None:
    rules = {"observation_mode": "text_rich", "show_attributes": True, "show_score": True}
    front, text = show(**rules), Session(shop, Rules(**rules))
    asin, goal = "D000000001", goal_of(shop, "D000000001")
    text.start(goal)
    text.act("search[nasty]")
    text.act(f"click[{asin}]")
    fixed = {"back to search", "< prev", "description", "features", "reviews", "attributes", "buy now"}
    assert text.visit.page == "item_page"
    options = [name for name in text.clickables if name not in fixed]
    assert len(options) >= 9
    pages = [action for name in ("description", "features", "reviews", "attributes") for action in (f"click[{name}]", "click[< prev]")]
    aliases = ["click[nasty <b>: <b>]", "click[other: <b>]", "click[nasty <b>: nothing]"]
    choices = [f"click[{name}]" for name in options]
    walk_together(front, text, goal, ["search[nasty]", f"click[{asin}]", *aliases, *pages, *choices, "click[Buy Now]", "search[mug]"])
    assert text.visit.done


def test_values_that_two_options_share_and_options_without_a_name_are_the_engines(show: Open, shop: Shop) -> None:
    front, text = show(), Session(shop)
    shared = ["search[mug with shared values]", "click[B000000003]", "click[wood]", "click[lid: wood]", "click[steel | brass]"]
    wild = ["click[back to search]", "search[mug with wild options]", "click[B000000006]", "click[: nameless]", "click[buy now]"]
    walk_together(front, text, goal_of(shop, "B000000003"), [*shared, *wild])
    assert text.visit.done


@pytest.mark.parametrize("words", ["mug\rcup", "\ud800 mug", " mug  ", "a[b", "100% & +1=2?#", "mug " * 500, "\ue007\ue004", "杯\x00\x07"])
def test_any_words_are_searched_as_they_are_with_and_without_the_box(show: Open, shop: Shop, words: str) -> None:
    front, text = show(observation_mode="url"), Session(shop, Rules(observation_mode="url"))
    walk_together(front, text, 0, [f"search[{words}]", f"search[{words}]"])


def test_words_are_typed_into_the_box_and_sent_by_its_form(show: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answer = site._Handler.do_GET

    def listen(self: Any) -> None:
        asked.append(self.path)
        answer(self)

    monkeypatch.setattr(site._Handler, "do_GET", listen)
    front = show()
    front.start(0)
    front.act("search[blue mug]")
    assert asked[-1].endswith("/?search=blue+mug")  # as forms write a blank; the driver's own request writes %20
    front.act("search[blue mug]")
    assert asked[-1].endswith("/?search=blue%20mug")
    front.act("click[back to search]")
    assert asked[-1].endswith("/?press=0")
    before = len(asked)
    for invalid in ("click[nothing]", "click[search]", "buy", "search[]", ""):
        assert not front.act(invalid).valid
    assert len(asked) == before


def test_strict_search_needs_the_box(show: Open, shop: Shop) -> None:
    front, text = show(strict_search=True), Session(shop, Rules(strict_search=True))
    walk_together(front, text, 0, ["search[mug]", "search[hose]", "click[back to search]", "search[hose]"])


@pytest.mark.parametrize(
    "change",
    [
        lambda page: page.replace('<button class="button" name="press" value="1"', '<button style="display:none" class="button" name="press" value="1"'),
        lambda page: page.replace("</style>", "button[value='1']{visibility:hidden}</style>"),
        lambda page: page.replace("</style>", "button[value='1']{opacity:0}</style>"),
        lambda page: page.replace('name="press" value="1"', 'name="press" value="1" disabled'),
        lambda page: page.replace("Total results", "Total Results"),
        lambda page: page.replace('<p class="text">', '<p class="text" hidden>', 1),
    ],
)  # fmt: skip
def test_a_hidden_button_and_a_changed_word_are_seen(show: Open, shop: Shop, change: Callable[[str], str]) -> None:
    text = Session(shop)
    text.start(0)
    text.act("search[mug]")
    assert change(text.html()) != text.html()
    untouched = show(Session(shop))
    untouched.start(0)
    untouched.act("search[mug]")
    assert_equal(untouched, text)
    front = show(altered(change)(shop))
    front.start(0)
    front.act("search[mug]")
    with pytest.raises(AssertionError):
        assert_equal(front, text)


def test_a_hidden_button_cannot_be_clicked(show: Open, shop: Shop) -> None:
    front = show(altered(lambda page: page.replace("</style>", "button[value='1']{display:none}</style>"))(shop))
    front.start(0)
    front.act("search[mug]")
    assert front.session.clickables[1] == "next >"
    assert not front.act("click[next >]").valid
    assert front.act("click[back to search]").valid


def test_a_page_whose_form_leads_nowhere_cannot_be_used_so_actions_do_go_through_it(show: Open, shop: Shop) -> None:
    front = show(altered(lambda page: page.replace('action=""', 'action="/nowhere/"'))(shop))
    front.start(0)
    with pytest.raises(EnvFault):
        front.act("search[mug]")
    front.start(0)  # and the next visit begins


def test_a_visit_that_is_put_back_is_shown(show: Open, shop: Shop) -> None:
    front, text = show(), Session(shop)
    walk_together(front, text, 0, ["search[mug]"])
    state = front.session.get_state()
    walk = [f"click[{text.clickables[2]}]", "click[description]"]
    for action in walk:
        assert front.act(action) == text.act(action)
    front.session.set_state(state)
    text.set_state(state)
    assert_equal(front, text)
    for action in walk:
        assert front.act(action) == text.act(action)


def test_prices_and_bounds_are_those_that_are_given(show: Open, shop: Shop) -> None:
    front, text = show(), Session(shop)
    goal = goal_of(shop, "B000000004")
    actions = ["search[mug in 40 sizes]", "click[B000000004]", "click[0 oz]", "click[buy now]"]
    walk_together(front, text, goal, actions, price_upper=7.0, prices={"B000000004": 6.5})
    assert text.visit.score > 0


def test_what_the_engine_raises_is_raised_where_the_action_was_taken(show: Open, shop: Shop) -> None:
    class Broken(Session):
        def press(self, number: int) -> Any:
            raise KeyError("a mistake of the engine")

    front = show(Broken(shop))
    front.start(0)
    front.act("search[mug]")
    with pytest.raises(KeyError, match="a mistake of the engine"):
        front.act("click[back to search]")


def test_two_visits_at_a_time_do_not_meet(show: Open, shop: Shop) -> None:
    one, other = show(), show()
    texts = [Session(shop), Session(shop)]
    for front, text, goal in zip((one, other), texts, (0, 1), strict=True):
        assert front.start(goal) == text.start(goal)
    for actions in (("search[mug]", "search[hose]"), ("click[next >]", "click[c000000001]"), ("click[< prev]", "click[buy now]")):
        for front, text, action in zip((one, other), texts, actions, strict=True):
            assert front.act(action) == text.act(action)
            assert_equal(front, text)


def test_a_visit_sees_no_cookie_and_no_storage_of_another(show: Open) -> None:
    one, other = show(), show()
    one.start(0)
    other.start(0)
    write = "document.cookie = 'a=1'; localStorage.setItem('a', '1'); return [document.cookie, localStorage.getItem('a')]"
    read = "return [document.cookie, localStorage.getItem('a')]"
    with one._driver("write") as driver:
        assert driver.execute_script(write) == ["a=1", "1"]
    with other._driver("read") as driver:
        assert driver.execute_script(read) == ["", None]
    one.start(0)  # nor of an earlier one
    with one._driver("read") as driver:
        assert driver.execute_script(read) == ["", None]


def test_the_screenshot_is_the_window(show: Open) -> None:
    front = show()
    front.start(0)
    picture = front.screenshot()
    assert picture.dtype == "uint8" and picture.ndim == 3 and picture.shape[2] == 3
    height, width, _ = picture.shape
    assert 900 <= width <= 1024 and 500 <= height <= 768
    assert len({tuple(pixel) for pixel in picture.reshape(-1, 3)[::97].tolist()}) >= 1 and picture.std() > 0
    front.act("search[mug]")
    assert (front.screenshot() != picture).any()
