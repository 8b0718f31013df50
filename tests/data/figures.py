"""A line of figures for each machine: `python -m tests.data.figures [NAME|CAPTURE ...]`.

What discovery finds of it, what the flat and the nested layout make of that, where the planner puts
a guest of two nodes, and whether a libvirtd that takes the machine for its own host leads to the
same, where one can be started.
`figures.txt` has the expected lines; `python -m tests.data.figures --write` writes them again.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from compute_agent.claims.host_cells import cells_of
from compute_agent.discovery import capture, cpu_list
from compute_agent.discovery.facts import HostTopology
from compute_agent.discovery.libvirt import source
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.cpu_features import GuestCpuOptions
from compute_agent.discovery.libvirt.guest_abilities import AbilityReader
from compute_agent.discovery.libvirt.join import join
from compute_agent.discovery.nic_cards import cards
from compute_agent.fitting.guest import Guest, Node
from compute_agent.fitting.host import Cell, Host
from compute_agent.fitting.plan import Plan
from compute_agent.fitting.planner import plan
from compute_agent.virt.cpu_sets import CpuSets
from compute_agent.virt.layout import HostLayout, LayoutOptions, lay_out
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions, NicOptions
from compute_agent.virt.readings import available_resource
from tests.data import machines
from tests.fixtures.libvirtd import libvirtd_missing, running_libvirtd

EXPECTED: Final = Path(__file__).with_suffix(".txt")
ROOT: Final = "host"


def figures(topology: HostTopology) -> str:
    """Return the line of a machine without its name."""
    return " | ".join(
        (
            _found(topology),
            *(f"{name} {_laid_out(layout)}" for name, layout in layouts(topology).items()),
            f"pinned {_planned(topology)}",
        )
    )


def layouts(topology: HostTopology) -> dict[str, HostLayout]:
    """Return the flat and the nested layout, in which all devices are counted."""
    kinds = {kind.id for gpu in topology.gpus for kind in gpu.mdev_types}
    kinds |= {kind.id for gpu in topology.gpus for vf in gpu.vfs for kind in vf.mdev_types}
    types = tuple(MdevTypeOptions(kind) for kind in sorted(kinds)[:1])
    options = {
        name: LayoutOptions(
            is_nested=name == "nested",
            reserved_memory_mib=0,
            gpu=GpuOptions(mdev_types=types),
            nic=NicOptions(report_vfs="always"),
        )
        for name in ("flat", "nested")
    }
    return {name: lay_out(ROOT, topology, chosen) for name, chosen in options.items()}


def _found(topology: HostTopology) -> str:
    threads = max((len(cpu.siblings) for cpu in topology.cpus), default=1)
    pages: Counter[int] = Counter()
    for cell in topology.cells:
        for pool in cell.huge_pages:
            pages[pool.size_kib] += pool.total
    ports = (*topology.nics, *topology.infiniband_ports)
    parts = {
        "cells": cpu_list.write(cell.id for cell in topology.cells),
        "cpus": f"{len(topology.online_cpus)}/{len(topology.present_cpus)}x{threads}",
        "MiB": topology.memory_kib // 1024,
        "pages": ",".join(f"{size}:{pages[size]}" for size in sorted(pages)) or "none",
        "pci": len(topology.pci_devices),
        "ports": f"{len(topology.nics)}+{len(topology.infiniband_ports)}",
        "cards": len(cards(topology.nics, topology.pci_devices)),
        "vfs": sum(len(port.vfs) for port in ports),
        "gpus": len(topology.gpus),
        "warnings": len(topology.warnings),
    }
    return " ".join(
        (topology.cpu_model.arch, *(f"{name} {value}" for name, value in parts.items()))
    )


def _laid_out(layout: HostLayout) -> str:
    totals: Counter[str] = Counter()
    for provider in layout.providers:
        totals.update({rc: record.total for rc, record in provider.inventory.items()})
    amounts = " ".join(f"{rc} {totals[rc]}" for rc in sorted(totals))
    return f"{len(layout.providers)} providers {amounts}"


def _planned(topology: HostTopology) -> str:
    """Return the CPUs of a guest of two nodes with two CPUs of their own each, by cell."""
    sets = CpuSets(dedicated_cpus=frozenset(map(int, topology.online_cpus)))
    resource = available_resource(topology, LayoutOptions(is_nested=True, cpu_sets=sets))
    cells = tuple(
        Cell(
            cell.id,
            cores=cell.cores,
            pinnable=len(cell.dedicated_cpus),
            memory_mib=cell.memory_mib,
            distances=cell.distances,
            package=cell.package,
        )
        for cell in cells_of(resource)
    )
    answer = plan(Host(cells), Guest((Node(pinned=2, memory_mib=1024),) * 2))
    if not isinstance(answer, Plan):
        return "refused"
    return " ".join(f"{part.cell}:{cpu_list.write(part.pinned_cpus)}" for part in answer.parts)


def lines(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield name and figures of machines of the catalogue, and of captures by their path."""
    with tempfile.TemporaryDirectory() as directory:
        for name in names:
            machine = machines.make(name, Path(directory)) if name in machines.NAMES else Path(name)
            topology = capture.replay(machine)
            line = figures(topology)
            if not libvirtd_missing():
                line += f" | libvirt {_by_libvirt(Path(directory), machine, topology)}"
            yield name, line


def _by_libvirt(run_directory: Path, machine: Path, topology: HostTopology) -> str:
    """Say whether the providers are those that libvirt and sysfs together lead to."""
    with running_libvirtd(run_directory, machine) as daemon:
        connection = LibvirtConnection(daemon.uri)
        reading = source.read(connection, AbilityReader(connection, GuestCpuOptions("qemu")))
        connection.close()
    host = join(reading, topology)
    ours, joined = figures(topology), figures(host)
    told = len(set(host.warnings) - set(topology.warnings))
    same = ours.partition(" | ")[2] == joined.partition(" | ")[2]
    return f"{'same' if same else joined} warnings {told}"


def main(arguments: list[str]) -> None:
    """Print the lines, or write those that are expected."""
    names = [name for name in arguments if not name.startswith("-")] or machines.NAMES
    texts = [f"{name}: {line}" for name, line in lines(names)]
    if "--write" in arguments:
        EXPECTED.write_text("".join(f"{text}\n" for text in texts))
    else:
        sys.stdout.write("".join(f"{text}\n" for text in texts))


if __name__ == "__main__":
    main(sys.argv[1:])
