"""A look at a hypervisor: all that is asked of libvirt about the host.

Source: https://libvirt.org/formatcaps.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from msgspec.structs import replace

from compute_agent.discovery import cpu_list
from compute_agent.discovery.errors import CallFailed, CallUnsupported, FactMalformed
from compute_agent.discovery.facts import CellId, Cpu, CpuId, HugePages, NumaCell
from compute_agent.discovery.libvirt import elements, node_devices
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.domain import MOST_CPUS
from compute_agent.discovery.libvirt.facts import Emulator, HostCapabilities, HypervisorReading
from compute_agent.discovery.libvirt.guest_abilities import AbilityReader
from compute_agent.discovery.sysfs.cells import each_cpu_once

DOCUMENT: Final = "getCapabilities"

_Siblings = Callable[[str], tuple[CpuId, ...]]


def read(
    connection: LibvirtConnection,
    ability_reader: AbilityReader,
    before: HypervisorReading | None = None,
) -> HypervisorReading:
    """Ask libvirt for everything that it reports of the host.

    :param ability_reader: of the same connection.
    :param before: an earlier reading; what cannot have changed since is not asked again.
    :raises DiscoveryError: the connection is lost, or what every hypervisor must report is missing.
    """
    warnings: list[str] = []
    online_cpus, present_cpus = _cpus(connection, warnings)
    host = parse_capabilities(
        connection.call("getCapabilities", lambda c: str(c.getCapabilities()))
    )
    hypervisor_version = connection.call("getVersion", lambda c: int(c.getVersion()))
    libvirt_version = connection.call("getLibVersion", lambda c: int(c.getLibVersion()))
    abilities = ability_reader.read(host, hypervisor_version, libvirt_version)
    devices, device_warnings = node_devices.read(
        connection, before=node_devices.NO_DEVICES if before is None else before.devices
    )
    return HypervisorReading(
        hostname=connection.call("getHostname", lambda c: str(c.getHostname())),
        hypervisor=connection.call("getType", lambda c: str(c.getType())),
        hypervisor_version=hypervisor_version,
        libvirt_version=libvirt_version,
        memory_kib=_memory_kib(connection, warnings),
        online_cpus=online_cpus,
        present_cpus=present_cpus,
        capabilities=restrict_to_online(host, online_cpus),
        domain_capabilities=abilities.domain_capabilities,
        guest_features=abilities.features,
        guest_cpu_mode=abilities.cpu_mode,
        devices=devices,
        warnings=(*warnings, *host.warnings, *device_warnings),
    )


def _memory_kib(connection: LibvirtConnection, warnings: list[str]) -> int:
    """Return the memory of the host; 0 where it is unknown."""
    try:
        return connection.call("getInfo", lambda c: int(c.getInfo()[1]) * 1024)
    except CallFailed as error:
        warnings.append(f"{error}; the memory of the host is that of its cells, or of sysfs")
        return 0


def _cpus(
    connection: LibvirtConnection, warnings: list[str]
) -> tuple[tuple[CpuId, ...], tuple[CpuId, ...]]:
    """Return the CPUs that are online, and those that exist; () where they are unknown.

    libvirt reports how far the numbers of CPUs go, not which are missing in between.
    """
    try:
        count, online, _ = connection.call("getCPUMap", lambda c: c.getCPUMap(0))
        if count > MOST_CPUS:
            raise CallFailed("getCPUMap", f"{count} CPUs are more than there can be")
    except CallFailed as error:
        if not isinstance(error, CallUnsupported):
            warnings.append(f"{error}; online are the CPUs of the cells, or those of sysfs")
        return (), ()
    return (
        tuple(CpuId(number) for number, is_online in enumerate(online) if is_online),
        tuple(CpuId(number) for number in range(count)),
    )


def parse_capabilities(text: str) -> HostCapabilities:
    """Return the facts of a document.

    :raises FactMalformed: it is not XML, or names no architecture. A cell that cannot be read is
        left out with a warning.
    """
    root = elements.document(text, DOCUMENT)
    host = root.find("host")
    cpu = None if host is None else host.find("cpu")
    arch = None if cpu is None else elements.text(cpu, "arch")
    if host is None or cpu is None or arch is None:
        raise FactMalformed(DOCUMENT, text, "an element host/cpu/arch")
    warnings: list[str] = []
    cells, cpus = _topology(host.findall("topology/cells/cell"), warnings)
    return HostCapabilities(
        arch=arch,
        vendor=elements.text(cpu, "vendor"),
        model=elements.text(cpu, "model"),
        cpu_xml=ElementTree.tostring(cpu, encoding="unicode").strip(),
        cells=cells,
        cpus=cpus,
        emulators=_emulators(root),
        cpu_features=tuple(
            sorted({name for feature in cpu.findall("feature") if (name := feature.get("name"))})
        ),
        warnings=tuple(dict.fromkeys(warnings)),
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
            replace(
                cell,
                cpus=tuple(cpu for cpu in cell.cpus if cpu in online_cpus),
                offline_cpus=tuple(cpu for cpu in cell.cpus if cpu not in online_cpus),
            )
            for cell in capabilities.cells
        ),
        cpus=tuple(
            Cpu(cpu.id, tuple(sibling for sibling in cpu.siblings if sibling in online_cpus))
            for cpu in capabilities.cpus
            if cpu.id in online_cpus
        ),
    )


def _topology(
    cell_elements: list[Element], warnings: list[str]
) -> tuple[tuple[NumaCell, ...], tuple[Cpu, ...]]:
    """Return the cells, and the CPUs, each in the first cell that claims it."""
    cells: dict[CellId, NumaCell] = {}
    cpus: dict[CpuId, Cpu] = {}
    # threads of a core have one text, and share what is read of it
    siblings = lru_cache(lambda text: tuple(map(CpuId, cpu_list.parse(text))))
    for element in cell_elements:
        try:
            cell = _cell(element)
            if cell.id in cells:
                expectation = "an id that no other cell has"
                raise FactMalformed(f"{DOCUMENT}: cell@id", str(cell.id), expectation)
            own_cpus = {
                cpu.id: cpu
                for cpu in (_cpu(e, siblings, warnings) for e in element.findall("cpus/cpu"))
            }
        except FactMalformed as error:
            warnings.append(f"{error}; NUMA cell left out")
            continue
        cells[cell.id] = replace(cell, cpus=tuple(sorted(own_cpus)))
        cpus = own_cpus | cpus
    unique_cells, claimed_twice = each_cpu_once(cells.values())
    warnings += (
        f"{DOCUMENT}: cell {cell} claims CPUs {cpu_list.write(twice)} of a cell before it; they "
        "stay there"
        for cell, twice in claimed_twice.items()
    )
    return (
        tuple(sorted(unique_cells, key=lambda cell: cell.id)),
        tuple(cpu for _id, cpu in sorted(cpus.items())),
    )


def _cell(element: Element) -> NumaCell:
    cell_id = CellId(elements.number(element.get("id"), f"{DOCUMENT}: cell@id"))
    name = f"{DOCUMENT}: cell {cell_id}"
    memory = element.find("memory")
    return NumaCell(
        id=cell_id,
        cpus=(),
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


def _cpu(element: Element, siblings: _Siblings, warnings: list[str]) -> Cpu:
    """Return the CPU; libvirt leaves the threads of its core out for one that is offline."""
    own = CpuId(elements.number(element.get("id"), f"{DOCUMENT}: cpu@id"))
    text = element.get("siblings", "")
    try:
        threads = siblings(text)
    except ValueError as error:
        malformed = FactMalformed(
            f"{DOCUMENT}: cpu {own} @siblings", text, f"a list of CPUs ({error})"
        )
        warnings.append(f"{malformed}; its threads are unknown")
        threads = ()
    return Cpu(own, threads if own in threads else tuple(sorted({own, *threads})))


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
        path=elements.text(arch, "emulator"),
        virt_types=tuple(sorted({kind for d in arch.findall("domain") if (kind := d.get("type"))})),
        machines=tuple(
            sorted({name for m in arch.iter("machine") if (name := m.get("canonical"))})
        ),
    )
