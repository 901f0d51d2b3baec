"""Answers of tasks whose answer is a number or a short text: what a row accepts, and whether a reply says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_gym.data.samples import accepted_answers
from agent_gym.tools.numbers import read_number

__all__ = ["accepted_of", "answers_match", "read_number"]


def accepted_of(task: Mapping[str, Any], where: str = "row") -> list[str]:
    """Return the accepted answers of a row.

    Args:
        task: with `answer`, or with `reward_model` as in the Agent-R1 sample schema.
        where: names the row in errors.

    Returns:
        At least one text.

    Raises:
        ValueError: if there is none.
    """
    if "answer" in task:
        return accepted_answers(task["answer"], where=where, name="answer")
    model = task.get("reward_model")
    return accepted_answers(model.get("ground_truth") if isinstance(model, Mapping) else None, where=where)


def answers_match(answer: str, accepted: str) -> bool:
    """Whether an answer equals an accepted one: as numbers where the accepted one is a number, else as text.

    Args:
        answer: of the model.
        accepted: of the task.

    Returns:
        True if they are equal. An empty answer equals nothing.
    """
    wanted = read_number(accepted)
    if wanted is not None:
        given = read_number(answer)
        return given is not None and given == wanted
    shown = " ".join(answer.casefold().split())
    return bool(shown) and shown == " ".join(accepted.casefold().split())
