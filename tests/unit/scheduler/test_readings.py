"""Readings of metrics, and what happened between two of them."""

from __future__ import annotations

import bisect

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from compute_agent.scheduler.service.metrics import SECONDS_BUCKETS, CountedCalls
from compute_agent.scheduler.service.readings import NotMetrics, per_second, quantile, reading_of


def text_of(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def test_rates_are_growth_over_time_and_a_counter_that_began_again_does_not_go_back() -> None:
    registry = CollectorRegistry()
    calls = CountedCalls(registry)
    calls.on_claim("won", again=False)
    before = reading_of(text_of(registry), 10.0)
    for _ in range(6):
        calls.on_claim("won", again=False)
    calls.on_claim("race", again=True)
    after = reading_of(text_of(registry), 12.0)
    assert per_second(before, after, "claims_total", "outcome") == {"won": 3.0, "race": 0.5}
    began_again = reading_of('compute_scheduler_claims_total{outcome="won"} 4', 14.0)
    assert per_second(after, began_again, "claims_total", "outcome") == {"won": 2.0}
    assert after.value("claims_total") == 8.0
    assert after.value("no_such_metric") is None


@given(
    st.lists(st.floats(0, 59), max_size=20),
    st.lists(st.floats(0, 59), min_size=1, max_size=40),
    st.sampled_from([0.5, 0.95, 0.99]),
)
def test_a_quantile_is_in_the_bucket_of_the_true_one(
    earlier: list[float], seconds: list[float], part: float
) -> None:
    def text(values: list[float]) -> str:
        counts = [sum(1 for value in values if value <= bound) for bound in SECONDS_BUCKETS]
        name = "compute_scheduler_request_duration_seconds_bucket"
        lines = [
            f'{name}{{method="a",le="{bound}"}} {count}'
            for bound, count in zip(SECONDS_BUCKETS, counts, strict=True)
        ]
        return "\n".join([*lines, f'{name}{{method="a",le="+Inf"}} {len(values)}'])

    before, after = reading_of(text(earlier), 0.0), reading_of(text(earlier + seconds), 1.0)
    found = quantile(before, after, "request_duration_seconds", part)
    ordered = sorted(seconds)
    # the first value that so large a part of all is not above
    true = next(v for i, v in enumerate(ordered, 1) if i >= part * len(ordered))
    bucket = bisect.bisect_left(SECONDS_BUCKETS, true)
    lower = SECONDS_BUCKETS[bucket - 1] if bucket else 0.0
    assert found is not None
    assert lower <= found <= SECONDS_BUCKETS[bucket] + 1e-9
    assert quantile(after, after, "request_duration_seconds", part) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "process_cpu_seconds_total 1",
        "<html>",
        "compute_scheduler_claims_total 1.2.3",
        'compute_scheduler_request_duration_seconds_bucket{le="x"} 1',
    ],
)
def test_what_no_scheduler_shows_is_refused(text: str) -> None:
    with pytest.raises(NotMetrics):
        reading_of(text, 0.0)
