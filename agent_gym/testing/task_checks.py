"""Checks of the task itself: the expert solves it, and a wrong answer does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent_gym.testing.report import check, fail
from agent_gym.testing.subject import Frame, NotApplicable, Subject, attribute, frame_of_reset, frame_of_step

__all__ = ["expert_succeeds", "wrong_answer"]

_TASKS = 6
_CHANCE_TASKS = 40


@dataclass(frozen=True, slots=True)
class _Solution:
    """The expert's way through one task."""

    seed: int
    actions: tuple[NDArray[np.int64], ...]
    frames: tuple[Frame, ...]

    @property
    def total(self) -> float:
        return float(sum(frame.reward for frame in self.frames))


def _solutions(subject: Subject, tasks: int = _TASKS) -> list[_Solution]:
    solutions = []
    with subject.made() as env:
        limit = max(int(attribute(env, "max_turns", 0) or 0), 100)
        for seed in range(subject.seed, subject.seed + tasks):
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

    An episode that was not played to its end has not paid all its costs yet, so that it may have lost less than the expert, and must not have won more.
    Where chance decides too (`AgentEnv.chance`), the expert must succeed at times, earn more than somebody who says nothing, and
    play the same task the same way when it is asked again. How good it is beyond that is the environment's own test to show.

    Protects the reward: a task whose gold answer scores 0 teaches the opposite (verifiers asks the same of its tasksets before they run).

    Args:
        subject: what is checked.
    """
    with subject.made() as env:
        by_chance = bool(attribute(env, "chance", False))
    if by_chance:
        _expert_wins_at_times(subject)
        return
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
            frames = subject.play(env, script)
            total = float(sum(frame.reward for frame in frames))
            if script.seed in best and total > max(best[script.seed], -np.inf if frames[-1].ended else 0.0) + 1e-9:
                fail(
                    f"the {script.name} actions earn {total} on the task of seed {script.seed}, the expert {best[script.seed]}",
                    "the expert earns the most",
                    "look for a reward that can be had without solving the task",
                )


def _expert_wins_at_times(subject: Subject) -> None:
    """The rule where chance decides too."""
    solutions = _solutions(subject, _CHANCE_TASKS)
    if open_ones := [solution.seed for solution in solutions if not solution.frames[-1].ended]:
        fail(f"the expert has not ended the tasks of the seeds {open_ones}", "an end", "let the expert play on until the task ends")
    if not any(solution.frames[-1].info.get("is_success") for solution in solutions):
        fail(
            f"the expert succeeded on none of {_CHANCE_TASKS} tasks",
            "info['is_success'] at the end of some of its episodes, where chance decides too",
            "let expert() read the state at each call; look at the format of its answer",
        )
    for solution, again in zip(solutions, _solutions(subject, _TASKS), strict=False):
        if [one.tolist() for one in solution.actions] != [one.tolist() for one in again.actions]:
            fail(
                f"the expert plays the task of seed {solution.seed} otherwise when it is asked again, though chance fell the same way",
                "one action for each moment of an episode: random play is no expert",
                "let expert() follow from the state, and draw nothing",
            )
    silent = []
    with subject.made() as env:
        for solution in solutions[:_TASKS]:
            frames = [frame_of_reset(env.reset(seed=solution.seed))]
            while not frames[-1].ended and len(frames) <= max(int(attribute(env, "max_turns", 0) or 0), 100):
                frames.append(frame_of_step(env.step(np.empty(0, dtype=np.int64))))
            silent.append(float(sum(frame.reward for frame in frames)))
    mean = float(np.mean([solution.total for solution in solutions]))
    if float(np.mean(silent)) >= mean:
        fail(
            f"empty replies earn {np.mean(silent):.3f} a task, the expert {mean:.3f} on {_CHANCE_TASKS} tasks",
            "the expert earns more than somebody who says nothing",
            "let a reply that does nothing cost something where the best play may lose",
        )


@check("expert_succeeds", "any_action")
def wrong_answer(subject: Subject) -> None:
    """An empty reply, and the expert's episode with another task's last action at its end, do not succeed.

    Protects against the other half of a broken reward: a scorer that says yes to anything is learned in one update. Since a task may have
    several right answers, a few exchanged ones may succeed, not most.

    Args:
        subject: what is checked.

    Raises:
        NotApplicable: where the tasks share one last action.
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
