"""The checks of what a distillation is set to, for a trainer's configuration and for whoever wants to know before torch is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from agent_gym.trainers.advantages import get_advantage

__all__ = ["DISTILL_LOSSES", "check_distill_settings", "check_servers", "is_address"]

DISTILL_LOSSES = ("auto", "full", "sampled")


def is_address(teacher: Any) -> bool:
    """Whether a teacher's name is the address of a server.

    Args:
        teacher: as `--teacher` or `AgentDistillConfig.teacher` give it.

    Returns:
        True for http and https.
    """
    return isinstance(teacher, str) and urlsplit(teacher).scheme in ("http", "https")


def check_distill_settings(
    settings: Mapping[str, Any], *, server: bool, temperature: float = 1.0, advantage: str = "grpo", num_generations: int = 1
) -> None:
    """Refuse settings that a distillation cannot work with.

    Args:
        settings: fields of `AgentDistillConfig` by name; what is left out is not checked.
        server: whether the teacher is behind a server, and so tells the log-probabilities of given ids alone.
        temperature: that the student is sampled with.
        advantage: name of the estimator, for where the reward counts too.
        num_generations: episodes per task.

    Raises:
        ValueError: with the name of the setting, what was given and what is wanted.
    """
    loss = settings.get("distill_loss", "auto")
    if loss not in DISTILL_LOSSES:
        raise ValueError(f"distill_loss={loss!r} is unknown; choose one of {', '.join(DISTILL_LOSSES)}")
    if loss == "full" and server:
        raise ValueError(
            "distill_loss='full' compares whole distributions, and a server tells the log-probabilities of given ids alone; use 'sampled' ('auto' "
            "does), or a teacher in this process (a folder or name)"
        )
    weight = settings.get("reward_weight", 0.0)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"reward_weight={weight!r} must be a number that is not negative; 0 leaves the reward out")
    own = settings.get("teacher_temperature")
    if own is not None and (isinstance(own, bool) or not isinstance(own, (int, float)) or not (math.isfinite(own) and own > 0)):
        raise ValueError(f"teacher_temperature={own!r} must be a positive number, or None for the temperature of sampling")
    if server and (temperature if own is None else own) != 1.0:
        raise ValueError(
            f"teacher_temperature={own} with temperature={temperature}: a server tells the log-probabilities of given ids at temperature 1, whatever it is "
            "asked; set teacher_temperature=1.0 to learn from the teacher as it is"
        )
    for name in ("teacher_chunk_tokens", "teacher_concurrency"):
        value = settings.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r} must be a whole number of at least 1")
    if weight and num_generations == 1 and get_advantage(advantage).group_relative:
        raise ValueError(
            f"reward_weight={weight} with advantage={advantage!r} and num_generations=1: an estimator that compares the members of a group gives a lone "
            "episode no advantage; raise num_generations, or choose another (reinforce, reinforce_pp)"
        )


def check_servers(args: Any, teacher: Any) -> None:
    """Refuse one server for teacher and student: each update would load the student's weights into the teacher, and nothing would be learned.

    Args:
        args: an `AgentGRPOConfig`.
        teacher: a name, or an object whose `server` has a `url`.

    Raises:
        ValueError: if both are at the same host and port.
    """
    address = str(teacher) if is_address(teacher) else getattr(getattr(teacher, "server", None), "url", None)
    if not args.use_vllm or args.vllm_mode != "server" or address is None:
        return
    own = args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"
    if _place(own) == _place(str(address)):
        raise ValueError(
            f"the teacher and the engine of the student are both at {address}: every update would load the student's weights into the teacher. Serve the "
            "teacher from a server of its own (vllm serve ... --port 8001)"
        )


def _place(address: str) -> tuple[str, int | None]:
    parts = urlsplit(address)
    host = (parts.hostname or "").lower()
    return "127.0.0.1" if host in ("localhost", "0.0.0.0", "::1") else host, parts.port
