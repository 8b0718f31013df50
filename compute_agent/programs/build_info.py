"""The metric that names the version of a program, and that of Python."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def build_info(program: str, version: str) -> Metric:
    """Return the metric.

    :param program: the beginning of the names of its metrics.
    """
    from prometheus_client.core import GaugeMetricFamily

    labels = {"version": version, "python": platform.python_version()}
    family = GaugeMetricFamily(f"{program}_build_info", "1, with versions.", labels=list(labels))
    family.add_metric(list(labels.values()), 1)
    return family
