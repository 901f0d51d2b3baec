"""`RateLimit`: how fast a server may be asked, as its owner allows it, and what a server's headers say of when to come back.

Limits are kept on our side, over a sliding minute: in no 60 seconds are there more requests, or more tokens, than allowed. Who comes first goes first. A wait that the
server asks for holds all requests back, not only the one that was told. Several event loops may share a limit, so no primitive of one loop serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from email.utils import parsedate_to_datetime

__all__ = ["RateLimit", "Reserved", "asked_wait"]

_WINDOW = 60.0
_NAP = 0.25
"""Seconds between two looks of those who wait behind another, or for one of the running requests to end: at most that."""
_PARTS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_EPOCH = 1e9
"""A number above it is a moment, not a span; above a thousand times that it is in milliseconds."""


class Reserved:
    """A request's place among those of the minute.

    Args:
        at: when it began, by the limit's clock.
        tokens: counted for it.
    """

    def __init__(self, at: float, tokens: int) -> None:
        self.at, self.tokens = at, tokens

    def settle(self, tokens: int) -> None:
        """Count what it really took in place of the estimate.

        Args:
            tokens: of prompt and reply.
        """
        self.tokens = tokens


class RateLimit:
    """Lets requests through at an allowed pace. Safe to use from several threads and event loops.

    Args:
        requests_per_minute: at most so many begin in any minute; None for no limit.
        tokens_per_minute: at most so many tokens in any minute, estimated before a request and settled after it; None for no limit.
        concurrency: at most so many at once; None for no limit.
        window: seconds of the "minute"; for tests.
        clock: seconds that only go forward; for tests.

    Raises:
        ValueError: for a limit that lets nothing through.
    """

    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        concurrency: int | None = None,
        window: float = _WINDOW,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        limits = {"requests_per_minute": requests_per_minute, "tokens_per_minute": tokens_per_minute, "concurrency": concurrency}
        for name, value in limits.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a whole number of at least 1, or None for no limit, not {value!r}")
        self.requests_per_minute, self.tokens_per_minute, self.concurrency = requests_per_minute, tokens_per_minute, concurrency
        self._window, self._clock = window, clock
        self._lock = threading.Lock()
        self._recent: deque[Reserved] = deque()
        self._waiting: deque[object] = deque()
        self._running = 0
        self._held_until = -math.inf

    @contextlib.asynccontextmanager
    async def turn(self, tokens: int = 0) -> AsyncIterator[Reserved]:
        """Wait for one's turn, and hold a place while the block runs.

        Args:
            tokens: an estimate of what the request takes; one above the whole limit waits for an empty minute.

        Yields:
            The place, to be settled when the tokens are known.
        """
        ticket = object()
        with self._lock:
            self._waiting.append(ticket)
        try:
            while True:
                place = self._try(ticket, tokens)
                if isinstance(place, Reserved):
                    break
                await asyncio.sleep(place)
        except BaseException:
            with self._lock:
                self._waiting.remove(ticket)
            raise
        try:
            yield place
        finally:
            with self._lock:
                self._running -= 1

    def hold(self, seconds: float) -> None:
        """Let nothing through for a while: the server asked for it.

        Args:
            seconds: from now on; a longer hold that is there stays.
        """
        with self._lock:
            self._held_until = max(self._held_until, self._clock() + seconds)

    def _try(self, ticket: object, tokens: int) -> Reserved | float:
        """The place, or the seconds until the next look."""
        with self._lock:
            now = self._clock()
            while self._recent and self._recent[0].at <= now - self._window:
                self._recent.popleft()
            if self._waiting[0] is not ticket:
                return min(_NAP, self._window / 20)
            wait = max(0.0, self._held_until - now, self._until_fits(now, tokens))
            if wait > 0.0:
                return min(max(wait, 1e-3), _NAP)
            if self.concurrency is not None and self._running >= self.concurrency:
                return 0.01
            self._waiting.popleft()
            self._running += 1
            place = Reserved(now, tokens)
            self._recent.append(place)
            return place

    def _until_fits(self, now: float, tokens: int) -> float:
        """Seconds until the minute has room for one more request of so many tokens."""
        requests, used = len(self._recent), sum(one.tokens for one in self._recent)
        asked = tokens if self.tokens_per_minute is None else min(tokens, self.tokens_per_minute)
        for one in [None, *self._recent]:
            if one is not None:  # it leaves the minute
                requests, used = requests - 1, used - one.tokens
            fits_requests = self.requests_per_minute is None or requests < self.requests_per_minute
            if fits_requests and (self.tokens_per_minute is None or used + asked <= self.tokens_per_minute):
                return 0.0 if one is None else max(0.0, one.at + self._window - now)
        return 0.0


def asked_wait(headers: Mapping[str, str], now: float, *, used_up_only: bool = False) -> float | None:
    """Read from an answer's headers how long to stay away.

    `retry-after-ms`, `retry-after` (seconds or an HTTP date, RFC 9110) go first; then, for each budget that is used up (`x-ratelimit-remaining-*` is 0), the
    longest of `x-ratelimit-reset-*`, which come as a span ("6m0s", "20ms"), as seconds or as a moment; where no budget says that it is used up, the shortest.

    Args:
        headers: by their names in lower case.
        now: seconds since 1970.
        used_up_only: look at budgets that are used up and at nothing else, as is right for an answer that was a success.

    Returns:
        Seconds, not negative; None where nothing is said, or nothing that can be read.
    """
    if not used_up_only:
        milliseconds = _span(headers.get("retry-after-ms", ""), now)
        if milliseconds is not None:
            return milliseconds / 1000.0
        after = headers.get("retry-after", "").strip()
        if after:
            told = _span(after, now)
            return told if told is not None else _date(after, now)
    resets: dict[str, float] = {}
    used_up: list[float] = []
    for name, value in headers.items():
        prefix = next((one for one in ("x-ratelimit-reset", "ratelimit-reset") if name.startswith(one)), None)
        span = None if prefix is None else _span(value, now)
        if prefix is None or span is None:
            continue
        kind = name.removeprefix(prefix)
        resets[kind] = span
        if _is_zero(headers.get(f"{prefix.removesuffix('reset')}remaining{kind}", "")):
            used_up.append(span)
    if used_up:
        return max(used_up)
    return None if used_up_only or not resets else min(resets.values())


def _is_zero(text: str) -> bool:
    try:
        return float(text) <= 0.0
    except ValueError:
        return False


def _span(text: str, now: float) -> float | None:
    """Seconds of a number, a moment, or a span like "1h2m3.5s"; None for anything else."""
    text = text.strip().lower()
    try:
        number = float(text)
    except ValueError:
        parts = _PART.findall(text)
        if not parts or _PART.sub("", text).strip():
            return None
        return sum(float(count) * _PARTS[unit] for count, unit in parts)
    if not math.isfinite(number):
        return None
    if number > _EPOCH:
        number = (number / 1000.0 if number > 1000 * _EPOCH else number) - now
    return max(0.0, number)


def _date(text: str, now: float) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None
