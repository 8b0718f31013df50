"""The description of a domain, read as a guest with all of the host that it holds. Pure.

The description of a running domain is what holds now: pins, devices and the functions chosen from
a pool are in it as they are, whatever was defined for the next start.

Source: https://libvirt.org/formatdomain.html.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final
from xml.etree.ElementTree import Element

from compute_agent.discovery.errors import FactMalformed
from compute_agent.discovery.facts import CellId, CpuId, PciAddress, pci_address
from compute_agent.discovery.libvirt.elements import document, kib
from compute_agent.discovery.libvirt.facts import Guest, GuestMdev
from compute_agent.discovery.sysfs import cpu_list

DEFAULT_HUGE_PAGE_KIB: Final = 2048
"""Size of pages that a description asks for without a size: that of x86 and of 4 KiB arm64."""

_BINDING_MODES: Final = ("strict", "restrictive")


def parse(xml: str) -> Guest:
    """Return the guest that a description is of.

    :raises FactMalformed: some of it cannot be understood, so that the guest may hold more.
    """
    domain = document(xml, "a domain")
    uuid = domain.findtext("uuid")
    if domain.tag != "domain" or uuid is None:
        raise FactMalformed("a domain", xml, "<domain> with <uuid>")
    try:
        return _guest(domain, uuid.strip())
    except (ValueError, TypeError) as error:
        raise FactMalformed(f"domain {uuid}", xml, f"a whole description ({error})") from error


def _guest(domain: Element, uuid: str) -> Guest:
    vcpus = int(domain.findtext("vcpu", "1"))
    memory = domain.find("memory")
    if memory is None:
        raise ValueError("no <memory>")
    memory_kib = kib(memory, "memory")
    return Guest(
        uuid=uuid,
        name=domain.findtext("name", ""),
        is_running="id" in domain.attrib,
        vcpus=vcpus,
        memory_kib=memory_kib,
        vcpu_pins=tuple(
            (int(pin.get("vcpu", "")), _cpus(pin)) for pin in domain.iterfind("cputune/vcpupin")
        ),
        cpuset=_cpus(domain.find("vcpu")),
        emulator_cpus=tuple(
            sorted(
                {
                    cpu
                    for kind in ("emulatorpin", "iothreadpin")
                    for pin in domain.iterfind(f"cputune/{kind}")
                    for cpu in _cpus(pin)
                }
            )
        ),
        numa_cells=tuple(_bound_cells(domain, vcpus, memory_kib)),
        page_size_kib=_page_size_kib(domain),
        pci_addresses=tuple(sorted(set(_pci_addresses(domain)))),
        mdevs=tuple(
            GuestMdev(address.get("uuid", ""))
            for address in domain.iterfind("devices/hostdev[@type='mdev']/source/address")
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
        pmem_paths=tuple(
            path.text or ""
            for memory in domain.iterfind("devices/memory")
            if memory.get("model") in ("nvdimm", "virtio-pmem")
            for path in memory.iterfind("source/path")
        ),
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
        for address in domain.iterfind(pattern):
            numbers = {
                part: int(address.get(part, "0"), 0)
                for part in ("domain", "bus", "slot", "function")
            }
            yield pci_address("{domain:x}:{bus:x}:{slot:x}.{function:x}".format(**numbers))


def _bound_cells(domain: Element, vcpus: int, memory_kib: int) -> Iterator[tuple[CellId, int, int]]:
    """Yield (host cell, vCPUs, memory) of a guest of which every part is bound to one host cell.

    The vCPUs of a guest's cell are counted where its memory is. A part that may be on one of
    several host cells is on none for certain: then nothing is yielded.
    """
    guest_cells = [
        (
            cell.get("id", ""),
            len(cpu_list.parse(cell.get("cpus", ""))),
            kib(cell, "cell@memory", "memory"),
        )
        for cell in domain.iterfind("cpu/numa/cell")
    ] or [("", vcpus, memory_kib)]
    common = _bound_to(domain.find("numatune/memory"))
    own = {node.get("cellid"): _bound_to(node) for node in domain.iterfind("numatune/memnode")}
    cpus_on: Counter[CellId] = Counter()
    memory_on: Counter[CellId] = Counter()
    for guest_cell, cpus, size_kib in guest_cells:
        host_cells = own.get(guest_cell, common)
        if len(host_cells) != 1:
            return
        cpus_on[host_cells[0]] += cpus
        memory_on[host_cells[0]] += size_kib
    for host_cell in sorted(memory_on):
        yield host_cell, cpus_on[host_cell], memory_on[host_cell]


def _bound_to(element: Element | None) -> tuple[CellId, ...]:
    """Return the host cells that memory cannot leave; empty = it may be anywhere."""
    if element is None or element.get("mode", "strict") not in _BINDING_MODES:
        return ()
    return tuple(map(CellId, cpu_list.parse(element.get("nodeset", ""))))


def _page_size_kib(domain: Element) -> int | None:
    """Return the one size of the pages that back the whole guest.

    A guest with several sizes, or with ordinary memory beside huge pages, has none.
    """
    if domain.find("memoryBacking/hugepages") is None:
        return None
    pages = domain.findall("memoryBacking/hugepages/page")
    if not pages:
        return DEFAULT_HUGE_PAGE_KIB
    sizes = {kib(page, "page@size", "size") for page in pages}
    everywhere = any(page.get("nodeset") is None for page in pages)
    covered_cells = {cell for page in pages for cell in cpu_list.parse(page.get("nodeset", ""))}
    guest_cells = {int(cell.get("id", "")) for cell in domain.iterfind("cpu/numa/cell")}
    if len(sizes) != 1 or not (everywhere or guest_cells <= covered_cells):
        return None
    return sizes.pop()


def _cpus(element: Element | None) -> tuple[CpuId, ...]:
    text = "" if element is None else element.get("cpuset", "")
    return tuple(map(CpuId, cpu_list.parse(text)))
