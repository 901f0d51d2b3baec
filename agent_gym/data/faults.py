"""How a fault in a row of data is told: by file, row and field, what was wanted and what was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["field_fault", "missing_field", "require_object"]

_SHOWN = 120


def field_fault(where: str, name: str, wanted: str, value: object) -> ValueError:
    """Make the error of a field that holds something else than it must.

    Args:
        where: file and row.
        name: of the field.
        wanted: what it must be.
        value: what it is; a long one is cut.

    Returns:
        The error, to be raised.
    """
    shown = repr(value)
    return ValueError(f"{where}: field {name!r} must be {wanted}, not {shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + '...'}")


def missing_field(where: str, name: str, row: Mapping[str, Any], wanted: str = "") -> ValueError:
    """Make the error of a field that a row lacks.

    Args:
        where: file and row.
        name: of the field.
        row: as it was given.
        wanted: which fields there must be, as a sentence.

    Returns:
        The error, to be raised.
    """
    return ValueError(f"{where}: the field {name!r} is missing; {f'{wanted}; ' if wanted else ''}this row has {sorted(map(str, row))}")


def require_object(row: object, where: str) -> None:
    """Check that a row has named fields.

    Args:
        row: what stands where a row is wanted.
        where: file and row.

    Raises:
        ValueError: if it has none.
    """
    if not isinstance(row, Mapping):
        raise ValueError(f"{where}: a row must be an object with named fields, not {type(row).__name__}")
