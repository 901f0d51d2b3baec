"""`--engine vllm|sglang|openai --url URL`: a model that a server computes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agent_gym._names import as_ids
from agent_gym.cli.common import Player, UsageError, error_console, quiet_transformers, reach_hub, user_mistakes

__all__ = ["load_chat_server", "load_served"]


def load_served(
    model: str, engine: str, url: str | None, *, tokenizer: str | None, temperature: float, seed: int, device: str, dtype: str
) -> Player:
    """Open a model behind a server.

    Args:
        model: the name that it serves.
        engine: "vllm", "sglang" or "openai".
        url: of the server.
        tokenizer: folder or name; None takes the model's.
        temperature: of the sampled arm.
        seed: of requests without one.
        device: must be "auto": the server has its own.
        dtype: likewise.

    Returns:
        The policy and what belongs to it.

    Raises:
        UsageError: for settings that do not belong together, a server that cannot be reached, or another model than it serves.
    """
    from agent_gym.chat import load_tokenizer
    from agent_gym.policies import EngineError, SGLangPolicy, VLLMPolicy

    if engine == "transformers" or url is None:
        raise UsageError("a model of a server wants both: --engine vllm (or sglang, openai) and --url http://127.0.0.1:8000")
    if device != "auto" or dtype != "auto":
        raise UsageError("--device and --dtype are the server's own matter with --url; give them to its command")
    if engine == "openai":
        return load_chat_server(url, model=model, tokenizer=tokenizer, temperature=temperature, seed=seed)
    source = tokenizer or model
    reach_hub(source, "tokenizer")
    with user_mistakes(), quiet_transformers():
        opened = load_tokenizer(source)
        config = _of_model(source, "AutoConfig")
        generation = _of_model(source, "GenerationConfig")
    rows = int(getattr(config.get_text_config(), "vocab_size", 0) or 0) if config is not None else 0
    rows = max(rows, len(opened))
    policy: Any
    with user_mistakes(EngineError), error_console().status(f"asking {url} ..."):
        if engine == "vllm":
            policy = VLLMPolicy(url, model=model, seed=seed, vocab_size=rows)
        else:
            policy = SGLangPolicy(url, seed=seed, vocab_size=rows)
        info = asyncio.run(policy.connect())
    if info.model != model:
        raise UsageError(
            f"--model {model}: {url} serves {info.model}; give that name, and the folder or name of its tokenizer with --tokenizer"
        )
    arms: dict[str, float | None] = {"sampled": temperature, "greedy": 0.0} if temperature > 0 else {"greedy": 0.0}
    return Player(model, info.name, policy, opened, rows, as_ids(getattr(generation, "eos_token_id", None)), arms)


def load_chat_server(
    url: str, *, model: str | None, tokenizer: str | None = None, temperature: float = 1.0, seed: int = 0, **settings: Any
) -> Player:
    """Open a model behind a server of OpenAI's chat API, which works on text.

    Args:
        url: of the server.
        model: the name that it serves; None takes its first.
        tokenizer: in whose ids the environments' prompts and limits are; None takes the project's own.
        temperature: of the sampled arm.
        seed: of requests without one.
        **settings: further ones of `OpenAIPolicy`.

    Returns:
        The policy and what belongs to it.

    Raises:
        UsageError: for settings that cannot be used, or a server that cannot be reached or refuses the key.
    """
    from agent_gym.chat import load_tokenizer
    from agent_gym.policies import EngineError, OpenAIPolicy

    reach_hub(tokenizer or "default", "tokenizer")
    with user_mistakes(EngineError), error_console().status(f"asking {url} ..."):
        opened = load_tokenizer(tokenizer)
        policy = OpenAIPolicy(url, model=model, seed=seed, **settings)
        name = asyncio.run(policy.connect(retries=1))
    arms: dict[str, float | None] = {"sampled": temperature, "greedy": 0.0} if temperature > 0 else {"greedy": 0.0}
    return Player(name, f"openai {policy.server.url}", policy, opened, len(opened), arms=arms)


def _of_model(source: str, name: str) -> Any:
    """A configuration that lies beside the tokenizer; None where there is none, as with a tokenizer alone."""
    import transformers

    kind: Callable[[str], Any] = getattr(transformers, name).from_pretrained
    try:
        return kind(source)
    except (OSError, ValueError):
        return None
