"""A simulated day with schedulers that spread and that pack: what is used, stranded and refused."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.scheduler.cloud_day import DAY, FLAVORS, Result, live

#: Multipliers of weighers; those that are not named are 1.
POLICIES: Final[Mapping[str, Mapping[str, float]]] = {
    "spread": {},
    "pack": {"cpu": -1.0, "ram": -1.0, "disk": -1.0},
    "pack, keep devices": {"cpu": -1.0, "ram": -1.0, "disk": -1.0, "pci": 4.0},
}
PICTURE: Final = Path(__file__).resolve().parents[2] / "docs" / "images" / "simulated-day.png"
_COLOURS: Final = ("#c8601a", "#1f5fa8", "#2a8a4a")
_PANELS: Final = (
    ("vcpus", "VCPUs in use", 100.0),
    ("stranded", "free VCPUs that the largest flavor cannot use", 100.0),
    ("vgpus", "VGPUs in use", 100.0),
    ("whole_gpus", "GPUs that nobody uses", 100.0),
    ("empty", "hosts that nobody uses", 100.0),
    ("refused", "requests refused since midnight", 1.0),
)


def show(console: Console, seed: str, quick: bool) -> bool:
    """Let the day pass with each policy, print it, and draw the picture unless it is quick."""
    hosts = 8 if quick else 24
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(POLICIES), context) as pool:
        days = {policy: pool.submit(_day, hosts, seed, policy) for policy in POLICIES}
        results = {policy: day.result() for policy, day in days.items()}
    console.print(_figures(hosts, seed, results), _refusals(results))
    if not quick:
        draw(hosts, results, PICTURE)
        console.print(f"drawn: {PICTURE}")
    return True


def _day(hosts: int, seed: str, policy: str) -> Result:
    with tempfile.TemporaryDirectory(prefix="day-") as name:
        return live(Path(name), hosts, int(seed), POLICIES[policy])


def _figures(hosts: int, seed: str, results: Mapping[str, Result]) -> Table:
    table = Table(
        title=f"A simulated day on {hosts} hosts, seed {seed}: means of all quarter hours"
    )
    table.add_column("")
    for policy in results:
        table.add_column(policy, justify="right")
    for name, title, factor in _PANELS[:-1]:
        cells = (f"{factor * result.mean(name):.1f} %" for result in results.values())
        table.add_row(title, *cells)
    table.add_row(
        "VCPU hours of refused requests",
        *(f"{result.lost_hours:,.0f}" for result in results.values()),
    )
    return table


def _refusals(results: Mapping[str, Result]) -> Table:
    table = Table(title="Requests refused")
    for heading in ("flavor", "asked", *results):
        table.add_column(heading, justify="left" if heading == "flavor" else "right")
    asked_counts = next(iter(results.values())).asked_counts
    for flavor in FLAVORS:
        refusals = (str(result.refused_counts[flavor.name]) for result in results.values())
        table.add_row(flavor.name, str(asked_counts[flavor.name]), *refusals)
    totals = (str(result.refused_counts.total()) for result in results.values())
    table.add_section()
    table.add_row("all", str(asked_counts.total()), *totals)
    return table


def draw(hosts: int, results: Mapping[str, Result], picture: Path) -> None:
    """Write a picture of the day."""
    # here, so that the other benchmarks run without it
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(3, 2, figsize=(10, 8.5), sharex=True, layout="constrained")
    for axes, (name, title, factor) in zip(panels.flat, _PANELS, strict=True):
        for colour, (policy, result) in zip(_COLOURS, results.items(), strict=True):
            hours = [sample.at for sample in result.samples]
            values = [factor * getattr(sample, name) for sample in result.samples]
            axes.plot(hours, values, label=policy, color=colour, linewidth=1.6)
        _dress(axes, title + (", %" if factor > 1 else ""))
    panels.flat[0].legend(loc="lower right", frameon=False)
    for axes in panels[-1]:
        axes.set_xlabel("hour of the day")
    figure.suptitle(f"A simulated day on {hosts} hosts")
    # without the version of matplotlib, so that an equal picture is an equal file
    figure.savefig(picture, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def _dress(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlim(0, DAY)
    axes.set_xticks(range(0, int(DAY) + 1, 4))
    axes.set_ylim(bottom=0)
    axes.grid(color="#dddddd", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
