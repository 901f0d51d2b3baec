"""Advantage estimators a second time: slow, in plain Python floats, from the papers' sums; imports nothing of agent_gym.

Each function has the switches by which a plausible mistake is made on purpose (`mutant`), so that a test can show that it would be noticed.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, field

EPSILON = 1e-4


@dataclass
class Turn:
    """A step: its reward, its state, the critic's value of it, and before each action token and each token of the answer behind it."""

    reward: float
    key: str = ""
    value: float = 0.0
    token_values: list[float] = field(default_factory=list)
    answer_values: list[float] = field(default_factory=list)


@dataclass
class Episode:
    """`end` is "answer" (terminated), "max_turns" (truncated), "context_limit", "env_fault" or "running"."""

    group: str
    turns: list[Turn]
    end: str = "answer"
    final: float = 0.0


def usable(episode: Episode) -> bool:
    rewards = [turn.reward for turn in episode.turns]
    return episode.end != "env_fault" and bool(rewards) and all(map(math.isfinite, rewards)) and sum(map(abs, rewards)) <= 1e30


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def deviation(values: list[float], ddof: int = 1) -> float:
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - ddof))


def flat(values: list[float]) -> bool:
    return len(values) < 2 or max(values) - min(values) <= 1e-12 * max(abs(value) for value in values)


def ahead(episode: Episode, start: int, gamma: float) -> float:
    return math.fsum(gamma**k * turn.reward for k, turn in enumerate(episode.turns[start:]))


def standardised(value: float, comrades: list[float], everyone: list[float], scale: str, ddof: int) -> float:
    if flat(comrades):
        return 0.0
    centred = value - mean(comrades)
    if scale == "none":
        return centred
    return centred / (deviation(comrades if scale == "group" else everyone, ddof) + EPSILON)


# ------------------------------------------------------------------------------------------------ normalised returns


def rebn(batch: list[Episode], gamma: float, mutant: str = "") -> list[list[float]]:
    everything = [ahead(e, t, gamma) for e in batch if usable(e) for t in range(len(e.turns))]
    if mutant == "over episodes":
        everything = [ahead(e, 0, gamma) for e in batch if usable(e)]
    ddof = 0 if mutant == "ddof 0" else 1
    return [
        [standardised(ahead(e, t, gamma), everything, everything, "group", ddof) if usable(e) else 0.0 for t in range(len(e.turns))]
        for e in batch
    ]


# ------------------------------------------------------------------------------------------------ GiGPO


def words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def alike(first: str, second: str, threshold: float) -> bool:
    if first == second or threshold == 1.0:
        return first == second
    return difflib.SequenceMatcher(None, words(first), words(second), autojunk=False).ratio() >= threshold


def key_of(episode: Episode, turn: int, mutant: str) -> str:
    if mutant == "state_key shifted by one":  # the state that the action led to
        return episode.turns[turn + 1].key if turn + 1 < len(episode.turns) else "end"
    return episode.turns[turn].key


def gigpo(batch: list[Episode], gamma: float, scale: str, weight: float, threshold: float, mutant: str = "") -> list[list[float]]:
    ddof = 0 if mutant == "ddof 0" else 1
    states: list[tuple[str, str, list[tuple[int, int]]]] = []  # group, first text, members
    names = list(dict.fromkeys(e.group for e in batch))
    for name in ["all"] if mutant == "states across groups" else names:
        for number, episode in enumerate(batch):
            if not usable(episode) or (episode.group != name and mutant != "states across groups"):
                continue
            for turn in range(len(episode.turns)):
                key = key_of(episode, turn, mutant)
                if not key and mutant != "no state is a state":
                    continue
                same = next((m for g, text, m in states if g == name and any(key_of(batch[i], t, mutant) == key for i, t in m)), None)
                near = same if same is not None else next((m for g, text, m in states if g == name and alike(text, key, threshold)), None)
                if near is None:
                    states.append((name, key, [(number, turn)]))
                else:
                    near.append((number, turn))
    discount = 1.0 if mutant == "not discounted" else gamma
    everyone = [ahead(e, 0, 1.0) for e in batch if usable(e)]
    every_turn = [ahead(e, t, discount) for e in batch if usable(e) for t in range(len(e.turns))]
    result = []
    for number, episode in enumerate(batch):
        comrades = [ahead(e, 0, 1.0) for e in batch if usable(e) and e.group == episode.group]
        row = []
        for turn in range(len(episode.turns)):
            if not usable(episode):
                row.append(0.0)
                continue
            value = standardised(ahead(episode, 0, 1.0), comrades, everyone, scale, ddof)
            here = next((m for _, _, m in states if (number, turn) in m), [])
            returns = [ahead(batch[i], t, discount) for i, t in here]
            if here and mutant != "episodes only":
                value += weight * standardised(ahead(episode, turn, discount), returns, every_turn, scale, ddof)
            row.append(value)
        result.append(row)
    return result


# ------------------------------------------------------------------------------------------------ GAE


def final_value(episode: Episode, mutant: str) -> float:
    if mutant == "bootstrap on terminated" and episode.end == "answer":
        return episode.final
    if mutant == "none on truncated" and episode.end == "max_turns":
        return 0.0
    if mutant == "bootstrap on the context limit" and episode.end == "context_limit":
        return episode.final
    return episode.final if episode.end in ("max_turns", "running") else 0.0


def exponential_sums(deltas: list[float], decays: list[float]) -> list[float]:
    """A_i = sum over k >= i of (product of the decays from i to k - 1) times delta_k."""
    return [math.fsum(math.prod(decays[i:k]) * deltas[k] for k in range(i, len(deltas))) for i in range(len(deltas))]


def step_gae(batch: list[Episode], gamma: float, lam: float, mutant: str = "") -> list[list[float] | None]:
    result: list[list[float] | None] = []
    for episode in batch:
        if not usable(episode):
            result.append(None)
            continue
        values = [turn.value for turn in episode.turns] + [final_value(episode, mutant)]
        deltas = [turn.reward + gamma * values[t + 1] - values[t] for t, turn in enumerate(episode.turns)]
        result.append(exponential_sums(deltas, [gamma * lam] * len(deltas)))
    return result


def token_gae(
    batch: list[Episode], gamma: float, lam: float, gamma_token: float, lam_token: float, mutant: str = ""
) -> list[list[list[float]] | None]:
    result: list[list[list[float]] | None] = []
    for episode in batch:
        if not usable(episode):
            result.append(None)
            continue
        places = [(t, j) for t, turn in enumerate(episode.turns) for j in range(len(turn.token_values))]
        chain = [(t, j, episode.turns[t].token_values[j], True) for t, j in places]
        if mutant == "GAE over environment tokens":
            chain = []
            for t, turn in enumerate(episode.turns):
                chain += [(t, j, value, True) for j, value in enumerate(turn.token_values)]
                chain += [(t, len(turn.token_values) + j, value, False) for j, value in enumerate(turn.answer_values)]
        count = len(episode.turns)
        deltas, decays = [], []
        for i, (t, j, value, _) in enumerate(chain):
            following = chain[i + 1] if i + 1 < len(chain) else None
            behind = following[0] if following is not None else count
            if behind == t:
                g, decay, reward = gamma_token, lam_token, 0.0
            else:  # on to the next action, over empty ones
                g, decay = gamma ** (behind - t), lam
                reward = math.fsum(gamma ** (u - t) * episode.turns[u].reward for u in range(t, behind))
            if mutant == "GAE over environment tokens" and j == len(episode.turns[t].token_values) - 1:
                reward = episode.turns[t].reward
            elif mutant == "GAE over environment tokens":
                reward = 0.0
            if mutant == "reward on the first token":
                reward = episode.turns[t].reward if j == 0 else 0.0
            after = following[2] if following is not None else final_value(episode, mutant)
            deltas.append(reward + g * after - value)
            decays.append(g * decay)
        sums = exponential_sums(deltas, decays)
        rows: list[list[float]] = [[] for _ in episode.turns]
        for (t, _, _, acted), value in zip(chain, sums, strict=True):
            if acted:
                rows[t].append(value)
        result.append(rows)
    return result


def whitened(values: list[float], ddof: int = 1) -> list[float]:
    return [standardised(value, values, values, "group", ddof) for value in values]
