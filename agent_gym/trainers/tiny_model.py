"""The tiny language model of the embedded runs: Qwen3 in small, made here from nothing, so that no download is needed.

Small in everything but the spread of its weights: with the usual standard deviation of 0.02 a model of this size does not learn to copy at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

__all__ = ["INITIALIZER_RANGE", "TinyShape", "build_tiny_model", "freeze_embedding", "tokenizer_with_words"]

INITIALIZER_RANGE = 0.08  # about 0.6 / sqrt(hidden size)


@dataclass(frozen=True, slots=True)
class TinyShape:
    """The sizes of a tiny model. The defaults make about 170,000 parameters with the default tokenizer.

    Attributes:
        hidden_size: of the residual stream.
        layers: number of them.
        heads: of attention, in each layer.
        head_size: of each head.
        feed_forward_size: between the two matrices of a feed-forward layer.
    """

    hidden_size: int = 64
    layers: int = 2
    heads: int = 2
    head_size: int = 32
    feed_forward_size: int = 128


def tokenizer_with_words(words: Iterable[str], phrases: Iterable[str] = ()) -> PreTrainedTokenizerBase:
    """Return the default tokenizer with further words as entries of their own.

    What a tiny model finds hard is not the choice but writing a name in five pieces; a name of one piece is copied in one step, and the text is shorter
    by a third. The words are ordinary text, no control tokens. As everywhere in the default tokenizer a blank belongs to the word before it, so each
    word has two entries: with its blank, and alone before anything else.

    Args:
        words: their order does not matter.
        phrases: of a world that always says the same; each is one entry, with the blanks and signs that stand in it.

    Returns:
        A tokenizer of its own; the default one stays as it is.
    """
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    from agent_gym.tokenizers import DEFAULT_PATH

    tokenizer: PreTrainedTokenizerBase = PreTrainedTokenizerFast.from_pretrained(str(DEFAULT_PATH))
    for word in sorted(set(words)):
        with_blank = AddedToken(f"{word} ", single_word=False, normalized=False, special=False)  # a digit may follow the blank
        tokenizer.add_tokens([with_blank, AddedToken(word, single_word=True, normalized=False, special=False)])
    for phrase in sorted(set(phrases)):
        whole = phrase[:1].isalnum() and phrase[-1:].isalnum()
        tokenizer.add_tokens([AddedToken(phrase, single_word=whole, normalized=False, special=False)])
    return tokenizer


def build_tiny_model(tokenizer: PreTrainedTokenizerBase, seed: int, shape: TinyShape | None = None) -> Qwen3ForCausalLM:
    """Make the untrained model: Qwen3, tied embedding, float32.

    Args:
        tokenizer: gives the vocabulary and its special ids.
        seed: of the weights; the global generator is left as it was.
        shape: its sizes; None for the defaults.

    Returns:
        The model, on the CPU.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shape = shape or TinyShape()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.head_size,
        intermediate_size=shape.feed_forward_size,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        initializer_range=INITIALIZER_RANGE,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    return model


def freeze_embedding(model: Any) -> None:
    """Take the (tied) embedding out of training, so that names that no training world holds stay as good as the others.

    The saved model is an ordinary one and does not remember this: call it again on a model that was loaded to be trained on.

    Args:
        model: a causal language model.
    """
    model.get_input_embeddings().weight.requires_grad_(False)
