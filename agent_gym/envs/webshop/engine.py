"""A visit to the shop as a state machine: `Session`.

A session begins with a goal and takes actions, `search[words]` and `click[name]`. Each leads to another page or leaves everything as it
is; "Buy Now" is judged and ends the visit. Nothing else happens: no server, no template, no markup is parsed. The state of a visit is one
small immutable value (`Visit`), so it can be kept, compared and put back.

The moves are those of WebShop's text environment (princeton-nlp/WebShop): `search[...]` works on every page, names are compared in lower
case, a search forgets the product and its options, a page behind a product keeps them, what is not understood changes nothing. What is
different by default, each with a switch in `Rules`: the last page does not print the score, the hidden searches for debugging do not
exist, nothing happens after buying, and there is no page of results beyond the last one. `Rules.original()` turns all of them back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from agent_gym.envs.webshop import pages
from agent_gym.envs.webshop.goals import Goal
from agent_gym.envs.webshop.pages import BACK, BUY, CHOSEN, NEXT, OPTION, PREVIOUS, PRODUCT, SEARCH, SUB_PAGES, VISITED, Part
from agent_gym.envs.webshop.product import Product
from agent_gym.envs.webshop.reward import RewardParts
from agent_gym.envs.webshop.shop import Rules, Shop

__all__ = ["Rules", "Session", "Shop", "Turn", "Visit", "parse_action"]

PageName = Literal["index", "search_results", "item_page", "item_sub_page", "done"]

_BASE_URL = "http://127.0.0.1:3000"


class Visit(NamedTuple):
    """The state of a visit: two are equal where the shop would go on alike.

    Attributes:
        page: "index", "search_results", "item_page", "item_sub_page" or "done".
        keywords: The words of the last search, None before the first.
        number: The page of results that is shown, or was left for a product; from 1.
        product: The number of the product that is looked at, or None.
        options: What was chosen for it, by name, in the order of the first choice.
        sub_page: The page behind the product's, or "".
        visited: The products that were looked at since the last visit of the search page.
        done: Whether something was bought.
        score: The reward of the purchase.
    """

    page: PageName = "index"
    keywords: tuple[str, ...] | None = None
    number: int = 0
    product: int | None = None
    options: tuple[tuple[str, str], ...] = ()
    sub_page: str = ""
    visited: frozenset[int] = frozenset()
    done: bool = False
    score: float = 0.0


class Turn(NamedTuple):
    """What came of an action.

    Attributes:
        observation: The page that is shown now.
        reward: 0 before something is bought.
        done: Whether the visit is over.
        valid: Whether the action was understood and possible; if not, nothing has changed.
        parts: What the reward is made of, when something was bought.
    """

    observation: str
    reward: float = 0.0
    done: bool = False
    valid: bool = True
    parts: RewardParts | None = None


@dataclass(slots=True)
class _Screen:
    """What is derived from a state, as far as it was asked for."""

    found: tuple[int, ...] = ()
    parts: list[Part] | None = None
    controls: dict[str, Any] | None = None


class Session:
    """One visit to a shop. `start` begins it, `act` goes on.

    Attributes:
        shop: The shop.
        rules: How the visit goes.
        goal: What is wanted.
        visit: The state.
    """

    goal: Goal

    def __init__(self, shop: Shop, rules: Rules | None = None) -> None:
        self.shop, self.rules = shop, Rules() if rules is None else rules
        self.visit = Visit()
        self._prices: Mapping[str, float] = {}
        self._screen = _Screen()
        sub_pages = SUB_PAGES if self.rules.show_attributes else SUB_PAGES[:3]
        self._item_buttons = {name.lower(): name for name in (BACK, PREVIOUS, *sub_pages, BUY)}

    def start(self, goal: Goal | int, *, price_upper: float | None = None, prices: Mapping[str, float] | None = None) -> str:
        """Begins a visit on the page with the search bar.

        Args:
            goal: What is wanted, or its index.
            price_upper: A price bound in place of the goal's own; `NO_BOUND` (1,000,000) for none.
            prices: Prices of products by id, in place of the shop's own.

        Returns:
            The first observation.

        Raises:
            IndexError: If there is no goal of that index.
            KeyError: If `prices` names a product that the shop lacks.
        """
        chosen: Goal = goal if isinstance(goal, Goal) else self.shop.goals[goal]
        if prices:
            self.shop.catalogue.numbers(list(prices))
        self.goal = chosen if price_upper is None else chosen.with_bound(price_upper)
        self._prices = dict(prices or {})
        self._move(Visit())
        return self.observation()

    def act(self, action: str) -> Turn:
        """Takes an action.

        Args:
            action: `search[words]` or `click[name]`; anything else changes nothing.

        Returns:
            What came of it.
        """
        name, argument = parse_action(action)
        if name == "search" and argument:
            return self._search(argument)
        if name == "click" and (target := self._target(argument)) is not None:
            return self._follow(target)
        if action.startswith("click[") and action.endswith("]") and (target := self._target(action[6:-1].lower())) is not None:
            return self._follow(target)  # a name with brackets, which the original cannot click
        return self._refuse()

    def press(self, number: int) -> Turn:
        """Uses a control of the page by its place among the controls, as the HTML page does.

        The button beside the search bar does nothing by itself.

        Args:
            number: From 0; one that the page lacks changes nothing.

        Returns:
            What came of it.
        """
        controls = [part for part in self.parts() if part[0] != pages.TEXT]
        if not 0 <= number < len(controls):
            return self._refuse()
        kind, text = controls[number]
        if kind in (OPTION, CHOSEN):
            place = sum(each in (OPTION, CHOSEN) for each, _ in controls[:number])
            return self._follow([(name, value) for name, values in self._product().options for value in values if value][place])
        target = self._button_targets().get(text.lower())
        return self._refuse() if target is None else self._follow(target)

    # What is shown.

    def parts(self) -> list[Part]:
        """The parts of the page (see `pages`); not to be changed.

        Returns:
            Parts in the order of the page.
        """
        if self._screen.parts is None:
            self._screen.parts = self._page()
        return self._screen.parts

    def observation(self, mode: str | None = None) -> str:
        """The page in the form that the rules ask for, or in another.

        Args:
            mode: "text", "text_rich", "html" or "url"; None for that of the rules.

        Returns:
            The text.
        """
        mode = self.rules.observation_mode if mode is None else mode
        if mode == "text":
            return pages.as_text(self.parts())
        if mode == "text_rich":
            return pages.as_rich_text(self.parts())
        return self.html() if mode == "html" else self.url

    def html(self, target: str = "") -> str:
        """The page as an HTML document whose form goes to `target` (see `pages.as_html`).

        Args:
            target: Of the form; empty for the address of the page itself.

        Returns:
            The document.
        """
        return pages.as_html(self.parts(), has_search_bar=self.has_search_bar, target=target)

    @property
    def has_search_bar(self) -> bool:
        """Whether the page has the input for a search."""
        return self.visit.page == "index"

    @property
    def clickables(self) -> list[str]:
        """What can be clicked on this page, in the order of the original.

        `search` stands for the button beside the search bar, which does nothing by itself; to search, act `search[words]`.
        """
        return pages.clickable_names(self.parts())

    @property
    def url(self) -> str:
        """The page's address, in the form of the original; the goal's index is its session."""
        session, visit = self.goal.index, self.visit
        words = "+".join(visit.keywords or ())
        if visit.page == "index":
            return f"{_BASE_URL}/{session}"
        if visit.page == "search_results":
            return f"{_BASE_URL}/search_results/{session}/{words}/{visit.number}"
        asin, options = self._product().asin, dict(visit.options)
        if visit.page == "item_page":
            return f"{_BASE_URL}/item_page/{session}/{asin}/{words}/{visit.number}/{json.dumps(options)}"
        if visit.page == "item_sub_page":
            return f"{_BASE_URL}/item_sub_page/{session}/{asin}/{words}/{visit.number}/{visit.sub_page}/{options}"
        return f"{_BASE_URL}/done/{session}/{asin}/{options}"

    @property
    def state_key(self) -> str:
        """Names the page: what is shown and what was chosen on it, without how it was reached."""
        visit = self.visit
        shown: list[Any] = [visit.page]
        if visit.page not in ("index", "done"):
            shown += [" ".join(visit.keywords or ()), visit.number]
        if visit.product is not None:
            shown += [self._product().asin, sorted(visit.options)]
        if visit.sub_page:
            shown.append(visit.sub_page)
        return json.dumps(shown)

    # The state.

    def get_state(self) -> tuple[Goal, Mapping[str, float], Visit]:
        """Goal, given prices and state; nothing in it changes later.

        Returns:
            To compare, to keep, and for `set_state`.
        """
        return self.goal, self._prices, self.visit

    def set_state(self, state: tuple[Goal, Mapping[str, float], Visit]) -> None:
        """Puts back what `get_state` gave, here or in another session of the same shop.

        Args:
            state: From `get_state`.
        """
        self.goal, self._prices, visit = state
        self._move(visit)

    def price(self, product: Product) -> float:
        """What a product costs in this visit, in dollars.

        Args:
            product: Of this shop.

        Returns:
            The given price where `start` was given one, else the shop's.
        """
        given = self._prices.get(product.asin)
        return self.shop.price(product) if given is None else float(given)

    # The moves.

    def _move(self, visit: Visit) -> None:
        self.visit, self._screen = visit, _Screen()
        if visit.page == "search_results" and visit.keywords is not None:
            self._screen.found = self.shop.find(visit.keywords, self.rules)

    def _refuse(self) -> Turn:
        return Turn(self.observation(), valid=False)

    def _go(self, visit: Visit) -> Turn:
        self._move(visit)
        return Turn(self.observation())

    def _search(self, words: str) -> Turn:
        visit, rules = self.visit, self.rules
        if (visit.done and not rules.search_after_purchase) or (rules.strict_search and not self.has_search_bar):
            return self._refuse()
        return self._go(Visit("search_results", tuple(words.split(" ")), 1, visited=visit.visited))

    def _follow(self, target: Any) -> Turn:
        """Follows a control: a button by name, a product by number, an option by name and value."""
        visit = self.visit
        if isinstance(target, tuple):
            options = dict(visit.options)
            options[target[0]] = target[1]
            return self._go(visit._replace(options=tuple(options.items())))
        if isinstance(target, int):
            return self._go(visit._replace(page="item_page", product=target, options=(), visited=visit.visited | {target}))
        if target == BUY:
            return self._buy()
        if target == BACK:
            return self._go(Visit())
        if target == NEXT:
            return self._go(visit._replace(number=visit.number + 1))
        if target == PREVIOUS:
            if visit.page == "search_results":
                return self._go(visit._replace(number=visit.number - 1))
            if visit.page == "item_page":
                return self._go(visit._replace(page="search_results", product=None, options=()))
            return self._go(visit._replace(page="item_page", sub_page=""))
        return self._go(visit._replace(page="item_sub_page", sub_page=target))

    def _buy(self) -> Turn:
        product = self._product()
        parts = self.shop.judge(self.goal, product, dict(self.visit.options), self.price(product))
        self._move(self.visit._replace(page="done", done=True, score=parts.reward))
        return Turn(self.observation(), parts.reward, done=True, parts=parts)

    # What a state shows and offers.

    def _product(self) -> Product:
        assert self.visit.product is not None
        return self.shop.catalogue.product(self.visit.product)

    def _page(self) -> list[Part]:
        visit, rules = self.visit, self.rules
        instruction = self.goal.instruction if rules.show_instruction else None
        if visit.page == "index":
            return pages.search_page(instruction)
        if visit.page == "search_results":
            found, size = self._screen.found, rules.page_size
            shown = found[(visit.number - 1) * size : visit.number * size]
            return pages.results_page(
                instruction,
                [self.shop.catalogue.product(number) for number in shown],
                visit.visited,
                page=visit.number,
                total=len(found),
                has_next=rules.empty_pages or visit.number * size < len(found),
            )
        if visit.page == "item_page":
            words = "+".join(visit.keywords or ())
            address = f"{words}/{visit.number}/{json.dumps(dict(visit.options))}" if visit.options else words
            return pages.item_page(instruction, self._product(), address, show_attributes=rules.show_attributes)
        if visit.page == "item_sub_page":
            return pages.sub_page(instruction, self._product(), visit.sub_page)
        return pages.done_page(self._product().asin, dict(visit.options), visit.score if rules.show_score else None)

    def _target(self, name: str) -> Any:
        """Where the control of that name leads, None where the page has none.

        On a product's page a value that stands in several options belongs to the last of them, as in the original, `name: value` names
        each, and a button comes before an option. An option called "search" cannot be clicked, as in the original.
        """
        if name == "search":
            return None
        if self.visit.page != "item_page":
            if self._screen.controls is None:
                self._screen.controls = self._button_targets()
            return self._screen.controls.get(name)
        product = self._product()
        if product.controls is None:
            pairs = [(option, value) for option, values in product.options for value in values if value]
            product.controls = {**{f"{option}: {value}": (option, value) for option, value in pairs}, **{pair[1]: pair for pair in pairs}}
        return self._item_buttons.get(name) or product.controls.get(name)

    def _button_targets(self) -> dict[str, Any]:
        """The buttons and products of the page by name."""
        targets: dict[str, Any] = {}
        products = iter(self._shown_products())
        for kind, text in self.parts():
            if kind == pages.PUSH and text != SEARCH:
                targets[text.lower()] = text
            elif kind in (PRODUCT, VISITED):
                targets[text.lower()] = next(products)
        return targets

    def _shown_products(self) -> tuple[int, ...]:
        size, number = self.rules.page_size, self.visit.number
        return self._screen.found[(number - 1) * size : number * size]


def parse_action(action: str) -> tuple[str, str]:
    """Cuts an action into its verb and its argument, at the last brackets of its first line, as the original does.

    Args:
        action: Such as `click[Buy Now]`.

    Returns:
        Verb and argument, the argument in lower case; the whole action and "" where it has no argument.
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    begin = line.rfind("[", 1, max(end - 1, 0))  # not by a pattern, which takes quadratic time for a reply of many brackets
    return (line[:begin], line[begin + 1 : end].lower()) if begin > 0 else (action, "")
