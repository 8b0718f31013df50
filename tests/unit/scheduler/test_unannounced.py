"""Warnings of filters and weighers that wait for facts which compute-agent does not announce."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compute_agent.conf import new_config
from compute_agent.scheduler import assembly

Warnings = Callable[..., list[str]]


@pytest.fixture
def warnings(tmp_path: Path) -> Warnings:
    """The warnings of a configuration, given as lines by group."""

    def told(**groups: list[str]) -> list[str]:
        path = tmp_path / "scheduler.conf"
        path.write_text(
            "".join(f"[{group}]\n" + "\n".join(groups[group]) + "\n" for group in groups)
        )
        return assembly.warnings(new_config([f"--config-file={path}"]))

    return told


RATIO = ["weight_setting = cpu.percent=-1.0"]
ALIAS = ['alias = {"name": "gpu", "resource_class": "PGPU"}']
NO_METRICS = "metrics_weight_multiplier = 0.0"


def test_the_defaults_wait_for_nothing(warnings: Warnings):
    assert warnings() == []


@pytest.mark.parametrize(
    ("groups", "named"),
    [
        (
            {
                "metrics": RATIO,
                "filter_scheduler": ["enabled_filters = MetricsFilter", NO_METRICS],
            },
            "MetricsFilter passes only hosts whose agents announce the metrics cpu.percent",
        ),
        (
            {"pci": ALIAS, "filter_scheduler": ["enabled_filters = PciPassthroughFilter"]},
            "pci_in_placement",
        ),
        ({"metrics": RATIO}, "All hosts weigh the same by metrics"),
        ({"filter_scheduler": ["image_props_weight_multiplier = 1.0"]}, "image properties"),
    ],
)
def test_a_filter_or_weigher_that_waits_for_an_unannounced_fact_is_named(
    warnings: Warnings, groups: dict[str, list[str]], named: str
):
    (warning,) = warnings(**groups)
    assert named in warning
    assert "compute-agent does not announce them" in warning


@pytest.mark.parametrize(
    "groups",
    [
        {
            "pci": ALIAS,
            "filter_scheduler": [
                "enabled_filters = PciPassthroughFilter",
                "pci_in_placement = true",
            ],
        },
        {"metrics": RATIO, "filter_scheduler": [NO_METRICS]},
    ],
)
def test_what_is_off_is_not_warned_of(warnings: Warnings, groups: dict[str, list[str]]):
    assert warnings(**groups) == []
