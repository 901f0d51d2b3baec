"""REINFORCE (Williams, 1992) in plain PyTorch on an environment of your own: no trainer, no language model library.

The environment names a word in each of three turns and pays for each that is repeated. The policy reads the prompt's ids and picks the
id of one word; what it sampled is what it is trained on, read from the recorder.

    python examples/reinforce_pytorch.py --updates 60
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

from agent_gym.core import Action, AgentEnv, Observation, Outcome
from agent_gym.trajectory import Generation, Trajectory
from agent_gym.wrappers import StepRecorder

WORDS = ["north", "south", "east", "west"]


class RepeatAfterMe(AgentEnv):
    """Three words, one per turn; each is paid for on its own."""

    def _begin(self, options: dict) -> Observation:
        self.words = [str(word) for word in self.np_random.choice(WORDS, 3)]
        self.task_id = "-".join(self.words)
        return Observation(text=self.words[0])

    def _respond(self, action: Action) -> Outcome:
        right = action.text.strip() == self.words[self.turn]
        last = self.turn == 2
        told = "." if last else self.words[self.turn + 1]
        return Outcome(Observation(text=told), float(right), terminated=last, info={"is_success": right})


class Reader(nn.Module):
    """Scores the words by attending over the prompt: a bag of embeddings, later positions weighted by what they say."""

    def __init__(self, vocab_size: int, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.place = nn.Linear(1, width)
        self.weigh = nn.Linear(width, 1)
        self.score = nn.Linear(width, len(WORDS))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the log-probability of each word for one prompt of shape (n,)."""
        from_end = torch.arange(len(ids) - 1, -1, -1, dtype=torch.float32)[:, None] / 8
        tokens = self.embed(ids)
        weights = self.weigh(torch.tanh(tokens + self.place(from_end))).softmax(dim=0)
        return self.score((weights * tokens).sum(dim=0)).log_softmax(dim=-1)


def play(env: StepRecorder, policy: Reader, replies: list[list[int]], generator: torch.Generator, seed: int) -> Trajectory:
    """Sample one episode."""
    env.reset(seed=seed)
    while env.running:
        with torch.no_grad():
            logprobs = policy(torch.tensor(env.prompt_ids))
        choice = int(torch.multinomial(logprobs.exp(), 1, generator=generator))
        ids = replies[choice]
        env.step(Generation(ids, [float(logprobs[choice])] + [0.0] * (len(ids) - 1)))
    return env.trajectory


def loss_of(trajectories: list[Trajectory], policy: Reader, replies: list[list[int]], baseline: float) -> torch.Tensor:
    """REINFORCE with reward-to-go and a constant baseline per remaining step."""
    terms = []
    for trajectory in trajectories:
        to_go = 0.0
        for behind, step in enumerate(reversed(trajectory.steps), start=1):
            to_go += step.reward
            choice = replies.index(step.action_ids.tolist())
            logprob = policy(torch.tensor(step.observation_ids))[choice]
            terms.append(-(to_go - behind * baseline) * logprob)
    return torch.stack(terms).mean()


def train(updates: int = 60, episodes: int = 24, seed: int = 0) -> list[float]:
    """Train and return the mean reward per step of each update."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    env = StepRecorder(RepeatAfterMe(max_observation_tokens=256, max_action_tokens=16))
    replies = [env.unwrapped.encode_action(word) for word in WORDS]
    policy = Reader(env.observation_space.vocab_size)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    curve: list[float] = []
    for update in range(updates):
        batch = [play(env, policy, replies, generator, seed=update * episodes + number) for number in range(episodes)]
        curve.append(sum(trajectory.total_reward for trajectory in batch) / (3 * episodes))
        optimizer.zero_grad()
        loss_of(batch, policy, replies, baseline=curve[-1]).backward()
        optimizer.step()
    return curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=60)
    arguments = parser.parse_args()
    for number, mean in enumerate(train(arguments.updates)):
        print(f"update {number:3d}  mean reward per step {mean:.3f}")
