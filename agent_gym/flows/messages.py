"""What travels between a run and its workers: pickled bytes, and errors that arrive as themselves.

`pack` says which part of a value cannot be pickled; `pack_error` and `raise_packed` carry an exception with its type, its message and the traceback
of the process that it is from.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any, NoReturn

import cloudpickle  # type: ignore[import-untyped]  # comes with Gymnasium, whose AsyncVectorEnv sends factories by it

__all__ = ["RemoteTraceback", "pack", "pack_error", "raise_packed", "unpack", "unpack_error"]


class RemoteTraceback(Exception):
    """The traceback of a worker, as the cause of the error that came from there.

    Args:
        text: the formatted traceback.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def pack(parts: Mapping[str, Any], advice: str = "", *, by_value: bool = False) -> bytes:
    """Pickle values.

    Args:
        parts: name -> value.
        advice: what to do where one cannot be pickled.
        by_value: functions and classes of the main module travel as code, since the other process has another main module.

    Returns:
        The bytes.

    Raises:
        TypeError: if one cannot be pickled, with the innermost part that is to blame.
    """
    if not by_value:
        try:
            return pickle.dumps(parts, pickle.HIGHEST_PROTOCOL)
        except Exception:  # noqa: BLE001  # the values' own code runs here; the other pickler knows more
            pass
    try:
        return bytes(cloudpickle.dumps(parts))
    except Exception as error:
        name, part = _culprit(parts)
        kind = type(part)
        raise TypeError(
            f"{name} cannot be sent to another process: {kind.__module__}.{kind.__qualname__} cannot be pickled ({type(error).__name__}: {error})"
            + (f". {advice}" if advice else "")
        ) from error


def unpack(data: bytes) -> Any:
    """Return what `pack` has packed.

    Args:
        data: from a process of this run.

    Returns:
        Name -> value.
    """
    return pickle.loads(data)


def _can_be_pickled(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001  # the value's own code runs here
        return False
    return True


def _culprit(value: Any) -> tuple[str, Any]:
    """The innermost part, along members of dictionaries, sequences and objects and variables of functions, that cannot be pickled."""
    name, seen = "", set()
    while True:
        seen.add(id(value))
        found = next(((one, part) for one, part in _parts(name, value) if id(part) not in seen and not _can_be_pickled(part)), None)
        if found is None:
            return name, value
        name, value = found


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield f"{name}[{key!r}]" if name else str(key), part
    elif isinstance(value, (list, tuple, set, frozenset)):
        for index, part in enumerate(value):
            yield f"{name}[{index}]", part
    else:
        for key, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True) if isinstance(value, FunctionType) else ():
            yield f"{name}: {key!r} of {value.__qualname__}", cell.cell_contents
        for key, part in getattr(value, "__dict__", {}).items():
            yield f"{name}.{key}", part


def pack_error(error: BaseException) -> bytes:
    """Make bytes of an exception. Never raises.

    Args:
        error: any.

    Returns:
        For `raise_packed`.
    """
    text = "".join(traceback.format_exception(error))
    for dumps in (pickle.dumps, cloudpickle.dumps):
        try:
            data: bytes = dumps(error)
            same = pickle.loads(data)
        except Exception:  # noqa: BLE001  # an exception whose constructor wants more than its arguments
            continue
        if type(same) is type(error) and str(same) == str(error):
            return pickle.dumps((data, None, "", text))
    try:
        kind: bytes | None = cloudpickle.dumps(type(error))
    except Exception:  # noqa: BLE001  # a class that holds what cannot be pickled
        kind = None
    return pickle.dumps((None, kind, f"{type(error).__module__}.{type(error).__qualname__}: {error}", text))


def raise_packed(data: bytes) -> NoReturn:
    """Raise an exception of another process here.

    Args:
        data: from `pack_error`.

    Raises:
        BaseException: it, with a `RemoteTraceback` as its cause. One that cannot be built again comes as a subclass of its class with the same message,
            or, where that fails too, as a RuntimeError that begins with its name.
    """
    raise unpack_error(data)


def unpack_error(data: bytes) -> BaseException:
    """Build an exception of another process here.

    Args:
        data: from `pack_error`.

    Returns:
        It, as `raise_packed` raises it.
    """
    whole, kind, message, text = pickle.loads(data)
    error = _built(whole, kind, message)
    error.__cause__ = RemoteTraceback(text)
    return error


def _built(whole: bytes | None, kind: bytes | None, message: str) -> BaseException:
    try:
        if whole is not None:
            error: BaseException = pickle.loads(whole)
            return error
        if kind is not None:
            origin = pickle.loads(kind)
            words = message.partition(": ")[2]
            same = type(origin.__name__, (origin,), {"__module__": origin.__module__, "__init__": _nothing, "__str__": lambda self: words})
            made: BaseException = same()
            return made
    except Exception as error:  # noqa: BLE001  # its module may not be here, its metaclass may refuse
        return RuntimeError(f"{message} (it cannot be built in this process: {type(error).__name__}: {error})")
    return RuntimeError(message)


def _nothing(self: Any, *_args: Any) -> None:
    """Stand in for a constructor whose arguments are unknown."""
