"""The providers of a layout, by the suffix of their names."""

from __future__ import annotations

from compute_agent.virt.layout.wanted import HostLayout, WantedProvider


def totals(layout: HostLayout, suffix: str = "") -> dict[str, int]:
    return {rc: record.total for rc, record in named(layout, suffix).inventory.items()}


def named(layout: HostLayout, suffix: str) -> WantedProvider:
    return next(p for p in layout.providers if p.name == f"host1{suffix}")


def names(layout: HostLayout) -> list[str]:
    return [p.name.removeprefix("host1") for p in layout.providers]
