"""Guests as claims make them, and what libvirt shows of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final
from xml.etree import ElementTree

from tests.fixtures.libvirt_guests import function_of_host
from tests.integration.holders.model import Content

SMALL_PAGES: Final = "4"


def content_of(claim: Mapping[str, Any]) -> Content:
    """Return what a claim of the agent gives."""
    content = Counter(f"{unit['resource_class']} {unit['name']}" for unit in claim["units"])
    for cell in claim["cells"]:
        size = cell["page_size_kib"] or SMALL_PAGES
        content[f"MiB of cell {cell['cell']} in pages of {size} KiB"] += cell["memory_mib"]
        content[f"VCPU of cell {cell['cell']}"] += cell["vcpus"]
    return +content


def seen_content(claimed: Content) -> Content:
    """Return what of a claim libvirt shows of a guest that has it."""
    return {
        thing: amount
        for thing, amount in claimed.items()
        if not thing.startswith(("VCPU ", "VGPU "))
    }


def elements_of(claim: Mapping[str, Any]) -> tuple[str, list[str], str]:
    """Return number of vCPUs, elements and devices of a guest that has what a claim gives."""
    pins, nodes, cells, pages = [], [], [], []
    first = 0
    for number, cell in enumerate(claim["cells"]):
        last = first + cell["vcpus"] + len(cell["pinned_cpus"]) - 1
        sets = [str(cpu) for cpu in cell["pinned_cpus"]]
        sets += [",".join(map(str, cell["shared_cpus"]))] * cell["vcpus"]
        pins += [f"<vcpupin vcpu='{first + i}' cpuset='{cpus}'/>" for i, cpus in enumerate(sets)]
        nodes.append(f"<memnode cellid='{number}' mode='strict' nodeset='{cell['cell']}'/>")
        cells.append(
            f"<cell id='{number}' cpus='{first}-{last}' memory='{cell['memory_mib']}' unit='MiB'/>"
        )
        if cell["page_size_kib"]:
            pages.append(f"<page size='{cell['page_size_kib']}' unit='KiB' nodeset='{number}'/>")
        first = last + 1
    elements = []
    if cells:
        on = ",".join(str(cell["cell"]) for cell in claim["cells"])
        elements = [
            f"<cputune>{''.join(pins)}</cputune>",
            f"<numatune><memory mode='strict' nodeset='{on}'/>{''.join(nodes)}</numatune>"
            f"<cpu><numa>{''.join(cells)}</numa></cpu>",
        ]
    if pages:
        elements.append(f"<memoryBacking><hugepages>{''.join(pages)}</hugepages></memoryBacking>")
    functions = [
        function_of_host(unit["name"])
        for unit in claim["units"]
        if unit["resource_class"] not in ("PCPU", "VGPU")
    ]
    return f"<vcpu>{first or 1}</vcpu>", elements, "".join(functions)


def content_of_domain(xml: str, shared: Collection[int], function_class: str) -> Content:
    """Return what libvirt describes a guest to have.

    :param shared: CPUs on which guests float, also where there is one for a guest.
    """
    domain = ElementTree.fromstring(xml)
    content: Counter[str] = Counter()
    for pin in domain.iter("vcpupin"):
        if pin.attrib["cpuset"].isdecimal() and int(pin.attrib["cpuset"]) not in shared:
            content[f"PCPU {pin.attrib['cpuset']}"] += 1
    for address in domain.iterfind("devices/hostdev/source/address"):
        parts = [int(address.attrib[key], 16) for key in ("domain", "bus", "slot", "function")]
        content["{} {:04x}:{:02x}:{:02x}.{:x}".format(function_class, *parts)] += 1
    size = next((page.attrib["size"] for page in domain.iter("page")), SMALL_PAGES)
    node_of = {node.attrib["cellid"]: node.attrib["nodeset"] for node in domain.iter("memnode")}
    for cell in domain.iterfind("cpu/numa/cell"):
        mib = int(cell.attrib["memory"]) // 1024
        content[f"MiB of cell {node_of[cell.attrib['id']]} in pages of {size} KiB"] += mib
    return content
