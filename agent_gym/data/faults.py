"""How a fault in a row of data is told: by file, row and field, what was wanted and what was given."""

from __future__ import annotations

__all__ = ["field_fault"]

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
