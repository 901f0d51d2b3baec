"""Checks of the task itself: the expert solves it, and a wrong answer does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent_gym.testing.report import check, fail
from agent_gym.testing.subject import Frame, NotApplicable, Subject, attribute, frame_of_reset, frame_of_step

__all__ = ["expert_succeeds", "wrong_answer"]

_TASKS = 6


@dataclass(frozen=True, slots=True)
class _Solution:
    """The expert's way through one task."""

    seed: int
    actions: tuple[NDArray[np.int64], ...]
    frames: tuple[Frame, ...]

    @property
    def total(self) -> float:
        return float(sum(frame.reward for frame in self.frames))


def _solutions(subject: Subject) -> list[_Solution]:
    solutions = []
    with subject.made() as env:
        limit = max(int(attribute(env, "max_turns", 0) or 0), 100)
        for seed in range(subject.seed, subject.seed + _TASKS):
            frames = [frame_of_reset(env.reset(seed=seed))]
            ask = subject.expert_of(env)
            actions: list[NDArray[np.int64]] = []
            while not frames[-1].ended and len(actions) < limit:
                actions.append(ask())
                frames.append(frame_of_step(env.step(actions[-1])))
            solutions.append(_Solution(seed, tuple(actions), tuple(frames)))
    return solutions


@check("makes")
def expert_succeeds(subject: Subject) -> None:
    """The expert ends its episodes with `is_success`, and nothing that was played on the same task earns more.

    Protects the reward: a task whose gold answer scores 0 teaches the opposite (verifiers asks the same of its tasksets before they run).
    """
    solutions = _solutions(subject)
    for solution in solutions:
        last = solution.frames[-1]
        where = f"on the task of seed {solution.seed} ({last.info.get('task_id', '')!s}) after {len(solution.actions)} steps"
        if not last.ended:
            fail(f"the expert has not ended {where}", "an end", "let the expert's last action be the answer")
        if not last.info.get("is_success"):
            fail(
                f"the expert did not succeed {where}: stop_reason {str(last.info.get('stop_reason'))!r}, reward {solution.total}, "
                f"feedback {str(last.info.get('feedback', ''))!r:.200}",
                "info['is_success'] at the end of the expert's episode",
                "let expert() read the state at each call; look at the format of its answer",
            )
    best = {solution.seed: solution.total for solution in solutions}
    with subject.made() as env:
        for script in subject.scripts:
            total = float(sum(frame.reward for frame in subject.play(env, script)))
            if script.seed in best and total > best[script.seed] + 1e-9:
                fail(
                    f"the {script.name} actions earn {total} on the task of seed {script.seed}, the expert {best[script.seed]}",
                    "the expert earns the most",
                    "look for a reward that can be had without solving the task",
                )


@check("expert_succeeds", "any_action")
def wrong_answer(subject: Subject) -> None:
    """An empty reply, and the expert's episode with another task's last action at its end, do not succeed.

    Protects against the other half of a broken reward: a scorer that says yes to anything is learned in one update. Since a task may have
    several right answers, a few exchanged ones may succeed, not most.
    """
    solutions = _solutions(subject)
    with subject.made() as env:
        env.reset(seed=subject.seed)
        if frame_of_step(env.step(np.empty(0, dtype=np.int64))).info.get("is_success"):
            fail("an empty reply succeeds", "is_success False", "score 0 where there is no answer, and where it normalises to nothing")
        tried, succeeded = 0, []
        for solution in solutions:
            right = solution.actions[-1]
            wrong = next((other.actions[-1] for other in solutions if not np.array_equal(other.actions[-1], right)), None)
            if wrong is None:
                continue
            env.reset(seed=solution.seed)
            for action in solution.actions[:-1]:
                env.step(action)
            frame = frame_of_step(env.step(wrong))
            tried += 1
            if frame.info.get("is_success"):
                succeeded.append(solution.seed)
        if tried and 2 * len(succeeded) > tried:
            fail(
                f"another task's last action succeeds on {len(succeeded)} of {tried} tasks (seeds {succeeded})",
                "is_success for the right answer alone",
                "compare the answer with this task's gold answer",
            )
    if not tried:
        raise NotApplicable(f"the expert's last action is the same on {_TASKS} tasks, and the empty reply does not succeed")
