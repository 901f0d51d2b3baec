"""The registry of everything that the trainers log: name, unit, range, and what to do when it leaves it. Knows neither TRL nor torch.

The names are stable: dashboards and reports may rely on them. In evaluation a name gets the prefix `eval_`; TensorBoard, W&B and trackio are given `train/NAME`
and `eval/NAME` by transformers. `python -m agent_gym.trainers.metrics` prints the page docs/metrics.md, which is made of this table alone, and tests hold
two updates of each trainer to it in both directions (`check_logged`).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["CONDITIONS", "METRICS", "PLACES", "Metric", "check_logged", "check_values", "describe", "find_metric", "render_page"]

CONDITIONS: Mapping[str, str] = MappingProxyType(
    {
        "always": "always",
        "plays": "the trainer plays the episodes itself (no `rollout=`)",
        "engine": "an engine samples (`use_vllm`, or a policy that is an engine)",
        "logprobs": "the log-probabilities of the sampler are known",
        "parts": "the environment names parts of its reward",
        "figures": "the environment has figures that are no reward",
        "fault": "a world broke for good",
        "dapo": "`loss_type` is dapo",
        "cispo": "`loss_type` is cispo",
        "beta": "`beta` is above 0",
        "replay": "`replay_files` or `replay=`",
        "replay_corrected": "replay, `replay_correction` not imitation",
    }
)
"""When a metric is logged: name -> in words."""

PLACES: Mapping[str, str] = MappingProxyType({"train": "training", "eval": "evaluation", "end": "end of the run"})
"""The kinds of records: of optimiser steps, of evaluations (names with `eval_`), and the one at the end."""

Range = tuple[float | None, float | None]
_ALL = ("grpo", "ppo", "distill")
_BOTH = ("train", "eval")
_NO_PREFIX = frozenset({"epoch", "step"})  # transformers writes them alike in every record
_HOLE = re.compile(r"\{\w+\}")


@dataclass(frozen=True, slots=True)
class Metric:
    """One logged quantity.

    Attributes:
        name: as logged while training; `{hole}` stands for any text.
        unit: of its values.
        possible: the numbers that it can be, inclusive; None where there is no bound. Another value is a bug.
        expected: where a healthy run keeps it, inclusive; None at either side where nothing can be said in general.
        says: what it is.
        act: what to do when it leaves the expected range.
        when: when it is logged, a key of `CONDITIONS`.
        trainers: that log it, keys of `agent_gym.trainers.kinds.TRAINERS`.
        places: the records that hold it, keys of `PLACES`.
    """

    name: str
    unit: str
    possible: Range
    expected: Range
    says: str
    act: str
    when: str = "always"
    trainers: tuple[str, ...] = _ALL
    places: tuple[str, ...] = _BOTH

    def matches(self, name: str) -> bool:
        """Whether a logged name, without `eval_`, is this metric's.

        Args:
            name: as it is logged.

        Returns:
            True where it is; a hole in the metric's own name stands for any text.
        """
        pattern = ".+".join(re.escape(part) for part in _HOLE.split(self.name))
        return re.fullmatch(pattern, name) is not None


_ANY: Range = (None, None)
_SHARE: Range = (0, 1)
_FROM_0: Range = (0, None)
_ZERO: Range = (0, 0)
_TRAIN = ("train",)
_END = ("end",)
_NOT_DISTILL = ("grpo", "ppo")
_PPO = ("ppo",)
_DISTILL = ("distill",)

# One metric on two or three lines: what it is, and what to do.
# fmt: off
_TABLE: tuple[Metric, ...] = (
    # ---------------------------------------------------------------------- reward
    Metric("reward", "reward", _ANY, _ANY, "mean return (undiscounted sum of step rewards) of the episodes that count",
        "it should rise; where it does not, look at frac_reward_zero_std and entropy, and read a few episodes (`agent-gym report`)"),
    Metric("reward_std", "reward", _FROM_0, _ANY, "standard deviation of those returns (ddof 1)",
        "near 0 nothing can be learned: see frac_reward_zero_std"),
    Metric("reward/step_mean", "reward", _ANY, _ANY, "mean reward of a step", "read beside reward: when it falls while reward stands, the episodes only grow longer"),
    Metric("frac_reward_zero_std", "share", _SHARE, (0, 0.8), "share of groups whose returns are all equal (or that have fewer than two members)",
        "the tasks are too hard or too easy: choose others, raise num_generations or the temperature, or warm-start; estimators without groups do not mind"),
    Metric("reward_parts/{part}", "reward", _ANY, _ANY, "mean over episodes of the sum of one named part of the reward",
        "when one part alone grows, the model has found a way around the others: weigh the parts in the environment", "parts"),
    Metric("metrics/{figure}", "of the figure", _ANY, _ANY, "mean over episodes of a figure that is no reward (F1, recall, ...)",
        "when it falls while reward rises, the reward does not ask for what is wanted", "figures"),
    # ---------------------------------------------------------------------- episodes
    Metric("rollout/success", "share", _SHARE, _ANY, "share of episodes whose environment reported success", "as for reward"),
    Metric("rollout/turns_mean", "steps", _FROM_0, _ANY, "mean number of steps of an episode",
        "near max_turns the model does not finish: raise max_turns, or reward the end"),
    Metric("rollout/turns_max", "steps", _FROM_0, _ANY, "largest number of steps of an episode", "as for rollout/turns_mean"),
    Metric("rollout/truncated_frac", "share", _SHARE, (0, 0.5), "share of episodes that a limit ended",
        "see which in rollout/stop: raise max_turns or the length of the observations, or choose another context policy"),
    Metric("rollout/cutoff_frac", "share", _SHARE, (0, 0.1), "share of actions that were cut off at max_completion_length",
        "raise max_completion_length, or set mask_truncated_steps"),
    Metric("rollout/invalid_frac", "share", _SHARE, (0, 0.2), "share of actions that the environment called invalid",
        "the model does not know the format: choose the tool format of its template, warm-start, or show an example"),
    Metric("rollout/empty_actions", "count", _FROM_0, _ZERO, "number of actions without any token",
        "the model ends its turn at once: look at end_of_turn_ids and the prompt (`agent-gym play`)"),
    Metric("rollout/action_tokens", "tokens", _FROM_0, _ANY, "mean number of sampled tokens of an episode",
        "a fast rise is often a way to be long without being better, a fall to nothing a collapse: lower learning_rate, or set beta"),
    Metric("rollout/env_token_frac", "share", _SHARE, (0, 0.98), "share of the rows' tokens that the environment wrote",
        "nearly all is read and nearly nothing trained: shorten observations (max_tool_result_tokens) or the context"),
    Metric("rollout/context_len_max", "tokens", _FROM_0, _ANY, "longest prompt with its action",
        "near the model's or engine's length episodes end by CONTEXT_LIMIT: choose a windowed context"),
    Metric("rollout/rows_per_traj", "rows", _FROM_0, _ANY, "rows of an episode that has any, mean (1 when every step was merged)",
        "above 1 with an appending context: see rollout/merge_breaks"),
    Metric("rollout/merge_breaks", "count", _FROM_0, _ANY, "number of times that a step could not be merged into the row before it",
        "expected where the context is rewritten; with an appending one, a flow or environment encodes text anew: repair it"),
    Metric("rollout/stop/{reason}", "share", _SHARE, _ANY, "share of episodes that ended for this reason (`agent_gym.trajectory.StopReason`)",
        "max_turns, context_limit and deadline: as for rollout/truncated_frac; env_fault: as for rollout/faults"),
    Metric("rollout/episodes", "count", _FROM_0, (1, None), "number of episodes of the generation batch, over all ranks",
        "none could be played: read the last fault in the run folder"),
    Metric("rollout/faults", "count", _FROM_0, _ZERO, "number of episodes left out because their world broke (after retries)",
        "read the records of kind fault; see docs/faults.md"),
    Metric("rollout/faults/{env_id}", "count", _FROM_0, _ZERO, "number of them by environment id", "as for rollout/faults", "fault"),
    Metric("rollout/fault_retries", "count", _FROM_0, _ZERO, "number of episodes that met a fault and were begun again",
        "a flaky world or server: see docs/faults.md", "plays"),
    Metric("rollout/fault_frac", "share", _SHARE, (0, 0.05), "faults among the last 200 episodes of all ranks, over 200",
        "training warns above 0.05 and stops above 0.2: repair the world, or lower max_concurrency"),
    Metric("faults/{fault}", "count", _FROM_0, _ZERO, "number of faults of this name since the last generation batch (`agent_gym.flows.Fault`), over all ranks",
        "docs/faults.md says of each name what to do"),
    Metric("rollout/nonfinite_rewards", "count", _FROM_0, _ZERO, "number of episodes left out because of a NaN, infinite or gigantic reward",
        "repair the reward of the environment; docs/faults.md, nonfinite_reward"),
    Metric("rollout/seconds", "seconds", _FROM_0, _ANY, "wall time of the rollouts of the slowest rank",
        "most of step_time: an engine (docs/vllm.md) or workers (docs/workers.md) help"),
    Metric("rollout/seconds_gen", "seconds", _FROM_0, _ANY, "waiting for the policy, of the slowest rank, summed over its episodes",
        "above rollout/seconds_env: the engine is what is slow (docs/vllm.md)", "plays"),
    Metric("rollout/seconds_env", "seconds", _FROM_0, _ANY, "inside the environments, of the slowest rank, summed over its episodes",
        "above rollout/seconds_gen: the world is what is slow (docs/workers.md)", "plays"),
    Metric("rollout/seconds_sync", "seconds", _FROM_0, _ANY, "before the rollouts, writing the model's weights and loading them into the engine, of the slowest rank",
        "long against rollout/seconds: engine_weights_dir=/dev/shm, engine_weights_dtype, or sync_every", "engine"),
    Metric("rollout/staleness_max", "optimiser steps", _ANY, (0, 8),
        "largest difference between the current optimiser step and the one that sampled a trained action; negative for a policy that counts on its own",
        "lower sync_every or num_iterations; a policy whose version never moves is not updated"),
    # ---------------------------------------------------------------------- replay
    Metric("replay/episodes", "count", _FROM_0, (1, None), "number of replayed episodes of the generation batch",
        "nothing is left to replay: raise replay_max_age, or add files", "replay", _NOT_DISTILL, _TRAIN),
    Metric("replay/groups", "count", _FROM_0, (1, None), "number of groups that they belong to", "as for replay/episodes", "replay", _NOT_DISTILL, _TRAIN),
    Metric("replay/too_old", "count", _FROM_0, _ANY, "number of episodes of the replay files that are older than replay_max_age now, and left out",
        "when it is nearly all of them: as for replay/episodes", "replay", _NOT_DISTILL, _TRAIN),
    Metric("replay/available", "count", _FROM_0, (1, None), "number of episodes of the replay files that may be drawn now",
        "as for replay/episodes", "replay", _NOT_DISTILL, _TRAIN),
    Metric("replay/reward", "reward", _ANY, _ANY, "mean return of the replayed episodes",
        "far below reward: what is replayed is worse than what is played; leave it out", "replay", _NOT_DISTILL, _TRAIN),
    Metric("replay/age_mean", "policy versions", _FROM_0, _ANY, "their mean age", "lower replay_max_age when replay/is_clipped_frac grows with it",
        "replay_corrected", _NOT_DISTILL, _TRAIN),
    Metric("replay/age_max", "policy versions", _FROM_0, _ANY, "age of the oldest of them", "as for replay/age_mean", "replay_corrected", _NOT_DISTILL, _TRAIN),
    Metric("replay/is_mean", "ratio", _FROM_0, (0.5, 2), "mean ratio of the trained model's probability to that of the sampler's, raw, over replayed tokens",
        "the files are of another policy: lower replay_max_age or replay_ratio", "replay_corrected", _NOT_DISTILL, _TRAIN),
    Metric("replay/is_max", "ratio", _FROM_0, _ANY, "largest such ratio, raw", "is_clip caps its weight; as for replay/is_mean", "replay_corrected", _NOT_DISTILL, _TRAIN),
    Metric("replay/is_clipped_frac", "share", _SHARE, (0, 0.2), "share of those ratios above is_clip", "as for replay/is_mean", "replay_corrected", _NOT_DISTILL, _TRAIN),
    Metric("replay/logp_diff_mean", "nats", _FROM_0, (0, 1), "mean |log-probability of the trained model - of the sampler| over replayed tokens",
        "as for replay/is_mean", "replay_corrected", _NOT_DISTILL, _TRAIN),
    # ---------------------------------------------------------------------- the batch
    Metric("batch/pad_frac", "share", _SHARE, (0, 0.6), "share of padding among the tokens of all forward passes",
        "more micro-steps (gradient_accumulation_steps), or max_tokens_per_microbatch: rows of a length come together"),
    Metric("batch/sub_steps", "count", _FROM_0, _ANY, "number of forward passes per rank and generation batch", "many small ones: raise max_tokens_per_microbatch"),
    Metric("batch/rank_imbalance", "ratio", _FROM_0, (1, 1.5), "padded tokens of the busiest rank over the mean (1 is perfect)",
        "the others wait for it: larger batches, or max_tokens_per_microbatch; 0 when there was nothing to train"),
    Metric("batch/dummy_rows", "count", _FROM_0, _ANY, "number of dummy rows that fill up ranks", "more than a rank's rows: fewer ranks, or larger batches"),
    Metric("batch/trained_tokens", "tokens", _FROM_0, (1, None), "number of action tokens in the loss's denominator, over all ranks",
        "no token was left: look at batch/dropped_groups and rollout/cutoff_frac"),
    Metric("batch/dropped_groups", "count", _FROM_0, _ANY, "number of zero-variance groups left out by drop_zero_variance", "as for frac_reward_zero_std"),
    Metric("batch/no_signal", "share", _SHARE, _ZERO, "share of generation batches in which no token has an advantage or a teacher",
        "nothing is learned from them; as for frac_reward_zero_std. Training stops after max_no_signal_batches in a row"),
    Metric("adv/mean", "advantage", _ANY, _ANY, "mean advantage of a trained token before level weights",
        "far from 0 while the episodes are of very different lengths: loss_level trajectory"),
    Metric("adv/std", "advantage", _FROM_0, _ANY, "its standard deviation", "0 is no signal: as for frac_reward_zero_std"),
    Metric("adv/absmax", "advantage", _FROM_0, (0, 10), "its largest magnitude", "an outlier rules the update: scale_rewards, or clip the reward in the environment"),
    # ---------------------------------------------------------------------- the critic
    Metric("critic/explained_variance", "share", (None, 1), (0, 1),
        "1 - Var(target - value) / Var(target) over the states of the batch, by the critic before it was trained on it",
        "below 0 the critic is worse than a constant: critic_warmup_updates, critic_epochs, or a lower critic_learning_rate", trainers=_PPO),
    Metric("critic/value_mean", "reward", _ANY, _ANY, "mean value of a state", "far from critic/target_mean: as for critic/explained_variance", trainers=_PPO),
    Metric("critic/target_mean", "reward", _ANY, _ANY, "mean of what the critic should have said", "as for critic/value_mean", trainers=_PPO),
    Metric("critic/bootstrapped", "count", _FROM_0, _ANY, "number of episodes whose final observation was valued, since a limit ended them",
        "as for rollout/truncated_frac", trainers=_PPO),
    Metric("critic/value_loss", "reward squared", _FROM_0, _ANY, "mean value loss of a state over the critic's optimiser steps",
        "when it rises: a lower critic_learning_rate, or a smaller value_clip", trainers=_PPO, places=_TRAIN),
    Metric("critic/clip_frac", "share", _SHARE, (0, 0.3), "share of states whose value moved beyond value_clip in those steps",
        "a lower critic_learning_rate, or a larger value_clip where the rewards are large", trainers=_PPO, places=_TRAIN),
    Metric("critic/grad_norm", "norm", _FROM_0, _ANY, "norm of the critic's gradient before clipping, mean over its optimiser steps",
        "always far above max_grad_norm: a lower critic_learning_rate, or smaller rewards", trainers=_PPO, places=_TRAIN),
    Metric("critic/updates", "count", _FROM_0, (1, None), "number of the critic's optimiser steps on the generation batch",
        "no state could be read: as for rollout/episodes", trainers=_PPO, places=_TRAIN),
    Metric("critic/seconds", "seconds", _FROM_0, _ANY, "wall time of the critic's training", "most of step_time: fewer critic_epochs, or a smaller critic_model",
        trainers=_PPO, places=_TRAIN),
    # ---------------------------------------------------------------------- the teacher
    Metric("distill/reverse_kl", "nats", _ANY, _ANY, "mean reverse KL divergence of the student from the teacher at an action token (sampled: its estimate, which may be negative)",
        "it should fall; where it rises, lower learning_rate", trainers=_DISTILL),
    Metric("distill/teacher_logprob", "nats", (None, 0), (-5, 0), "mean log-probability of the teacher of a sampled token",
        "the teacher finds the student's text absurd: another prompt format, or a warm start", trainers=_DISTILL),
    Metric("distill/agreement", "share", _SHARE, (0.2, 1), "share of sampled tokens that the teacher finds the likeliest", "as for distill/teacher_logprob", trainers=_DISTILL),
    Metric("distill/tokens_scored", "tokens", _FROM_0, (1, None), "tokens that the teacher read, prompts included", "as for rollout/episodes", trainers=_DISTILL),
    Metric("distill/unknown", "count", _FROM_0, _ZERO, "number of action tokens whose log-probability a teacher behind a server did not know; they are not trained by it",
        "the server's maximum length is too small, or it has other ids (docs/distill.md)", trainers=_DISTILL),
    Metric("distill/seconds", "seconds", _FROM_0, _ANY, "wall time of the teacher's reading, of the slowest rank",
        "most of step_time: a smaller teacher, teacher_dtype, or a server (teacher_concurrency)", trainers=_DISTILL),
    # ---------------------------------------------------------------------- the loss
    Metric("is/mean", "ratio", _FROM_0, (0.9, 1.1), "mean ratio of the trained model's old probability to the sampler's, raw, over trained tokens with log-probabilities",
        "engine and model differ: the engine's dtype, weights or temperature (docs/vllm.md); is_correction weighs what is left", "logprobs"),
    Metric("is/max", "ratio", _FROM_0, _ANY, "largest such ratio, raw", "is_clip caps its weight; as for is/mean", "logprobs"),
    Metric("is/clipped_frac", "share", _SHARE, (0, 0.05), "share of those ratios above is_clip", "as for is/mean", "logprobs"),
    Metric("logp_diff/mean", "nats", _FROM_0, (0, 0.05), "mean |log-probability of the trained model - of the sampler|; near 0 when ids and engine are exact",
        "as for is/mean", "logprobs"),
    Metric("logp_diff/max", "nats", _FROM_0, (0, 5), "largest such difference", "as for is/mean", "logprobs"),
    Metric("entropy", "nats", _FROM_0, (0.02, 4), "mean entropy of the model at the tokens of the loss",
        "near 0 the policy has collapsed: lower learning_rate, set entropy_coef or beta, raise the temperature; rising, it comes apart: lower learning_rate"),
    Metric("kl", "nats", _FROM_0, (0, 1), "mean estimated KL divergence from the reference model", "the policy runs away: raise beta, or lower learning_rate", "beta"),
    Metric("clip_ratio/low_mean", "share", _SHARE, (0, 0.2), "share of trained tokens clipped below",
        "the policy moves too far in a generation batch: lower learning_rate or num_iterations", "dapo"),
    Metric("clip_ratio/high_mean", "share", _SHARE, (0, 0.2), "share of trained tokens clipped above", "as for clip_ratio/low_mean", "dapo"),
    Metric("clip_ratio/region_mean", "share", _SHARE, (0, 0.3), "share of trained tokens clipped at either side", "as for clip_ratio/low_mean", "dapo"),
    Metric("cispo_clip_ratio", "share", _SHARE, (0, 0.2), "share of trained tokens whose ratio is capped", "as for clip_ratio/low_mean", "cispo"),
    Metric("loss", "loss", _ANY, _ANY, "mean loss of the optimiser steps since the last record; in evaluation, of the evaluation",
        "0 is normal at ratio 1: judge by reward. Not finite: lower learning_rate, set max_grad_norm"),
    Metric("grad_norm", "norm", _FROM_0, _ANY, "norm of the gradient before clipping",
        "always far above max_grad_norm, or leaping: lower learning_rate; 0: no signal", places=_TRAIN),
    Metric("learning_rate", "1 / optimiser step", _FROM_0, _ANY, "of the optimiser step", "0 at the start is a warm-up that wastes rollouts: lr_scheduler_type constant", places=_TRAIN),
    Metric("step_time", "seconds", _FROM_0, _ANY, "wall time of an optimiser step, rollouts included",
        "compare rollout/seconds, rollout/seconds_sync and critic/seconds or distill/seconds", places=_TRAIN),
    # ---------------------------------------------------------------------- transformers' own
    Metric("epoch", "passes", _FROM_0, _ANY, "passes over the data set so far; never with `eval_`", "many passes over few tasks learn them by heart: more tasks", places=("train", "eval", "end")),
    Metric("step", "optimiser steps", _FROM_0, _ANY, "optimiser steps so far: the x axis; a column in the records, never a curve", "goes on where a resumed run left off", places=("train", "eval", "end")),
    Metric("runtime", "seconds", _FROM_0, _ANY, "wall time of the evaluation", "evaluate less often (eval_steps), or fewer tasks", places=("eval",)),
    Metric("samples_per_second", "episodes / second", _FROM_0, _ANY, "speed of the evaluation", "as for runtime", places=("eval",)),
    Metric("steps_per_second", "batches / second", _FROM_0, _ANY, "speed of the evaluation", "as for runtime", places=("eval",)),
    Metric("train_runtime", "seconds", _FROM_0, _ANY, "wall time of the training, of a resumed one since it was resumed", "as for step_time", places=_END),
    Metric("train_samples_per_second", "rows / second", _FROM_0, _ANY, "transformers' figure: micro-steps' rows over wall time", "as for step_time", places=_END),
    Metric("train_steps_per_second", "optimiser steps / second", _FROM_0, _ANY, "of the training", "as for step_time", places=_END),
    Metric("train_loss", "loss", _ANY, _ANY, "mean loss of the training", "as for loss", places=_END),
    Metric("total_flos", "operations", _FROM_0, _ANY, "transformers' estimate, which TRL's trainers do not make: 0", "none", places=_END),
)
# fmt: on

METRICS: Mapping[str, Metric] = MappingProxyType({one.name: one for one in _TABLE})
"""Name -> metric. A name with `{hole}` stands for a family."""


def find_metric(name: str, metrics: Mapping[str, Metric] = METRICS) -> Metric | None:
    """Look up a logged name.

    Args:
        name: as logged, `eval_` allowed.
        metrics: the registry.

    Returns:
        The metric; of two families, the one with the longer name; None for a name that is not listed.
    """
    plain = name.removeprefix("eval_")
    if plain in metrics:
        return metrics[plain]
    families = [one for one in metrics.values() if one.matches(plain)]
    return max(families, key=lambda one: len(one.name)) if families else None


def describe(name: str) -> str | None:
    """Say what a logged name means.

    Args:
        name: as logged, `eval_` allowed.

    Returns:
        Its meaning, with the unit in brackets; None for a name that is not listed.
    """
    found = find_metric(name)
    return None if found is None else f"{found.says} ({found.unit})"


def _place(record: Mapping[str, object]) -> str:
    if any(name.startswith("eval_") for name in record):
        return "eval"
    return "end" if "train_loss" in record else "train"


def check_logged(
    records: Iterable[Mapping[str, object]], trainer: str, conditions: Collection[str], metrics: Mapping[str, Metric] = METRICS
) -> list[str]:
    """Compare what a run logged with the registry, in both directions.

    Args:
        records: the `log_history` of a run with training, evaluation and end.
        trainer: key of `agent_gym.trainers.kinds.TRAINERS`.
        conditions: keys of `CONDITIONS` that hold in the run; "always" goes without saying.
        metrics: the registry.

    Returns:
        One line for each name that is logged and not listed (or not for this trainer, kind of record or condition), and for each that is listed and not
        logged; empty when they agree.
    """
    holds = {"always", *conditions}
    seen: set[tuple[str, str]] = set()
    problems: dict[str, None] = {}
    for record in records:
        place = _place(record)
        for name in record:
            one = find_metric(name, metrics)
            prefixed = name.startswith("eval_")
            wanted = place == "eval" and name not in _NO_PREFIX
            if one is None or trainer not in one.trainers or place not in one.places or one.when not in holds or prefixed != wanted:
                problems[f"{trainer} logs {name} ({PLACES[place]}), which is not listed for it: add it to agent_gym.trainers.metrics"] = (
                    None
                )
            else:
                seen.add((one.name, place))
    for one in metrics.values():
        if trainer not in one.trainers or one.when not in holds:
            continue
        for place in one.places:
            if (one.name, place) not in seen:
                problems[f"{trainer} never logs {one.name} ({PLACES[place]}), which is listed for it: take it out, or log it"] = None
    return list(problems)


def check_values(records: Iterable[Mapping[str, object]], metrics: Mapping[str, Metric] = METRICS) -> list[str]:
    """Find values that cannot be.

    Args:
        records: of a run.
        metrics: the registry.

    Returns:
        One line for each value that is no finite number or lies outside of what its metric can be.
    """
    problems = []
    for record in records:
        for name, value in record.items():
            one = find_metric(name, metrics)
            if one is None:
                continue
            low, high = one.possible
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                problems.append(f"{name} is {value!r}, no finite number")
            elif (low is not None and value < low) or (high is not None and value > high):
                problems.append(f"{name} is {value!r}, which cannot be: wanted {_range(one.possible)}")
    return problems


# ---------------------------------------------------------------------------------------------------- the page


def _range(bounds: Range) -> str:
    low, high = bounds
    if low is None and high is None:
        return "any"
    if low == high:
        return f"{low:g}"
    if high is None:
        return f"≥ {low:g}"
    return f"≤ {high:g}" if low is None else f"{low:g} to {high:g}"


_HEAD = """# Metrics

<!-- Made by `python -m agent_gym.trainers.metrics > docs/metrics.md` from agent_gym/trainers/metrics.py; a test holds them equal. Change that file, not this one. -->

What the trainers log, under names that stay. A run of `agent-gym train` keeps them in `metrics.jsonl` of its run folder; with `report_to` they go to
TensorBoard, W&B or trackio as well ([reporting.md](reporting.md)), as `train/NAME`, and as `eval/NAME` where an evaluation of the trainer logs them (`eval_NAME` in its records).

- *Can be*: another value is a bug. *Expected*: where a healthy run keeps it; "any" where nothing can be said in general.
- Averages are over the generation batches since the last record.
- *Trainers*, *in* and *when*: who logs it, in records of what, and under which setting. A metric of which there is nothing to average is left out of a record.
"""


def render_page() -> str:
    """Render docs/metrics.md.

    Returns:
        The page, Markdown.
    """
    columns = ("metric", "what it says", "unit", "can be", "expected", "what to do when it leaves it", "trainers", "in", "when")
    lines = [_HEAD, "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for one in METRICS.values():
        who = "all" if one.trainers == _ALL else ", ".join(one.trainers)
        where = ", ".join(PLACES[place] for place in one.places)
        cells = (f"`{one.name}`", one.says, one.unit, _range(one.possible), _range(one.expected), one.act, who, where, CONDITIONS[one.when])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_page())
