"""A month of a made-up cloud in simulated time: what is refused with each rule of the planner.

The same guests come and go whatever is done with them.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from compute_agent.fitting.cpus import without
from compute_agent.fitting.guest import Guest, Node, Wish
from compute_agent.fitting.host import Cell, Core, Device, Host
from compute_agent.fitting.plan import Plan, Refusal
from compute_agent.fitting.planner import plan
from compute_agent.fitting.room import PlanOptions

CELLS: Final = range(4)
LOAD: Final = 16.0
"""Guests that each host would have on average, if none was refused."""
STAY_HOURS: Final = 96.0


def _guest(*nodes: Node, threads: str = "", **wishes: int) -> Guest:
    classes = [name for name, count in wishes.items() for _ in range(count)]
    near = [Wish(str(i), name, nearness="required") for i, name in enumerate(classes)]
    return Guest(nodes, threads=threads, wishes=tuple(near))


def _node(cpus: int, mib: int = 0, page_size: int = 0) -> Node:
    return Node(pinned=cpus, memory_mib=mib or 2000 * cpus, page_sizes=frozenset((page_size,)))


FLAVORS: Final[Mapping[str, tuple[float, Guest]]] = {
    "2 CPUs": (30, _guest(_node(2))),
    "3 CPUs": (10, _guest(_node(3))),
    "4 CPUs": (14, _guest(_node(4))),
    "8 CPUs, whole cores": (10, _guest(_node(8), threads="require")),
    "much memory": (8, _guest(_node(2, 24_000))),
    "huge pages": (8, _guest(_node(4, 8000, 2048))),
    "two nodes": (8, _guest(_node(4), _node(4))),
    "GPU": (4.5, _guest(_node(4), GPU=1)),
    "two GPUs": (2.25, _guest(_node(6), GPU=2)),
    "VFs": (6, _guest(_node(4), VF=2)),
}
"""How often each comes."""


class Rules(NamedTuple):
    """What hosts and the order of hosts look at."""

    leaves_whole: bool = True
    spare_device_cells: bool = True
    keep_links: bool = True
    is_first: bool = False


RULES: Final = {
    "all rules": Rules(),
    "no leaves whole": Rules(leaves_whole=False),
    "no spare device cells": Rules(spare_device_cells=False),
    "no keep links": Rules(keep_links=False),
    "none of them": Rules(False, False, False),
    "first candidate": Rules(False, False, False, is_first=True),
}


class _Host:
    """A host, and the plans of its guests by their number."""

    def __init__(self, number: int) -> None:
        cores = [Core((cpu, cpu + 1), 2, cpu // 8) for cpu in range(0, 64, 2)]
        gpus = [
            Device(f"gpu{i}", "GPU", 1, cell=i // 4 * 2, link_group=f"{i // 2}") for i in range(8)
        ]
        nics = [Device(f"nic{i}", "VF", 8, cell=2 * i + 1) for i in range(2)]
        self._cores = [tuple(cores[8 * cell : 8 * cell + 8]) for cell in CELLS]
        self._devices = [gpus, nics, nics, nics, []][number % 5]
        self.guests: dict[int, Plan] = {}
        self.answers: dict[str, Plan | None] = {}
        self.free = Host()
        self.change()

    def change(self) -> None:
        """Sum up what is free after a guest came or left."""
        parts = [part for plan in self.guests.values() for part in plan.parts]
        given = Counter(unit.device for plan in self.guests.values() for unit in plan.given)
        cells = []
        for cell in CELLS:
            own = [part for part in parts if part.cell == cell]
            huge = sum(part.memory_mib for part in own if part.page_size_kib)
            taken = [cpu for part in own for cpu in part.pinned_cpus]
            free = Cell(
                cell,
                without(self._cores[cell], taken),
                16 - len(taken),
                memory_mib=64_000 + huge - sum(part.memory_mib for part in own),
                pages_mib={2048: 16_000 - huge},
                distances={o: (32, 12, 10)[(o // 2 == cell // 2) + (o == cell)] for o in CELLS},
            )
            cells.append(free)
        devices = (
            replace(d, free=d.free - given[d.id], used=given[d.id] > 0) for d in self._devices
        )
        self.free = Host(tuple(cells), tuple(devices))
        self.answers = {}

    def plan(self, flavor: str, rules: Rules) -> Plan | None:
        """Return what a guest of a flavor would get now."""
        if flavor not in self.answers:
            answers = _answers(self.free, FLAVORS[flavor][1], rules)
            self.answers[flavor] = next((a for a in answers if isinstance(a, Plan)), None)
        return self.answers[flavor]

    def weight(self, answer: Plan, rules: Rules) -> float:
        """Return the larger the more is free, as by the defaults of the weighers."""
        cells = self.free.cells
        weight = sum(c.pinnable for c in cells) / 64 + sum(c.memory_mib for c in cells) / 256_000
        broken = answer.cost.broken_links + answer.cost.device_cells
        return weight - (0.25 * broken if rules.leaves_whole else 0.0)


def _answers(host: Host, guest: Guest, rules: Rules) -> Iterator[Plan | Refusal]:
    """Yield the plan; of the first candidate those on each cell in order, blind for links."""
    options = PlanOptions(False, rules.keep_links, rules.spare_device_cells)
    if not rules.is_first:
        yield plan(host, guest, options)
        return
    blind = replace(host, devices=tuple(replace(d, link_group="") for d in host.devices))
    for cells in permutations(CELLS, len(guest.nodes)):
        nodes = [n._replace(cell=cell) for n, cell in zip(guest.nodes, cells, strict=True)]
        yield plan(blind, replace(guest, nodes=tuple(nodes)), options)


class Month(NamedTuple):
    """How many requests came and were refused, by flavor; pairs of GPUs, and those torn."""

    asked: Counter[str]
    refused: Counter[str]
    pairs: list[bool]


def month(rules: Rules, hosts: int, hours: float, load: float = LOAD) -> Month:
    """Return what is refused of guests that come at random, and stay for four days on average."""
    chance, at, number = random.Random(36), 0.0, 0
    fleet = [_Host(number) for number in range(hosts)]
    leaving: list[tuple[float, int, _Host]] = []
    told = Month(Counter(), Counter(), [])
    while (at := at + chance.expovariate(load * hosts / STAY_HOURS)) < hours:
        [flavor] = chance.choices(list(FLAVORS), [share for share, _guest in FLAVORS.values()])
        number, end = number + 1, at + chance.expovariate(1 / STAY_HOURS)
        while leaving and leaving[0][0] <= at:
            _end, gone, left = heapq.heappop(leaving)
            del left.guests[gone]
            left.change()
        told.asked[flavor] += 1
        answers = [(host, host.plan(flavor, rules)) for host in fleet]
        fitting = [(h.weight(a, rules), h, a) for h, a in answers if a]
        if not fitting:
            told.refused[flavor] += 1
            continue
        _weight, host, answer = max(fitting, key=lambda choice: choice[0])
        if flavor == "two GPUs":
            told.pairs.append(len({int(unit.device[-1]) // 2 for unit in answer.given}) > 1)
        host.guests[number] = answer
        host.change()
        heapq.heappush(leaving, (end, number, host))
    return told


def show(console: Console, quick: bool, plot: Path | None) -> bool:
    """Print and plot what is refused by each set of rules."""
    hosts, days = (20, 10) if quick else (200, 30)
    months = {name: month(rules, hosts, 24.0 * days) for name, rules in RULES.items()}
    table = Table("refused", *months, title=f"{days} days of {hosts} hosts")
    for flavor, asked in months["all rules"].asked.items():
        table.add_row(f"{flavor}, of {asked}", *(str(m.refused[flavor]) for m in months.values()))
    totals = {name: m.refused.total() for name, m in months.items()}
    table.add_row("all", *map(str, totals.values()))
    torn = [f"{sum(m.pairs)} of {len(m.pairs)}" for m in months.values()]
    table.add_row("pairs of GPUs on two links", *torn)
    console.print(table)
    if plot is not None:
        plot.write_text(_bars(months))
    return totals["all rules"] <= totals["first candidate"]


def _bars(months: Mapping[str, Month]) -> str:
    """Return a bar for each set of rules, in SVG."""
    groups = ("two GPUs", "#4269d0"), ("GPU", "#d99a00"), ("8 CPUs, whole cores", "#ff725c")
    scale, shapes = 450 / max(1, *(m.refused.total() for m in months.values())), []
    for row, (name, own) in enumerate(months.items()):
        x, y, total = 180.0, 44 + 34 * row, own.refused.total()
        counts = [(own.refused[flavor], color) for flavor, color in groups]
        rest = total - sum(count for count, _color in counts)
        shapes.append(f'<text x="170" y="{y}" text-anchor="end">{name}</text>')
        for count, color in (*counts, (rest, "#9498a0")):
            place = f'x="{x:.0f}" y="{y - 17}" width="{count * scale:.0f}" height="24"'
            shapes.append(f'<rect {place} fill="{color}"/>')
            x += count * scale
        shapes.append(f'<text x="{x + 6:.0f}" y="{y}">{total}</text>')
    for column, (name, color) in enumerate((*groups, ("others", "#9498a0"))):
        shapes.append(f'<text x="{180 + 150 * column}" y="16" fill="{color}">{name}</text>')
    form = 'viewBox="0 0 700 240" font-family="sans-serif" font-size="13" style="background:white"'
    return "\n".join((f'<svg xmlns="http://www.w3.org/2000/svg" {form}>', *shapes, "</svg>\n"))
