"""`as_token_env`: any environment that can be told in words, as one over token ids."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from agent_gym.spaces import TokenBox
from agent_gym.wrappers.text import TokenizeText
from agent_gym.wrappers.verbalize import VerbalizeObservation, Verbalizer, find_verbalizer

__all__ = ["as_token_env"]


def as_token_env(
    env: gymnasium.Env[Any, Any], tokenizer: Any = None, *, verbalizer: Verbalizer | None = None, **keywords: Any
) -> gymnasium.Env[Any, Any]:
    """Return an environment over token ids.

    Args:
        env: an environment over `TokenBox` spaces (returned as it is), over `Text` spaces, or with discrete actions and known words.
        tokenizer: as in `AgentEnv`. One that already has token ids must have been made with this tokenizer; None takes it as it is.
        verbalizer: the words of a discrete environment, where they are not known.
        keywords: of `TokenizeText`.

    Returns:
        The environment.

    Raises:
        TypeError: if it is none of the three.
        ValueError: if it has token ids of another tokenizer.
    """
    if isinstance(env.observation_space, TokenBox) and isinstance(env.action_space, TokenBox):
        _check_tokenizer(env, tokenizer)
        return env
    if isinstance(env.observation_space, spaces.Text) and isinstance(env.action_space, spaces.Text):
        return TokenizeText(env, tokenizer, **keywords)
    if isinstance(env.action_space, spaces.Discrete) and (verbalizer is not None or find_verbalizer(env) is not None):
        return TokenizeText(VerbalizeObservation(env, verbalizer), tokenizer, **keywords)
    raise TypeError(
        f"{type(env.unwrapped).__name__} with observations {env.observation_space} and actions {env.action_space} cannot be made an environment over"
        " token ids. There are three ways: TokenBox spaces are taken as they are; Text spaces go through TokenizeText; discrete actions go through"
        " VerbalizeObservation, which needs verbalizer=Verbalizer(task, actions, describe) where the environment is not a known one"
    )


def _check_tokenizer(env: gymnasium.Env[Any, Any], tokenizer: Any) -> None:
    """Token ids are not translated: refuse those of another tokenizer."""
    if tokenizer is None:
        return
    from agent_gym.chat import load_tokenizer, tokenizer_fingerprint

    spoken, wanted = getattr(env.unwrapped, "tokenizer_fingerprint", None), tokenizer_fingerprint(load_tokenizer(tokenizer))
    if spoken is not None and spoken != wanted:
        raise ValueError(
            f"{type(env.unwrapped).__name__} speaks tokenizer {spoken}, and as_token_env was given {wanted}; its ids cannot be translated: make the "
            "environment itself with tokenizer=..."
        )
