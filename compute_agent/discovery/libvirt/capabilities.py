"""The host's part of what `virConnectGetCapabilities` returns, and the emulators it names.

Source: https://libvirt.org/formatcaps.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from compute_agent.discovery.errors import FactMalformed
from compute_agent.discovery.facts import CellId, Cpu, CpuId, HugePages, NumaCell
from compute_agent.discovery.libvirt import elements
from compute_agent.discovery.libvirt.facts import Emulator, HostCapabilities
from compute_agent.discovery.sysfs import cpu_list

DOCUMENT: Final = "getCapabilities"


def parse(text: str) -> HostCapabilities:
    """Return the facts of a document.

    :raises FactMalformed: it is not XML, names no architecture, or has cells or CPUs whose numbers
        cannot be read.
    """
    root = elements.document(text, DOCUMENT)
    host = root.find("host")
    cpu = None if host is None else host.find("cpu")
    arch = None if cpu is None else _text(cpu, "arch")
    if host is None or cpu is None or arch is None:
        raise FactMalformed(DOCUMENT, text, "an element host/cpu/arch")
    cell_elements = host.findall("topology/cells/cell")
    return HostCapabilities(
        arch=arch,
        vendor=_text(cpu, "vendor"),
        model=_text(cpu, "model"),
        cpu_xml=ElementTree.tostring(cpu, encoding="unicode").strip(),
        cells=_cells(cell_elements),
        cpus=_cpus(cell_elements),
        emulators=_emulators(root),
        cpu_features=tuple(
            sorted({name for feature in cpu.findall("feature") if (name := feature.get("name"))})
        ),
    )


def restrict_to_online(
    capabilities: HostCapabilities, online: tuple[CpuId, ...]
) -> HostCapabilities:
    """Return the capabilities without CPUs that are offline: libvirt lists those of a cell too.

    :param online: empty = unknown, and all CPUs stay.
    """
    if not online:
        return capabilities
    online_cpus = frozenset(online)
    return replace(
        capabilities,
        cells=tuple(
            replace(cell, cpus=tuple(cpu for cpu in cell.cpus if cpu in online_cpus))
            for cell in capabilities.cells
        ),
        cpus=tuple(
            Cpu(cpu.id, tuple(sibling for sibling in cpu.siblings if sibling in online_cpus))
            for cpu in capabilities.cpus
            if cpu.id in online_cpus
        ),
    )


def _cells(cell_elements: list[Element]) -> tuple[NumaCell, ...]:
    cells: dict[CellId, NumaCell] = {}
    for element in cell_elements:
        cell = _cell(element)
        if cell.id in cells:
            raise FactMalformed(
                f"{DOCUMENT}: cell@id", str(cell.id), "an id that no other cell has"
            )
        cells[cell.id] = cell
    return tuple(
        replace(cell, distances=tuple(pair for pair in cell.distances if pair[0] in cells))
        for _id, cell in sorted(cells.items())
    )


def _cell(element: Element) -> NumaCell:
    cell_id = CellId(elements.number(element.get("id"), f"{DOCUMENT}: cell@id"))
    name = f"{DOCUMENT}: cell {cell_id}"
    memory = element.find("memory")
    return NumaCell(
        id=cell_id,
        cpus=tuple(sorted(_cpu_id(cpu) for cpu in element.findall("cpus/cpu"))),
        memory_kib=0 if memory is None else elements.kib(memory, f"{name} memory"),
        huge_pages=tuple(_huge_pages(element, name)),
        distances=tuple(
            sorted(
                (
                    CellId(elements.number(sibling.get("id"), f"{name} sibling@id")),
                    elements.number(sibling.get("value"), f"{name} sibling@value"),
                )
                for sibling in element.findall("distances/sibling")
            )
        ),
    )


def _huge_pages(cell: Element, name: str) -> Iterator[HugePages]:
    """Yield the pools by size; the smallest size is that of ordinary pages, which have none."""
    pools = sorted(
        HugePages(
            elements.number(pages.get("size"), f"{name} pages@size"),
            elements.number(pages.text, f"{name} pages"),
        )
        for pages in cell.findall("pages")
    )
    yield from pools[1:]


def _cpus(cell_elements: list[Element]) -> tuple[Cpu, ...]:
    cpus: dict[CpuId, Cpu] = {}
    for element in (cpu for cell in cell_elements for cpu in cell.findall("cpus/cpu")):
        cpu = Cpu(_cpu_id(element), _siblings(element))
        if cpu.id in cpus:
            raise FactMalformed(f"{DOCUMENT}: cpu@id", str(cpu.id), "an id that no other CPU has")
        cpus[cpu.id] = cpu
    return tuple(cpu for _id, cpu in sorted(cpus.items()))


def _siblings(cpu: Element) -> tuple[CpuId, ...]:
    """Return the threads of the CPU's core; libvirt leaves them out for a CPU that is offline."""
    text = cpu.get("siblings")
    own = _cpu_id(cpu)
    if text is None:
        return (own,)
    try:
        return tuple(sorted({own, *(CpuId(number) for number in cpu_list.parse(text))}))
    except ValueError as error:
        raise FactMalformed(
            f"{DOCUMENT}: cpu {own} @siblings", text, f"a list of CPUs ({error})"
        ) from error


def _cpu_id(cpu: Element) -> CpuId:
    return CpuId(elements.number(cpu.get("id"), f"{DOCUMENT}: cpu@id"))


def _emulators(root: Element) -> tuple[Emulator, ...]:
    """Return one for each program and architecture: a program may run several kinds of guests."""
    emulators: dict[tuple[str, str], Emulator] = {}
    for element in root.findall("guest/arch"):
        emulator = _emulator(element)
        if emulator is None:
            continue
        key = (emulator.arch, emulator.path or "")
        known_emulator = emulators.get(key, emulator)
        emulators[key] = replace(
            emulator,
            virt_types=tuple(sorted({*known_emulator.virt_types, *emulator.virt_types})),
            machines=tuple(sorted({*known_emulator.machines, *emulator.machines})),
        )
    return tuple(emulator for _key, emulator in sorted(emulators.items()))


def _emulator(arch: Element) -> Emulator | None:
    name = arch.get("name")
    if not name:
        return None
    return Emulator(
        arch=name,
        path=_text(arch, "emulator"),
        virt_types=tuple(sorted({kind for d in arch.findall("domain") if (kind := d.get("type"))})),
        machines=tuple(
            sorted({name for m in arch.iter("machine") if (name := m.get("canonical"))})
        ),
    )


def _text(parent: Element, path: str) -> str | None:
    return (parent.findtext(path) or "").strip() or None
