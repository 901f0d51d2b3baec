"""Numbers as people and models write them: `1,800`, `$18`, `18.0`, `18.`, `18 dollars`, `#### 18`.

They are read as exact decimals, never as floats. What is no single number (`3/4`, `18-20`, `2 million`, `1,80`) is read as none, so that no
reading of ours can turn it into a right answer.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

__all__ = ["find_number", "marked_answer", "read_number"]

MAX_LENGTH = 100
"""Characters of a number."""

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_SIGNED = rf"(?P<sign>[-+−]?)[ \t]?[$€£]?[ \t]?(?P<minus>[-−]?){_DIGITS}"
_GOES_ON = (
    r"(?![0-9])(?!_+[0-9])(?![.,:/^*×÷'’][0-9])"  # another digit, a second point, a fraction, a time, a power
    r"(?![eE][-+]?[0-9])(?![kKmMbB](?![A-Za-z]))"  # 1e3, 5k
    r"(?![ \t]*[-–—/×÷*^+=−][ \t]*[$(]?[0-9])"  # 5 - 3, 18-20, 3 / 4
    r"(?![ \t]+[0-9]+[ \t]*/)(?![ \t][0-9]{3}(?![0-9]))"  # 1 1/2, 1 800
    r"(?![ \t]*(?:dozens?|hundreds?|thousands?|millions?|billions?)\b)"
)
_NUMBER = re.compile(rf"(?<![0-9A-Za-z_.,/:^]){_SIGNED}{_GOES_ON}", re.IGNORECASE)
_MARKED = re.compile(rf"(?<!#)####(?!#)[ \t*_`=:]{{0,20}}(?P<number>{_SIGNED}{_GOES_ON})", re.IGNORECASE)
_FIRST_DIGIT = re.compile(r"[0-9]")
_GROUPED = re.compile(r"^[^0-9,.]*[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")


def read_number(text: str) -> Decimal | None:
    """Read a text that is a number and nothing else, with thousands separators, a currency or per cent sign, or a full stop behind it.

    Args:
        text: an answer.

    Returns:
        A finite `decimal.Decimal`; None where the text is no number.
    """
    if len(text) > 10 * MAX_LENGTH:
        return None
    cleaned = text.strip()
    if "," in cleaned and not _GROUPED.search(cleaned):
        return None
    cleaned = cleaned.replace(",", "").replace("$", "").replace("%", "").replace("−", "-").removesuffix(".").strip()
    if not cleaned or len(cleaned) > MAX_LENGTH or not cleaned.isascii() or "_" in cleaned:
        return None
    try:
        value = Decimal(cleaned)
    except InvalidOperation:
        return None
    return value if value.is_finite() else None


def find_number(text: str) -> Decimal | None:
    """Read the first number of a text: `18 dollars`, `It is $1,800.`, `18. Thanks 2.`.

    Args:
        text: an answer with words around its number.

    Returns:
        A finite `decimal.Decimal`. None where the text has no digit, or where its first digits are part of something else than one number
        (a fraction, a range, a sum, `2 million`): later numbers are not looked at, so a list of guesses is worth its first one.
    """
    whole = read_number(text)
    if whole is not None:
        return whole
    first = _FIRST_DIGIT.search(text)
    if first is None:
        return None
    found = _NUMBER.search(text)
    if found is None or found.end() <= first.start() or found.start() > first.start():
        return None
    return read_number(found.group().replace(" ", "").replace("\t", "").replace("€", "").replace("£", "").replace("+", ""))


def marked_answer(text: str) -> str | None:
    """Return what stands behind the last `####` that a number follows on its line, as solutions of GSM8K (arXiv 2110.14168) end.

    Args:
        text: a reply or a solution. A heading of that level (`#### Step`) is no answer.

    Returns:
        The number as it is written, for `find_number`; None where there is no such line.
    """
    found = None
    for found in _MARKED.finditer(text):  # noqa: B007  # the last one counts
        pass
    return None if found is None else found.group("number").strip()
