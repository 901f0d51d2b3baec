"""What a trainer made of its episodes, written into them: which action tokens the loss saw, and with which advantage.

`with_scores` puts two optional keys into the info of each step, and files of trajectories keep them: `loss_mask`, one 0 or 1 per action token, and
`advantage`, one number per action token (before the weights of `loss_level`). A viewer that finds neither says so; nothing else reads them.
`UpdateEpisodes` keeps some episodes of every generation batch in the run's folder, in trajectories/train.jsonl.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_gym.runs import RunFolderError, is_disk_full
from agent_gym.trainers.rows import Row
from agent_gym.trajectory import Step, Trajectory
from agent_gym.trajectory_io import TrajectoryWriter, load_trajectories

if TYPE_CHECKING:
    from agent_gym.runs import RunFolder

__all__ = ["KEPT_PER_UPDATE", "UpdateEpisodes", "with_scores"]

KEPT_PER_UPDATE = 8
"""Episodes of a generation batch that `UpdateEpisodes` keeps."""
_DENSE = 200


def with_scores(trajectories: Sequence[Trajectory], rows: Sequence[Row], advantages: Sequence[Sequence[Any]] | None) -> list[Trajectory]:
    """Write mask and advantages into episodes.

    Args:
        trajectories: the first episodes of a batch.
        rows: the training rows of the whole batch, as the loss is given them.
        advantages: one entry per episode with a number, or one number per action token, for each step: for tokens that no row trains. None where the
            trainer has no advantage of a token before it computes its loss; then only the mask is written.

    Returns:
        Copies with `loss_mask` and `advantage` in the info of each step.
    """
    trained: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
    for row in rows:
        for segment in row.segments:
            trained[row.trajectory, segment.step] = row.advantages[segment.start : segment.end]
    out = []
    for position, episode in enumerate(trajectories):
        steps: list[Step] = []
        for number, step in enumerate(episode.steps):
            count = len(step.action_ids)
            used = trained.get((position, number))
            more: dict[str, Any] = {"loss_mask": [int(used is not None)] * count}
            if advantages is not None:
                values = np.broadcast_to(np.asarray(used if used is not None else advantages[position][number], dtype=np.float64), (count,))
                more["advantage"] = [round(float(value), 6) for value in values]
            steps.append(replace(step, info={**step.info, **more}))
        out.append(replace(episode, steps=steps))
    return out


class UpdateEpisodes:
    """Some episodes of every generation batch of a run, in trajectories/train.jsonl.

    Of the first 200 updates each is kept, of the later ones fewer and fewer, so that a long run does not fill a disk with them. A disk without room costs
    these episodes and not the run.

    Args:
        run: the folder.
    """

    def __init__(self, run: RunFolder) -> None:
        self.path = run.trajectories_path("train")
        self._run = run

    def wants(self, update: int) -> bool:
        """Whether episodes of this update are kept.

        Args:
            update: counted from 1.

        Returns:
            Always for the first ones, then for fewer the longer the run is.
        """
        return update % (1 + max(0, update - 1) // _DENSE) == 0

    def add(self, episodes: Sequence[Trajectory]) -> None:
        """Append episodes.

        Args:
            episodes: of one generation batch.

        Raises:
            OSError: for what a disk refuses for another reason than want of room.
        """
        try:
            with TrajectoryWriter(self.path) as writer:
                for episode in episodes:
                    writer.write(episode)
        except OSError as error:
            if not is_disk_full(error):
                raise

    def resume(self, version: int) -> None:
        """Leave out what is played again.

        Args:
            version: optimiser steps behind the checkpoint that the run goes on from.
        """
        if not self.path.is_file():
            return
        if version == 0:
            os.unlink(self.path)
            return
        kept = [one for one in load_trajectories(self.path) if one.steps and one.steps[0].policy_version < version]
        try:
            self._run.save_trajectories("train", kept)
        except RunFolderError as error:
            if not is_disk_full(error):
                raise
