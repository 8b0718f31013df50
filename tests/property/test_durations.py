"""Histograms of many values at once, against one value at a time."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from placement_server.metrics import metrics

BOUNDS = (0.25, 0.5, 1, 8)


@given(st.lists(st.floats(0, 20) | st.sampled_from(BOUNDS), max_size=20))
def test_many_values_at_once_count_as_each_of_them(amounts: Sequence[float]) -> None:
    registry = CollectorRegistry()
    at_once, one_by_one = (
        metrics.Durations(name, "seconds", registry=registry, buckets=BOUNDS) for name in "ab"
    )
    at_once.observe_all(amounts)
    for amount in amounts:
        one_by_one.observe(amount)
    for bound in ("0.25", "0.5", "1.0", "8.0", "+Inf"):
        first, second = (
            registry.get_sample_value(f"{name}_bucket", {"le": bound}) for name in "ab"
        )
        assert first == second
    assert registry.get_sample_value("a_sum") == pytest.approx(registry.get_sample_value("b_sum"))
