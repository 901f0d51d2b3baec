"""Names that people and libraries give: the nearest known one, the keywords that something takes, and ids that come as one or as many."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["as_ids", "keyword_names", "nearest"]


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word.

    Args:
        word: what was given.
        known: what there is.

    Returns:
        "; did you mean 'x'?" with the one to three nearest, or "" where none is near.
    """
    names = list(dict.fromkeys(known))
    folded = {name.casefold(): name for name in names}
    matches = difflib.get_close_matches(word.casefold(), folded, n=3, cutoff=0.6)
    alike = [difflib.SequenceMatcher(None, word.casefold(), one).ratio() for one in matches]
    close = [folded[one] for one, ratio in zip(matches, alike, strict=True) if ratio >= alike[0] - 0.08]
    if not close:
        tail = word.casefold().split("/")[-1].split("-v")[0]
        close = [name for name in names if tail and tail in name.casefold()][:3]
    return f"; did you mean {' or '.join(repr(one) for one in close)}?" if close else ""


def keyword_names(creator: Any) -> list[str] | None:
    """Return the keywords that a class or function takes.

    Args:
        creator: what is called, for example the entry point of an environment; a class that passes keywords on is asked with its bases.

    Returns:
        Their names; None where it takes any.
    """
    names: dict[str, None] = {}
    for one in creator.__mro__ if inspect.isclass(creator) else (creator,):
        function = one.__dict__.get("__init__") if inspect.isclass(one) else one
        if function is None:
            continue
        parameters = list(inspect.signature(function).parameters.values())
        for parameter in parameters[1:] if inspect.isclass(one) else parameters:
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                names[parameter.name] = None
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return list(names)
    return None


def as_ids(ids: int | Sequence[int] | None) -> tuple[int, ...]:
    """Return ids that a model's config holds as one number, as several, or not at all (`generation_config.eos_token_id`).

    Args:
        ids: of the config.

    Returns:
        All of them, in order.
    """
    if ids is None:
        return ()
    return (int(ids),) if isinstance(ids, int) else tuple(int(one) for one in ids)
