"""`AgentDistillConfig`: the settings of `AgentGRPOConfig`, and those of a teacher."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar

from agent_gym.trainers.config import AgentGRPOConfig
from agent_gym.trainers.distill_settings import check_distill_settings, is_address

__all__ = ["AgentDistillConfig"]


@dataclass
class AgentDistillConfig(AgentGRPOConfig):
    """Settings of `AgentDistillTrainer`: every field of `AgentGRPOConfig`, and those below.

    One default differs: `num_generations=1`, since the teacher takes the place of the group (so a generation batch is as many tasks as episodes).

    Attributes:
        teacher: folder or name of a model, or the address of a vLLM server ("http://127.0.0.1:8000"); None where the trainer is given one.
        distill_loss: "full", the reverse KL divergence over the whole vocabulary at each action token; "sampled", its estimate from the sampled token, as
            the advantage of a policy loss; or "auto": full where the teacher is in this process, sampled where it is behind a server.
        reward_weight: what the advantages of the reward count beside the teacher, which counts 1; 0 leaves the reward out.
        teacher_temperature: the teacher's distribution is softmax(logits / teacher_temperature); None for `temperature`, that of the student.
        teacher_dtype: weights of a teacher that is loaded from a folder or name: "auto" (as they are stored), "float32", "bfloat16", ...
        teacher_chunk_tokens: action tokens whose whole distributions stand in memory at once.
        teacher_concurrency: requests that each rank has a server work on at once.
    """

    takes_groups_of_one: ClassVar[bool] = True

    num_generations: int | None = field(default=1, metadata={"help": "Episodes per task."})
    teacher: str | None = field(default=None, metadata={"help": "Folder or name of the teacher, or the address of its server."})
    distill_loss: str = field(default="auto", metadata={"help": "'auto', 'full' or 'sampled'."})
    reward_weight: float = field(default=0.0, metadata={"help": "Weight of the reward's advantages beside the teacher's."})
    teacher_temperature: float | None = field(default=None, metadata={"help": "Of the teacher's distribution; default: temperature."})
    teacher_dtype: str = field(default="auto", metadata={"help": "Weights of a teacher that is loaded: 'auto', 'float32', ..."})
    teacher_chunk_tokens: int = field(default=1024, metadata={"help": "Action tokens whose distributions are in memory at once."})
    teacher_concurrency: int = field(default=32, metadata={"help": "Requests at once to a teacher's server."})

    def __post_init__(self) -> None:
        """Check as `AgentGRPOConfig` does, and then what a distillation needs.

        Raises:
            ValueError: for each refused setting, with what was given, why it is refused and what to use.
        """
        super().__post_init__()
        inherited = {item.name for item in fields(AgentGRPOConfig)}
        check_distill_settings(
            {item.name: getattr(self, item.name) for item in fields(self) if item.name not in inherited},
            server=is_address(self.teacher),
            temperature=self.temperature,
            advantage=self.advantage,
            num_generations=int(self.num_generations or 1),
        )
        if self.loss_level != "token":
            raise ValueError(
                f"loss_level={self.loss_level!r}: the divergence from the teacher is a mean over action tokens; leave loss_level out ('token')"
            )
        if self.drop_zero_variance:
            raise ValueError("drop_zero_variance=True would leave episodes out that the teacher has something to say of; leave it out")
        if self.replay_files:
            raise ValueError(
                "replay_files: a teacher scores what the student samples now, where it will stand next; use AgentGRPOTrainer (algorithm grpo) to replay"
            )

    @property
    def temperature_of_teacher(self) -> float:
        """The temperature of the teacher's distribution."""
        return float(self.temperature if self.teacher_temperature is None else self.teacher_temperature)
