"""What rows of published data sets mean: `TABLE`, one entry per environment. Environments join by one entry; `samples` reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agent_gym.data.samples import Sample

__all__ = ["TABLE", "Known", "SampleError", "outside"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})

_WAYS_OUT = re.compile(r"(.*_)?(url|uri|host|path|dir|file|folder)")
_OUTSIDE = ("corpus", "aliases", "opponent", "expert", "browser", "browser_options")
"""Keywords that name addresses, files or code, whatever their value."""
_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "dataset": ("embedded", "official", "auto"),
        "game": ("coin_collector", "treasure_hunter", "cooking", "simple", "custom"),
    }
)
"""Keywords of our environments that take a file as well as one of these words."""
_TEXTS = ("context", "instructions", "system_prompt", "tool_format")
"""Keywords that are texts, or words with a colon of their own."""
_ADDRESS_PATH_OR_CODE = re.compile(r":|[\w~.][/\\]|[/\\][\w~.]|^~|^\S*\.[A-Za-z]\w*$")
_ABOVE = re.compile(r"^[/\\~]|:|(^|[/\\])\.\.($|[/\\])")


def outside(name: str, value: Any, *, ours: bool, relative: bool = False) -> bool:
    """Whether a keyword of a row leads out of the row: to an address, a file or code.

    Args:
        name: of the keyword.
        value: of it, plain JSON.
        ours: whether the environment is one of this package, whose keywords are known.
        relative: whether the value may be a path below the folder of the data.

    Returns:
        True if the row may say it only where the caller allows.
    """
    if name in _TEXTS:
        return False
    if name in _OUTSIDE or _WAYS_OUT.fullmatch(name):
        return True
    if ours and name in _WORDS:
        return value not in _WORDS[name]
    pattern = _ABOVE if relative else _ADDRESS_PATH_OR_CODE
    if isinstance(value, Mapping):
        return any(outside(str(key), one, ours=False) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return any(outside("", one, ours=False) for one in value)
    return isinstance(value, str) and pattern.search(value) is not None


class SampleError(ValueError):
    """A row that cannot be played as it stands; the text names file, row and field."""


def _pays_process(keywords: Mapping[str, Any]) -> bool:
    """PaperSearch pays relevance that another than the gold list gives: rows without one can be trained on, as StepPO does."""
    return keywords.get("reward") == "process" and keywords.get("relevance", "gold") != "gold"


def _answer_words(keywords: Mapping[str, Any]) -> str:
    """What HotpotQA and those of its class pay."""
    paid = {"em": "exact match with an accepted answer, 1 or 0", "f1": "F1 with the nearest accepted answer, 0 to 1"}
    reward = keywords.get("reward", "em")
    words = paid.get(reward, "a function of the answer") if isinstance(reward, str) else "a function of the answer"
    if keywords.get("format_weight"):
        words += f", and {keywords['format_weight']} for the format"
    return words + _costs(keywords, search_cost="search")


def _paper_words(keywords: Mapping[str, Any]) -> str:
    """What PaperSearch pays."""
    relevance = keywords.get("relevance", "gold")
    by = {"gold": "the gold list"}.get(relevance, relevance) if isinstance(relevance, str) else "a function"
    outcome, process = "the part of the gold papers that was found", f"the relevance of new papers by {by}"
    paid = {"process": process, "both": f"{outcome}, and {process}"}.get(str(keywords.get("reward", "outcome")), outcome)
    return paid if paid == outcome else paid + _costs(keywords, search_cost="search", expand_cost="expansion")


def _costs(keywords: Mapping[str, Any], **names: str) -> str:
    return "".join(f", less {keywords[name]} for each {what}" for name, what in names.items() if keywords.get(name))


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
        rule: what its own reward is, in words; a function of the environment's keywords where they decide.
        task: makes the options of a reset from a row; None: the row is the task.
        task_field: the field that `task` reads.
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
    rule: str | Callable[[Mapping[str, Any]], str] = "the environment's own reward"
    task: Callable[[Sample], dict[str, Any]] | None = None
    task_field: str = ""
    scores_gold: bool = True
    gold_free: Callable[[Mapping[str, Any]], bool] | None = None
    answers: bool = True
    without_gold: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    tool_rows: bool = False

    def rule_words(self, keywords: Mapping[str, Any]) -> str:
        """Return what its own reward is.

        Args:
            keywords: that the environment is made with.

        Returns:
            The words.
        """
        return self.rule if isinstance(self.rule, str) else self.rule(keywords)


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
        rule=_answer_words,
    ),
    Known(
        "AgentR1/TwoWikiMultihopQA-v0",
        env_types=("2wikimultihopqa", "two_wiki"),
        sources=("2wikimultihopqa", "xanhho/2WikiMultihopQA", "searchR1_2wikimultihopqa"),
        rule=_answer_words,
    ),
    Known(
        "AgentR1/MuSiQue-v0",
        env_types=("musique",),
        sources=("musique", "dgslibisey/MuSiQue", "searchR1_musique"),
        rule=_answer_words,
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
        rule=_paper_words,
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
        task_field="extra_info.goal_index",
        scores_gold=False,
    ),
    Known(
        "AgentR1/ALFWorld-v0",
        env_types=("alfworld",),
        agents=MappingProxyType({"alfworld_agent": _NOTHING}),
        sources=("alfworld",),
        rule="1 when the household task is done",
        task=_gamefile,
        task_field="extra_info.game_relative_path",
        scores_gold=False,
    ),
)
"""What rows are known to mean. Environments join by one entry."""
