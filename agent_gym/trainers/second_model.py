"""What a critic and a teacher have in common: a second model beside the one that is trained, which has to read the same ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["check_vocabulary", "has_tokenizer", "plain_model"]


def plain_model(model: Any) -> Any:
    """Return the model of transformers inside of a PEFT model, adapters in their places.

    Args:
        model: a model.

    Returns:
        The inner model; any other as it is.
    """
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def has_tokenizer(name: str) -> bool:
    """Whether a folder or name brings a tokenizer; from a folder without one, transformers would make one up.

    Args:
        name: folder or Hugging Face name.

    Returns:
        False for a folder without a tokenizer; True for a name, which is not looked up.
    """
    folder = Path(name)
    return not folder.is_dir() or any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer_config.json"))


def check_vocabulary(own: Any, other: Any, who: str) -> None:
    """See that every id of one tokenizer means the same token to another. Chat template and further tokens of the other do not matter.

    Args:
        own: the tokenizer of the model that is trained.
        other: that of the second model.
        who: the second model is, for the message.

    Raises:
        ValueError: with the lowest id that means something else.
    """
    ours, theirs = own.get_vocab(), other.get_vocab()
    wrong = sorted((index, token) for token, index in ours.items() if theirs.get(token) != index)
    if not wrong:
        return
    index, token = wrong[0]
    named = {number: one for one, number in theirs.items()}
    means = f"{named[index]!r}" if index in named else "nothing"
    raise ValueError(
        f"{who} has another vocabulary: {len(wrong)} of {len(ours)} ids of the policy mean something else to it, the first is {index}, {token!r} here and "
        f"{means} there. It has to read the ids that the policy writes; take a model of the same family"
    )
