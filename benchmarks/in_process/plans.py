"""CPU of one plan of a host: usual guests, and the worst that a host and a guest can be."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from benchmarks.floors.table import Row
from compute_agent.fitting.guest import Guest, Node, Wish
from compute_agent.fitting.host import Cell, Core, Device, Host
from compute_agent.fitting.planner import plan


def _cell(number: int, cells: int) -> Cell:
    cpus = range(number * 16, number * 16 + 16, 2)
    return Cell(
        number,
        tuple(Core((cpu, cpu + 1), 2, cpu % 16 // 8) for cpu in cpus),
        pinnable=16,
        vcpus=16,
        floating=16,
        memory_mib=64000 - 61 * (number * 7 % 64),
        distances={
            other: 10 if other == number else 12 if other // 4 == number // 4 else 32
            for other in range(cells)
        },
        package=number // 4,
        physnets=frozenset((f"n{number % 5}",)),
    )


def _host(cells: int, gpus: int) -> Host:
    return Host(
        tuple(_cell(number, cells) for number in range(cells)),
        tuple(
            Device(f"d{i}", "GPU", 1, cell=i * cells // gpus, link_group=str(i // 2))
            for i in range(gpus)
        ),
    )


def rows(quick: bool) -> Iterator[Row]:
    """Measure guests whose amounts differ from plan to plan, each with its bound."""
    for nodes, cells, gpus, most in (
        (1, 8, 2, 0.3),
        (2, 8, 2, 0.3),
        (32, 64, 32, 50),
        (64, 64, 32, 50),
    ):
        host, costs = _host(cells, min(cells, 32)), []
        for turn in range((20 if quick else 200) if most < 1 else (3 if quick else 20)):
            memory = (4096 if cells == 8 else 56000) + turn
            guest = Guest(
                tuple(Node(pinned=1 + i % 15, memory_mib=memory + 61 * i) for i in range(nodes)),
                wishes=tuple(Wish(str(i), "GPU", nearness="required") for i in range(gpus)),
                physnets=frozenset(("n1", "n2")) if cells > 8 else frozenset(),
            )
            began = time.process_time_ns()
            plan(host, guest)
            costs.append((time.process_time_ns() - began) / 1e6)
        name = f"plan: {nodes} unlike nodes, {gpus} GPUs required, {cells} cells"
        yield Row(
            name, "CPU ms", statistics.median(costs), most=most, runs=f"median of {len(costs)}"
        )
