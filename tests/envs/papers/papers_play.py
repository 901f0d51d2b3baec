"""The hand-made literature that the paper search tests share, and ways to play an episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_gym.envs.papers import PaperSearchEnv

PAPERS: list[dict[str, Any]] = [
    {"paper_id": "2101.00001v3", "title": "Owls at Night", "abstract": "We watch owls hunt at night.", "year": 2021, "references": ["cs/0112017", "1905.00002"]},
    {"paper_id": "2103.00002", "title": "Owls by Day", "abstract": "Owls sleep by day. We watch owls.", "year": 2021, "references": ["arXiv:cs/0112017v2", "9999.99999"]},
    {"paper_id": "cs/0112017", "title": "Zorm", "abstract": "Zorm is vell.", "year": 2001, "references": []},
    {"paper_id": "1905.00002v1", "title": "Bats", "abstract": "Bats hunt at night too.", "year": 2019, "references": ["2101.00001"]},
    {"paper_id": "2212.00001", "title": "Late Owls at Night", "abstract": "Owls, owls at night: all of them.", "year": 2022, "references": ["cs/0112017", "2101.00001", "2103.00002"]},
]  # fmt: skip
ROW: dict[str, Any] = {
    "qid": "made-1",
    "question": "Which papers watch owls, and what do they cite?",
    "answer": ["Owls at Night", "Owls by Day", "Zorm"],
    "answer_arxiv_id": ["2101.00001v1", "2103.00002", "cs/0112017v1"],
    "source_meta": {"published_time": "20221101"},
    "papers": PAPERS,
}


def calls(env: PaperSearchEnv, *wanted: tuple[str, str] | str) -> str:
    """The reply that makes these calls: ("search", query), ("expand", id) or "finish"."""
    names = {"search": "query", "expand": "paper_id"}
    pairs = [(one, {}) if isinstance(one, str) else (one[0], {names[one[0]]: one[1]}) for one in wanted]
    return "\n".join(env.tool_format.render_call(name, arguments) for name, arguments in pairs)


def step(env: PaperSearchEnv, *wanted: tuple[str, str] | str) -> tuple[float, dict[str, Any], bool]:
    """Make these calls; the reward, info, and whether the episode is over."""
    _, reward, terminated, truncated, info = env.step(env.encode_action(calls(env, *wanted)))
    return reward, info, terminated or truncated


def shown(env: PaperSearchEnv) -> str:
    """The present prompt as text."""
    return env.decode(env.prompt_ids)


def made(**kwargs: Any) -> PaperSearchEnv:
    """The environment over the hand-made literature."""
    return PaperSearchEnv(**{"dataset": [ROW], **kwargs})


def begun(reset: Mapping[str, Any] | None = None, **kwargs: Any) -> PaperSearchEnv:
    """The same, reset."""
    env = made(**kwargs)
    env.reset(**({"seed": 0} if reset is None else reset))
    return env


def ids(env: PaperSearchEnv) -> Sequence[str]:
    """The papers of the pool, in the order in which they were found."""
    return list(env.pool.found)
