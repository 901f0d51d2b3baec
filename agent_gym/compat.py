"""Mending what Gymnasium's own wrappers do to text in `info`.

`gymnasium.wrappers.ArrayConversion` (behind `NumpyToTorch`, `JaxToTorch` and others) takes text for a sequence to be converted letter by letter: a
string comes out as the repr of a generator, and an enum such as `StopReason` raises ValueError (Gymnasium 1.2 to 1.4). Its conversion is
a `functools.singledispatch` function, made to be extended: text is registered to pass through as it is.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["let_text_through_array_conversion"]

_MODULE = "gymnasium.wrappers.array_conversion"


def let_text_through_array_conversion() -> None:
    """Register text with Gymnasium's array conversion, if that module is loaded and has nothing for text. Costs a dictionary look-up otherwise."""
    module = sys.modules.get(_MODULE)
    if module is None or str in module.array_conversion.registry:
        return
    module.array_conversion.register(str, _unchanged)


def _unchanged(value: str, xp: Any = None, device: Any = None) -> str:
    return value
