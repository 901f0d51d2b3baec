"""A moment of an episode, taken out of an environment and put back: what `AgentEnv.get_state` and `set_state` do.

A moment is a value of its own: later steps leave it alone, it may be put back any number of times, and into another environment that was made with
the same keywords. The context policy has no state, and spaces, limits and tokenizer are the environment's keywords, so neither is part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["EnvState", "put_back", "taken_from"]

_EPISODE = ("task_id", "turn", "_running", "_state_key")  # what an episode changes, beside prompt, history and generator


@dataclass(frozen=True, slots=True)
class EnvState:
    """A moment of an episode. It pickles where the author's part does.

    Attributes:
        kind: class and tokenizer of the environment.
        prompt: the ids shown.
        base: the base class's part.
        own: the author's part.
    """

    kind: tuple[str, str]
    prompt: tuple[int, ...]
    base: Mapping[str, Any]
    own: Any


def taken_from(env: Any) -> EnvState:
    """Return the present moment of an environment.

    Args:
        env: an `AgentEnv`.

    Returns:
        The moment.
    """
    base = {name: getattr(env, name) for name in _EPISODE}
    base["history"] = replace(env.history, exchanges=list(env.history.exchanges))
    base["random"] = env.np_random.bit_generator.state
    return EnvState(_kind(env), tuple(env.prompt_ids.tolist()), base, env._get_state())


def put_back(env: Any, state: EnvState) -> None:
    """Put a moment back into an environment, its prompt and expert excepted.

    Args:
        env: an `AgentEnv`.
        state: the moment.

    Raises:
        ValueError: for what is no state, the state of another class or tokenizer, or a prompt that does not fit.
    """
    if not isinstance(state, EnvState):
        raise ValueError(f"a state comes from get_state(), and {state!r:.200} does not")
    if state.kind != _kind(env) or len(state.prompt) > env.max_observation_tokens:
        raise ValueError(
            f"a state of {' with tokenizer '.join(state.kind)} and a prompt of {len(state.prompt)} tokens does not fit "
            f"{' with tokenizer '.join(_kind(env))} and room for {env.max_observation_tokens}; make both environments with the same keywords"
        )
    env._set_state(state.own)
    for name in _EPISODE:
        setattr(env, name, state.base[name])
    env.history = replace(state.base["history"], exchanges=list(state.base["history"].exchanges))
    env.np_random.bit_generator.state = state.base["random"]


def _kind(env: Any) -> tuple[str, str]:
    return type(env).__qualname__, env.tokenizer_fingerprint
