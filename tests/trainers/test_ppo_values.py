"""What the critic's values become: advantages, targets and gradients, held against tables and plain PyTorch."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from ppo_training import LEVELS, critic_weights, flat, knowing, make_ppo, mixed_batch, said_by_hand, states_of
from test_grpo_gradients import corrected_by_hand
from toy_training import gradient, make_model, random_batch, relative_error, rows_for, window_gradients

from agent_gym.trainers.advantages import bootstraps, get_advantage
from agent_gym.trainers.critic import Critic, value_loss
from agent_gym.trainers.ppo import AgentPPOTrainer
from agent_gym.trajectory import Step, StopReason, Trajectory

EXACT = 1e-6
WAYS: list[dict[str, Any]] = [
    {"merge_prefix": False, "max_tokens_per_microbatch": 24},
    {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
]


def generate(trainer: AgentPPOTrainer) -> Any:
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    return trainer._generate_and_score_completions([rows_for()[0]] * 8)


class Table(Critic):
    """Says of a state what a table says of the token that it ends with."""

    def __init__(self, backbone: Any, table: Callable[[int], float]) -> None:
        super().__init__(backbone)
        self.table = table

    def forward(self, ids: Any, attention: Any, lines: Any, columns: Any) -> Any:
        seen = ids[lines, columns].tolist()
        return super().forward(ids, attention, lines, columns) * 0.0 + torch.tensor([self.table(one) for one in seen], dtype=torch.float64)


# ------------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("name", LEVELS)
def test_values_and_bootstraps_are_what_the_critic_says_of_each_state(name: str, tmp_path: Path) -> None:
    batch, model, level = mixed_batch(groups=2), make_model(), LEVELS[name]
    for way in ({}, *WAYS):
        trainer = make_ppo(tmp_path, batch, model, advantage=name, **way)
        critic = copy.deepcopy(knowing(trainer.critic))
        generate(trainer)
        wanted = [float(said_by_hand(critic, ids).detach()) for item in batch for _, ids in states_of(item, level)]
        assert np.allclose(flat(trainer.values), wanted, rtol=0, atol=1e-9), way
        assert [len(one) for one in trainer.values] == [len(item.steps) for item in batch]
        for item, end in zip(batch, trainer.bootstrap, strict=True):
            last = float(said_by_hand(critic, item.final_observation.tolist()).detach()) if bootstraps(item) else 0.0
            assert end == pytest.approx(last, abs=1e-9)
        assert [end != 0.0 for end in trainer.bootstrap[:4]] == [False, True, False, True]  # answer, turns, context, time


@pytest.mark.parametrize("name", LEVELS)
def test_a_value_at_a_token_of_the_environment_never_enters(name: str, tmp_path: Path) -> None:
    """A critic that shouts at every token but those that decisions follow gives the advantages of one that is silent there."""
    batch = random_batch(9, context="append", max_steps=3, logprobs=False)
    for item in batch:  # decisions follow tokens below 20, and nothing else is one
        for step in item.steps:
            step.observation_ids.flags.writeable = step.action_ids.flags.writeable = True
            step.observation_ids[:] = np.maximum(step.observation_ids, 20)
            step.action_ids[:] = step.action_ids % 18 + 2
    shown = []
    for item in batch:
        ids = item.steps[-1].observation_ids
        for step in item.steps:
            ids[len(step.observation_ids) - 1] = 5
            ids[len(step.observation_ids) : len(step.observation_ids) + len(step.action_ids)] = step.action_ids[
                : max(0, len(ids) - len(step.observation_ids))
            ]
        for step in item.steps:
            step.observation_ids[:] = ids[: len(step.observation_ids)]
        shown.append(ids)
    environment = sum(int((ids >= 20).sum()) for ids in shown)
    assert environment > 30
    found = []
    for noise in (0.0, 1e6):
        model = make_model()
        critic = Table(copy.deepcopy(model.base_model), lambda token, noise=noise: noise if token >= 20 else token / 10)
        trainer = make_ppo(tmp_path, batch, model, advantage=name, critic=critic, learning_rate=0.0)
        gradients = window_gradients(trainer)
        found.append((flat(trainer.values), gradients[0], critic_weights(trainer.critic)))
    (one, policy_one, critic_one), (two, policy_two, critic_two) = found
    assert np.array_equal(one, two) and one.max() <= 1.9
    assert torch.equal(policy_one, policy_two) and torch.equal(critic_one, critic_two)


# ------------------------------------------------------------------------------------------------ the four ends


def two_steps(end: StopReason) -> Trajectory:
    """Two steps whose states the table values at 1, 2 (0.5 and 1.5 between the tokens of the second action), and 4 behind the end."""
    over = end is StopReason.ANSWER
    first = Step([30, 10], [11], reward=0.25)
    second = Step([30, 10, 11, 31, 20], [5, 15, 12], reward=1.0, terminated=over, truncated=not over, stop_reason=end)
    return Trajectory(
        env_id="Toy", task_id=str(end), group_id="g", steps=[first, second], final_observation=[30, 10, 11, 31, 20, 5, 15, 12, 32, 40 - 1]
    )


VALUES = {10: 1.0, 20: 2.0, 5: 0.5, 15: 1.5, 39: 4.0}
BY_HAND = {
    # gamma 0.5, lam 0.5. Behind the end: 0 for an answer and for a context that is full, V = 4 for a limit of turns.
    # step 1: delta = 1 + 0.5 * end - 2; step 0: delta = 0.25 + 0.5 * 2 - 1 = 0.25, plus 0.25 times the advantage of step 1
    "step_gae": {
        StopReason.ANSWER: [0.0, -1.0],
        StopReason.CONTEXT_LIMIT: [0.0, -1.0],
        StopReason.MAX_TURNS: [0.5, 1.0],
        StopReason.TIME_LIMIT: [0.5, 1.0],
    },
    # action 1 is the tokens 5, 15, 12 behind values 2, 0.5, 1.5, with gamma and lam 1 between them and its reward on the last:
    # delta = 1 + 0.5 * end - 1.5, then 1.5 - 0.5 = 1 and 0.5 - 2 = -1.5 on top; action 0: 0.25 + 0.5 * 2 - 1 + 0.25 * A
    "token_gae": {
        StopReason.ANSWER: [0.25 + 0.25 * -1.0, -1.0, 0.5, -0.5],
        StopReason.CONTEXT_LIMIT: [0.25 + 0.25 * -1.0, -1.0, 0.5, -0.5],
        StopReason.MAX_TURNS: [0.25 + 0.25 * 1.0, 1.0, 2.5, 1.5],
        StopReason.TIME_LIMIT: [0.25 + 0.25 * 1.0, 1.0, 2.5, 1.5],
    },
}
STATES = {"step_gae": [1.0, 2.0], "token_gae": [1.0, 2.0, 0.5, 1.5]}


def ended(name: str, folder: Path, ends: list[StopReason]) -> AgentPPOTrainer:
    """A trainer that has judged one episode per end, by the table."""
    model = make_model()
    critic = Table(copy.deepcopy(model.base_model), lambda token: VALUES.get(token, 1e3))
    settings = {"advantage": name, "gamma": 0.5, "lam": 0.5, "advantage_kwargs": {"whitened": False}, "critic": critic}
    trainer = make_ppo(folder, [two_steps(end) for end in ends], model, **settings)
    trainer.seen = []
    build = trainer._rows

    def keep(advantages: Any, groups: Any) -> Any:
        trainer.seen = advantages
        return build(advantages, groups)

    trainer._rows = keep
    generate(trainer)
    return trainer


def agrees_with_the_table(name: str, folder: Path) -> bool:
    ends = list(BY_HAND[name])
    trainer = ended(name, folder, ends)
    targets = trainer._targets()
    for number, end in enumerate(ends):
        wanted = np.array(BY_HAND[name][end])
        if not np.allclose(flat([trainer.seen[number]]), wanted) or not np.allclose(flat([targets[number]]), wanted + STATES[name]):
            return False
    return trainer.bootstrap == [0.0, 0.0, 4.0, 4.0]


@pytest.mark.parametrize("name", LEVELS)
def test_the_end_of_an_episode_is_worth_what_the_table_says(name: str, tmp_path: Path) -> None:
    assert agrees_with_the_table(name, tmp_path)
    assert ended(name, tmp_path, [StopReason.ANSWER, StopReason.MAX_TURNS])._metrics["train"]["critic/bootstrapped"] == [1.0]


@pytest.mark.parametrize("name", LEVELS)
def test_a_fault_of_the_world_is_neither_judged_nor_learned_from(name: str, tmp_path: Path) -> None:
    broken = two_steps(StopReason.ENV_FAULT)
    model = make_model()
    reads: list[int] = []
    critic = Table(copy.deepcopy(model.base_model), lambda token: reads.append(token) or 0.5)
    trainer = make_ppo(tmp_path, [broken] * 8, model, advantage=name, critic=critic, on_fault="drop")
    with pytest.warns(UserWarning, match="update is skipped"):
        generate(trainer)
    assert not reads and not any(key.startswith("critic/") for key in trainer._metrics["train"])


def shifted(by: int) -> Any:
    """Values are read `by` tokens beside their place."""

    def wrong(trainer_class: Any, patch: pytest.MonkeyPatch) -> None:
        read = Table.forward
        patch.setattr(
            Table,
            "forward",
            lambda self, ids, attention, lines, columns: read(self, ids, attention, lines, (columns + by).clamp(0, ids.shape[1] - 1)),
        )

    return wrong


def bootstrap_of(rule: Callable[[Trajectory], bool]) -> Any:
    def wrong(trainer_class: Any, patch: pytest.MonkeyPatch) -> None:
        for place in ("agent_gym.trainers.values.bootstraps", "agent_gym.trainers.advantages.gae.bootstraps"):
            patch.setattr(place, rule)

    return wrong


def targets_without_values(trainer_class: Any, patch: pytest.MonkeyPatch) -> None:
    """The critic is trained towards the advantages."""
    usual = AgentPPOTrainer._targets

    def wrong(self: Any) -> Any:
        pairs = (zip(targets, values, strict=True) for targets, values in zip(usual(self), self.values, strict=True))
        return [[np.asarray(target) - np.asarray(value) for target, value in item] for item in pairs]

    patch.setattr(AgentPPOTrainer, "_targets", wrong)


def judged_when_trained(trainer_class: Any, patch: pytest.MonkeyPatch) -> None:
    """The targets are made with values of the critic after its training."""
    train = AgentPPOTrainer._train_critic

    def wrong(self: Any, targets: Any) -> None:
        train(self, targets)
        self.critic.table = lambda token: 0.0
        self.values, self.bootstrap = self._judge()

    patch.setattr(AgentPPOTrainer, "_train_critic", wrong)


MUTANTS: dict[str, Any] = {
    "value at the first token of the action": shifted(1),
    "value at the token before the last": shifted(-1),
    "bootstrap on terminated": bootstrap_of(lambda item: item.stop_reason is not StopReason.CONTEXT_LIMIT),
    "none on truncated": bootstrap_of(lambda item: False),
    "bootstrap on the context limit": bootstrap_of(lambda item: not item.terminated),
    "targets without values": targets_without_values,
    "values of the trained critic": judged_when_trained,
}


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("name", LEVELS)
def test_the_table_notices_the_mistake(name: str, mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](AgentPPOTrainer, monkeypatch)
    assert not agrees_with_the_table(name, tmp_path)


# ------------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize("name", LEVELS)
def test_the_policy_gradient_is_that_of_the_estimate(name: str, tmp_path: Path) -> None:
    batch, model = mixed_batch(4, groups=2), make_model()
    for way in ({}, *WAYS):
        trainer = make_ppo(tmp_path, batch, model, advantage=name, gamma=0.9, lam=0.8, **way)
        knowing(trainer.critic)
        (got,) = window_gradients(trainer)
        estimate = get_advantage(name)(batch, gamma=0.9, lam_step=0.8, values=trainer.values, bootstrap=trainer.bootstrap)
        tensors = [[torch.as_tensor(np.asarray(value)) for value in item] for item in estimate]
        assert relative_error(got, corrected_by_hand(model, batch, tensors, "none", 1e30)) < EXACT, way


def trained_by_hand(
    critic: Any, states: list[tuple[list[int], float, float]], passes: int, settings: dict[str, Any]
) -> tuple[Any, list[float]]:
    """Passes of AdamW over all states at once, one forward pass each, in plain PyTorch. Returns the critic and the norms of its gradients."""
    decays = [parameter for name, parameter in critic.named_parameters() if "norm" not in name and "bias" not in name]
    rest = [parameter for name, parameter in critic.named_parameters() if "norm" in name or "bias" in name]
    groups = [{"params": decays, "weight_decay": settings["weight_decay"]}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=settings["critic_learning_rate"], betas=(0.9, 0.95), eps=1e-8)
    norms = []
    for _ in range(passes):
        optimizer.zero_grad()
        total: Any = 0.0
        for ids, old, target in states:
            value = said_by_hand(critic, ids)
            held = old + torch.clamp(value - old, -settings["value_clip"], settings["value_clip"])
            total = total + 0.5 * torch.maximum((value - target) ** 2, (held - target) ** 2)
        (total / len(states)).backward()
        norm = torch.nn.utils.clip_grad_norm_(critic.parameters(), settings["max_grad_norm"])
        norms.append(float(norm))
        optimizer.step()
    return critic, norms


CRITIC = {"critic_learning_rate": 3e-2, "value_clip": 0.1, "weight_decay": 0.1, "max_grad_norm": 0.5}


class ByHand(NamedTuple):
    """What three passes over a batch make of a critic, in plain PyTorch: weights before and after, and the mean norm of its gradients."""

    before: torch.Tensor
    after: torch.Tensor
    norm: float


def critic_trainer(name: str, folder: Path, **way: Any) -> AgentPPOTrainer:
    trainer = make_ppo(folder, mixed_batch(5, groups=2), make_model(), advantage=name, critic_epochs=3, gamma=0.9, **CRITIC, **way)
    knowing(trainer.critic)
    return trainer


@functools.cache
def three_passes_by_hand(name: str, folder: Path) -> ByHand:
    trainer = critic_trainer(name, folder)
    critic = copy.deepcopy(trainer.critic)
    before = critic_weights(critic)
    generate(trainer)
    ids = [ids for item in trainer.trajectories for _, ids in states_of(item, LEVELS[name])]
    states = list(zip(ids, flat(trainer.values).tolist(), flat(trainer._targets()).tolist(), strict=True))
    critic, norms = trained_by_hand(critic, states, 3, CRITIC)
    return ByHand(before, critic_weights(critic), float(np.mean(norms)))


def is_trained_as_by_hand(trainer: AgentPPOTrainer, by_hand: ByHand) -> bool:
    generate(trainer)
    figures = trainer._metrics["train"]
    return (
        relative_error(critic_weights(trainer.critic) - by_hand.before, by_hand.after - by_hand.before) < EXACT
        and figures["critic/grad_norm"] == [pytest.approx(by_hand.norm)]
        and figures["critic/updates"] == [3.0]
        and 0.05 < figures["critic/clip_frac"][0] < 0.95
    )


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("by-hand")


@pytest.mark.parametrize("name", LEVELS)
def test_the_critic_is_trained_as_in_plain_pytorch(name: str, scratch: Path, tmp_path: Path) -> None:
    """Three passes, so that the clipped branch is met; decay and clipping of the norm are the critic's own."""
    by_hand = three_passes_by_hand(name, scratch)
    for way in ({}, *WAYS):
        trainer = critic_trainer(name, tmp_path, **way)
        assert is_trained_as_by_hand(trainer, by_hand), way
        variance = 1 - np.var(flat(trainer._targets()) - flat(trainer.values)) / np.var(flat(trainer._targets()))
        assert trainer._metrics["train"]["critic/explained_variance"] == [pytest.approx(variance)]


def smaller_of_the_two(values: Any, old: Any, targets: Any, clip: Any) -> Any:
    terms = value_loss(values, old, targets, clip)
    held = (old + (values - old).clamp(-clip, clip) - targets).square()
    return terms._replace(loss=0.5 * torch.minimum((values - targets).square(), held))


def mean_of_each_pass(self: Any, rows: Any, targets: Any, count: int) -> Any:
    return VALUE_BACKWARD(self, rows, targets, sum(row.num_values for row in rows))


VALUE_BACKWARD = AgentPPOTrainer._value_backward
TRAINING_MUTANTS: dict[str, tuple[str, Any]] = {
    "value loss not clipped": (
        "agent_gym.trainers.ppo.value_loss",
        lambda values, old, targets, clip: value_loss(values, old, targets, None),
    ),
    "the smaller of the two losses": ("agent_gym.trainers.ppo.value_loss", smaller_of_the_two),
    "norm of the gradient not clipped": (
        "torch.nn.utils.clip_grad_norm_",
        lambda parameters, limit: torch.nn.utils.get_total_norm([one.grad for one in parameters]),
    ),
    "gradient not zeroed": ("torch.optim.AdamW.zero_grad", lambda self, set_to_none=True: None),
    "mean of each pass": ("agent_gym.trainers.ppo.AgentPPOTrainer._value_backward", mean_of_each_pass),
    "everything decays": (
        "agent_gym.trainers.ppo.AgentPPOTrainer.get_decay_parameter_names",
        lambda self, model: [name for name, _ in model.named_parameters()],
    ),
}


@pytest.mark.parametrize("mutant", TRAINING_MUTANTS)
def test_the_comparison_with_plain_pytorch_notices_the_mistake(
    mutant: str, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand = three_passes_by_hand("step_gae", scratch)
    monkeypatch.setattr(*TRAINING_MUTANTS[mutant])
    assert not is_trained_as_by_hand(critic_trainer("step_gae", tmp_path, max_tokens_per_microbatch=24), by_hand)


def test_targets_can_have_a_decay_of_their_own(tmp_path: Path) -> None:
    """With critic_lam 1 they are the rewards to come, and V behind a limit."""
    batch = mixed_batch(6)
    for name in LEVELS:
        trainer = make_ppo(tmp_path, batch, make_model(), advantage=name, lam=0.3, critic_lam=1.0)
        knowing(trainer.critic)
        generate(trainer)
        for item, targets, end in zip(batch, trainer._targets(), trainer.bootstrap, strict=True):
            rewards = np.array([step.reward for step in item.steps])
            to_come = np.cumsum(rewards[::-1])[::-1] + end
            if name == "step_gae":
                assert np.allclose(targets, to_come)
            elif all(len(step.action_ids) for step in item.steps):
                assert all(np.allclose(one, value) for one, value in zip(targets, to_come, strict=True))


def test_minibatches_are_steps_over_whole_episodes(tmp_path: Path) -> None:
    batch = mixed_batch(7, groups=6)
    trainer = make_ppo(tmp_path, batch, make_model(), critic_minibatches=3, critic_epochs=2)
    knowing(trainer.critic)
    seen: list[set[int]] = [set()]
    backward, step = trainer._value_backward, trainer._critic_step

    def keep(rows: Any, targets: Any, count: int) -> Any:
        seen[-1] |= {row.trajectory for row in rows}
        return backward(rows, targets, count)

    def next_one() -> float:
        seen.append(set())
        return step()

    trainer._value_backward, trainer._critic_step = keep, next_one
    generate(trainer)
    assert len(seen) == 7 and not seen[-1]
    for third in (seen[:3], seen[3:6]):
        assert sorted(number for one in third for number in one) == list(range(len(batch)))


def test_neither_gradient_reaches_the_other(tmp_path: Path) -> None:
    trainer = make_ppo(tmp_path, mixed_batch(8), make_model(), critic_learning_rate=1e-2)
    knowing(trainer.critic)
    policy, critic = critic_weights(trainer.model).clone(), critic_weights(trainer.critic).clone()
    steps = generate(trainer)
    assert torch.equal(critic_weights(trainer.model), policy) and all(one.grad is None for one in trainer.model.parameters())
    trained = critic_weights(trainer.critic).clone()
    assert relative_error(trained, critic) > 1e-3 and all(one.grad is None for one in trainer.critic.parameters())
    for micro_step in steps:
        trainer.compute_loss(trainer.model, micro_step).backward()
    assert gradient(trainer.model).norm() > 0 and all(one.grad is None for one in trainer.critic.parameters())
    torch.optim.SGD(trainer.model.parameters(), lr=0.1).step()
    assert torch.equal(critic_weights(trainer.critic), trained) and not torch.equal(critic_weights(trainer.model), policy)


def test_a_critic_that_has_diverged_stops_the_run_by_name(tmp_path: Path) -> None:
    trainer = make_ppo(tmp_path, mixed_batch(8), make_model())
    with torch.no_grad():
        trainer.critic.head.bias.fill_(float("nan"))
    with pytest.raises(ValueError, match="the critic has diverged"):
        generate(trainer)


def test_mixed_precision_says_nearly_the_same_in_float32(tmp_path: Path) -> None:
    exact = make_ppo(tmp_path, mixed_batch(8), make_model(dtype=torch.float32))
    mixed = make_ppo(tmp_path, mixed_batch(8), make_model(dtype=torch.float32), bf16=True)
    for trainer in (exact, mixed):
        knowing(trainer.critic)
        generate(trainer)
    assert 1e-6 < np.abs(flat(exact.values) - flat(mixed.values)).max() < 0.05
