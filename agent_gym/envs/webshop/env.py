"""`AgentR1/WebShop-v0`: buying what somebody asked for in a shop of many products (WebShop, arXiv 2207.01206), without Java.

One engine (`engine.Session`) makes every page, and two front ends show it: the text front end joins its strings, and `browser=True` serves the same pages to a
headless Chromium and reads them back from the DOM. Both give the same observations.

The reward comes when something is bought: 0 to 1, the original's *score*. *Success* is a score of 1. The two are different figures: info and tables
have both. An episode that ends without a purchase is worth nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from gymnasium.error import ResetNeeded

from agent_gym.context import Append
from agent_gym.core import AgentEnv
from agent_gym.envs.commands import CommandEnv, CommandTool, Opening, Reply
from agent_gym.envs.webshop.engine import Session, Turn
from agent_gym.envs.webshop.experts import Script, first_result, next_action, random_shopper
from agent_gym.envs.webshop.goals import NO_BOUND, check_kind
from agent_gym.envs.webshop.shop import Rules, Shop
from agent_gym.envs.webshop.source import find_source
from agent_gym.envs.whole_numbers import switch, whole_number

__all__ = ["WebShopEnv"]

_FULL_PROMPT = (
    "You shop for somebody in a web shop. Search for products, open one, choose its options if the request names them, and buy it; the purchase ends "
    "your visit and is judged. Commands are search[words] and click[name], where the name is that of a button, a product or an option on the page. "
    "You have {turns} replies."
)
_SMALL_PROMPT = "Shop."
_FLOOR = 256  # tokens of a page that every later turn can count on, where the context grows
_OVERHEAD = 64  # tokens around an action and a page
_PARTS = ("r_type", "r_att", "r_option", "r_price", "w_att", "w_option", "w_price", "query_match", "category_match", "title_score")


class _FrontEnd(Protocol):
    """What shows the pages: the engine itself, or a browser in front of it."""

    session: Session
    description: str

    def start(self, goal: int, *, price_upper: float | None, prices: Mapping[str, float] | None) -> str: ...
    def act(self, action: str) -> Turn: ...
    def clickables(self) -> list[str]: ...
    def has_search_bar(self) -> bool: ...
    def screenshot(self) -> Any: ...
    def close(self) -> None: ...


class _TextFrontEnd:
    """The engine's own pages."""

    description = "text"

    def __init__(self, session: Session) -> None:
        self.session = session
        self.act = session.act

    def start(self, goal: int, *, price_upper: float | None, prices: Mapping[str, float] | None) -> str:
        return self.session.start(goal, price_upper=price_upper, prices=prices)

    def clickables(self) -> list[str]:
        return self.session.clickables

    def has_search_bar(self) -> bool:
        return self.session.has_search_bar

    def screenshot(self) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


class WebShopEnv(CommandEnv):
    """A web shop.

    Args:
        split: "train", "validation" (the original's eval) or "test": goals 1500 and up, 500 to 1499, 0 to 499 where there are at least 2,000; else 80,
            10 and 10 percent by index, as `info["official_splits"]` says.
        dataset: "embedded" (a generated catalogue), "official" (needs `data_dir` or AGENT_GYM_WEBSHOP_DATA), or the folder of official files; None is
            "official" where `data_dir` is given, else "embedded".
        data_dir: where the official files lie.
        level: of the generated catalogue: "full", or "small" for tiny models.
        num_products: so many products from the beginning; None for all.
        goals: "synthetic", "human", or "auto": human where there are at least 1,500.
        observation_mode: "text", "text_rich", "html" or "url".
        noun_backend: how the nouns of titles are found for the reward: "words" (a rule without dependencies), "spacy:MODEL" as in published
            figures, or a callable.
        strict_search: a search needs the page with the search bar.
        show_score: the last page prints the score, as the original's does.
        show_attributes: products have a page of their attributes.
        debug_queries: the original's hidden searches work.
        search_after_purchase: buying does not end the visit's moves. The episode is over in any case.
        empty_pages: results go on behind the last product.
        goal_seed: of the order of the goals; 233 is the original's, None leaves them in the order of the products.
        price_seed: of prices that are drawn from a range, and of the goals' price bounds.
        browser: show the pages in headless Chromium (extra `browser`).
        browser_options: see `agent_gym.envs.webshop.chromium.BrowserOptions`.
        cache_dir: where the search index is kept; None for the user's cache folder.
        show_admissible: whether each observation lists what can be clicked.
        context: "append", "window:K", "token_budget:N" or a policy; see `agent_gym.context`.
        max_turns: the step limit.
        max_observation_tokens: the longest prompt.
        max_tool_result_tokens: where a page is cut, with a visible mark.
        system_prompt: text of the first message; None for ours.
        render_mode: None, "ansi", or with a browser also "rgb_array": a screenshot, uint8, shape (height, width, 3).
        **kwargs: see `CommandEnv` and `AgentEnv`.

    Attributes:
        shop: products, goals, search and judgement.
        session: the running visit.

    Raises:
        ValueError: for keywords that cannot be used, or malformed data.
        FileNotFoundError: for data that are not there.
        ImportError: for browser=True without selenium, render_mode="rgb_array" without Pillow, or a noun backend without spaCy.
    """

    metadata: dict[str, Any] = {**AgentEnv.metadata, "render_modes": ["ansi", "rgb_array"]}  # noqa: RUF012  # Gymnasium declares it so
    option_names: ClassVar[tuple[str, ...]] = ("index", "price_upper", "prices")
    setting_names: ClassVar[tuple[str, ...]] = (
        "dataset",
        "level",
        "catalogue",
        "goal_kind",
        "noun_backend",
        "observation_mode",
        "front_end",
    )
    metric_names: ClassVar[tuple[str, ...] | None] = ("score", "bought", "r_type", "r_att", "r_option", "r_price")
    baselines: ClassVar[Mapping[str, Callable[[int], Script]]] = {
        "first_result": lambda seed: first_result,
        "random_shopper": random_shopper,
    }
    command_tools: ClassVar[tuple[CommandTool, ...]] = (
        CommandTool("search", "Search the shop.", "query", "words to search for", "search[{}]"),
        CommandTool(
            "click", "Click a button, a product or an option of the page.", "element", "its name as the page shows it", "click[{}]"
        ),
    )
    extra_info: ClassVar[Mapping[str, Any]] = {
        **CommandEnv.extra_info,
        "dataset": "",
        "level": "",
        "catalogue": "",
        "goal_kind": "",
        "official_splits": False,
        "noun_backend": "",
        "observation_mode": "",
        "front_end": "",
        "goal_index": 0,
        "page": "",
        "url": "",
        "clickables": (),
        "has_search_bar": False,
        "bought": False,
        "score": 0.0,
        **dict.fromkeys(_PARTS, 0.0),
    }
    """Beside those of `CommandEnv`: what is shopped in and how it is judged; the page, its address, what can be clicked on it and whether it has the search bar; and at
    the purchase the score with its parts (0 until then; names as in the original)."""

    def __init__(
        self,
        *,
        split: str = "train",
        dataset: str | Path | None = None,
        data_dir: str | Path | None = None,
        level: str = "full",
        num_products: int | None = None,
        goals: str = "auto",
        observation_mode: str = "text",
        noun_backend: str | Callable[[str], Any] = "words",
        strict_search: bool = False,
        show_score: bool = False,
        show_attributes: bool = False,
        debug_queries: bool = False,
        search_after_purchase: bool = False,
        empty_pages: bool = False,
        goal_seed: int | None = 233,
        price_seed: int = 0,
        browser: bool = False,
        browser_options: Mapping[str, Any] | None = None,
        cache_dir: str | Path | None = None,
        show_admissible: bool = False,
        context: Any = "append",
        max_turns: int = 15,
        max_observation_tokens: int = 16_384,
        max_tool_result_tokens: int = 2_048,
        system_prompt: str | None = None,
        render_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        switches = {
            "strict_search": strict_search,
            "show_score": show_score,
            "show_attributes": show_attributes,
            "debug_queries": debug_queries,
            "search_after_purchase": search_after_purchase,
            "empty_pages": empty_pages,
        }
        for name, value in {**switches, "browser": browser}.items():
            switch(name, value)
        if not isinstance(browser_options, (Mapping, type(None))):
            raise ValueError(f"browser_options must be keywords by name, not {browser_options!r:.200}")
        if browser_options and not browser:
            raise ValueError("browser_options are of the browser; pass browser=True with them")
        if not browser:
            self.metadata = {**self.metadata, "render_modes": ["ansi"]}
            if render_mode == "rgb_array":
                raise ValueError("render_mode='rgb_array' is a screenshot of the browser; pass browser=True, or use 'ansi'")
        if split == "eval":
            raise ValueError("split='eval' is the original's name of split='validation'")
        if not isinstance(noun_backend, str) and not (callable(noun_backend) and isinstance(noun_backend, Hashable)):
            raise ValueError(f"noun_backend must be a text or a function (hashable) from a title to its nouns, not {noun_backend!r:.200}")
        if goal_seed is not None:
            goal_seed = whole_number("goal_seed", goal_seed, 0)
        price_seed = whole_number("price_seed", price_seed, 0)
        check_kind(goals)
        rules = Rules(observation_mode=observation_mode, **switches)
        self.source = find_source(
            dataset, data_dir=data_dir, level=level, num_products=num_products, cache_dir=cache_dir, human=goals == "human"
        )
        if system_prompt is None:
            system_prompt = _SMALL_PROMPT if self.source.level == "small" else _FULL_PROMPT.format(turns=max_turns)
        super().__init__(
            split=split,
            show_admissible=show_admissible,
            context=context,
            max_turns=max_turns,
            max_observation_tokens=max_observation_tokens,
            max_tool_result_tokens=max_tool_result_tokens,
            system_prompt=system_prompt,
            render_mode=render_mode,
            **kwargs,
        )
        self.shop = Shop.open(self.source.open(), goals=goals, goal_seed=goal_seed, price_seed=price_seed, noun_backend=noun_backend)
        self.indices = self.shop.goals.split(split)
        self.catalogue = f"{self.shop.catalogue.name} ({len(self.shop.catalogue)} products, {self.shop.catalogue.fingerprint[:12]})"
        self._front: _FrontEnd = _TextFrontEnd(Session(self.shop, rules))
        if browser:
            from agent_gym.envs.webshop.browser import BrowserFrontEnd, image_module

            if render_mode == "rgb_array":
                image_module()
            self._front = BrowserFrontEnd(Session(self.shop, rules), **dict(browser_options or {}))
        self._same = (rules, self.catalogue, self.shop.goals.kind, goal_seed, price_seed, self.shop.noun_backend)
        self._begun = False
        self._given: str = ""
        self._clickables: tuple[str, ...] = ()
        self._has_search_bar = False
        self._parts: Mapping[str, float] = {}

    # ------------------------------------------------------------------------------------------------ the task

    @property
    def session(self) -> Session:
        """The running visit.

        Raises:
            ResetNeeded: before the first reset.
        """
        if not self._begun:
            raise ResetNeeded("no visit has begun; call reset() first")
        return self._front.session

    @property
    def num_tasks(self) -> int | None:
        """The number of goals of the split."""
        return len(self.indices)

    @property
    def task_indices(self) -> Sequence[int]:
        """The goals of the split, by their index: what `reset(options={"index": i})` takes to play each once."""
        return self.indices

    def _start(self, options: dict[str, Any]) -> Opening:
        """Begin a visit with a goal; see `CommandEnv._start`.

        `options["index"]` is the goal's, as in the original, in any split; `task_indices` are those of this one. `price_upper` and `prices` replace the
        goal's price bound and the prices of products by id.
        """
        if "index" in options:
            goal = whole_number("options['index']", options["index"])
            if not 0 <= goal < len(self.shop.goals):
                raise ValueError(
                    f"options['index'] is {goal}, and there are {len(self.shop.goals)} goals, counted from 0; those of the split {self.split!r} are "
                    f"{self.indices[0]} to {self.indices[-1]}"
                )
        else:
            goal = self.shop.goals.draw(self.split, float(self.np_random.random()))
        price_upper = _dollars("options['price_upper']", options["price_upper"]) if options.get("price_upper") is not None else None
        prices = self._prices(options.get("prices"))
        self._begun = False
        page = self._front.start(goal, price_upper=price_upper, prices=prices)
        self._begun, self._parts = True, {}
        self._look()
        self._given = f" {price_upper} {sorted(prices.items())}" if price_upper is not None or prices else ""
        self.task_id = f"goal-{goal}"
        return Opening(self._front.session.goal.instruction, page, page)

    def _prices(self, given: Any) -> dict[str, float]:
        if given is None:
            return {}
        if not isinstance(given, Mapping) or not all(isinstance(asin, str) for asin in given):
            raise ValueError(f"options['prices'] must be prices by product id, not {given!r:.200}")
        prices = {asin: _dollars(f"options['prices'][{asin!r}]", price) for asin, price in given.items()}
        try:
            self.shop.catalogue.numbers(list(prices))
        except KeyError as error:
            raise ValueError(f"options['prices']: {error.args[0]}") from None
        return prices

    def _look(self) -> None:
        """Note what the page offers, once per page."""
        self._clickables = tuple(self._front.clickables())
        self._has_search_bar = self._front.has_search_bar()

    # ------------------------------------------------------------------------------------------------ the episode

    def _play(self, command: str) -> Reply:
        """Use the page; see `CommandEnv._play`."""
        turn = self._front.act(command)
        if turn.parts is not None:
            self._parts = turn.parts.as_floats()
        self._look()
        return Reply(turn.observation, turn.reward, turn.done, turn.parts is not None and turn.parts.success, turn.valid)

    def _admissible(self) -> Sequence[str]:
        """The clicks of the page, and a search where it has the bar; see `CommandEnv._admissible`."""
        clicks = [f"click[{name}]" for name in self._clickables if name != "search"]
        return ["search[words]", *clicks] if self._has_search_bar else clicks

    def _state(self) -> str:
        """The goal and the page; see `CommandEnv._state`."""
        return f"{self.task_id}{self._given} {self._front.session.state_key}"

    def _standing(self) -> Mapping[str, Any]:
        """What is shopped in, the page, and how the purchase was judged; see `CommandEnv._standing`."""
        session = self._front.session
        parts = self._parts
        return {
            "dataset": self.source.dataset,
            "level": self.source.level,
            "catalogue": self.catalogue,
            "goal_kind": self.shop.goals.kind,
            "official_splits": self.shop.goals.official_splits,
            "noun_backend": self.shop.noun_backend,
            "observation_mode": session.rules.observation_mode,
            "front_end": self._front.description,
            "goal_index": session.goal.index,
            "page": session.visit.page,
            "url": session.url,
            "clickables": self._clickables,
            "has_search_bar": self._has_search_bar,
            "bought": bool(parts),
            "score": float(parts.get("reward", 0.0)),
            **{name: float(parts.get(name, 0.0)) for name in _PARTS},
        }

    def _result_limit(self, action_tokens: int) -> int:
        """Where the page is cut: at `max_tool_result_tokens`, or before it where a growing context would leave the turns to come no room."""
        if not isinstance(self.context, Append):
            return super()._result_limit(action_tokens)
        later = max(0, self.max_turns - self.turn - 1)
        reserved = later * (self.max_action_tokens + _OVERHEAD + _FLOOR)
        if self.show_admissible:
            reserved += len(self.chat.encode_text(self._command_list()))
        return max(
            _FLOOR, min(self.max_tool_result_tokens, self.max_observation_tokens - self._length - action_tokens - reserved - _OVERHEAD)
        )

    # ------------------------------------------------------------------------------------------------ moments

    def _get_world(self) -> Any:
        """Goal, prices and page; see `CommandEnv._get_world`."""
        if not self._begun:
            return None
        goal, prices, visit = self._front.session.get_state()
        return self._same, goal.index, goal.price_upper, dict(prices), visit, self._given, dict(self._parts)

    def _set_world(self, world: Any) -> None:
        """Return to a page; see `CommandEnv._set_world`."""
        if world is None:
            self._begun = False
            return
        same, index, price_upper, prices, visit, given, parts = world
        if same != self._same:
            raise ValueError(f"the state is one of a shop {same}, and this is {self._same}; make both environments with the same keywords")
        session = self._front.session
        session.set_state((self.shop.goals[index].with_bound(price_upper), dict(prices), visit))
        self._begun, self._given, self._parts = True, given, dict(parts)
        self._clickables, self._has_search_bar = tuple(session.clickables), session.has_search_bar  # what the browser would show

    # ------------------------------------------------------------------------------------------------ for people

    def _next_command(self) -> str | None:
        """The expert's next action; see `CommandEnv._next_command`."""
        return next_action(self.session)

    def render(self) -> Any:
        """Return the prompt as text, or with `render_mode="rgb_array"` the browser's screenshot.

        Returns:
            The text; or uint8, shape (height, width, 3); or None without a render mode.

        Raises:
            ResetNeeded: for a screenshot before the first reset.
        """
        if self.render_mode != "rgb_array":
            return super().render()
        if not self._begun:
            raise ResetNeeded("no visit has begun; call reset() before you render")
        return self._front.screenshot()

    def close(self) -> None:
        """Close the browser, if there is one; may be called twice, and a later reset opens it again."""
        self._front.close()
        super().close()


def _dollars(name: str, value: Any) -> float:
    """A price or a bound that was given."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or not 0 <= value <= sys.float_info.max:
        raise ValueError(f"{name} must be a number of dollars that is not negative ({NO_BOUND:g} is no bound), not {value!r:.200}")
    return float(value)
