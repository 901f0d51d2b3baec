"""What rows of published data sets mean: `TABLE`, one entry per environment. Environments join by one entry; `samples` reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agent_gym.data.samples import Sample

__all__ = ["TABLE", "Known", "SampleError"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class SampleError(ValueError):
    """A row that cannot be played as it stands; the text names file, row and field."""


def _pays_process(keywords: Mapping[str, Any]) -> bool:
    """PaperSearch pays relevance that another than the gold list gives: rows without one can be trained on, as StepPO does."""
    return keywords.get("reward") == "process" and keywords.get("relevance", "gold") != "gold"


def _goal_index(sample: Sample) -> dict[str, Any]:
    return {"index": _from_extra(sample, "goal_index")}


def _gamefile(sample: Sample) -> dict[str, Any]:
    return {"gamefile": _from_extra(sample, "game_relative_path", "gamefile")}


def _from_extra(sample: Sample, *names: str) -> Any:
    for name in names:
        if name in sample.extra_info:
            return sample.extra_info[name]
    raise SampleError(f"{sample.where}: field 'extra_info.{names[0]}' is missing: it says which task of the environment the row means")


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an environment in the world of samples.

    Attributes:
        env_id: of the environment; an entry whose id is not registered is not used.
        env_types: values of `env_kwargs.env_type` that mean it.
        agents: values of `agent_name` that mean it, each with the keywords that it implies.
        sources: values of `data_source` that mean it where nothing else does.
        rule: what its own reward is, in words.
        task: makes the options of a reset from a row; None: the row is the task.
        scores_gold: whether its own reward compares with `reward_model.ground_truth`.
        gold_free: whether it does without under these keywords; None: never.
        answers: whether its episodes end by an answer that a judge or a function can look at.
        without_gold: keywords under which a row without a gold answer can be played, if not scored.
        tool_rows: rows of its `sources` whose `env_type` is "tool" are played here, with the tools that they name: it knows their answers better.
    """

    env_id: str
    env_types: tuple[str, ...] = ()
    agents: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: _NOTHING)
    sources: tuple[str, ...] = ()
    rule: str = "the environment's own reward"
    task: Callable[[Sample], dict[str, Any]] | None = None
    scores_gold: bool = True
    gold_free: Callable[[Mapping[str, Any]], bool] | None = None
    answers: bool = True
    without_gold: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    tool_rows: bool = False


TABLE: tuple[Known, ...] = (
    Known(
        "AgentR1/Tool-v0",
        env_types=("tool",),
        agents=MappingProxyType(
            {
                "tool_agent": _NOTHING,
                "single_step_agent": MappingProxyType({"tools": (), "max_turns": 1}),
                "single_turn_agent": MappingProxyType({"tools": (), "max_turns": 1}),
            }
        ),
        rule="1 where the answer equals an accepted one (as numbers where both are numbers), else 0",
    ),
    Known(
        "AgentR1/HotpotQA-v0",
        env_types=("hotpotqa", "search"),
        agents=MappingProxyType({"hotpotqa_agent": MappingProxyType({"context": "rebuild", "force_first_search": True})}),
        sources=(
            "hotpotqa_distractor",
            "hotpotqa/hotpot_qa",
            "hotpot_qa",
            "hotpotqa",
            "searchR1_hotpotqa",
            "searchR1_nq",
            "searchR1_bamboogle",
        ),
        rule="official exact match with an accepted answer, 1 or 0",
    ),
    Known(
        "AgentR1/TwoWikiMultihopQA-v0",
        env_types=("2wikimultihopqa", "two_wiki"),
        sources=("2wikimultihopqa", "xanhho/2WikiMultihopQA", "searchR1_2wikimultihopqa"),
        rule="exact match with an accepted answer or alias, 1 or 0",
    ),
    Known(
        "AgentR1/MuSiQue-v0",
        env_types=("musique",),
        sources=("musique", "dgslibisey/MuSiQue", "searchR1_musique"),
        rule="exact match with an accepted answer or alias, 1 or 0",
    ),
    Known(
        "AgentR1/GSM8K-v0",
        env_types=("gsm8k",),
        agents=MappingProxyType({"gsm8k_agent": _NOTHING}),
        sources=("openai/gsm8k", "gsm8k"),
        rule="1 where the answer is the right number, compared as decimals, else 0",
        tool_rows=True,
    ),
    Known(
        "AgentR1/PaperSearch-v0",
        env_types=("paper_search", "papers"),
        agents=MappingProxyType({"paper_search_agent": _NOTHING}),
        sources=("bytedance/pasa", "pasa", "paper_search"),
        rule="the part of the gold papers that was found",
        gold_free=_pays_process,
        answers=False,
        without_gold=MappingProxyType({"reward": "process", "relevance": "bm25"}),
    ),
    Known(
        "AgentR1/WebShop-v0",
        env_types=("webshop",),
        agents=MappingProxyType({"webshop_agent": _NOTHING}),
        sources=("webshop",),
        rule="WebShop's own score of what was bought",
        task=_goal_index,
        scores_gold=False,
    ),
    Known(
        "AgentR1/ALFWorld-v0",
        env_types=("alfworld",),
        agents=MappingProxyType({"alfworld_agent": _NOTHING}),
        sources=("alfworld",),
        rule="1 when the household task is done",
        task=_gamefile,
        scores_gold=False,
    ),
)
"""What rows are known to mean. Environments join by one entry."""
