"""What a training run shows while it goes: one line per phase with a bar, live success and a small curve; plain lines where there is no terminal."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from agent_gym.cli.common import console, progress_bar, quiet_transformers

__all__ = ["TrainDisplay"]

_BARS = "▁▂▃▄▅▆▇█"
_LINES = 20  # of a phase, where there is no terminal


def sparkline(values: list[float], width: int = 24) -> str:
    """Return the last values between 0 and 1 as bars.

    Args:
        values: any number of them.
        width: how many are shown.

    Returns:
        One character per value.
    """
    return "".join(_BARS[min(len(_BARS) - 1, max(0, int(value * len(_BARS))))] for value in values[-width:])


class TrainDisplay:
    """Shows phases; call it as `display(phase, step, total, values)`. Use it in `with`.

    Args:
        figure: what counts, shown as it grows: "success", or one of the environment's metrics.
        silent: shows nothing, for all processes of a run but the first.
    """

    def __init__(self, figure: str = "success", *, silent: bool = False) -> None:
        self._figure = figure
        self._silent = silent
        self.screen = console()
        self._bar = progress_bar()
        self._tasks: dict[str, Any] = {}
        self._measured: list[float] = []
        self._entered = contextlib.ExitStack()
        self._lines = _Lines(self)
        self._live = not self._bar.disable

    def __enter__(self) -> TrainDisplay:
        """Show warnings and what is logged as lines of our own, and keep transformers' bars out."""
        self._bar.start()
        self._entered.enter_context(warnings.catch_warnings())
        self._entered.enter_context(quiet_transformers())
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.showwarning = self._show_warning
        logging.getLogger("agent_gym").addHandler(self._lines)
        return self

    def _show_warning(
        self, message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        self.say(f"warning: {message}", "yellow")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        logging.getLogger("agent_gym").removeHandler(self._lines)
        self._entered.close()
        self._bar.stop()

    def say(self, text: str, style: str = "") -> None:
        """Print a line above the bars.

        Args:
            text: printed as it is, without markup.
            style: of rich; none when empty.
        """
        if self._silent:
            return
        target = self._bar.console if self._live else self.screen
        target.print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)

    def __call__(self, phase: str, step: int, total: int, values: Mapping[str, Any] | None = None) -> None:
        """Show how far a phase is.

        Args:
            phase: its name.
            step: done so far.
            total: of the phase.
            values: what was measured; what counts, loss and the like are shown.
        """
        if self._silent:
            return
        note = self._note(values or {})
        if phase not in self._tasks:
            self._tasks[phase] = self._bar.add_task(f"{phase:<12}", total=max(total, 1), note="")
        if self._live:
            self._bar.update(self._tasks[phase], completed=step, total=max(total, 1), note=note)
        elif step >= total or step % max(1, total // _LINES) == 0:
            self.screen.print(f"{phase:<12} {step}/{total}  {note}", markup=False, highlight=False, soft_wrap=True)

    def _note(self, values: Mapping[str, Any]) -> str:
        parts = []
        named = ("rollout/success", "success") if self._figure == "success" else (f"metrics/{self._figure}",)
        value = next((values[name] for name in named if name in values), None)
        if isinstance(value, (int, float)):
            self._measured.append(float(value))
            recent = self._measured[-5:]
            parts.append(f"{self._figure} {value:.3f}, mean of 5 {sum(recent) / len(recent):.3f} {sparkline(self._measured)}")
        for name, label in (
            ("rollout/turns_mean", "turns"),
            ("loss", "loss"),
            ("copied", "copied"),
            ("sampled", "sampled"),
            ("greedy", "greedy"),
        ):
            value = values.get(name)
            if isinstance(value, (int, float)) and not (name == "loss" and parts):
                parts.append(f"{label} {value:.3f}" if label != "turns" else f"turns {value:.2f}")
        return "  ".join(parts)


class _Lines(logging.Handler):
    """Shows what the package logs, such as faults, between the bars."""

    def __init__(self, display: TrainDisplay) -> None:
        super().__init__(logging.WARNING)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.say(f"{record.levelname.lower()}: {record.getMessage()}", "yellow")
