"""The embedded run on `AgentR1/ALFWorld-v0`: a tiny model learns to find something in a kitchen, to heat or cool it, and to put it where it belongs.

Two kinds of task in small rooms, twelve commands at most. The commands are not listed: the model has to write them, with the names that the room
told it. Before each command it says what is to be done with what, where that belongs and how things stand, which is what a model of three layers needs
to tell one situation from another. It is started on demonstrations of an expert that has to search as well, and that dawdles, is clumsy and at times
mistaken (`agent_gym.trainers.imitation`), and sent on as soon as it solves some tasks.

Training uses games of the split "train", the figures are those of games of "valid_unseen", whose rooms are none of the training rooms; the end of
the imitation and the curve are measured on "valid_seen".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from agent_gym.envs.alfworld.rooms import OBJECTS, RECEPTACLES
from agent_gym.trainers.imitation import Expert, ImitationConfig, Turn
from agent_gym.trainers.presets.base import PPO_DEFAULTS, EmbeddedConfig, Splits
from agent_gym.trainers.presets.commands import CommandConfig, CommandPreset
from agent_gym.trainers.tiny_model import tokenizer_with_words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["ALFWorldConfig", "ALFWorldPreset", "searching_expert"]

_WORDS = (
    "ALFRED",
    "Looking",
    "Nothing",
    "On",
    "In",
    "TextWorld",
    "The",
    "Welcome",
    "You",
    "Your",
    "arrive",
    "around",
    "clean",
    "closed",
    "cold",
    "command",
    "cool",
    "else",
    "happens",
    "heat",
    "held",
    "hot",
    "last",
    "line",
    "middle",
    "move",
    "nothing",
    "open",
    "pick",
    "put",
    "quickly",
    "reply",
    "room",
    "some",
    "stands",
    "take",
    "task",
    "up",
    "using",
)
HUNCH = 0.25
"""How often the searching expert goes straight to the right place."""
DAWDLING = 0.25
"""How often it looks about or at what it carries instead of going on. It means that, so that its imitators do it too, until the reward teaches them better."""
NOTIONS = 0.5
"""How many of its slips come of a wrong notion of how things stand."""
_GO = "go to "
_LISTED = re.compile(r"\ban? (\w+ \d+)")


class _Treatment(NamedTuple):
    """What is done to the thing on its way, and how it is then."""

    verb: str
    result: str
    appliance: str


_TREATMENTS: Mapping[str, _Treatment] = {
    "pick_heat_then_place_in_recep": _Treatment("heat", "hot", "microwave"),
    "pick_cool_then_place_in_recep": _Treatment("cool", "cold", "fridge"),
}


@dataclass(frozen=True, slots=True)
class ALFWorldConfig(CommandConfig):
    """Settings of the run on ALFWorld; see `CommandConfig`."""

    updates: int = 40
    num_iterations: int = 2
    learning_rate: float = 5e-4
    lr_scheduler_type: str = "linear"
    max_grad_norm: float = 0.1
    max_action_tokens: int = 32
    warm_start: ImitationConfig = field(default_factory=lambda: ImitationConfig(slip=0.35, steps=350, decay_steps=100))


def searching_expert(env: Any, rng: np.random.Generator) -> Callable[[Mapping[str, Any]], Turn]:
    """Return an expert that knows no more than the model: it looks for the thing, place by place as the room lists them, and opens what is closed.

    Now and then it has a hunch where to look, and is right; that is how its imitators learn where things usually are. As often it dawdles, which costs a
    turn of the few that there are. Before each command it says what it is about, and how things stand: "heat mug cabinet not here", "heat mug cabinet
    here", "heat mug cabinet held", and "heat mug cabinet hot" in the end. So what the task names once, and only the last commands need, is learned at
    every turn.

    Some of its slips are those of a beginner: any admissible command, a step of the plan before its time, taking what is not there, or the last command
    once more. The others come of a wrong notion: it says that the mug is held, does what fits that, and is told that nothing happens. What it says
    next is the truth again, so that its imitators learn to believe the room more than what they said themselves.

    Args:
        env: an `ALFWorldEnv` at the start of an episode.
        rng: of the order in which it looks, its hunches and its slips.

    Returns:
        A function from info to the next turn. Once the thing has been seen, the command is that of the environment's own expert.
    """
    from agent_gym.envs.alfworld.expert import plan

    goal = env.task.game.goal
    thing, place, treatment = goal.object_type.lower(), goal.receptacle_type.lower(), _TREATMENTS[goal.task_type]
    shown = re.compile(rf"\b{thing} \d")
    visited: set[str] = set()
    order: list[str] = []
    found = treated = False
    here = ""

    def act(info: Mapping[str, Any]) -> Turn:
        nonlocal found, treated, here
        commands: Sequence[str] = info["admissible_commands"]
        if not order:
            order.extend(_GO + name for name in _LISTED.findall(info["feedback"]))
        found = found or bool(shown.search(info["feedback"]))
        treated = treated or info["feedback"].startswith(f"You {treatment.verb} the {thing}")
        if info["command"].startswith(_GO) and info["action_valid"]:
            visited.add(info["command"])
            here = info["command"].removeprefix(_GO)
        if any(re.match(rf"examine {thing} \d", command) for command in commands):  # possible for what is held alone
            state = treatment.result if treated else "held"
        else:
            state = "here" if any(re.match(rf"take {thing} \d", command) for command in commands) else "not here"
        steps = plan(env._simulator) or ["look"]
        closed = [command for command in commands if command.startswith("open ")]
        at = order.index(_GO + here) + 1 if here else 0
        unseen = [command for command in (*order[at:], *order[:at]) if command not in visited]
        choices = [] if found else closed or ([] if rng.random() < HUNCH else unseen)
        command = drawn(["look", "inventory"]) if rng.random() < DAWDLING else choices[0] if choices else steps[0]
        return Turn(say(state, command), mistaken(state, commands) if rng.random() < NOTIONS else clumsy(state, commands, steps[1:], info))

    def clumsy(state: str, commands: Sequence[str], later: Sequence[str], info: Mapping[str, Any]) -> str:
        kinds = [commands, later, [f"take {thing} 1 from {here}"] if here else [], [info["command"]] if info["command"] else []]
        return say(state, drawn(drawn([kind for kind in kinds if kind])))

    def mistaken(state: str, commands: Sequence[str]) -> str:
        fitting = {
            "not here": drawn([command for command in commands if command.startswith(_GO)] or ["look"]),
            "here": f"take {thing} 1 from {here or f'{place} 1'}",
            "held": f"{treatment.verb} {thing} 1 with {treatment.appliance} 1",
            treatment.result: f"move {thing} 1 to {place} 1",
        }
        del fitting[state]
        return say(*drawn(list(fitting.items())))

    def drawn(choices: Sequence[Any]) -> Any:
        return choices[int(rng.integers(len(choices)))]

    def say(state: str, command: str) -> str:
        return f"{treatment.verb} {thing} {place} {state}\n{env.write_command(command)}"

    return act


class ALFWorldPreset(CommandPreset):
    """Heat something or cool it, and put it somewhere."""

    env_id: ClassVar[str] = "AgentR1/ALFWorld-v0"
    label: ClassVar[str] = "alfworld"
    goal: ClassVar[str] = "to find things in small kitchens, to heat or cool them and to put them where they belong"
    env_kwargs: ClassVar[Mapping[str, Any]] = {
        "level": "small",
        "task_types": list(_TREATMENTS),
        "context": "append",
        "action_format": "line",
        "show_admissible": False,
        "system_prompt": "Do the task.",
        "max_turns": 12,
    }
    splits: ClassVar[Splits] = Splits("train", "valid_seen", "valid_unseen")
    config: ClassVar[type[EmbeddedConfig]] = ALFWorldConfig
    ppo_defaults: ClassVar[Mapping[str, Any]] = {**PPO_DEFAULTS, "gamma": 0.95}
    """With 1 a household put off beyond the twelve turns is worth as much as one done (docs/ppo.md)."""

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The default tokenizer with the household's names and the words of its sentences as entries of their own; see `Preset.tokenizer`."""
        return tokenizer_with_words([name.lower() for name in (*OBJECTS, *RECEPTACLES)] + list(_WORDS))

    def expert(self, settings: Any) -> Expert:
        """Who is imitated: `searching_expert`; see `CommandPreset.expert`."""
        return searching_expert
