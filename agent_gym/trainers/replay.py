"""Saved trajectories, trained on again. Knows neither TRL nor torch.

A `ReplayBuffer` holds the episodes of trajectory files, checked once: their tokenizer is the model's, their ids lie inside its vocabulary, the files
are whole. For each generation batch the trainer draws whole groups from it, as many episodes as were asked for beside the fresh ones. The
draw is a function of seed and batch alone, so a run that goes on draws what it would have drawn.

What was sampled by older weights is corrected (truncated importance sampling: each token, or each action, counts by min(pi / mu, cap), where mu is the
stored probability of the sampler and pi that of the model that is trained), and what is older than `max_age` policy versions is left out
and counted. Episodes without log-probabilities (imported chat logs, experts) cannot be corrected and are refused, unless the whole buffer is to be imitated:
then every action counts with weight 1 and advantage 1, whatever it was paid, and age plays no part.

The age of an episode is the version of the weights that are trained minus that of the weights that sampled it. The weights that a run begins with
count as `base_version`: by default the newest version in the buffer.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from agent_gym.flows.chat_import import content_digest, is_intact
from agent_gym.policies.base import Sampling, check_training_sampling
from agent_gym.runs import RunFolder
from agent_gym.trainers.advantages import Advantages, Estimator, exclusion_reason, zero_variance_groups
from agent_gym.trainers.rows import Row, build_rows
from agent_gym.trajectory import CUT_OFF, Trajectory
from agent_gym.trajectory_io import iter_trajectories

__all__ = ["CORRECTIONS", "Correction", "Drawn", "ReplayBuffer", "ReplayError", "keep_in_run", "replay_rows"]

Correction: TypeAlias = Literal["token_truncate", "step_truncate", "imitation"]
CORRECTIONS: tuple[Correction, ...] = ("token_truncate", "step_truncate", "imitation")
"""How replayed actions are weighed: by a truncated ratio per token, by one per action, or all alike."""
_HIGHEST_LOGPROB = 1e-3  # above 0 by no more than what rounding makes of a certain token


class ReplayError(ValueError):
    """A file cannot be replayed; the message names it, and the trajectory in it."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Episodes that are compared with one another, from one file.

    Attributes:
        members: the episodes, with a group id that no fresh episode has.
        version: of the oldest weights that sampled in it.
    """

    members: tuple[Trajectory, ...]
    version: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """What one generation batch replays.

    Attributes:
        trajectories: whole groups, one behind the other.
        ages: of each, in policy versions; empty for imitation.
        too_old: episodes of the buffer beyond the maximum age.
        available: episodes of the buffer within it.
    """

    trajectories: tuple[Trajectory, ...]
    ages: tuple[int, ...]
    too_old: int
    available: int

    def figures(self) -> dict[str, float]:
        """Figures for the log, by the names of `agent_gym.trainers.metrics.METRICS`.

        Returns:
            Name to number.
        """
        found = {
            "replay/episodes": float(len(self.trajectories)),
            "replay/groups": float(len({one.group_id for one in self.trajectories})),
            "replay/too_old": float(self.too_old),
            "replay/available": float(self.available),
        }
        if self.trajectories:
            found["replay/reward"] = float(np.mean([one.total_reward for one in self.trajectories]))
        if self.ages:
            found |= {"replay/age_mean": float(np.mean(self.ages)), "replay/age_max": float(max(self.ages))}
        return found


@dataclass(slots=True, eq=False)
class ReplayBuffer:
    """Episodes to be trained on again.

    Args:
        sources: name (of a file) -> its trajectories.
        fingerprint: of the model's tokenizer.
        vocab_size: rows of the model's embedding; None does not look.
        correction: see `CORRECTIONS`.
        max_age: the greatest age in policy versions that is trained on; None for no limit.
        base_version: of the weights that the run begins with; None takes the newest version among the trajectories.
        group_relative: the estimator compares the members of a group, so one that is alone is left out.

    Attributes:
        left_out: reason -> episodes that are no part of the buffer.
        version: `base_version`, or what was taken for it.
        digest: 16 hexadecimal digits of all that is in it.

    Raises:
        ReplayError: for whatever cannot be trained on, naming source and trajectory.
        ValueError: for settings that contradict one another.
    """

    sources: Mapping[str, Iterable[Trajectory]]
    fingerprint: str
    vocab_size: int | None = None
    correction: Correction = "token_truncate"
    max_age: int | None = None
    base_version: int | None = None
    group_relative: bool = True
    left_out: Counter[str] = field(default_factory=Counter, init=False)
    version: int = field(default=0, init=False)
    digest: str = field(default="", init=False)
    _groups: list[_Group] = field(default_factory=list, init=False)
    _highest: tuple[int, str] = field(default=(-1, ""), init=False)

    def __post_init__(self) -> None:
        """Check every trajectory and put the groups together."""
        if self.correction not in CORRECTIONS:
            raise ValueError(f"replay_correction={self.correction!r} is unknown; choose one of {', '.join(CORRECTIONS)}")
        if self.imitates and (self.max_age is not None or self.base_version is not None):
            raise ValueError(
                "a maximum age or a base version with replay_correction='imitation': what is imitated has no age; leave them out"
            )
        if self.max_age is not None and self.max_age < 0:
            raise ValueError(f"replay_max_age={self.max_age} must not be negative")
        whole = hashlib.sha256()
        newest = 0
        for number, (name, trajectories) in enumerate(self.sources.items()):
            members: dict[str, list[Trajectory]] = {}
            for place, one in enumerate(trajectories):
                whole.update(content_digest(one).encode())
                reason = self._check(f"{name}, trajectory {place} (task {one.task_id!r})", one)
                if reason is not None:
                    self.left_out[reason] += 1
                    continue
                members.setdefault(_group_key(one), []).append(one)
            for key, group in members.items():
                if self.group_relative and not self.imitates and len(group) < 2:
                    self.left_out["alone_in_its_group"] += len(group)
                    continue
                versions = [step.policy_version for one in group for step in one.steps if len(step.action_ids)]
                newest = max([newest, *versions])
                named = tuple(replace(one, group_id=f"replay-{number}-{key}") for one in group)
                self._groups.append(_Group(named, min(versions, default=0)))
        self.sources = {}  # they are groups now
        self.digest = whole.hexdigest()[:16]
        if not self._groups:
            why = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(self.left_out.items()))
            hint = (
                "; members of a group are episodes of one task, as a training run saves them: save such, choose an estimator that compares nothing "
                "(reinforce), or imitate (replay_correction='imitation')"
                if self.left_out["alone_in_its_group"]
                else ""
            )
            raise ReplayError(f"nothing to replay: no episode is left ({why or 'the files hold none'}){hint}")
        self.version = newest if self.base_version is None else self.base_version
        if not self.imitates and newest > self.version:
            raise ReplayError(
                f"replay_base_version={self.base_version}, and an episode was sampled by version {newest}: it cannot be newer than the weights that the "
                "run begins with; give their version, or leave replay_base_version out to begin at the newest"
            )

    @classmethod
    def from_files(cls, files: Sequence[str | Path], *, fingerprint: str, **settings: Any) -> ReplayBuffer:
        """Open trajectory files.

        Args:
            files: ending in .jsonl or .parquet, of `agent-gym rollout`, of run folders, or of `agent-gym data import-chat`.
            fingerprint: of the model's tokenizer.
            **settings: see `ReplayBuffer`.

        Returns:
            The buffer.

        Raises:
            ReplayError: for a file that is missing, damaged, cut off, no trajectory file, given twice, or cannot be trained on.
        """
        names = [str(Path(one)) for one in files]
        twice = sorted(name for name, count in Counter(str(Path(one).resolve()) for one in files).items() if count > 1)
        if twice:
            raise ReplayError(f"{twice[0]} was given twice; its episodes would count double")
        return cls({name: _read(name) for name in names}, fingerprint, **settings)

    @property
    def imitates(self) -> bool:
        """Whether its actions are imitated instead of weighed."""
        return self.correction == "imitation"

    def __len__(self) -> int:
        """The number of episodes, whatever their age."""
        return sum(len(group.members) for group in self._groups)

    def check_fits(self, estimator: Estimator, vocab_size: int) -> None:
        """Refuse to be trained on where that would fail, or would lose what the run does not need to lose.

        Args:
            estimator: of the run's advantages.
            vocab_size: rows of the model's embedding.

        Raises:
            ReplayError: for an id that the model does not have.
            ValueError: if `group_relative` says other than the estimator.
        """
        highest, where = self._highest
        if highest >= vocab_size:
            raise ReplayError(f"{where} holds the id {highest}, outside the model's vocabulary of {vocab_size}; the file is damaged")
        if not self.imitates and self.group_relative is not estimator.group_relative:
            what = (
                "compares the members of a group"
                if estimator.group_relative
                else "compares nothing, so an episode that is alone counts too"
            )
            raise ValueError(
                f"the replay buffer was made with group_relative={self.group_relative}, and advantage={estimator.name!r} {what}; make it with "
                f"group_relative={estimator.group_relative}"
            )

    def describe(self, ratio: float) -> str:
        """Say in a line what is replayed.

        Args:
            ratio: replayed episodes per fresh one.

        Returns:
            The line.
        """
        lost = "".join(f", {count} left out ({reason.replace('_', ' ')})" for reason, count in sorted(self.left_out.items()))
        how = "imitated with weight 1" if self.imitates else f"{self.correction}, base version {self.version}"
        age = "" if self.max_age is None else f", at most {self.max_age} versions old"
        return f"replay: {len(self)} episodes in {len(self._groups)} groups, {ratio:g} per fresh episode; {how}{age}{lost}"

    def _check(self, where: str, one: Trajectory) -> str | None:
        """Refuse what can never be trained on; return why an episode takes no part, None where it does."""
        if not one.tokenizer_fingerprint:
            raise ReplayError(f"{where}: it does not say which tokenizer its ids belong to; the model speaks {self.fingerprint}")
        if one.tokenizer_fingerprint != self.fingerprint:
            raise ReplayError(
                f"{where}: its ids are those of the tokenizer {one.tokenizer_fingerprint}, the model speaks {self.fingerprint}; they mean other tokens to "
                "the model. Play or import it with the model's tokenizer (--tokenizer)"
            )
        if not one.token_exact:
            raise ReplayError(
                f"{where}: it is not token-exact: its ids were made of a server's text (OpenAIPolicy) and are not those that were sampled. To learn from "
                "such text, write it as a chat log and import it (agent-gym data import-chat)"
            )
        if not is_intact(one):
            raise ReplayError(f"{where}: it was altered since it was imported; import its log again")
        for number, step in enumerate(one.steps):
            for ids in (step.observation_ids, step.action_ids):
                if len(ids) and (ids.min() < 0 or (self.vocab_size is not None and ids.max() >= self.vocab_size)):
                    raise ReplayError(
                        f"{where}: step {number} holds an id outside the model's vocabulary of {self.vocab_size}; the file is damaged"
                    )
                if len(ids):
                    self._highest = max(self._highest, (int(ids.max()), f"{where}: step {number}"))
            if len(step.action_ids) and not len(step.observation_ids):
                raise ReplayError(f"{where}: step {number} acts on an empty prompt; nothing can be trained behind no token")
        reason = exclusion_reason(one)
        if reason is not None or self.imitates:
            return reason
        self._check_sampled(where, one)
        return None

    @staticmethod
    def _check_sampled(where: str, one: Trajectory) -> None:
        """Without the probabilities of what was sampled there is nothing to correct by."""
        for number, step in enumerate(one.steps):
            if not len(step.action_ids):
                continue
            if step.logprobs is None:
                raise ReplayError(
                    f"{where}: step {number} has no log-probabilities, so how far the model has moved from what sampled it is unknown; imitate it with "
                    "weight 1 (--replay-correction imitation), or leave the file out"
                )
            if not np.all(np.isfinite(step.logprobs)) or float(step.logprobs.max()) > _HIGHEST_LOGPROB:
                raise ReplayError(f"{where}: step {number} has a log-probability that is not finite or above 0; the file is damaged")
        known = {name: one.sampling[name] for name in ("temperature", "top_p", "top_k", "min_p") if one.sampling.get(name) is not None}
        try:
            check_training_sampling(Sampling(**known))
        except (TypeError, ValueError) as error:
            raise ReplayError(f"{where}: {error}") from error

    def draw(self, episodes: float, *, updates: int, seed: int) -> Drawn:
        """Draw whole groups, without repetition.

        Args:
            episodes: wanted; as close to it as whole groups come, and at least one group.
            updates: optimiser steps that the run has made.
            seed: of the draw.

        Returns:
            What is replayed; nothing where every group is too old.
        """
        current = self.version + updates
        fitting = [group for group in self._groups if self.imitates or self.max_age is None or current - group.version <= self.max_age]
        available = sum(len(group.members) for group in fitting)
        chosen: list[_Group] = []
        total = 0
        for index in np.random.default_rng(seed).permutation(len(fitting)):
            size = len(fitting[index].members)
            if chosen and abs(total + size - episodes) >= abs(total - episodes):
                break
            chosen.append(fitting[index])
            total += size
        ages = [] if self.imitates else [current - group.version for group in chosen for _ in group.members]
        return Drawn(tuple(one for group in chosen for one in group.members), tuple(ages), len(self) - available, available)


def _group_key(one: Trajectory) -> str:
    """The name of an episode's group in its file; without one, episodes of the same task are a group."""
    if one.group_id:
        return one.group_id
    told = [one.env_id, one.task_id, one.seed, sorted(map(repr, one.env_kwargs.items())), sorted(map(repr, one.options.items()))]
    return f"task-{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}"


def _read(name: str) -> Iterable[Trajectory]:
    """The trajectories of a file; every error names it."""
    try:
        yield from iter_trajectories(name, strict=True)
    except FileNotFoundError:
        raise ReplayError(f"there is no trajectory file {name}") from None
    except (OSError, ValueError) as error:
        text = str(error)
        raise ReplayError(text if name in text else f"{name} cannot be read: {text}") from error


def replay_rows(
    buffer: ReplayBuffer,
    drawn: Drawn,
    estimator: Estimator,
    *,
    first: int,
    gamma: float | None = None,
    scale: str = "group",
    settings: Mapping[str, Any] | None = None,
    merge: bool = True,
    mask_truncated: bool = False,
    drop_zero_variance: bool = False,
) -> list[Row]:
    """Make the training rows of what was drawn. Its advantages are estimated apart from the fresh episodes', group by group as theirs.

    Args:
        buffer: that it was drawn from.
        drawn: the episodes.
        estimator: of their advantages; not asked where they are imitated.
        first: the number of its first trajectory in the batch, behind the fresh ones.
        gamma: as for the estimator.
        scale: as for the estimator.
        settings: further settings of the estimator.
        merge: as for `build_rows`.
        mask_truncated: leave out actions that were cut off.
        drop_zero_variance: leave out groups without variance.

    Returns:
        Rows with `replayed` set. Imitated ones have unknown log-probabilities, which weigh 1.
    """
    items = drawn.trajectories
    advantages: Advantages
    left_out: set[int] = set()
    if buffer.imitates:
        advantages = [[1.0] * len(one.steps) for one in items]
    else:
        advantages = estimator(items, **{**(settings or {}), "gamma": gamma, "scale": scale})
        if drop_zero_variance:
            left_out = {place for group in zero_variance_groups(items, gamma) for place in group}
    rows: list[Row] = []
    for place, (one, values) in enumerate(zip(items, advantages, strict=True)):
        if place in left_out:
            continue
        trained = [
            not (mask_truncated and step.finish_reason in CUT_OFF) and float(step.info.get("weight", 1.0)) != 0.0 for step in one.steps
        ]
        for row in build_rows(one, values, first + place, merge, trained):
            unknown = np.where(row.mask, np.float32(math.nan), np.float32(0.0))
            rows.append(replace(row, replayed=True, logprobs=unknown if buffer.imitates else row.logprobs))
    return rows


def keep_in_run(buffer: ReplayBuffer, run: RunFolder) -> None:
    """Note in a run folder what is replayed; a run that goes on has to go on with the same.

    Args:
        buffer: of the run.
        run: its folder.

    Raises:
        ReplayError: if the run began with other episodes.
    """
    known = [record["digest"] for record in run.metrics("replay")]
    if not known:
        told = {"digest": buffer.digest, "episodes": len(buffer), "version": buffer.version, "left_out": dict(buffer.left_out)}
        run.log("replay", 0, told)
    elif known[0] != buffer.digest:
        raise ReplayError(
            f"the replay files hold other episodes than those that the run in {run.path} began with ({buffer.digest}, and not {known[0]}); put them back, or "
            "begin another run"
        )
