"""Environments on Ray: a local cluster of two nodes, equal trajectories, and actors that die by SIGKILL."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from flow_envs import Chooser
from helpers import require
from worker_envs import TwoArguments, count

ray = require("ray")
from ray._private import ray_constants  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

from agent_gym.flows import EnvPool, open_workers, run_rows  # noqa: E402
from agent_gym.flows.ray_workers import RayWorkers  # noqa: E402


def rows(number, env_kwargs=None, **more):
    return [{"env_id": "", "env_kwargs": env_kwargs or {}, "seed": seed, **more} for seed in range(number)]


@pytest.fixture(scope="module")
def address():
    """Two nodes with one processor each, on 127.0.0.1."""
    patch = pytest.MonkeyPatch()
    patch.setattr(
        ray_constants, "ENABLE_RAY_CLUSTER", False
    )  # else Ray looks for a cluster at 127.0.0.1 under this machine's other address
    patch.setenv(
        "PYTHONPATH", os.pathsep.join(path for path in sys.path if path)
    )  # the modules of the environments must be found on every node
    patch.setenv("RAY_TQDM_PATCH_PRINT", "0")  # else Ray puts a function of its own in place of print
    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    try:
        cluster.add_node(**small)
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()
        patch.undo()


@pytest.fixture(scope="module")
def pool(address):
    workers = open_workers(address, count)
    assert isinstance(workers, RayWorkers)
    pool = EnvPool(count, workers=workers)
    yield pool
    pool.close()
    assert not ray.is_initialized(), "the cluster is left again"


def test_trajectories_are_those_without_workers_on_both_nodes(pool):
    here = run_rows(rows(6), Chooser(), env_factory=count, seed=3)
    there = run_rows(rows(6), Chooser(), pool=pool, seed=3)
    assert there.trajectories == here.trajectories
    assert [[step.info for step in one.steps] for one in there.trajectories] == [
        [step.info for step in one.steps] for one in here.trajectories
    ]
    assert len({worker.place()[0] for worker in pool.workers.workers}) == 2, "an actor on each node"


def test_an_actor_that_is_killed_costs_its_episodes_a_retry_and_is_replaced(pool):
    plan = rows(8, {"turns": 6})
    without = run_rows(plan, Chooser(), env_factory=count, seed=4)
    run_rows(plan, Chooser(), pool=pool, seed=4)
    killed = pool.workers.workers[0].place()[1]
    done = []

    class Watching(Chooser):
        async def generate(self, prompt_ids, sampling, *, session=None):
            if len(self.requests) == 20:
                os.kill(killed, signal.SIGKILL)
                done.append(killed)
            return await super().generate(prompt_ids, sampling, session=session)

    result = run_rows(plan, Watching(), pool=pool, seed=4)
    assert done == [killed] and not result.dropped and result.row_indices == tuple(range(8))
    same = [a == b for a, b in zip(result.trajectories, without.trajectories, strict=True)]
    assert result.retries >= 1 and same.count(False) <= result.retries <= 4
    assert [one.seed for one in result.trajectories] == list(range(8))
    run_rows(rows(8, {"turns": 5}), Chooser(), pool=pool, seed=4)  # other environments, which are dealt anew
    workers = pool.workers.workers
    assert len(workers) == 2 and killed not in {worker.place()[1] for worker in workers}


def test_errors_of_an_environment_come_back_from_ray_as_themselves(pool):
    with pytest.raises(TwoArguments, match="lost count at 7") as caught:
        run_rows(rows(1, options={"do": "raise"}), Chooser(), pool=pool)
    assert "_misbehave" in str(caught.value.__cause__)


def test_a_cluster_without_a_free_processor_is_an_error_and_not_a_wait(pool, address):
    run_rows(rows(6), Chooser(), pool=pool, seed=3)  # its actors hold both processors
    with pytest.raises(RuntimeError, match=r"has no free processor \(it has 2\)"):
        run_rows(rows(1), Chooser(), env_factory=count, workers=address)
