"""The engine of a training run: made from TRL's `vllm_*` settings, and given the model's weights before it samples with older ones.

Weights go through a folder that the engine reads, which works on every device, with every number of processes and with vLLM and SGLang alike, and
leaves no collective of the training's ranks with the engine's. That costs the writing and the reading of the model once per generation batch; a folder in
memory (`/dev/shm`) is quickest. The main process alone writes and loads, while the others wait: they sample from the same server.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from agent_gym._background import sessions
from agent_gym.policies.engine import EngineError, EnginePolicy, retries_within
from agent_gym.policies.vllm_policy import VLLMPolicy

__all__ = ["EngineWeights", "check_engine_settings", "make_engine_policy", "merged_state_dict"]

_FEWEST_RETRIES = 5  # those of a policy by default
_ONE_ENGINE_EACH = (
    'vllm_mode="colocate" with {} processes: an engine in each of them is not supported. Serve one on GPUs of its own, and train with vllm_mode="server" '
    "(docs/train-4b-on-8-gpus.md)"
)
_NOT_TAKEN: tuple[tuple[str, Any, str], ...] = (
    ("vllm_enable_sleep_mode", False, "the engine keeps its memory; lower vllm_gpu_memory_utilization, or serve it on GPUs of its own"),
    ("vllm_structured_outputs_regex", None, "the log-probabilities that are trained are those of the whole distribution"),
)


def check_engine_settings(args: Any, *, processes: int) -> None:
    """Refuse settings of `use_vllm=True` that this project does not pass on.

    Args:
        args: an `AgentGRPOConfig`.
        processes: how many train.

    Raises:
        ValueError: with the setting and the reason; for an engine in each of several processes.
    """
    for name, neutral, reason in _NOT_TAKEN:
        if getattr(args, name) != neutral:
            raise ValueError(f"{name}={getattr(args, name)!r} is not taken: {reason}")
    if args.vllm_mode == "colocate" and processes > 1:
        raise ValueError(_ONE_ENGINE_EACH.format(processes))


def make_engine_policy(args: Any, model: Any) -> VLLMPolicy:
    """Make the policy that `use_vllm=True` asks for.

    `vllm_mode="server"` takes `vllm_server_base_url`, or `vllm_server_host` and `vllm_server_port`, `vllm_server_timeout` (seconds to wait for the server to come
    up) and `vllm_max_model_length`; "colocate" takes `vllm_gpu_memory_utilization`, `vllm_tensor_parallel_size`, `vllm_model_impl` and
    `vllm_max_model_length`.

    Args:
        args: an `AgentGRPOConfig`.
        model: what the trainer was given, a model or its folder or name.

    Returns:
        The policy. Nothing has been sent or started yet.

    Raises:
        ValueError: for settings that this project does not pass on, with the reason; for an engine in each of several processes.
        ImportError: for "colocate" without vllm.
    """
    check_engine_settings(args, processes=PartialState().num_processes)
    if args.vllm_mode == "server":
        host = "127.0.0.1" if args.vllm_server_host == "0.0.0.0" else args.vllm_server_host  # TRL's default: where a server binds to
        return VLLMPolicy(
            args.vllm_server_base_url or f"http://{host}:{args.vllm_server_port}",
            max_context=args.vllm_max_model_length,
            retries=max(_FEWEST_RETRIES, retries_within(args.vllm_server_timeout)),
            weights_dir=args.engine_weights_dir,
        )
    name = model if isinstance(model, (str, Path)) else getattr(getattr(model, "config", None), "_name_or_path", "")
    if not name:
        raise ValueError(
            'vllm_mode="colocate" wants a model with a folder or name, which the engine opens too; save it first and pass the folder'
        )
    settings: dict[str, Any] = {
        "gpu_memory_utilization": args.vllm_gpu_memory_utilization,
        "tensor_parallel_size": args.vllm_tensor_parallel_size,
        "model_impl": args.vllm_model_impl,
    }
    return VLLMPolicy(
        mode="colocate",
        model=str(name),
        max_context=args.vllm_max_model_length,
        engine_kwargs=settings,
        weights_dir=args.engine_weights_dir,
    )


def merged_state_dict(model: Any) -> dict[str, torch.Tensor]:
    """The weights of a PEFT model with its adapters added, under the names of the plain model. The model is left bit for bit as it was.

    One layer is merged at a time, so that no second copy of the model stands on its device.

    Args:
        model: a `peft.PeftModel`, whole in this process.

    Returns:
        Tensors by name, each of the shape and dtype of the weight; merged ones on the CPU.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    plain = model.get_base_model()
    merged: dict[str, torch.Tensor] = {}
    for name, module in plain.named_modules():
        if not isinstance(module, BaseTunerLayer):
            continue
        own = dict(module.get_base_layer().named_parameters(recurse=False))
        before = {key: value.detach().clone() for key, value in own.items()}
        module.merge()
        try:
            merged |= {f"{name}.{key}": value.detach().to("cpu", copy=True) for key, value in own.items()}
        finally:
            module.unmerge()
            with torch.no_grad():
                for key, value in own.items():
                    value.copy_(before[key])  # taking an adapter off again leaves a rounding
    found = {}
    for name, value in plain.state_dict().items():
        if model.base_model.prefix in name or ".original_module." in name:
            continue
        name = name.replace(".base_layer.", ".")
        for adapter in model.active_adapters:
            name = name.replace(f".modules_to_save.{adapter}.", ".")
        found[name] = merged.get(name, value)
    return found


class _Snapshot:
    """The weights of a moment, as `EnginePolicy.update_weights` takes them."""

    def __init__(self, model: Any, state: Mapping[str, torch.Tensor]) -> None:
        self.model, self.state = model, state

    def save_pretrained(self, folder: Path) -> None:
        self.model.save_pretrained(folder, state_dict=dict(self.state))


class EngineWeights:
    """Keeps an engine's weights those of the model that is trained.

    Args:
        policy: on the engine; each rank has its own, on the same one.
        accelerator: of the training.
        every: generation batches from one update to the next.
        dtype: the floating-point format in which weights are written ("bfloat16" halves them); None leaves theirs.

    Attributes:
        version: the optimiser step whose weights the engine has; None before the first update.
        batches: generation batches that were trained on so far; a checkpoint keeps it.
    """

    def __init__(self, policy: EnginePolicy, accelerator: Any, *, every: int = 1, dtype: str | None = None) -> None:
        self.policy, self.accelerator, self.every = policy, accelerator, every
        self.dtype = None if dtype is None else getattr(torch, dtype)
        self.version: int | None = None
        self.batches = 0

    @classmethod
    def of(cls, policy: Any, args: Any, accelerator: Any) -> EngineWeights | None:
        """Those of a policy on an engine, with the settings of an `AgentGRPOConfig`; None for another policy, or where its weights are left alone.

        Args:
            policy: of the trainer.
            args: an `AgentGRPOConfig`.
            accelerator: of the training.

        Returns:
            The keeper, or None where there is nothing to keep.

        Raises:
            ValueError: where each of several processes has an engine of its own.
        """
        if not isinstance(policy, EnginePolicy) or not args.sync_every:
            return None
        if accelerator.num_processes > 1 and not policy.shared:
            raise ValueError(_ONE_ENGINE_EACH.format(accelerator.num_processes))
        return cls(policy, accelerator, every=args.sync_every, dtype=args.engine_weights_dtype)

    def before_batch(self, model: Any, step: int, *, training: bool) -> dict[str, float]:
        """Update the engine where a generation batch wants it.

        Args:
            model: as the trainer holds it, wrapped or not.
            step: optimiser steps that it has behind it.
            training: whether the batch is trained on. One that is measured always has the newest weights.

        Returns:
            `rollout/seconds_sync`, this rank's.
        """
        due = self.version is None or not training or self.batches % self.every == 0
        self.batches += training
        return self.update(model, step) if due else {"rollout/seconds_sync": 0.0}

    def update(self, model: Any, step: int) -> dict[str, float]:
        """Give the engine the model's weights, unless it has them. All ranks call this together.

        Args:
            model: as the trainer holds it, wrapped or not.
            step: optimiser steps that it has behind it.

        Returns:
            `rollout/seconds_sync`, this rank's.

        Raises:
            EngineError: on every rank, if the engine did not take them.
            ValueError: for adapters over weights that are shared out among the ranks.
        """
        if self.version == step:
            return {"rollout/seconds_sync": 0.0}
        began = time.perf_counter()
        snapshot = self._snapshot(model)
        outcome, folder = "", ""
        failure: BaseException | None = None
        if self.accelerator.is_main_process:
            waiting: Future[int] = sessions.submit(self._send(snapshot, step))
            try:
                waiting.result()
                folder = str(self.policy.weights or "")
            except Exception as error:  # noqa: BLE001  # whatever it is, the others must not wait for ever
                outcome, failure = str(error) or type(error).__name__, error
            except BaseException:
                waiting.cancel()
                raise
        if self.accelerator.num_processes > 1:
            outcome, folder = gather_object([(outcome, folder)])[0]
        if outcome:
            raise EngineError(f"the engine did not take the weights of step {step}: {outcome}") from failure
        if not self.accelerator.is_main_process:
            self.policy.adopt(folder, step)
        self.version = step
        return {"rollout/seconds_sync": time.perf_counter() - began}

    async def _send(self, snapshot: _Snapshot | None, step: int) -> int:
        await self.policy.connect()
        return await self.policy.update_weights(snapshot, version=step)

    def _snapshot(self, model: Any) -> _Snapshot | None:
        """All weights, on the main process; the others take part where they are shared out."""
        plain = self.accelerator.unwrap_model(model)
        if not hasattr(plain, "get_base_model"):
            state = self.accelerator.get_state_dict(model)
            writer = plain
        elif self._sharded():
            raise ValueError(
                "adapters over weights that are shared out among the ranks cannot be merged for an engine; train them with plain data parallelism, where "
                "each rank holds the frozen model whole"
            )
        else:
            state = merged_state_dict(plain) if self.accelerator.is_main_process else {}
            writer = plain.get_base_model()
        if not self.accelerator.is_main_process:
            return None
        if self.dtype is not None:
            state = {name: value.to(self.dtype) if value.is_floating_point() else value for name, value in state.items()}
        return _Snapshot(writer, state)

    def _sharded(self) -> bool:
        kind = str(getattr(self.accelerator.distributed_type, "value", self.accelerator.distributed_type))
        return kind == "FSDP" or (kind == "DEEPSPEED" and int(self.accelerator.deepspeed_config["zero_optimization"]["stage"]) == 3)
