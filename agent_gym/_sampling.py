"""`Sampling`: how a policy samples one reply. It stands here, below the policies, since a context policy may ask a model too."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Sampling"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one reply is sampled.

    Attributes:
        temperature: the logits are divided by it; 0 is greedy, and then the log-probabilities are those at temperature 1.
        top_p: keep the smallest set of tokens with at least this probability; 1 keeps all.
        top_k: keep this many tokens; 0 keeps all.
        min_p: keep tokens with at least this share of the likeliest token's probability; 0 keeps all.
        max_tokens: the longest reply, in tokens.
        seed: of this one request; None lets the policy draw one.
        stop_token_ids: the reply ends behind the first of these, which stays in it. Use the environment's end-of-turn ids.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int = 512
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: naming the setting, what was given and what is allowed.
        """
        object.__setattr__(self, "stop_token_ids", tuple(int(i) for i in self.stop_token_ids))
        wrong = [
            text
            for bad, text in (
                (not 0.0 <= self.temperature < float("inf"), f"temperature={self.temperature} (0 or more)"),
                (not 0.0 < self.top_p <= 1.0, f"top_p={self.top_p} (above 0, at most 1)"),
                (self.top_k < 0, f"top_k={self.top_k} (0 or more)"),
                (not 0.0 <= self.min_p <= 1.0, f"min_p={self.min_p} (0 to 1)"),
                (self.max_tokens < 1, f"max_tokens={self.max_tokens} (1 or more)"),
            )
            if bad
        ]
        if wrong:
            raise ValueError("these sampling settings are out of range: " + ", ".join(wrong))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, for a `Trajectory`.

        Returns:
            What JSON can write.
        """
        return asdict(self)
