"""The embedded run on `AgentR1/WebShop-v0`: a tiny model learns to search the small shop, to tell the right product from others, and to choose its options.

What counts is the score, the mean reward: buying the right product and nothing else is worth half of it. The model is started on a *hasty* shopper, who
finds the product and then, goal by goal, may not care for an option. Its habits are the imitation ceiling; that options are worth their
click is what the reward tells.

Training uses goals of the split "train", the figures are those of the goals of "test", each a combination of product and options that no training goal is; the
end of the imitation and the curve are measured on "validation". The products of the shop are the same in all three, as they are in WebShop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from agent_gym.envs.webshop.experts import next_action, random_action
from agent_gym.trainers.imitation import Expert, ImitationConfig, Turn
from agent_gym.trainers.presets.base import EmbeddedConfig, Splits
from agent_gym.trainers.presets.commands import CommandConfig, CommandPreset
from agent_gym.trainers.tiny_model import tokenizer_with_words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["WebShopConfig", "WebShopPreset", "hasty_shopper"]

_PHRASES = (
    " [SEP] ",
    ", and price lower than ",
    ", and size: ",
    ", with print: ",
    "00 dollars",
    "< Prev",
    "< prev",
    "Back to ",
    "Buy Now",
    "Description",
    "Features",
    "Find me ",
    "Instruction:",
    "Next >",
    "Page ",
    "Price: $",
    "Rating: N.A.",
    "Reviews",
    "Search",
    "Total results: ",
    "WebShop",
    "back to search",
    "buy now",
    "click[",
    "print",
    "search[",
    "size",
)
"""What the pages and the commands say again and again. Names, things and options are entries of the default tokenizer."""


@dataclass(frozen=True, slots=True)
class ShopImitationConfig(ImitationConfig):
    """Settings of the warm start; see `ImitationConfig`.

    Attributes:
        option_probability: with which the hasty shopper cares for an option of a goal.
    """

    demonstrations: int = 1500
    slip: float = 0.1
    steps: int = 300
    decay_steps: int = 100
    success_at_least: float = 0.45
    option_probability: float = 0.4


@dataclass(frozen=True, slots=True)
class WebShopConfig(CommandConfig):
    """Settings of the run on WebShop; see `CommandConfig`."""

    updates: int = 40
    learning_rate: float = 1e-3
    max_action_tokens: int = 24
    eval_tasks: int = 90
    warm_start: ShopImitationConfig = field(default_factory=ShopImitationConfig)

    @property
    def imitation_ceiling(self) -> float:
        """Score of a perfect imitation of the hasty shopper, where a goal has one attribute, two options and a price."""
        return (2 + 2 * self.warm_start.option_probability) / 4


def hasty_shopper(env: Any, rng: np.random.Generator, *, option_probability: float) -> Callable[[Mapping[str, Any]], Turn]:
    """Return an expert that finds the product, and cares for each of its options at times. See `agent_gym.trainers.imitation.Expert`.

    Its slips are random: a search for some words of the instruction, or a click on anything.

    Args:
        env: a `WebShopEnv` at the start of an episode.
        rng: of what it cares for, and of its slips.
        option_probability: with which it cares for an option.

    Returns:
        A function from info to the next turn.
    """
    session = env.session
    wanted = [option for option in session.goal.options if rng.random() < option_probability]

    def act(info: Mapping[str, Any]) -> Turn:
        action = next_action(session, wanted)
        assert action is not None  # every product of the small shop is found by its title
        return Turn(env.write_command(action), env.write_command(random_action(session, rng)))

    return act


class WebShopPreset(CommandPreset):
    """Find a product, choose its options, buy it."""

    env_id: ClassVar[str] = "AgentR1/WebShop-v0"
    label: ClassVar[str] = "webshop"
    goal: ClassVar[str] = "to find what somebody asks for in a small shop, to choose its options and to buy it"
    figure: ClassVar[str] = "score"
    env_kwargs: ClassVar[Mapping[str, Any]] = {"level": "small", "context": "append", "action_format": "line", "max_turns": 8}
    splits: ClassVar[Splits] = Splits("train", "validation", "test")
    config: ClassVar[type[EmbeddedConfig]] = WebShopConfig

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The default tokenizer with the shop's phrases as entries of their own; see `Preset.tokenizer`."""
        return tokenizer_with_words((), _PHRASES)

    def expert(self, settings: Any) -> Expert:
        """Who is imitated: `hasty_shopper`; see `CommandPreset.expert`."""
        return partial(hasty_shopper, option_probability=settings.option_probability)
