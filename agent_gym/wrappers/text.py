"""`TokenizeText`: an environment of text observations and text actions as an `AgentEnv`."""

from __future__ import annotations

import hashlib
from typing import Any

import gymnasium
from gymnasium import spaces

from agent_gym.core import Action, AgentEnv, Observation, Outcome
from agent_gym.trajectory import StopReason

__all__ = ["TokenizeText"]


class TokenizeText(AgentEnv):
    """Puts a chat and a tokenizer around an environment whose spaces are `gymnasium.spaces.Text`.

    It is an `AgentEnv` in every respect (prompts, info, context policies, limits, conformance); what it wraps stands in `.inner`.
    A reply that the text space does not hold is answered by a message and does not reach the environment.

    Args:
        env: an environment with Text observations and Text actions.
        tokenizer: as in `AgentEnv`.
        instructions: text before the first observation.
        max_turns: as in `AgentEnv`.
        keywords: further keywords of `AgentEnv`.

    Raises:
        TypeError: if a space is not Text.
    """

    def __init__(
        self, env: gymnasium.Env[str, str], tokenizer: Any = None, *, instructions: str = "", max_turns: int = 50, **keywords: Any
    ) -> None:
        for name in ("observation_space", "action_space"):
            if not isinstance(getattr(env, name), spaces.Text):
                raise TypeError(
                    f"TokenizeText needs Text spaces, and the {name} is {getattr(env, name)}; see agent_gym.wrappers.as_token_env"
                )
        super().__init__(tokenizer=tokenizer, max_turns=max_turns, **keywords)
        self.inner = env
        self.env_id = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        self._instructions = instructions
        self._inner_seed: int | None = None
        self._inner_options: dict[str, Any] | None = None
        self._inner_truncated = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: of both environments. In the train split the inner one gets this very seed, in another split one derived from both.
            options: of the inner environment.

        Returns:
            As `AgentEnv.reset`.
        """
        self._inner_seed, self._inner_options = seed, options
        if seed is not None and self.split != "train":
            self._inner_seed = int.from_bytes(hashlib.blake2b(f"{self.split}/{seed}".encode(), digest_size=4).digest(), "little")
        return super().reset(seed=seed)

    def _begin(self, options: dict[str, Any]) -> Observation:
        seed = self._inner_seed
        if seed is None:  # an unseeded reset goes on drawing, from the generator that this environment was seeded with
            seed = int(self.np_random.integers(0, 2**31))
        text, info = self.inner.reset(seed=seed, options=self._inner_options)
        self._inner_truncated = False
        self.task_id = str(info.get("task_id", "") or f"{self.env_id}:{seed}")
        return Observation(text=f"{self._instructions}\n\n{text}".strip())

    def _respond(self, action: Action) -> Outcome:
        reply = action.text.strip()
        space = self.inner.action_space
        if not space.contains(reply):
            return Outcome(Observation(text=_why_not(reply, space)), info={"action_valid": False})
        text, reward, terminated, truncated, info = self.inner.step(reply)
        self._inner_truncated = bool(truncated)
        success = bool(info.get("is_success", info.get("success", info.get("won", terminated and float(reward) > 0))))
        notes = {"is_success": success, "action_valid": bool(info.get("action_valid", True))}
        return Outcome(Observation(text=str(text)), float(reward), bool(terminated), notes)

    def step(self, action: Any) -> Any:
        """Act.

        Args:
            action: as in `AgentEnv.step`.

        Returns:
            As `AgentEnv.step`; what truncates the inner environment truncates with TIME_LIMIT.
        """
        return self._with_inner_end(super().step(action))

    async def astep(self, action: Any) -> Any:
        """Act in an event loop.

        Args:
            action: as in `AgentEnv.step`.

        Returns:
            As `step`.
        """
        return self._with_inner_end(await super().astep(action))

    def _with_inner_end(self, result: Any) -> Any:
        observation, reward, terminated, truncated, info = result
        if self._inner_truncated and not terminated and not truncated:
            self._running = False
            truncated, info = True, {**info, "stop_reason": StopReason.TIME_LIMIT}
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Close both environments."""
        self.inner.close()
        super().close()


def _why_not(reply: str, space: Any) -> str:
    if len(reply) < space.min_length:
        return "The reply is empty. Write an action."
    if len(reply) > space.max_length:
        return f"The reply has {len(reply)} characters, and an action has at most {space.max_length}. Write the action alone."
    strange = sorted({letter for letter in reply if letter not in space.character_set})[:10]
    return f"The reply has characters that no action has ({' '.join(map(repr, strange))}). Write the action alone."
