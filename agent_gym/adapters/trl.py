"""`ToolEnvironments`: our tool environments in a plain `trl.GRPOTrainer`, by its `environment_factory` (tested with TRL 1.16).

    environments = ToolEnvironments("AgentR1/Tool-v0")
    trainer = GRPOTrainer(
        model,
        args=args,
        processing_class=readable(tokenizer),
        train_dataset=environments.dataset(64),
        environment_factory=environments,
        reward_funcs=environments.reward,
    )

TRL shows a model the methods of an environment as tools and calls them. Here each tool of ours is such a method, and each call a step of our own
environment, with its checks, limits and rewards; the text of the last reply is its last step. What TRL has no place for stays behind: one reward for
an episode instead of one for each step, an appended context alone, and a prompt that TRL's own template writes. `AgentGRPOTrainer` has neither limit.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium

from agent_gym.envs.tool import ToolEnv
from agent_gym.envs.whole_numbers import whole_number
from agent_gym.registration import registered_id

__all__ = ["HERMES_RESPONSE", "ToolEnvironments", "readable"]

HERMES_RESPONSE: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close_pattern": r"</think>\s*", "content": "text"},
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}
"""How TRL reads replies in the Hermes form between `<|im_start|>` and `<|im_end|>`, which our default tokenizer writes."""
_RESERVED = frozenset({"reset", "get_reward"})
_TYPES: Mapping[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict, "array": list}


def readable(tokenizer: Any) -> Any:
    """Say how TRL reads the replies of a tokenizer that it does not know, such as our default one.

    Args:
        tokenizer: with a chat template of the Hermes form.

    Returns:
        The same tokenizer; one that says so itself, or that TRL knows, is left as it is.

    Raises:
        ValueError: if its template is of another form; then its `response_template` must be set by hand.
    """
    from trl.chat_template_utils import add_response_schema

    if getattr(tokenizer, "response_template", None) is not None:
        return tokenizer
    try:
        return add_response_schema(tokenizer)
    except ValueError:
        template = str(tokenizer.chat_template or "")
        if not all(mark in template for mark in ("<|im_start|>", "<|im_end|>", "<tool_call>")):
            raise ValueError("neither TRL nor we know how to read this tokenizer's replies; set tokenizer.response_template") from None
        tokenizer.response_template = HERMES_RESPONSE
        return tokenizer


class ToolEnvironments:
    """Makes the environments that TRL asks for, the data set that they need, and their reward.

    Args:
        env: the id of a tool environment, "module:Class", or a function that makes one.
        **kwargs: keywords of the environment. Each call is one of its turns, and so is the last reply: mind `max_turns`.

    Raises:
        TypeError: if it is no `ToolEnv`.
        ValueError: if a tool's name, or that of an argument, is no name of Python's, or one that TRL uses itself.
    """

    def __init__(self, env: str | Callable[..., gymnasium.Env[Any, Any]], **kwargs: Any) -> None:
        self._env, self._kwargs = env, kwargs
        self._first = self._made()
        self._class = _class_of(self._first.unwrapped.tool_set.values())
        self.__name__ = self._class.__name__

    def _made(self) -> Any:
        env = gymnasium.make(registered_id(self._env), **self._kwargs) if isinstance(self._env, str) else self._env(**self._kwargs)
        if not isinstance(env.unwrapped, ToolEnv):
            raise TypeError(f"TRL's environments are sets of tools, and {type(env.unwrapped).__name__} is no ToolEnv; use AgentGRPOTrainer")
        return env

    def __call__(self) -> Any:
        """Make one environment, as TRL asks for it.

        Returns:
            An object with `reset` and one method for each tool.
        """
        return self._class(self._made())

    def dataset(self, n: int) -> Any:
        """Make the data set: the first prompts of tasks, with the seeds by which their environments find them again.

        Args:
            n: tasks.

        Returns:
            A `datasets.Dataset` with the columns prompt (chat messages) and seed.
        """
        from datasets import Dataset

        rows = []
        for seed in self._first.unwrapped.task_seeds(n=whole_number("n", n, 1)):
            self._first.reset(seed=seed)
            messages = self._first.unwrapped.history.head_messages
            rows.append({"prompt": [{"role": str(one["role"]), "content": str(one["content"])} for one in messages], "seed": seed})
        return Dataset.from_list(rows)

    @staticmethod
    def reward(completions: Sequence[Any], environments: Sequence[Any], **kwargs: Any) -> list[float | None]:
        """Reward finished episodes: the sum of the rewards of their steps.

        Args:
            completions: the messages of each episode, of which the last one's text is taken for the last reply.
            environments: of this class, one for each.
            **kwargs: the rest of what TRL gives.

        Returns:
            A number for each; None where the world broke, which TRL leaves out of the sum.
        """
        return [environment._finished(completion) for environment, completion in zip(environments, completions, strict=True)]


class _Environment:
    """One environment as TRL wants it. Its tools are added by `_class_of`; whatever has no underscore would be one."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._reward = 0.0
        self._fault = False
        self._over = True

    def reset(self, seed: int | None = None, **row: Any) -> None:
        """Begin the task of a row of `ToolEnvironments.dataset`."""
        if seed is None:
            raise ValueError(
                "a row has no 'seed', so that the members of a group would get different tasks; use ToolEnvironments.dataset(n)"
            )
        self._env.reset(seed=int(seed))
        self._reward, self._fault, self._over = 0.0, False, False

    def _step(self, text: str) -> str:
        if self._over:
            raise ValueError("the episode is over")
        _, reward, terminated, truncated, info = self._env.step(self._env.unwrapped.encode_action(text))
        self._reward += float(reward)
        self._fault = bool(info["env_fault"])
        self._over = bool(terminated or truncated)
        return str(info["feedback"])

    def _finished(self, completion: Any) -> float | None:
        if not self._over:
            last = completion if isinstance(completion, str) else completion[-1].get("content", "") if completion else ""
            if isinstance(completion, str) or (
                completion and completion[-1].get("role") == "assistant" and not completion[-1].get("tool_calls")
            ):
                self._step(str(last or ""))
        self._over = True
        return None if self._fault else self._reward


def _class_of(tools: Any) -> type[_Environment]:
    """A class with one method for each tool, whose signature and documentation TRL makes a schema of."""
    methods: dict[str, Any] = {}
    for tool in tools:
        if not tool.name.isidentifier() or keyword.iskeyword(tool.name) or tool.name.startswith("_") or tool.name in _RESERVED:
            raise ValueError(f"TRL needs tools with names of Python's, other than reset and get_reward, and not {tool.name!r}")
        methods[tool.name] = _method(tool)
    return type("ToolEnvironment", (_Environment,), methods)


def _method(tool: Any) -> Callable[..., str]:
    import inspect

    def call(self: _Environment, **arguments: Any) -> str:
        given = {name: value for name, value in arguments.items() if value is not None or name in required}
        return self._step(self._env.unwrapped.tool_format.render_call(tool.name, given))

    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    required = set(tool.parameters.get("required", ()))
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    lines = []
    annotations: dict[str, Any] = {}
    for name in sorted(properties, key=lambda one: one not in required):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"TRL needs arguments with names of Python's, and {tool.name!r} has {name!r}")
        kind = properties[name].get("type")
        annotations[name] = _TYPES.get(kind, Any) if isinstance(kind, str) else Any
        choices = properties[name].get("enum")
        told = " ".join(str(properties[name].get("description") or name).split())
        lines.append(f"    {name}: {told}{f' (one of {choices})' if choices else ''}")
        default = inspect.Parameter.empty if name in required else None
        if name not in required:
            annotations[name] = annotations[name] | None if annotations[name] is not Any else Any
        parameters.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotations[name]))
    call.__name__ = call.__qualname__ = tool.name
    told = " ".join(str(tool.description).split()) or tool.name
    call.__doc__ = told + ("\n\nArgs:\n" + "\n".join(lines) if lines else "") + "\n\nReturns:\n    The tool's answer."
    call.__annotations__ = {**annotations, "return": str}
    call.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]  # what inspect looks for
    return call
