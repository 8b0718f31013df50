"""The description of a domain, read as a guest with all of the host that it holds. Pure.

The description of a running domain is what holds now: pins, devices and the functions chosen from
a pool are in it as they are, whatever was defined for the next start.

Source: https://libvirt.org/formatdomain.html.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Final
from xml.etree.ElementTree import Element

from msgspec import Struct

from compute_agent.discovery import cpu_list
from compute_agent.discovery.errors import FactMalformed
from compute_agent.discovery.facts import CellId, CpuId, PciAddress
from compute_agent.discovery.libvirt.elements import address, document, kib, number
from compute_agent.discovery.libvirt.facts import Guest, GuestMdev, GuestMemory

DEFAULT_HUGE_PAGE_KIB: Final = 2048
"""Size of pages that a description asks for without a size, where the host's own default is not
known: that of x86 and of 4 KiB arm64."""

_ORDINARY_PAGE_KIB: Final = 4
_MODULES: Final = ("dimm", "virtio-mem")

MOST_CPUS: Final = 16384
"""Above what Linux can be built for; libvirt takes pins up to there on any host."""

_CPUS: Final = tuple(map(CpuId, range(MOST_CPUS)))
_EVERY_CPU: Final = (1 << MOST_CPUS) - 1
_BINDING_MODES: Final = ("strict", "restrictive")


def parse(xml: str, default_huge_page_kib: int = DEFAULT_HUGE_PAGE_KIB) -> Guest:
    """Return the guest that a description is of.

    :param default_huge_page_kib: size of the huge pages that the host gives by default.
    :raises FactMalformed: some of it cannot be understood, so that the guest may hold more.
    """
    domain = document(xml, "a domain")
    uuid = domain.findtext("uuid")
    if domain.tag != "domain" or uuid is None:
        raise FactMalformed("a domain", xml, "<domain> with <uuid>")
    try:
        return _guest(domain, uuid.strip(), default_huge_page_kib)
    except ValueError as error:
        raise FactMalformed(f"domain {uuid}", xml, f"a whole description ({error})") from error


def _guest(domain: Element, uuid: str, default_huge_page_kib: int) -> Guest:
    vcpus = number(domain.findtext("vcpu", "1"), "vcpu")
    memory = domain.find("memory")
    if memory is None:
        raise ValueError("no <memory>")
    memory_kib = kib(memory, "memory")
    parts = list(_guest_cells(domain, vcpus, memory_kib, default_huge_page_kib))
    emulator_pins = [
        pin for kind in ("emulatorpin", "iothreadpin") for pin in domain.iterfind(f"cputune/{kind}")
    ]
    page_sizes = {part.page_size_kib for part in parts}
    pins, wide_mask, widely_pinned_vcpus = _pins(domain)
    return Guest(
        uuid=uuid,
        name=domain.findtext("name", ""),
        is_running="id" in domain.attrib,
        vcpus=vcpus,
        memory_kib=memory_kib,
        vcpu_pins=pins,
        wide_cpus=_cpus(wide_mask),
        widely_pinned_vcpus=widely_pinned_vcpus,
        cpuset=_cpus(_mask(domain.find("vcpu"))),
        emulator_cpus=_cpus(reduce(or_, map(_mask, emulator_pins), 0)),
        numa_cells=tuple(_fixed_cells(parts)),
        page_size_kib=page_sizes.pop() if len(page_sizes) == 1 else None,
        memory=tuple(_memory(parts)),
        pci_addresses=tuple(sorted(set(_pci_addresses(domain)))),
        mdevs=tuple(
            GuestMdev(source.get("uuid", ""))
            for source in domain.iterfind("devices/hostdev[@type='mdev']/source/address")
        ),
        host_interfaces=(
            *(
                source.get("dev", "")
                for source in domain.iterfind("devices/interface[@type='direct']/source")
                if source.get("mode") == "passthrough"
            ),
            *(
                interface.text or ""
                for interface in domain.iterfind("devices/hostdev[@type='net']/source/interface")
            ),
        ),
        vdpa_devices=tuple(
            source.get("dev", "")
            for device in ("interface[@type='vdpa']", "disk[@type='vhostvdpa']")
            for source in domain.iterfind(f"devices/{device}/source")
        ),
        pmem_paths=tuple(path.text or "" for path in domain.iterfind("devices/memory/source/path")),
    )


def _pci_addresses(domain: Element) -> Iterator[PciAddress]:
    """Yield the functions of `hostdev`, of interfaces that are one, and of NVMe disks.

    An interface of a network with a pool of functions shows the one that it has while it runs. A
    disk may have a drive in each of its layers (`backingStore`), and one that it is copied to.
    """
    for pattern in (
        "devices/hostdev[@type='pci']/source/address",
        "devices/interface/source/address[@type='pci']",
        "devices/disk[@type='nvme']/source/address",
        "devices/disk//*[@type='nvme']/source/address",
    ):
        yield from map(address, domain.iterfind(pattern))


class _GuestCell(Struct, frozen=True):
    """A NUMA cell of a guest, or the whole of one without; modules of memory are without CPUs."""

    vcpus: int
    memory_kib: int
    page_size_kib: int | None
    host_cells: tuple[CellId, ...]


def _guest_cells(
    domain: Element, vcpus: int, memory_kib: int, default_huge_page_kib: int
) -> Iterator[_GuestCell]:
    """Yield what a guest consists of, with the host cells that it cannot leave.

    A module is bound as the cell of the guest that it is plugged into, and is in its pages, unless
    it names others. Modules in files take no memory of the host.
    """
    common = _fixed_to(domain.find("numatune/memory"))
    own = {node.get("cellid"): _fixed_to(node) for node in domain.iterfind("numatune/memnode")}
    pages = _PagesOfCells(domain, default_huge_page_kib)
    cells = domain.findall("cpu/numa/cell")
    for cell in cells:
        number = cell.get("id", "")
        yield _GuestCell(
            len(cpu_list.parse(cell.get("cpus", ""))),
            kib(cell, "cell@memory", "memory"),
            pages.of(number),
            own.get(number, common),
        )
    if not cells:
        yield _GuestCell(vcpus, memory_kib, pages.of(None), common)
        return  # modules need cells
    for module in domain.iterfind("devices/memory"):
        target = module.find("target")
        if module.get("model") not in _MODULES or target is None:
            continue
        number = target.findtext("node", "")
        page, mask = module.find("source/pagesize"), module.findtext("source/nodemask")
        yield _GuestCell(
            0,
            _size_of(target),
            pages.of(number) if page is None else _huge(kib(page, "pagesize")),
            own.get(number, common)
            if mask is None
            else tuple(map(CellId, cpu_list.parse(mask.strip()))),
        )


def _size_of(target: Element) -> int:
    """Return the memory of a module; of one that grows and shrinks what it has or is to have."""
    sizes = [*target.findall("requested"), *target.findall("current")]
    sizes = sizes or target.findall("size")
    return max((kib(size, "target/size") for size in sizes), default=0)


class _PagesOfCells:
    """The sizes of the pages that the cells of a guest are in."""

    def __init__(self, domain: Element, default_huge_page_kib: int) -> None:
        self._common: int | None = None
        self._own: dict[int, int | None] = {}
        backing = domain.find("memoryBacking/hugepages")
        pages = [] if backing is None else backing.findall("page")
        if backing is not None and not pages:
            self._common = default_huge_page_kib
        for page in pages:
            size = _huge(kib(page, "page@size", "size"))
            if page.get("nodeset") is None:
                self._common = size
            self._own |= dict.fromkeys(cpu_list.parse(page.get("nodeset", "")), size)

    def of(self, number: str | None) -> int | None:
        """Return the size of a cell, by its number as it is written; None = ordinary memory."""
        return self._own.get(0 if number is None else int(number), self._common)


def _huge(size_kib: int) -> int | None:
    """Return a size of pages if they are huge; a page of ordinary memory may be asked for too."""
    return size_kib if size_kib > _ORDINARY_PAGE_KIB else None


def _fixed_cells(parts: Sequence[_GuestCell]) -> Iterator[tuple[CellId, int, int]]:
    """Yield (host cell, vCPUs, memory) of a guest of which every part is bound to one host cell.

    The vCPUs of a guest's cell are counted where its memory is. A part that may be on one of
    several host cells is on none for certain: then nothing is yielded.
    """
    cpus_on: Counter[CellId] = Counter()
    memory_on: Counter[CellId] = Counter()
    for part in parts:
        if len(part.host_cells) != 1:
            return
        cpus_on[part.host_cells[0]] += part.vcpus
        memory_on[part.host_cells[0]] += part.memory_kib
    for host_cell in sorted(memory_on):
        yield host_cell, cpus_on[host_cell], memory_on[host_cell]


def _memory(parts: Sequence[_GuestCell]) -> Iterator[GuestMemory]:
    """Yield all memory of a guest by cell and size of pages."""
    totals: Counter[tuple[CellId | None, int | None]] = Counter()
    for part in parts:
        cell = part.host_cells[0] if len(part.host_cells) == 1 else None
        totals[cell, part.page_size_kib] += part.memory_kib
    for (cell, size), memory_kib in sorted(totals.items(), key=lambda item: str(item[0])):
        yield GuestMemory(cell, size, memory_kib)


def _fixed_to(element: Element | None) -> tuple[CellId, ...]:
    """Return the host cells that memory cannot leave; empty = it may be anywhere."""
    if element is None or element.get("mode", "strict") not in _BINDING_MODES:
        return ()
    return tuple(map(CellId, cpu_list.parse(element.get("nodeset", ""))))


def _pins(domain: Element) -> tuple[tuple[tuple[int, CpuId], ...], int, int]:
    """Return the pins of vCPUs to one CPU, the CPUs of all other pins, and how many these are."""
    pins, wide_mask, widely_pinned_vcpus = [], 0, 0
    for pin in domain.iterfind("cputune/vcpupin"):
        vcpu, mask = number(pin.get("vcpu"), "vcpupin@vcpu"), _mask(pin)
        if mask.bit_count() == 1:
            pins.append((vcpu, CpuId(mask.bit_length() - 1)))
        else:
            wide_mask |= mask
            widely_pinned_vcpus += 1
    return tuple(pins), wide_mask, widely_pinned_vcpus


def _mask(element: Element | None) -> int:
    """Return the CPUs of an element as bits, without those that no host can have."""
    text = "" if element is None else element.get("cpuset", "")
    return cpu_list.mask(text) & _EVERY_CPU


def _cpus(mask: int) -> tuple[CpuId, ...]:
    # the same objects in every guest: of wide sets there may be many
    return tuple(cpu for cpu in _CPUS[: mask.bit_length()] if mask >> cpu & 1)
