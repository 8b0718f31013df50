"""CPU of one plan: usual guests, and the worst that a host and a guest can be."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.table import Table

from compute_agent.fitting.guest import Guest, Node, Wish
from compute_agent.fitting.host import Cell, Core, Device, Host
from compute_agent.fitting.plan import Plan
from compute_agent.fitting.planner import plan

USUAL_MS: Final = 0.3
WORST_MS: Final = 50.0
NETWORKS: Final = frozenset(("n1", "n2"))


def _cell(number: int, cells: int, memory_mib: int) -> Cell:
    return Cell(
        number,
        tuple(
            Core((cpu, cpu + 1), 2, cpu % 16 // 8)
            for cpu in range(number * 16, number * 16 + 16, 2)
        ),
        pinnable=16,
        vcpus=16,
        floating=16,
        memory_mib=memory_mib,
        pages_mib={2048: 32000},
        distances={
            other: 10 if other == number else 12 if other // 4 == number // 4 else 32
            for other in range(cells)
        },
        package=number // 4,
        physnets=frozenset((f"n{number % 5}",)),
    )


def _host(cells: int, devices: int) -> Host:
    return Host(
        tuple(_cell(number, cells, 64000 - 61 * (number * 7 % 64)) for number in range(cells)),
        tuple(
            Device(f"d{i}", "GPU", 1, cell=i * cells // devices, link_group=str(i // 2))
            for i in range(devices)
        ),
    )


def _gpus(number: int, nearness: str) -> tuple[Wish, ...]:
    return tuple(Wish(str(i), "GPU", nearness=nearness) for i in range(number))


def _unlike(number: int, memory_mib: int, step: int) -> tuple[Node, ...]:
    return tuple(Node(pinned=1 + i % 15, memory_mib=memory_mib + step * i) for i in range(number))


def _cases() -> Iterator[tuple[str, Host, Guest, float]]:
    usual, large = _host(8, 8), _host(64, 32)
    node = Node(pinned=4, memory_mib=4096)
    for text, nodes in (("1 node", (node,)), ("2 nodes", (node, node._replace(pinned=2)))):
        yield f"{text} on 8 cells", usual, Guest(nodes), USUAL_MS
        for nearness in ("required", "preferred", ""):
            guest = Guest(nodes, wishes=_gpus(2, nearness))
            yield f"{text}, 2 GPUs {nearness or 'anywhere'}", usual, guest, USUAL_MS
    for number in (64, 63, 32, 8):
        for step in (1, 61):
            memory = 60000 if step > 1 else 1000
            guest = Guest(
                _unlike(number, memory, step),
                wishes=_gpus(min(number, 32), "required"),
                physnets=NETWORKS,
            )
            yield f"{number} unlike nodes on 64 cells, {memory} MiB", large, guest, WORST_MS


def show(console: Console, quick: bool) -> bool:
    """Print the CPU of each case; return whether all are within their bounds."""
    table = Table("guest", "CPU, ms", "at most", "answer", title="One plan")
    holds = True
    for text, host, guest, bound in _cases():
        answer = plan(host, guest)
        costs = []
        for _ in range((20 if quick else 200) if bound < 1 else (3 if quick else 20)):
            began = time.process_time_ns()
            plan(host, guest)
            costs.append((time.process_time_ns() - began) / 1e6)
        median = statistics.median(costs)
        holds &= median <= bound
        says = "refused"
        if isinstance(answer, Plan):
            says = "the best" if answer.is_best else "the best of its budget"
        table.add_row(text, f"{median:.3f}", f"{bound:g}", says)
    console.print(table)
    return holds
