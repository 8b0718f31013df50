"""Readings of a scheduler's metrics, and what happened between two of them.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from compute_agent.scheduler.service.metrics import PREFIX

Key = tuple[str, frozenset[tuple[str, str]]]


class ServiceReading(Struct, frozen=True):
    """All samples at one moment, in seconds of a clock that only grows."""

    at: float
    samples: Mapping[Key, float] = {}

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return the sums of a metric by the values of one label."""
        sums: dict[str, float] = {}
        for (sample, labels), value in self.samples.items():
            if sample == f"{PREFIX}_{name}":
                key = dict(labels).get(label, "")
                sums[key] = sums.get(key, 0.0) + value
        return sums

    def value(self, name: str) -> float | None:
        """Return the sum of a metric, `None` where there is none of that name."""
        values = [v for (sample, _), v in self.samples.items() if sample == f"{PREFIX}_{name}"]
        return sum(values) if values else None


class NotMetrics(ValueError):
    """A text that is not what a scheduler shows; the message says what it has instead."""


def reading_of(text: str, at: float) -> ServiceReading:
    """Return the samples in the text format of Prometheus.

    :raises NotMetrics: the text has another format, or no sample of a scheduler.
    """
    samples: dict[Key, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                # the bound of a bucket
                float(sample.labels.get("le", 0))
                samples[(sample.name, frozenset(sample.labels.items()))] = sample.value
    except ValueError as error:
        raise NotMetrics(str(error) or "it is not the text format of Prometheus") from error
    if not any(name.startswith(f"{PREFIX}_") for name, _ in samples):
        raise NotMetrics(f"it has no metric {PREFIX}_*")
    return ServiceReading(at, samples)


def per_second(
    before: ServiceReading, after: ServiceReading, name: str, label: str
) -> dict[str, float]:
    """Return how fast a counter grew, by the values of a label.

    A counter that is smaller than before began again with its process.
    """
    seconds = max(after.at - before.at, 1e-9)
    earlier = before.by_label(name, label)
    return {
        key: (value - earlier.get(key, 0.0) if value >= earlier.get(key, 0.0) else value) / seconds
        for key, value in after.by_label(name, label).items()
    }


def quantile(before: ServiceReading, after: ServiceReading, name: str, part: float) -> float | None:
    """Return the quantile of a histogram between two readings, `None` when nothing came.

    Within a bucket it is interpolated, as Prometheus does; above the last bound it is that bound.
    """
    earlier = before.by_label(f"{name}_bucket", "le")
    growths = sorted(
        (float(bound), count - earlier.get(bound, 0.0))
        for bound, count in after.by_label(f"{name}_bucket", "le").items()
    )
    total = growths[-1][1] if growths else 0.0
    if total <= 0:
        return None
    lower, below = 0.0, 0.0
    for bound, count in growths:
        if count >= part * total:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (part * total - below) / max(count - below, 1e-9)
        lower, below = bound, count
    return lower
