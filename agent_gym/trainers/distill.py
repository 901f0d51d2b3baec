"""`AgentDistillTrainer`: on-policy distillation. The student plays, and a teacher says of each of its tokens how likely it was.

It is `AgentGRPOTrainer` with another signal: the same episodes, the same rows, the same masks. At each action token the student is drawn towards the
teacher by the reverse KL divergence between their next-token distributions, behind the very ids that the student was shown and wrote itself; tokens that the
environment wrote are read and count nothing. What the student does badly it is therefore taught where it does it, token by token, and not
only whether the episode went well.

- "full": the divergence over the whole vocabulary, differentiated exactly. The states are where they are: nothing is differentiated through the
  sampling, as in GKD (arXiv 2306.13649, section 3.1). It needs a teacher in this process.
- "sampled": log p_teacher - log p_student of the sampled token is the advantage of that token in the ordinary policy loss, with its importance ratio and clip
  (K. Lu and Thinking Machines Lab, "On-Policy Distillation", 2025). Its gradient is that of "full" in expectation over the sampled token; a server's
  `prompt_logprobs` are enough.

The teacher stands outside of `self.model`: it is in no checkpoint, no optimiser and no weight update of an engine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from agent_gym.trainers.advantages import Advantages
from agent_gym.trainers.distill_config import AgentDistillConfig
from agent_gym.trainers.distill_settings import check_distill_settings, check_servers
from agent_gym.trainers.divergence import Head, Likelihood, likelihood, reverse_kl
from agent_gym.trainers.grpo import AgentGRPOTrainer
from agent_gym.trainers.losses import LossFigures
from agent_gym.trainers.rows import Row
from agent_gym.trainers.second_model import plain_model
from agent_gym.trainers.teacher import ModelTeacher, RowTeacher, ServerTeacher, make_teacher
from agent_gym.trainers.tensors import SubBatch

__all__ = ["AgentDistillConfig", "AgentDistillTrainer", "ModelTeacher", "ServerTeacher"]


class _Reader:
    """Compares the student's distributions with the teacher's inside of the student's forward pass, where its head is at hand."""

    def __init__(self, student: Head, teacher: Head, teacher_states: torch.Tensor, targets: torch.Tensor, chunk: int) -> None:
        self.student, self.teacher, self.teacher_states, self.targets, self.chunk = student, teacher, teacher_states, targets, chunk
        self.divergence: torch.Tensor | None = None
        self.said: Likelihood | None = None

    def __call__(self, states: torch.Tensor) -> None:
        self.divergence, self.said = reverse_kl(self.student, states, self.teacher, self.teacher_states, self.targets, self.chunk)


class _Seen:
    """Sums over the sub-batches of an optimiser window; reduced over the ranks once, when the window is done."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(5, dtype=torch.float64, device=device)  # divergence, log-probability, likeliest, known, unknown
        self.rows = torch.zeros(2, dtype=torch.float64, device=device)  # seconds, tokens

    def add(self, divergence: torch.Tensor, said: Likelihood) -> None:
        """Add tokens; all of shape (n,), NaN where the teacher does not know the log-probability."""
        with torch.no_grad():
            known = torch.isfinite(said.logps)
            sums = (divergence[known].sum(), said.logps[known].sum(), said.likeliest[known].sum(), known.sum(), (~known).sum())
            self.sums += torch.stack([value.to(torch.float64) for value in sums])

    def read(self, seconds: float, tokens: int) -> None:
        """Add what the teacher read, and how long it took."""
        self.rows += torch.tensor([seconds, tokens], dtype=torch.float64, device=self.rows.device)

    def results(self, accelerator: Any) -> dict[str, float]:
        """Reduce over the ranks and average."""
        divergence, logps, likeliest, known, unknown = accelerator.reduce(self.sums, reduction="sum").tolist()
        rows = accelerator.gather(self.rows).view(-1, 2)
        results = {"distill/seconds": float(rows[:, 0].max()), "distill/tokens_scored": float(rows[:, 1].sum()), "distill/unknown": unknown}
        if known:
            results |= {
                "distill/reverse_kl": divergence / known,
                "distill/teacher_logprob": logps / known,
                "distill/agreement": likeliest / known,
            }
        return results


class AgentDistillTrainer(AgentGRPOTrainer):
    """Trains a language model on its own episodes of a Gymnasium environment by what a teacher says of its tokens.

    Groups are not needed: with `num_generations=1`, the default, every episode of a generation batch is of another task. The reward is logged, and
    counts beside the teacher where `reward_weight` is above 0.

    Args:
        model: the student, as for `AgentGRPOTrainer`.
        args: the settings.
        *positional: as for `AgentGRPOTrainer`, in its order: env, train_dataset, ...
        teacher: a causal language model (it is frozen), its folder or name, the address of a vLLM server, or a teacher object such as `ServerTeacher`; None
            takes `args.teacher`. Its ids must be the student's; it may have more.
        **keywords: as for `AgentGRPOTrainer`, without replay.

    Attributes:
        teacher: a `ModelTeacher`, or what else was given.
        distill_loss: "full" or "sampled".

    Raises:
        TypeError: for settings or a teacher of another type.
        ValueError: as `AgentGRPOTrainer`, and for a teacher that reads other ids, or settings that it cannot be used with.
        EngineError: for a server that cannot be used.
    """

    _name = "Agent-Distill"

    def __init__(self, model: Any, args: AgentDistillConfig | None = None, *positional: Any, teacher: Any = None, **keywords: Any) -> None:
        args = AgentDistillConfig() if args is None else args
        if not isinstance(args, AgentDistillConfig):
            raise TypeError(f"args must be an AgentDistillConfig, which has the settings of the teacher, not {type(args).__name__}")
        if (teacher is None) == (args.teacher is None):
            what = "there is no teacher" if teacher is None else "teacher= and args.teacher are two teachers"
            raise ValueError(f"{what}; give one: a causal language model, its folder or name, or the address of a vLLM server")
        if keywords.get("replay") is not None:
            raise ValueError("replay=: a teacher scores what the student samples now; use AgentGRPOTrainer (algorithm grpo) to replay")
        super().__init__(model, args, *positional, **keywords)
        check_servers(args, args.teacher if teacher is None else teacher)
        self._made_teacher = not isinstance(teacher, RowTeacher)
        self.teacher: ModelTeacher | RowTeacher = make_teacher(
            args.teacher if teacher is None else teacher,
            student=self.accelerator.unwrap_model(self.model),
            tokenizer=self._tokenizer,
            temperature=args.temperature_of_teacher,
            dtype=args.teacher_dtype,
            device=self.accelerator.device,
            concurrency=args.teacher_concurrency,
        )
        local = isinstance(self.teacher, ModelTeacher)
        check_distill_settings(
            {"distill_loss": args.distill_loss, "teacher_temperature": args.teacher_temperature},
            server=not local,
            temperature=self.temperature,
        )
        self.distill_loss = ("full" if local else "sampled") if args.distill_loss == "auto" else args.distill_loss
        self._seen = _Seen(self.accelerator.device)
        self._taught_tokens = 0

    def close(self) -> None:
        """Let go of the engine and of the connections to the teacher, where this trainer made them."""
        super().close()
        if self._made_teacher and isinstance(self.teacher, RowTeacher):
            self.teacher.close()

    # ------------------------------------------------------------------------------------------------ from episodes to micro-steps

    def _rows(self, advantages: Advantages, flat: Sequence[Sequence[int]]) -> tuple[list[Row], int]:
        rows, dropped = super()._rows(advantages, flat)
        self._taught_tokens = sum(row.num_trained for row in rows)
        return rows, dropped

    def _estimates_advantages(self) -> bool:
        return False  # they hold the teacher's opinion, which is known in the loss

    def _trains_everything(self) -> bool:
        return True  # the teacher has something to say of every action

    def _watch_signal(self, signal: bool) -> None:
        super()._watch_signal(signal or self._taught_tokens > 0)

    # ------------------------------------------------------------------------------------------------ asking the teacher

    def _add_reference_logps(self, steps: list[list[SubBatch]]) -> None:
        super()._add_reference_logps(steps)
        if self.distill_loss == "sampled":
            self._ask([sub for step in steps for sub in step])

    def _ask(self, subs: Sequence[SubBatch]) -> None:
        """Have the teacher score the action tokens: `teacher_per_token_logps` and `teacher_likeliest` (B, C), NaN where it does not know."""
        began = time.perf_counter()
        if isinstance(self.teacher, ModelTeacher):
            for sub in subs:
                ids, attention, mask = _whole(sub)
                states = self._states_of_teacher(ids, attention, mask)
                if bool(mask.any()):
                    with self.accelerator.autocast():
                        said = likelihood(self.teacher.head, states, sub["completion_ids"][mask], self.args.teacher_chunk_tokens)
                    _spread(sub, mask, said)
                else:
                    _spread(sub, mask, Likelihood(states.new_zeros(0), mask.new_zeros(0)))
        else:
            self._ask_rows(self.teacher, subs)
        self._seen.read(time.perf_counter() - began, sum(_tokens(sub) for sub in subs))

    def _ask_rows(self, teacher: RowTeacher, subs: Sequence[SubBatch]) -> None:
        """Send every row, as long as it is, in one go, so that a server has many to work on."""
        wanted: list[tuple[SubBatch, int, list[int]]] = []
        for sub in subs:
            ids, attention, mask = _whole(sub)
            for line in torch.nonzero(mask.any(dim=1))[:, 0].tolist():
                wanted.append((sub, line, ids[line][attention[line].bool()].tolist()))
        scored = {
            (id(sub), line): scores for (sub, line, _), scores in zip(wanted, teacher.score([row for *_, row in wanted]), strict=True)
        }
        for sub in subs:
            _, _, mask = _whole(sub)
            first = sub["prompt_ids"].shape[1]
            logps, likeliest = [np.zeros(0, dtype=np.float32)], [np.zeros(0, dtype=np.bool_)]
            for line, chosen in enumerate(mask.cpu().numpy()):
                if chosen.any():
                    places = np.flatnonzero(chosen) + first - 1  # the scores begin with the second token
                    scores = scored[id(sub), line]
                    logps.append(scores.logprobs[places])
                    likeliest.append(scores.likeliest[places])
            device = sub["completion_ids"].device
            said = Likelihood(torch.from_numpy(np.concatenate(logps)).to(device), torch.from_numpy(np.concatenate(likeliest)).to(device))
            _spread(sub, mask, said)

    def _states_of_teacher(self, ids: torch.Tensor, attention: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.teacher, ModelTeacher)
        with self.accelerator.autocast():
            return self.teacher.states(ids, attention, mask)

    # ------------------------------------------------------------------------------------------------ the loss

    def compute_loss(  # type: ignore[override]  # as AgentGRPOTrainer's
        self, model: Any, inputs: list[SubBatch], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Compute the loss of one micro-step; see `AgentGRPOTrainer.compute_loss`.

        Args:
            model: the (wrapped) model.
            inputs: the sub-batches.
            return_outputs: must be False.
            num_items_in_batch: not used.

        Returns:
            The loss, a float32 scalar with the gradient of the last sub-batch.
        """
        total = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if self.accelerator.sync_gradients or not self.model.training:
            self._record(self._seen.results(self.accelerator))
            self._seen = _Seen(self.accelerator.device)
        return total

    def _sub_batch_loss(self, model: Any, sub: SubBatch, passes: int, figures: LossFigures) -> torch.Tensor:
        if self.distill_loss == "full":
            sub["reader"] = self._reader(sub)
        try:
            return super()._sub_batch_loss(model, sub, passes, figures)
        finally:
            sub.pop("reader", None)

    def _reader(self, sub: SubBatch) -> _Reader:
        assert isinstance(self.teacher, ModelTeacher)
        began = time.perf_counter()
        ids, attention, mask = _whole(sub)
        states = sub.get("teacher_states")
        if states is None:
            states = self._states_of_teacher(ids, attention, mask)
            if self.model.training and self.num_iterations > 1:  # it is asked for again
                sub["teacher_states"] = states
            self._seen.read(time.perf_counter() - began, _tokens(sub))
        targets = sub["completion_ids"][mask] if bool(mask.any()) else sub["completion_ids"][:1, 0]
        student = plain_model(self.accelerator.unwrap_model(self.model))
        return _Reader(Head(student, self.temperature), self.teacher.head, states, targets, self.args.teacher_chunk_tokens)

    def _advantages(self, sub: SubBatch, before: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        advantages: torch.Tensor = self.args.reward_weight * super()._advantages(sub, before, mask)
        if self.distill_loss == "full":
            return advantages
        told = sub["teacher_per_token_logps"].to(before.dtype)
        gap = torch.where(mask & torch.isfinite(told), told - before, torch.zeros_like(before))
        self._seen.add(-gap[mask], Likelihood(told[mask], sub["teacher_likeliest"][mask]))
        return advantages + gap

    def _add_own_loss(self, per_token: torch.Tensor, sub: SubBatch, mask: torch.Tensor) -> torch.Tensor:
        reader: _Reader | None = sub.get("reader")
        if reader is None:
            return per_token
        assert reader.divergence is not None and reader.said is not None  # the forward pass is behind us
        if bool(mask.any()):
            self._seen.add(reader.divergence.detach(), reader.said)
        if not (self.args.reward_weight or super()._trains_everything()):
            per_token = per_token.detach()  # all zero; its way back through the head would be for nothing
        return per_token + per_token.new_zeros(per_token.shape).masked_scatter(mask, reader.divergence.to(per_token.dtype))


def _whole(sub: SubBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids and attention (B, P + C), and which of the last C tokens are trained."""
    ids = torch.cat([sub["prompt_ids"], sub["completion_ids"]], dim=1)
    attention = torch.cat([sub["prompt_mask"], sub["completion_mask"]], dim=1)
    return ids, attention, (sub["completion_mask"] * sub["tool_mask"]).bool()


def _tokens(sub: SubBatch) -> int:
    """Tokens of the rows that hold an action; dummies that fill up a rank do not count."""
    _, attention, mask = _whole(sub)
    return int(attention[mask.any(dim=1)].sum())


def _spread(sub: SubBatch, mask: torch.Tensor, said: Likelihood) -> None:
    """Keep what the teacher said of the action tokens where they stand."""
    told = torch.zeros(mask.shape, dtype=said.logps.dtype, device=mask.device)
    sub["teacher_per_token_logps"] = told.masked_scatter(mask, said.logps)
    sub["teacher_likeliest"] = torch.zeros_like(mask).masked_scatter(mask, said.likeliest)
