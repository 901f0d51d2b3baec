"""`AgentR1/TwoWikiMultihopQA-v0` and `AgentR1/MuSiQue-v0`: multi-hop questions as in `AgentR1/HotpotQA-v0`, each by the rules of its own data set.

Search, prompts, rewards and the expert are HotpotQA's class. What differs is here: the generated world of each set, its published files, and what
its own script accepts: 2WikiMultihopQA (Ho et al., arXiv 2011.01060) the names of the answer's Wikidata id in `id_aliases.json`, MuSiQue (Trivedi et al.,
arXiv 2108.00573) the row's `answer_aliases`, and, if asked for, the verdict that a question has no answer. Whole prediction files, with the joint and
grouped figures, are scored by `agent_gym.data.multihop_metrics`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agent_gym.data.multihop_metrics import musique_scores, two_wiki_scores
from agent_gym.data.qa_loaders import QATask, parse_qa
from agent_gym.data.qa_metrics import AnswerScores, normalize_answer
from agent_gym.data.qa_source import MUSIQUE, MUSIQUE_FULL, TWO_WIKI, QASet, QASource, open_source
from agent_gym.envs.hotpotqa import HotpotQAEnv
from agent_gym.envs.tool import Score

__all__ = ["UNANSWERABLE", "MuSiQueEnv", "TwoWikiMultihopQAEnv"]

UNANSWERABLE = "unanswerable"
"""The answer that says that the pages hold none, where `MuSiQueEnv` scores that verdict."""
_NOTE = f" If the pages do not tell the answer, write {UNANSWERABLE} there."


class TwoWikiMultihopQAEnv(HotpotQAEnv):
    """Multi-hop questions of four kinds: compositional, inference, comparison and bridge comparison.

    Args:
        aliases: what is accepted beside the gold answers of a file or of rows: "auto" for the names in the `id_aliases.json` beside the dataset
            (with a warning where there is none), the path of such a file, or None for nothing. Generated rows bring their own names.
        **kwargs: see `HotpotQAEnv`; `level` has the one value "full".

    Raises:
        ValueError: for keywords that cannot be used, or a malformed file.
        FileNotFoundError: for a dataset or a file of aliases that is not there.
    """

    data_set: ClassVar[QASet] = TWO_WIKI

    def __init__(self, *, aliases: str | Path | None = "auto", **kwargs: Any) -> None:
        self._alias_file = aliases
        super().__init__(**kwargs)

    def _open_source(
        self, dataset: str | Path | Iterable[Mapping[str, Any]], *, split: str, data_dir: str | Path | None, level: str
    ) -> QASource:
        return open_source(dataset, split=split, data_dir=data_dir, level=level, data_set=self.data_set, aliases=self._alias_file)

    @staticmethod
    def answer_scores(prediction: str, answers: Sequence[str]) -> AnswerScores:
        """Score an answer as the script of 2WikiMultihopQA does; see `HotpotQAEnv.answer_scores`."""
        return two_wiki_scores(prediction, answers)


class MuSiQueEnv(HotpotQAEnv):
    """Questions of two to four hops in twenty paragraphs.

    Args:
        unanswerable: what becomes of rows whose question has no answer in their paragraphs. "drop": they are left out. "score": they are played too,
            the prompt says so, and the one right answer to them is `unanswerable`, which is worth nothing elsewhere; in the generated world
            every second task is then the unanswerable twin of the one before it, and of official files MuSiQue-Full's are taken.
        **kwargs: see `HotpotQAEnv`; `level` has the one value "full".

    Raises:
        ValueError: for keywords that cannot be used, or a malformed file.
        FileNotFoundError: for a dataset that is not there.
    """

    data_set: ClassVar[QASet] = MUSIQUE
    breakdown_names: ClassVar[tuple[str, ...]] = ("question_type", "answerable")
    extra_info: ClassVar[Mapping[str, Any]] = {**HotpotQAEnv.extra_info, "answerable": ""}
    """Beside those of `HotpotQAEnv`: "answerable" or "unanswerable" where both are played, else empty; evaluations give success for each. Of
    unanswerable tasks em, f1 and sub_em are those of the verdict, 1 or 0; the script's answer_em is success on the answerable ones."""

    def __init__(self, *, unanswerable: str = "drop", **kwargs: Any) -> None:
        if unanswerable not in ("drop", "score"):
            raise ValueError(f"unanswerable must be 'drop' or 'score', not {unanswerable!r}")
        self._both = unanswerable == "score"
        if self._both:
            self.prompt_note = _NOTE
        super().__init__(**kwargs)

    def _open_source(
        self, dataset: str | Path | Iterable[Mapping[str, Any]], *, split: str, data_dir: str | Path | None, level: str
    ) -> QASource:
        data_set = MUSIQUE_FULL if self._both else self.data_set
        return open_source(dataset, split=split, data_dir=data_dir, level=level, data_set=data_set, unanswerable=self._both)

    def _read(self, row: Mapping[str, Any]) -> QATask:
        return parse_qa(row, where="options['task']", unanswerable=self._both)

    @staticmethod
    def answer_scores(prediction: str, answers: Sequence[str]) -> AnswerScores:
        """Score an answer as the script of MuSiQue does; see `HotpotQAEnv.answer_scores`."""
        return musique_scores(prediction, answers)

    def _score(self, answer: str | None, content: str) -> Score:
        """Judge the answer, or the verdict that there is none; see `ToolEnv._score`."""
        if self._present.answerable:
            return super()._score(answer, content)
        tagged = answer is not None
        said = answer if tagged else content if self.answer_fallback == "reply" else ""
        right = normalize_answer(said or "") == UNANSWERABLE
        return self._graded(float(right), right, tagged, float(right), float(right), float(right))

    def _info(self, feedback: str, given: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        verdict = ("answerable" if self._present.answerable else UNANSWERABLE) if self._both else ""
        return super()._info(feedback, {"answerable": verdict, **given}, *args, **kwargs)

    def _answer_text(self) -> str:
        if self._present.answerable:
            return super()._answer_text()
        return f"{self.tool_format.close_reasoning(self._prefix)}<answer>{UNANSWERABLE}</answer>"
