"""Hosts drawn for examples: cells of cores with two threads, devices on cells."""

from __future__ import annotations

from typing import Any

from compute_agent.fitting.guest import Guest, Node, Wish
from compute_agent.fitting.host import Cell, Core, Device, Host
from compute_agent.fitting.plan import Plan, Refusal
from compute_agent.fitting.planner import plan


def cores(*free: str, threads: int = 2, per_group: int = 99) -> tuple[Core, ...]:
    """Return cores drawn as `"01"` (both threads free), `"0-"` (one is taken), `"--"`.

    CPU N of core C has the number 10 x C + N.
    """
    return tuple(
        Core(
            tuple(10 * number + thread for thread, mark in enumerate(drawing) if mark != "-"),
            threads,
            number // per_group,
        )
        for number, drawing in enumerate(free)
    )


def cell(number: int, *drawn: str, per_group: int = 99, **fields: Any) -> Cell:
    """Return a cell with cores that are drawn, and room for four floating CPUs and 1000 MiB."""
    own = cores(*drawn, threads=len(drawn[0]) if drawn else 2, per_group=per_group)
    free = sum(len(core.cpus) for core in own)
    defaults = {"pinnable": free, "vcpus": 4, "floating": 4, "memory_mib": 1000}
    return Cell(number, own, **{**defaults, **fields})


def device(name: str, on: int | None, resource_class: str = "GPU", **fields: Any) -> Device:
    return Device(name, resource_class, **{"free": 1, "cell": on, **fields})


def near(nearness: str = "", number: int = 1, **fields: Any) -> tuple[Wish, ...]:
    """Return wishes for so many GPUs."""
    return tuple(Wish(str(i), "GPU", nearness=nearness, **fields) for i in range(number))


def pinned(count: int, **fields: Any) -> Node:
    return Node(pinned=count, **fields)


def one(node: Node, **fields: Any) -> Guest:
    """Return a guest of one node that it names."""
    return Guest((node,), **fields)


def answer(cells: list[Cell], guest: Guest, *devices: Device, **fields: Any) -> Plan | Refusal:
    return plan(Host(tuple(cells), devices, **fields), guest)


def cells_of(result: Plan | Refusal) -> list[int]:
    assert isinstance(result, Plan), result
    return [part.cell for part in result.parts]


def devices_of(result: Plan | Refusal) -> list[str]:
    assert isinstance(result, Plan), result
    return [given.device for given in result.given]


def cpus_of(result: Plan | Refusal) -> list[tuple[int, ...]]:
    assert isinstance(result, Plan), result
    return [part.pinned_cpus for part in result.parts]


def why_not(result: Plan | Refusal) -> str:
    assert isinstance(result, Refusal), result
    return result.sentence
