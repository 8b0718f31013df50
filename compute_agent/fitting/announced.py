"""Announcements of what is free of a host, bounded in size, and the host read back from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from compute_agent.fitting.host import Cell, Core, Device, Host

MOST_CELLS: Final = 64
MOST_DEVICES: Final = 64
"""A host of more is announced without them: its agent alone decides."""
MOST_CORES: Final = 16
"""Kinds of cores of one cell; where there are more, only the number of CPUs is announced."""


def document(host: Host) -> dict[str, Any]:
    """Return what schedulers hear of a host; empty where it has no cells, or too many."""
    if not 0 < len(host.cells) <= MOST_CELLS:
        return {}
    shown: dict[str, Any] = {"cells": [_cell_document(cell) for cell in host.cells]}
    if host.memory_mib is not None:
        shown["ordinary_memory_mb"] = max(host.memory_mib, 0)
    if len(host.devices) <= MOST_DEVICES:
        shown["devices"] = [
            {
                "provider": device.id,
                "class": device.resource_class,
                "free": device.free,
                "used": device.used,
                "cell": device.cell,
                "pcie_root": device.pcie_root,
                "links": device.link_group,
            }
            for device in host.devices
        ]
    return shown


def _cell_document(cell: Cell) -> dict[str, Any]:
    cores = Counter((len(core.cpus), core.threads, core.group) for core in cell.cores)
    return {
        "id": cell.id,
        "vcpu": cell.shareable,
        "pcpu": cell.pinnable,
        "cores": [[*core, number] for core, number in sorted(cores.items())]
        if len(cores) <= MOST_CORES
        else [],
        "memory_mb": max(cell.memory_mib, 0),
        "own_memory_mb": cell.own_memory_mib,
        "pinned_memory_mb": cell.pinned_memory_mib,
        "pages_mb": {str(size): mib for size, mib in cell.pages_mib.items()},
        "distances": {str(other): distance for other, distance in cell.distances.items()},
        "package": cell.package,
        "physnets": sorted(cell.physnets),
        "tunneled": cell.tunneled,
    }


def host_of(announced: Mapping[str, Any]) -> Host | None:
    """Return the host that was announced; None: no cells were, or in another form.

    CPUs of cores have made up numbers.
    """
    try:
        cells = tuple(_cell(*cell) for cell in enumerate(announced.get("cells") or ()))
        memory = announced.get("ordinary_memory_mb")
        devices = tuple(_device(device) for device in announced.get("devices") or ())
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
    return Host(cells, devices, memory) if cells else None


def _cell(index: int, cell: Mapping[str, Any]) -> Cell:
    return Cell(
        int(cell.get("id", index)),
        tuple(_cores(cell.get("cores") or ())),
        pinnable=int(cell.get("pcpu", 0)),
        vcpus=int(cell.get("vcpu", 0)),
        memory_mib=int(cell.get("memory_mb", 0)),
        own_memory_mib=_number(cell, "own_memory_mb"),
        pinned_memory_mib=_number(cell, "pinned_memory_mb"),
        pages_mib={int(size): int(n) for size, n in (cell.get("pages_mb") or {}).items()},
        distances={int(other): int(n) for other, n in (cell.get("distances") or {}).items()},
        package=_number(cell, "package"),
        physnets=frozenset(map(str, cell.get("physnets") or ())),
        tunneled=bool(cell.get("tunneled")),
    )


def _cores(kinds: Any) -> Iterator[Core]:
    first = 0
    for free, threads, group, number in kinds:
        for _core in range(min(int(number), 1024)):
            yield Core(tuple(range(first, first + int(free))), int(threads), int(group))
            first += int(threads)


def _device(device: Mapping[str, Any]) -> Device:
    return Device(
        str(device["provider"]),
        str(device["class"]),
        int(device["free"]),
        used=bool(device["used"]),
        cell=_number(device, "cell"),
        pcie_root=str(device.get("pcie_root") or ""),
        link_group=str(device.get("links") or ""),
    )


def _number(document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    return None if value is None else int(value)
