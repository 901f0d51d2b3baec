"""The default tokenizer: its folder, `DEFAULT_PATH`, opens with `transformers.PreTrainedTokenizerFast.from_pretrained`.

It is small (byte-level BPE), has a ChatML-like chat template with tools, reasoning and generation marks, and loses nothing of any text. The script
that makes it is `agent_gym.tokenizers.build_default`. Any other Hugging Face tokenizer serves in its place.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["DEFAULT_PATH"]

DEFAULT_PATH = Path(__file__).parent / "default"
