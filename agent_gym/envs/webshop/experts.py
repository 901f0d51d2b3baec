"""Who can shop: the expert that imitation learns from, a hasty expert for warm starts, and two baselines.

All of them are functions of the present state of a `Session`, so they can be asked anywhere: in the middle of an episode, after the model's mistakes, on a page
that they would never have opened themselves. Product numbers are clicked in the spelling of the page, so that they can be copied from it; the shop does not
mind. The expert knows the goal's product, but it searches with the instruction's own words as far as
these find it, so that what it does can be learned from what is shown.

The scripts at the end play them in `AgentR1/WebShop-v0`: `ScriptedPolicy(first_result)` is a policy for an evaluation table. They decide by the
goal and the turn alone, so a table is the same however its episodes were scheduled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agent_gym.envs.webshop.engine import Session
from agent_gym.envs.webshop.goals import Goal
from agent_gym.envs.webshop.matching import main_color, token_set_ratio
from agent_gym.envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS, SEARCH
from agent_gym.envs.webshop.product import Product, search_text

__all__ = [
    "Script",
    "first_result",
    "first_result_action",
    "hasty_expert",
    "next_action",
    "random_action",
    "random_shopper",
    "search_words",
]

Script = Callable[[Any, int], str]
"""(unwrapped environment, turn counted from 0) -> the text of the reply; what `ScriptedPolicy` takes."""

GoalOption = tuple[str, str] | str

_OPENING = re.compile(r"^find me\s+", re.IGNORECASE)
_BRACKETS = re.compile(r"[\[\]]")
_ALIKE = 85
_LONGEST_QUERY = 60  # words; of a text that serves as a query


# ---------------------------------------------------------------------------------------------------- the expert


def next_action(session: Session, wanted: Sequence[GoalOption] | None = None) -> str | None:
    """Return the expert's next action: search, page to the goal's product, open it, choose its options, buy it.

    It is right in any state that a visit can reach, and wins the full reward wherever buying the goal's product with its options does.

    Args:
        session: the visit.
        wanted: the options of the goal that it cares for; None for all.

    Returns:
        The action; None after the purchase, and where no search finds the product.
    """
    visit = session.visit
    product = session.goal.product
    if visit.done:
        return None
    if visit.product == product.number:
        if visit.page == "item_sub_page":
            return _click(PREVIOUS)
        return _choice(session, session.goal.options if wanted is None else wanted) or _click(BUY)
    back = {"item_page": 1, "item_sub_page": 2}.get(visit.page, 0)  # clicks back to the results
    target = None if visit.page == "index" else _page_of(session, visit.keywords or ())
    words = search_words(session)
    anew = None if words is None else _page_of(session, tuple(words.lower().split(" ")))
    first_back = session.rules.strict_search and not session.has_search_bar
    if target is not None and (anew is None or back + abs(target - visit.number) <= anew + first_back):
        if back:
            return _click(PREVIOUS)
        if target == visit.number:
            return f"click[{product.asin}]"
        return _click(NEXT if target > visit.number else PREVIOUS)
    if words is None:
        return None
    return _click(BACK) if first_back else f"search[{words}]"


def search_words(session: Session) -> str | None:
    """Return the words by which the expert finds the goal's product.

    The instruction's own words if they show the product on the first page, else its title, else all its text; where none of them does, the one that
    shows it earliest.

    Args:
        session: the visit; its goal, shop and rules count.

    Returns:
        The words; None where nothing finds the product.
    """
    best: tuple[int, str] | None = None
    for words in _queries(session.goal):
        page = _page_of(session, tuple(words.lower().split(" "))) if words else None
        if page == 1:
            return words
        if page is not None and (best is None or page < best[0]):
            best = page, words
    return None if best is None else best[1]


def _queries(goal: Goal) -> list[str]:
    product = goal.product
    own = _OPENING.sub("", product.instruction) if goal.kind == "synthetic" and product.instruction else goal.request
    texts = (own, f"{' '.join(goal.attributes)} {product.query}", product.title, search_text(product))
    return [" ".join(_BRACKETS.sub(" ", text).split()[:_LONGEST_QUERY]).strip(" ,.;<>") for text in texts]


def _page_of(session: Session, keywords: tuple[str, ...]) -> int | None:
    """The page of a search's results that shows the goal's product; None where none does."""
    found = session.shop.find(keywords, session.rules) if keywords else ()
    number = session.goal.product.number
    return found.index(number) // session.rules.page_size + 1 if number in found else None


def _choice(session: Session, wanted: Sequence[GoalOption]) -> str | None:
    """The click that chooses the next wanted option; None when all that can be had are chosen."""
    product, chosen = session.goal.product, dict(session.visit.options)
    for wish, (name, value) in _choices(product, tuple(wanted)).items():
        if chosen.get(name) == value:
            continue
        only: Any = (wanted[wish],)
        if session.shop.judge(replace(session.goal, options=only), product, chosen, session.price(product)).r_option == 1.0:
            continue  # one value can meet two wishes
        for action in (f"click[{value}]", f"click[{name}: {value}]"):
            if _chooses(session, action, name, value):
                return action
    return None


def _chooses(session: Session, action: str, name: str, value: str) -> bool:
    """Whether an action chooses a value of an option; another option or a button may have the same name, and some names nobody can click."""
    trial = Session(session.shop, session.rules)
    trial.set_state(session.get_state())
    return trial.act(action).valid and dict(trial.visit.options).get(name) == value


def _choices(
    product: Product, wanted: tuple[GoalOption, ...], taken: frozenset[str] = frozenset(), wish: int = 0
) -> dict[int, tuple[str, str]]:
    """The name and value to choose for each wish by its place: as many wishes as can be met, each by another option, so that no choice undoes another."""
    if wish == len(wanted):
        return {}
    best = _choices(product, wanted, taken, wish + 1) if not isinstance(wanted[wish], tuple) else {}
    for name, value in _options_for(product, wanted[wish]):
        if name not in taken and len(best) < len(wanted) - wish:
            met = {wish: (name, value)} | _choices(product, wanted, taken | {name}, wish + 1)
            best = met if len(met) > len(best) else best
    return best


def _options_for(product: Product, wanted: GoalOption) -> list[tuple[str, str]]:
    """The options of a product that meet a wish: the very pair, else those of the very value, else those that the reward takes for it, the best first."""
    if isinstance(wanted, tuple):
        return [wanted]
    pairs = [(name, value) for name, values in product.options for value in dict.fromkeys(values)]
    text = wanted.strip().lower().replace("/", " | ")
    exact = [pair for pair in pairs if pair[1] in (text, wanted)]
    scored = [(token_set_ratio(main_color(value), main_color(wanted)), (name, value)) for name, value in pairs]
    return exact or [pair for score, pair in sorted(scored, key=lambda found: -found[0]) if score > _ALIKE]


def _click(name: str) -> str:
    return f"click[{name.lower()}]"


# ---------------------------------------------------------------------------------------------------- baselines


def first_result_action(session: Session) -> str:
    """Return what somebody does who searches with the whole instruction and buys the first product shown, whatever it is.

    Args:
        session: the visit.

    Returns:
        The action.
    """
    visit = session.visit
    if visit.page == "search_results":
        products = session.shop.find(visit.keywords or (), session.rules)[(visit.number - 1) * session.rules.page_size :]
        if products:
            return f"click[{session.shop.catalogue[products[0]].asin}]"
    if visit.page == "item_page":
        return _click(BUY)
    if visit.page == "item_sub_page":
        return _click(PREVIOUS)
    if session.rules.strict_search and not session.has_search_bar:
        return _click(BACK)
    return f"search[{' '.join(_BRACKETS.sub(' ', session.goal.instruction).split())}]"


def random_action(session: Session, rng: np.random.Generator) -> str:
    """Return a random action: where there is a search bar a search for one to four successive words of the instruction, else a click on anything.

    Args:
        session: the visit.
        rng: the randomness.

    Returns:
        The action.
    """
    if session.has_search_bar:
        words = _BRACKETS.sub(" ", session.goal.instruction).split()
        length = int(rng.integers(1, 5))
        start = int(rng.integers(max(len(words) - length, 0) + 1))
        return f"search[{' '.join(words[start : start + length]) or SEARCH}]"
    names = session.clickables
    return _click(str(names[int(rng.integers(len(names)))])) if names else _click(BACK)


# ---------------------------------------------------------------------------------------------------- scripts


def first_result(env: Any, turn: int) -> str:
    """Play `first_result_action`; a `Script`.

    Args:
        env: a `WebShopEnv`.
        turn: steps since the reset; not used.

    Returns:
        The text of the action.
    """
    return str(env.write_command(first_result_action(env.session)))


def random_shopper(seed: int = 0) -> Script:
    """Return a script that plays `random_action`.

    Args:
        seed: of its choices; the same goal and turn get the same draw.

    Returns:
        The script.
    """

    def script(env: Any, turn: int) -> str:
        rng = np.random.default_rng(np.random.SeedSequence([seed, env.session.goal.index, turn]))
        return str(env.write_command(random_action(env.session, rng)))

    return script


def hasty_expert(option_probability: float, seed: int = 0) -> Script:
    """Return a script that plays the expert, but cares for each option of a goal only at times: what a warm start may imitate.

    Its mean reward on goals with A attributes and O options is (A + O * option_probability + 1) / (A + O + 1): the ceiling of imitation.

    Args:
        option_probability: with which it chooses an option.
        seed: of its choices; the same goal gets the same ones.

    Returns:
        The script.

    Raises:
        ValueError: if it is no probability.
    """
    if not 0.0 <= option_probability <= 1.0:
        raise ValueError(f"option_probability must lie between 0 and 1, not {option_probability}")

    def script(env: Any, turn: int) -> str:
        session: Session = env.session
        goal = session.goal
        rng = np.random.default_rng(np.random.SeedSequence([seed, goal.index]))
        cared_for = rng.random(len(goal.options)) < option_probability
        options: Sequence[GoalOption] = goal.options
        action = next_action(session, [option for option, cares in zip(options, cared_for, strict=True) if cares])
        if action is None:
            raise ValueError(f"the expert knows no next action on the page {session.visit.page!r} of goal {goal.index}")
        return str(env.write_command(action))

    return script
