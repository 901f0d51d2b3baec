"""How much memory a training run will want on each GPU, estimated before anything is loaded.

The rules are those of the usual accounting (Rajbhandari et al., ZeRO, arXiv 1910.02054; Korthikanti et al., arXiv 2205.05198). They are rules of thumb:
allocator, kernels and communication buffers come on top, which is why a reserve of 10 % is added and every line says what it rests on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ModelNumbers", "estimate", "model_numbers", "teacher_memory"]

GIB = 2.0**30
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2, "fp32": 4, "bf16": 2}
_RESERVE = 0.10
_WIDTH_PER_LAYER = 96  # of models of 1 to 10 billion: 57 to 128
_LM_HEAD_TILE = 1024  # positions whose logits stand in memory at once, in TRL's fused head


@dataclass(frozen=True, slots=True)
class ModelNumbers:
    """What the estimate needs to know of a model.

    Attributes:
        parameters: of the whole model.
        trainable: of those that are trained.
        layers: number of blocks.
        hidden: width.
        kv_width: width of keys and values together, all their heads; 0 where unknown.
        vocab: rows of the embedding.
        source: where the numbers are from.
    """

    parameters: float
    trainable: float
    layers: int
    hidden: int
    kv_width: int
    vocab: int
    source: str


def model_numbers(model: str, lora: dict[str, Any] | None, stated: float | None, vocab: int) -> ModelNumbers | None:
    """Count a model's parameters from its config, without weights.

    Args:
        model: folder or name; a name is only looked up in the local cache.
        lora: keywords of LoraConfig, or None.
        stated: what the recipe says, for where there is no config.
        vocab: entries of the tokenizer, for where there is no config.

    Returns:
        The numbers; None where there is neither a config nor a statement.
    """
    config = _config(model)
    if config is None:
        if stated is None:
            return None
        layers = max(1, round((stated / (12 * _WIDTH_PER_LAYER**2)) ** (1 / 3)))  # 12 x layers x width^2 weights, and a usual shape
        source = "the recipe's `parameters`, and a shape guessed from them; no config.json at hand"
        return ModelNumbers(stated, 0.01 * stated if lora is not None else stated, layers, layers * _WIDTH_PER_LAYER, 0, vocab, source)
    import torch
    from transformers import AutoModelForCausalLM

    make: Any = AutoModelForCausalLM
    with torch.device("meta"):
        built = make.from_config(config)
    parameters = float(sum(one.numel() for one in built.parameters()))
    trainable = parameters
    if lora is not None:
        from peft import LoraConfig, get_peft_model

        adapted = get_peft_model(built, LoraConfig(**lora))
        trainable = float(sum(one.numel() for one in adapted.parameters() if one.requires_grad))
    text = config.get_text_config()
    heads = int(getattr(text, "num_attention_heads", 1))
    head = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    kv_heads = int(getattr(text, "num_key_value_heads", None) or heads)
    return ModelNumbers(
        parameters,
        trainable,
        int(text.num_hidden_layers),
        int(text.hidden_size),
        2 * kv_heads * head,
        int(text.vocab_size),
        "config.json, counted",
    )


def _config(model: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(model, local_files_only=True)
    except (OSError, ValueError, KeyError):
        return None


def teacher_memory(name: str, dtype: str) -> tuple[float, str] | None:
    """Count the weights of a teacher in this process.

    Args:
        name: folder, name or address.
        dtype: its weights are loaded in; "auto" for that in which they are stored.

    Returns:
        Bytes, and what they rest on; None behind an address, or where there is no config at hand.
    """
    config = None if "://" in name else _config(name)
    numbers = model_numbers(name, None, None, 0) if config is not None else None
    if numbers is None:
        return None
    stored = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    size = _BYTES.get(stored if dtype == "auto" else dtype, 4)
    return numbers.parameters * size, f"{numbers.parameters / 1e9:.2f} billion x {size} bytes, whole on each GPU"


def estimate(
    numbers: ModelNumbers,
    *,
    dtype: str,
    sharding: str,
    gpus: int,
    tokens: int,
    checkpointing: bool,
    reference_model: bool,
    critic: bool = False,
    teacher: tuple[float, str] | None = None,
    vllm_share: float | None,
    gpu_memory_gb: float | None,
    context_tokens: int,
    episodes: int,
) -> list[tuple[str, float, str]]:
    """Estimate the memory of one GPU.

    Args:
        numbers: of the model.
        dtype: of weights, gradients and optimiser states.
        sharding: "none", "zero2", "zero3" or "fsdp".
        gpus: that share.
        tokens: padded tokens of one forward and backward pass.
        checkpointing: activations are recomputed.
        reference_model: a second copy is held (beta > 0 without LoRA).
        critic: a copy of the policy is trained as a critic, whole on each GPU.
        teacher: what `teacher_memory` says of a teacher; None where there is none here.
        vllm_share: the part of the GPU that a vLLM engine in this process takes; 0 for one on other GPUs, None where the model itself samples.
        gpu_memory_gb: of one GPU, if stated.
        context_tokens: of one episode, for the cache of replies sampled in this process.
        episodes: sampled at once on one GPU.

    Returns:
        Name, GiB, and what it rests on, for each part; the last is the sum.
    """
    size = _BYTES.get(dtype, 4)
    shards = gpus if sharding in ("zero3", "fsdp") else 1
    gradient_shards = gpus if sharding != "none" else 1
    lines = [
        (
            "weights",
            numbers.parameters * size / shards,
            f"{numbers.parameters / 1e9:.2f} billion x {size} bytes" + (f" / {shards}" if shards > 1 else ""),
        ),
        ("gradients", numbers.trainable * size / gradient_shards, f"{numbers.trainable / 1e9:.3f} billion trained"),
        ("AdamW states", 2 * numbers.trainable * size / gradient_shards, "two per trained weight, in its format"),
    ]
    if reference_model:
        lines.append(("reference model", numbers.parameters * size / shards, "beta > 0"))
    if critic:
        lines.append(("critic", 4 * numbers.parameters * size, "weights, gradients and AdamW states, whole on each GPU"))
    if teacher is not None:
        lines.append(("teacher", *teacher))
    if checkpointing:
        kept, how = 2.0 * numbers.layers + 34.0, "one input per layer, and one layer whole"
    else:
        kept, how = 34.0 * numbers.layers, "34 bytes per token, layer and unit of width"
    lines.append(("activations", tokens * numbers.hidden * kept, f"{tokens:,} tokens; {how}"))
    lines.append(
        (
            "logits",
            2.0 * min(tokens, _LM_HEAD_TILE) * numbers.vocab * 4,
            f"tiles of {_LM_HEAD_TILE} positions, float32, forward and backward",
        )
    )
    if vllm_share and gpu_memory_gb is not None:
        lines.append(
            ("vLLM engine", vllm_share * gpu_memory_gb * GIB, f"vllm_gpu_memory_utilization {vllm_share:g} of {gpu_memory_gb:g} GiB")
        )
    elif vllm_share is None and numbers.kv_width:
        cache = min(episodes * context_tokens * numbers.layers * numbers.kv_width * size, 4 * GIB)
        lines.append(("cache of replies", cache, f"{episodes} episodes of {context_tokens:,} tokens, 4 GiB at most"))
    total = sum(one for _, one, _ in lines)
    lines.append(("reserve", _RESERVE * total, f"{_RESERVE:.0%} for the allocator and buffers"))
    return [(name, value / GIB, why) for name, value, why in lines] + [("sum", (1 + _RESERVE) * total / GIB, "estimated")]
