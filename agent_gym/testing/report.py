"""How checks are named, ordered and reported: `check`, `Check`, `CheckFailure`, `CheckResult`, `Report`.

A check is a function of a `Subject` that returns when all is well, raises `CheckFailure` when it is not, and `NotApplicable` when it has
nothing to say. It may need others: when one of those failed, it is skipped and says so, so that one fault is reported once, by its name.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from agent_gym._names import nearest
from agent_gym.testing.subject import NotApplicable, Subject

__all__ = ["CHECKS", "Check", "CheckFailure", "CheckResult", "Report", "check", "fail", "run_check"]

CheckFunction = Callable[[Subject], None]


class CheckFailure(AssertionError):
    """An environment does not do what a check asks for."""


def fail(seen: str, wanted: str, mend: str) -> NoReturn:
    """Fail a check.

    Args:
        seen: what was seen.
        wanted: what was wanted.
        mend: what to do next.

    Raises:
        CheckFailure: always.
    """
    raise CheckFailure(f"seen:   {seen}\nwanted: {wanted}\nmend:   {mend}")


@dataclass(frozen=True, slots=True)
class Check:
    """A named check.

    Attributes:
        name: of the check.
        function: does it.
        needs: checks without which this one says nothing new.
    """

    name: str
    function: CheckFunction
    needs: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return (self.function.__doc__ or self.name).strip().splitlines()[0]


CHECKS: dict[str, Check] = {}
"""All checks by name, in the order in which they run; `needs` may run one earlier."""


def check(*needs: str) -> Callable[[CheckFunction], CheckFunction]:
    """Register a function as a check under its own name.

    Args:
        *needs: names of other checks.

    Returns:
        The decorator.

    Raises:
        ValueError: if the name is taken.
    """

    def register(function: CheckFunction) -> CheckFunction:
        name = function.__name__
        if name in CHECKS:
            raise ValueError(f"a check {name!r} is registered already; give yours another name")
        CHECKS[name] = Check(name, function, needs)
        return function

    return register


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check said.

    Attributes:
        name: of the check.
        outcome: "passed", "failed" or "skipped".
        message: what was seen, wanted and how to mend it; or why it was skipped; empty when it passed.
        summary: the first line of the check's documentation.
    """

    name: str
    outcome: str
    message: str = ""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What all checks said of an environment.

    Attributes:
        env: the name of the environment.
        results: in the order in which they ran.
    """

    env: str
    results: tuple[CheckResult, ...] = field(default_factory=tuple)

    def __getitem__(self, name: str) -> CheckResult:
        """Return the result of a check by its name.

        Args:
            name: of the check.

        Returns:
            The result.

        Raises:
            KeyError: if that check did not run.
        """
        for result in self.results:
            if result.name == name:
                return result
        raise KeyError(name)

    def _with(self, outcome: str) -> tuple[CheckResult, ...]:
        return tuple(result for result in self.results if result.outcome == outcome)

    @property
    def passed(self) -> tuple[CheckResult, ...]:
        """The results of the checks that passed."""
        return self._with("passed")

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The results of the checks that failed."""
        return self._with("failed")

    @property
    def skipped(self) -> tuple[CheckResult, ...]:
        """The results of the checks that had nothing to say."""
        return self._with("skipped")

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failed

    def raise_if_failed(self) -> Report:
        """Return the report, or raise it.

        Returns:
            Itself.

        Raises:
            CheckFailure: if a check failed, with all that was found.
        """
        if not self.ok:
            raise CheckFailure(str(self))
        return self

    def __str__(self) -> str:
        lines = [f"{self.env}: {len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"]
        for result in self.results:
            lines.append(f"  {result.outcome:8}{result.name}" + (f": {result.message}" if result.outcome == "skipped" else ""))
            if result.outcome == "failed":
                lines += [f"          {line}" for line in (result.summary, *result.message.splitlines())]
        return "\n".join(lines)


def run_check(name: str, subject: Subject, known: dict[str, CheckResult]) -> CheckResult:
    """Run one check, those that it needs before it, and each at most once.

    Args:
        name: of the check.
        subject: the environment under test.
        known: results so far; new ones are put in.

    Returns:
        The result.
    """
    if name in known:
        return known[name]
    one = CHECKS[name]
    outcome, message = "passed", ""
    needed = [run_check(need, subject, known) for need in one.needs]
    failed = next((result for result in needed if result.outcome == "failed"), None)
    skipped = next((result for result in needed if result.outcome == "skipped"), None)
    if failed is not None:
        outcome, message = "skipped", f"it needs {failed.name}, which failed"
    elif skipped is not None:
        outcome, message = "skipped", skipped.message
    else:
        try:
            one.function(subject)
        except NotApplicable as reason:
            outcome, message = "skipped", str(reason)
        except CheckFailure as failure:
            outcome, message = "failed", str(failure)
        except Exception as error:  # noqa: BLE001  # whatever the environment raises is a finding
            outcome, message = "failed", _raised(error)
    known[name] = CheckResult(name, outcome, message, one.summary)
    return known[name]


def _raised(error: Exception) -> str:
    """An unexpected exception as a finding, with the last place outside this room."""
    frames = traceback.extract_tb(error.__traceback__)
    here = str(Path(__file__).parent)
    outside = [frame for frame in frames if not frame.filename.startswith(here)] or list(frames)
    place = f" ({Path(outside[-1].filename).name}:{outside[-1].lineno}, in {outside[-1].name})" if outside else ""
    return (
        f"seen:   {type(error).__name__}: {error}{place}\nwanted: no exception in an ordinary reset, step, render or close"
        "\nmend:   mistakes of the model are answered by an observation; only InvalidAction, ResetNeeded and reset's ValueError leave an environment"
    )


def selected(checks: Iterable[str] | None, every: Mapping[str, Check]) -> list[str]:
    """Return the names of checks in the order in which they run.

    Args:
        checks: names, or None for all.
        every: the checks there are.

    Returns:
        The names.

    Raises:
        ValueError: for an unknown name, with the nearest.
    """
    if checks is None:
        return list(every)
    wanted = [checks] if isinstance(checks, str) else list(checks)
    for name in wanted:
        if name not in every:
            raise ValueError(f"there is no check {name!r}" + (nearest(name, every) or f"; there are {', '.join(every)}"))
    return [name for name in every if name in wanted]
