"""Limits on our side, what a server's headers say of when to come back, and what requests took."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from email.utils import formatdate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_gym.policies import MeteredPolicy, Prices, RateLimit, RequestRecord, Sampling, Traffic
from agent_gym.policies.metering import money, read_prices
from agent_gym.policies.rate_limit import Reserved, asked_wait
from agent_gym.trajectory import Generation

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "2", "x-ratelimit-reset-requests": "6m0s"}, 2.0),
        ({"x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-requests": "20ms"}, 0.02),
        ({"x-ratelimit-reset-requests": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-reset": str(NOW + 12)}, 12.0),
        ({"x-ratelimit-reset": str(int((NOW + 12) * 1000))}, 12.0),
        ({"ratelimit-reset": "30"}, 30.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "9s"}, 1.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "9s", "x-ratelimit-remaining-tokens": "0"}, 9.0),
        ({"x-ratelimit-reset-requests": "1s 2x"}, None),
    ],
)
def test_headers_say_how_long_to_stay_away(headers: dict[str, str], seconds: float | None) -> None:
    found = asked_wait(headers, NOW)
    assert found is None if seconds is None else found == pytest.approx(seconds, abs=1.0 if "GMT" in str(headers) else 1e-3)


def test_a_success_holds_nobody_back_unless_a_budget_is_used_up() -> None:
    headers = {"x-ratelimit-reset-requests": "5s", "x-ratelimit-remaining-requests": "3", "retry-after": "4"}
    assert asked_wait(headers, NOW, used_up_only=True) is None
    assert asked_wait({**headers, "x-ratelimit-remaining-requests": "0"}, NOW, used_up_only=True) == 5.0


@given(
    st.dictionaries(
        st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset", "x-ratelimit-remaining", "ratelimit-reset"]),
        st.text(max_size=20),
    )
)
def test_no_header_breaks_anything(headers: dict[str, str]) -> None:
    found = asked_wait(headers, NOW)
    assert found is None or (math.isfinite(found) and found >= 0)


class Clock:
    """Time that only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def simulate(limit: RateLimit, clock: Clock, sizes: list[int], seconds: float) -> list[tuple[float, int]]:
    """Requests that all wait from the beginning; each ends at once. Returns when each began, and its tokens."""
    waiting = deque((object(), size) for size in sizes)
    limit._waiting.extend(ticket for ticket, _ in waiting)
    began = []
    while waiting and clock.now < seconds:
        place = limit._try(*waiting[0])
        if isinstance(place, Reserved):
            began.append((clock.now, waiting.popleft()[1]))
            limit._running -= 1
        else:
            clock.now += place
    return began


@given(st.integers(1, 5), st.integers(1, 400), st.lists(st.integers(0, 500), min_size=1, max_size=25))
def test_no_minute_has_more_than_is_allowed_and_everyone_gets_through_in_order(requests: int, tokens: int, sizes: list[int]) -> None:
    clock = Clock()
    limit = RateLimit(requests_per_minute=requests, tokens_per_minute=tokens, clock=clock)
    began = simulate(limit, clock, sizes, 61.0 * len(sizes) + 61.0)
    assert [size for _, size in began] == sizes
    for start, _ in began:
        inside = [size for at, size in began if start <= at < start + 60.0]
        assert len(inside) <= requests
        assert (
            sum(inside) <= tokens or len(inside) == 1 or sum(inside[:-1]) == 0
        )  # one that is larger than the limit has a minute of its own


def test_a_limit_is_used_and_not_only_kept() -> None:
    clock = Clock()
    began = simulate(RateLimit(requests_per_minute=3, clock=clock), clock, [0] * 9, 1000.0)
    assert [round(at) for at, _ in began] == [0, 0, 0, 60, 60, 60, 120, 120, 120]


def test_what_a_request_really_took_counts_from_then_on() -> None:
    clock = Clock()
    limit = RateLimit(tokens_per_minute=100, clock=clock)
    limit._waiting.extend(["a", "b"])
    place = limit._try("a", 90)
    assert isinstance(place, Reserved) and isinstance(limit._try("b", 50), float)
    place.settle(10)
    assert isinstance(limit._try("b", 50), Reserved)


def test_a_hold_stops_everyone_and_a_shorter_one_does_not_end_it() -> None:
    clock = Clock()
    limit = RateLimit(clock=clock)
    limit.hold(5.0)
    limit.hold(1.0)
    assert [at for at, _ in simulate(limit, clock, [0, 0], 60.0)] == pytest.approx([5.0, 5.0], abs=0.01)


def test_requests_of_two_threads_share_one_limit() -> None:
    limit = RateLimit(concurrency=1)
    running: list[int] = []
    most: list[int] = []

    async def one() -> None:
        async with limit.turn():
            running.append(1)
            most.append(len(running))
            await asyncio.sleep(0.005)
            running.pop()

    async def some() -> None:
        await asyncio.gather(*(one() for _ in range(5)))

    async def both() -> None:
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, some()) for _ in range(2)))

    asyncio.run(both())
    assert max(most) == 1 and len(most) == 10


def test_one_that_gave_up_waiting_holds_nobody_back() -> None:
    limit = RateLimit(concurrency=1)

    async def run() -> bool:
        async with limit.turn():
            second = asyncio.create_task(limit.turn().__aenter__())
            third = asyncio.create_task(limit.turn().__aenter__())
            await asyncio.sleep(0.02)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
        await asyncio.wait_for(third, 30)
        return True

    assert asyncio.run(run())


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute", "concurrency"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_a_limit_that_lets_nothing_through_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        RateLimit(**{name: value})


# ---------------------------------------------------------------------------------------------------- what requests took


def test_costs_are_those_of_the_prices_and_kept_tokens_cost_their_own() -> None:
    record = RequestRecord(1.0, 1000, 100, 400)
    assert Prices(2.0, 10.0).of(record) == pytest.approx((1000 * 2 + 100 * 10) / 1e6)
    assert Prices(2.0, 10.0, 0.5).of(record) == pytest.approx((600 * 2 + 400 * 0.5 + 100 * 10) / 1e6)
    assert Prices(2.0, 10.0, 0.5).of(RequestRecord(1.0, 100, 0, 999)) == pytest.approx(100 * 0.5 / 1e6)
    assert Prices(2.0, 10.0).of(RequestRecord(1.0, None, 100)) is None


def test_one_request_without_usage_makes_the_sum_unknown() -> None:
    known, unknown = RequestRecord(1.0, 10, 1), RequestRecord(3.0)
    whole, part, free = Traffic.of([known, known], Prices(1, 1)), Traffic.of([known, unknown], Prices(1, 1)), Traffic.of([known])
    assert whole.cost == pytest.approx(22e-6) and whole.prompt_tokens == 20 and whole.unknown_usage == 0
    assert part.cost is None and part.prompt_tokens is None and part.unknown_usage == 1 and part.latency_median == 2.0
    assert free.cost is None and free.completion_tokens == 1
    assert Traffic.of([]).latency_p95 is None and Traffic.of([], Prices(1, 1)).cost == 0.0


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=40))
def test_latencies_are_percentiles(seconds: list[float]) -> None:
    traffic = Traffic.of([RequestRecord(one, 1, 1, tries=2) for one in seconds])
    assert traffic.latency_median == pytest.approx(np.median(seconds)) and traffic.latency_p95 == pytest.approx(np.percentile(seconds, 95))
    assert traffic.retries == len(seconds)


@pytest.mark.parametrize(
    "wrong",
    [
        {"in": 1},
        {"in": 1, "out": 2, "more": 3},
        {"in": -1, "out": 1},
        {"in": "1", "out": 1},
        {"in": True, "out": 1},
        [1, 2],
        {"in": 1, "out": float("inf")},
    ],
)
def test_what_is_no_price_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="million"):
        read_prices(wrong)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    ("cost", "text"),
    [(0.0, "0.00"), (1234.5, "1,234.50"), (1.0, "1.00"), (0.1234, "0.123"), (0.00012, "0.00012"), (0.00001234, "1.23e-05")],
)
def test_money_has_the_digits_that_it_needs(cost: float, text: str) -> None:
    assert money(cost) == text


def test_any_policy_can_be_metered() -> None:
    class Three:
        version = 7
        bound: object = None
        forgotten: object = None

        def bind(self, env: object, session: object = None) -> None:
            self.bound = (env, session)

        async def generate(self, prompt_ids: object, sampling: Sampling, *, session: object = None) -> Generation:
            return Generation(np.array([1, 2, 3]))

        def forget(self, session: object) -> None:
            self.forgotten = session

    inner = Three()
    policy = MeteredPolicy(inner)
    policy.bind("env", "s")
    assert asyncio.run(policy.generate([5, 6], Sampling(), session="s")) == Generation(np.array([1, 2, 3]))
    policy.forget("s")
    assert policy.version == 7 and policy.token_exact and inner.bound == ("env", "s") and inner.forgotten == "s"
    (record,) = policy.records
    assert (record.prompt_tokens, record.completion_tokens) == (2, 3) and record.seconds >= 0
