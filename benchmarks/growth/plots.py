"""Costs along one axis, the exponent with which they grow, and a picture of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_COLOURS = ("#1b6ca8", "#c8553d", "#4f772d", "#6d597a")


@dataclass(frozen=True)
class Axis:
    """Costs as one number doubles.

    :ivar name: of the file of the picture.
    :ivar unit: of the costs.
    :ivar series: the costs by what is done, and then by the number.
    """

    name: str
    title: str
    unit: str
    series: Mapping[str, Mapping[int, float]]


def exponent(costs: Mapping[int, float]) -> float:
    """Return the slope of the line that fits the costs best where both scales are logarithmic.

    0: they do not grow; 1: twice as many cost twice as much.
    """
    if len(costs) < 2:
        return math.nan
    logarithms = np.log(list(costs.keys())), np.log(list(costs.values()))
    return float(np.polyfit(*logarithms, 1)[0])


def draw(axis: Axis, directory: Path) -> Path:
    """Write the picture of an axis."""
    # here, so that the other benchmarks run without it
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    for colour, (name, costs) in zip(_COLOURS, axis.series.items(), strict=False):
        label = f"{name}: exponent {exponent(costs):.2f}"
        axes.plot(list(costs.keys()), list(costs.values()), "o-", color=colour, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    numbers = sorted({number for costs in axis.series.values() for number in costs})
    axes.set_xticks(numbers, [f"{number:,}" for number in numbers])
    axes.minorticks_off()
    axes.set_xlabel(axis.title)
    axes.set_ylabel(axis.unit)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.legend(frameon=False, fontsize=8)
    picture = directory / f"growth-{axis.name}.png"
    # without the version of matplotlib, so that an equal picture is an equal file
    figure.savefig(picture, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
    return picture
