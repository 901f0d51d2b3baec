"""`export_minari`: trajectories as a data set of Minari (github.com/Farama-Foundation/Minari, tested with 0.5.4), for offline learning.

    dataset = export_minari(trajectories, "agentr1/tool-v0", env)
    observations, actions = episode_ids(dataset[0])

Observations and actions are the padded arrays of the environment's own spaces; their lengths stand in Minari's infos, since a pad id may also be one that
the model sampled. As everywhere in Minari, `infos[...][t + 1]` belongs to step t and `infos[...][0]` to the reset:

    observation_length   ids of the observation that the reset or step returned
    action_length        ids of the action; 0 for the reset
    logprobs             of the action's ids, float32, NaN behind its end and where the policy gave none
    stop_reason          see `agent_gym.trajectory.StopReason`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from agent_gym.adapters._world import need
from agent_gym.spaces import TokenBox
from agent_gym.trajectory import StopReason, Trajectory

__all__ = ["episode_ids", "export_minari"]


def export_minari(
    trajectories: Iterable[Trajectory], dataset_id: str, env: gymnasium.Env[Any, Any], *, data_format: str = "arrow", **metadata: Any
) -> Any:
    """Write trajectories as a Minari data set, where Minari keeps its data sets (`MINARI_DATASETS_PATH`).

    Metadata of each episode: task_id, group_id, env_id, env_kwargs (as text), tokenizer_fingerprint, metrics; the seed where it had one.

    Args:
        trajectories: any number, also from a generator; one episode at a time is held in memory.
        dataset_id: as Minari wants it: "name-v0" or "namespace/name-v0".
        env: the environment whose episodes these are, or one made with the same keywords: it gives the spaces.
        data_format: "arrow" or "parquet"; "hdf5" needs h5py.
        **metadata: further keywords of `minari.create_dataset_from_buffers`, such as author, description and algorithm_name.

    Returns:
        The `minari.MinariDataset`.

    Raises:
        ImportError: if Minari is not installed.
        TypeError: if the spaces of the environment are no `TokenBox`.
        ValueError: for no trajectories, one without steps, with ids of another tokenizer or with more of them than a space holds; or for
            a data set that Minari refuses. Nothing is left of a data set that was begun.
    """
    minari = need("minari", "minari")
    spaces = (env.observation_space, env.action_space)
    if not all(isinstance(space, TokenBox) for space in spaces):
        raise TypeError(
            f"export_minari needs an environment over token ids (TokenBox), and its spaces are {spaces}; see agent_gym.wrappers.as_token_env"
        )
    fingerprint = str(getattr(env.unwrapped, "tokenizer_fingerprint", ""))
    heads: list[dict[str, Any]] = []
    all_buffers = _buffers(minari, trajectories, spaces, fingerprint, heads)
    first = next(all_buffers, None)  # before Minari makes a folder
    if first is None:
        raise ValueError("there are no trajectories to export")

    def buffers() -> Iterator[Any]:
        yield first
        yield from all_buffers

    # Plain Box spaces: Minari writes them down and makes them anew, and knows nothing of TokenBox.
    observation_space, action_space = (gymnasium.spaces.Box(space.low, space.high, dtype=np.int64) for space in spaces)  # type: ignore[attr-defined, arg-type]  # TokenBox, checked above
    stored = dataset_id in minari.list_local_datasets()
    try:
        dataset = minari.create_dataset_from_buffers(
            dataset_id, buffers(), observation_space=observation_space, action_space=action_space, data_format=data_format, **metadata
        )
        dataset.storage.update_episode_metadata(heads, range(len(heads)))
    except (TypeError, ValueError, OSError):
        if not stored:
            _remove(minari, dataset_id)
        raise
    return dataset


def _remove(minari: Any, dataset_id: str) -> None:
    """Take a data set away that was begun and not finished."""
    import shutil

    path = minari.storage.get_dataset_path(dataset_id)
    if path.is_dir():
        shutil.rmtree(path)


def _buffers(minari: Any, trajectories: Iterable[Trajectory], spaces: Any, fingerprint: str, heads: list[dict[str, Any]]) -> Iterator[Any]:
    for place, trajectory in enumerate(trajectories):
        where = f"trajectory {place} (task {trajectory.task_id!r})"
        if not trajectory.steps:
            raise ValueError(f"{where} has no steps; leave it out")
        if trajectory.tokenizer_fingerprint and fingerprint and trajectory.tokenizer_fingerprint != fingerprint:
            raise ValueError(f"{where} has ids of tokenizer {trajectory.tokenizer_fingerprint}, and the environment speaks {fingerprint}")
        heads.append(
            {
                "task_id": trajectory.task_id,
                "group_id": trajectory.group_id,
                "env_id": trajectory.env_id,
                "env_kwargs": repr(dict(trajectory.env_kwargs)),
                "tokenizer_fingerprint": trajectory.tokenizer_fingerprint,
                "metrics": {name: float(value) for name, value in trajectory.metrics.items()},
            }
        )
        try:
            yield _buffer(minari, trajectory, *spaces)
        except ValueError as error:
            raise ValueError(f"{where} does not fit the environment's spaces: {error}") from error


def _buffer(minari: Any, trajectory: Trajectory, observation_space: TokenBox, action_space: TokenBox) -> Any:
    steps = trajectory.steps
    observations = [step.observation_ids for step in steps] + [trajectory.final_observation]
    logprobs = np.full((len(steps) + 1, action_space.shape[0]), np.nan, dtype=np.float32)
    for place, step in enumerate(steps, start=1):
        if step.logprobs is not None:
            logprobs[place, : len(step.logprobs)] = step.logprobs
    return minari.data_collector.EpisodeBuffer(
        seed=trajectory.seed,
        observations=np.stack([observation_space.pad(ids) for ids in observations]),
        actions=np.stack([action_space.pad(step.action_ids) for step in steps]),
        rewards=np.array([step.reward for step in steps], dtype=np.float64),
        terminations=np.array([step.terminated for step in steps]),
        truncations=np.array([step.truncated for step in steps]),
        infos={
            "observation_length": [len(ids) for ids in observations],  # lists: Minari cannot read arrays of numbers back, only of rows
            "action_length": [0, *(len(step.action_ids) for step in steps)],
            "logprobs": logprobs,
            "stop_reason": [str(reason) for reason in (StopReason.RUNNING, *(step.stop_reason for step in steps))],
        },
    )


def episode_ids(episode: Any) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Return the token ids of an episode as they were, without padding.

    Args:
        episode: a `minari.EpisodeData` of a data set that `export_minari` wrote.

    Returns:
        The observations, the final one last, and the actions: int64 arrays of shape (length,), each of its own length.

    Raises:
        ValueError: for an episode without the lengths.
    """
    infos = episode.infos or {}
    if not {"observation_length", "action_length"} <= set(infos):
        raise ValueError("the episode's infos have no observation_length and action_length; export_minari did not write it")
    observations = [ids[:length] for ids, length in zip(episode.observations, infos["observation_length"], strict=True)]
    actions = [ids[:length] for ids, length in zip(episode.actions, infos["action_length"][1:], strict=True)]
    return observations, actions
