"""The pages that people read, their blocks of code, and the commands in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
MOST_GATED = 12
NEEDS = (
    ("key", r"api\.openai\.com"),
    ("GPU", r"CUDA_VISIBLE_DEVICES|vllm serve|--engine (vllm|sglang)|vllm_mode=server"),
    ("network", r"pip install|Qwen/|\$folder"),
)


class Block(NamedTuple):
    """A fenced block: its page from the root, its number on that page from 1, its language and its text."""

    page: str
    number: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}[{self.number}]"

    @property
    def need(self) -> str | None:
        """What these commands need that a machine without GPU, network and keys has not."""
        if self.language in {"python", "json", "text", "yaml"}:
            return None
        return next((need for need, pattern in NEEDS if re.search(pattern, self.text)), None)


def all_blocks() -> list[Block]:
    found = []
    for page in PAGES:
        for number, (language, text) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), 1):
            found.append(Block(page.relative_to(ROOT).as_posix(), number, language, text))
    return found


def blocks(language: str) -> list[tuple[str, str]]:
    return [(block.page, block.text) for block in all_blocks() if block.language == language]


def gated() -> list[Block]:
    return [block for block in all_blocks() if block.need is not None]


def commands(text: str) -> list[list[str]]:
    """The words of each command, without variables in front, comments and `&&`."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words: list[str] = []
        line = re.sub(r"^\w+=\$\((.*)\)$", r"\1", line)
        for word in [*shlex.split(line, comments=True), "&&"]:
            if word != "&&":
                words.append(word)
                continue
            while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
                words.pop(0)
            if words:
                found.append(words)
            words = []
    return found
