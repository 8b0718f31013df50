"""A domain's description is read as a guest with all of the host that it holds."""

from __future__ import annotations

import tracemalloc

import pytest

from compute_agent.discovery.errors import FactMalformed
from compute_agent.discovery.libvirt.domain import parse

from .domain_xml import GUEST_ADDRESS, NOVA_PINNED, UUID, domain_xml, source_address


def test_a_guest_that_nova_pins_has_its_cpus_its_cell_and_its_pages() -> None:
    guest = parse(domain_xml(*NOVA_PINNED, id=3))
    assert (guest.uuid, guest.name, guest.is_running) == (UUID, "a-guest", True)
    assert (guest.vcpus, guest.memory_kib) == (4, 4 << 20)
    assert guest.vcpu_pins == ((0, 5), (1, 13), (2, 6), (3, 14))
    assert guest.emulator_cpus == (5, 6, 13, 14)
    assert guest.numa_cells == ((1, 4, 4 << 20),)
    assert guest.page_size_kib == 1048576


def test_a_guest_without_any_of_it_floats_in_ordinary_memory() -> None:
    guest = parse(domain_xml())
    assert not guest.is_running
    assert (guest.vcpu_pins, guest.widely_pinned_vcpus, guest.numa_cells) == ((), 0, ())
    assert (guest.cpuset, guest.wide_cpus) == ((), ())
    assert guest.page_size_kib is None
    assert guest.pci_addresses == ()


@pytest.mark.parametrize(
    ("numatune", "guest_cells", "expected"),
    [
        (
            "<memory mode='strict' nodeset='0-1'/><memnode cellid='0' mode='strict' nodeset='1'/>"
            "<memnode cellid='1' mode='strict' nodeset='0'/>",
            "<cell id='0' cpus='0-2' memory='3145728' unit='KiB'/>"
            "<cell id='1' cpus='3' memory='1048576' unit='KiB'/>",
            ((0, 1, 1 << 20), (1, 3, 3 << 20)),
        ),
        ("<memory mode='strict' nodeset='1'/>", "", ((1, 4, 4 << 20),)),
        ("<memory mode='restrictive' nodeset='1'/>", "", ((1, 4, 4 << 20),)),
        ("<memory mode='preferred' nodeset='1'/>", "", ()),
        ("<memory mode='strict' nodeset='0-1'/>", "", ()),
        ("<memory mode='strict' placement='auto'/>", "", ()),
        (
            "<memnode cellid='0' mode='strict' nodeset='1'/>",
            "<cell id='0' cpus='0-1' memory='2097152' unit='KiB'/>"
            "<cell id='1' cpus='2-3' memory='2097152' unit='KiB'/>",
            (),
        ),
        (
            "<memory mode='strict' nodeset='1'/>",
            "<cell id='0' cpus='0-1' memory='2097152' unit='KiB'/>"
            "<cell id='1' cpus='2-3' memory='2097152' unit='KiB'/>",
            ((1, 4, 4 << 20),),
        ),
        (
            "<memory mode='strict' nodeset='1'/>",
            "<cell id='0' cpus='0-3' memory='2097152' unit='KiB'/>"
            "<cell id='1' memory='2097152' unit='KiB'/>",
            ((1, 4, 4 << 20),),
        ),
    ],
    ids=[
        "a cell of the host for each of the guest",
        "a guest without cells",
        "by the control group alone",
        "only preferred",
        "any of several cells",
        "chosen by numad",
        "a part that floats",
        "all cells of the guest on one",
        "a cell of memory alone",
    ],
)
def test_a_guest_is_bound_to_cells_that_its_memory_cannot_leave(
    numatune: str, guest_cells: str, expected: object
) -> None:
    cpu = f"<cpu><numa>{guest_cells}</numa></cpu>" if guest_cells else ""
    assert parse(domain_xml(f"<numatune>{numatune}</numatune>", cpu)).numa_cells == expected


TWO_CELLS = (
    "<cpu><numa><cell id='0' cpus='0-1' memory='2097152' unit='KiB'/>"
    "<cell id='1' cpus='2-3' memory='2097152' unit='KiB'/></numa></cpu>"
)


@pytest.mark.parametrize(
    ("pages", "expected", "of_whole"),
    [
        ("<page size='1048576' unit='KiB'/>", 1048576, 1048576),
        ("", 2048, 2048),
        ("<page size='2048' unit='KiB' nodeset='0-1'/>", 2048, 2048),
        ("<page size='2048' unit='KiB' nodeset='1'/>", None, None),
        (
            "<page size='2048' unit='KiB' nodeset='0'/>"
            "<page size='1048576' unit='KiB' nodeset='1'/>",
            None,
            2048,
        ),
    ],
    ids=["for all", "size left open", "for each cell", "for a part", "several sizes"],
)
def test_pages_have_one_size_or_none_is_reported(
    pages: str, expected: int | None, of_whole: int | None
) -> None:
    backing = f"<memoryBacking><hugepages>{pages}</hugepages></memoryBacking>"
    assert parse(domain_xml(backing, TWO_CELLS)).page_size_kib == expected
    assert parse(domain_xml(backing)).page_size_kib == of_whole, "a guest without cells"


PINNED_MEMORY = (
    "<numatune><memory mode='strict' nodeset='0-1'/>"
    "<memnode cellid='0' mode='strict' nodeset='0'/>"
    "<memnode cellid='1' mode='strict' nodeset='1'/></numatune>"
)


def module(model: str, target: str, source: str = "") -> str:
    return (
        f"<memory model='{model}'>{source and f'<source>{source}</source>'}"
        f"<target>{target}</target></memory>"
    )


@pytest.mark.parametrize(
    ("devices", "extra_kib"),
    [
        (
            module("nvdimm", "<size unit='KiB'>524288</size><node>1</node>")
            + module("dimm", "<size unit='KiB'>524288</size><node>1</node>"),
            524288,
        ),
        (
            module(
                "virtio-mem",
                "<size unit='GiB'>8</size><node>1</node><requested unit='GiB'>2</requested>"
                "<current unit='GiB'>1</current>",
            ),
            2 * 1024**2,
        ),
    ],
    ids=["in a file and DIMM", "virtio-mem as requested"],
)
def test_modules_are_bound_as_the_cell_they_are_plugged_into(devices: str, extra_kib: int) -> None:
    without = parse(domain_xml(PINNED_MEMORY, TWO_CELLS))
    guest = parse(domain_xml(PINNED_MEMORY, TWO_CELLS, devices=devices))
    (first, second), (_first, before) = guest.numa_cells, without.numa_cells
    assert first == without.numa_cells[0]
    assert second == (1, before[1], before[2] + extra_kib)
    assert {(part.cell, part.page_size_kib) for part in guest.memory} == {(0, None), (1, None)}


def test_a_module_may_be_in_pages_of_its_own_and_on_a_cell_of_its_own() -> None:
    backing = "<memoryBacking><hugepages><page size='2' unit='MiB'/></hugepages></memoryBacking>"
    source = "<nodemask>0</nodemask><pagesize unit='GiB'>1</pagesize>"
    target = "<size unit='GiB'>1</size><node>1</node>"
    guest = parse(
        domain_xml(backing, PINNED_MEMORY, TWO_CELLS, devices=module("dimm", target, source))
    )
    assert guest.page_size_kib is None
    assert [(part.cell, part.page_size_kib) for part in guest.memory] == [
        (0, 1048576),
        (0, 2048),
        (1, 2048),
    ]
    assert guest.memory[0].memory_kib == 1048576


def test_pages_of_two_sizes_are_counted_apart_and_pages_of_4_kib_are_ordinary() -> None:
    pages = (
        "<memoryBacking><hugepages><page size='2048' unit='KiB' nodeset='0'/>"
        "<page size='4' unit='KiB' nodeset='1'/></hugepages></memoryBacking>"
    )
    guest = parse(domain_xml(pages, PINNED_MEMORY, TWO_CELLS))
    assert [(part.cell, part.page_size_kib) for part in guest.memory] == [(0, 2048), (1, None)]


def test_pages_without_a_size_are_of_the_default_of_the_host() -> None:
    guest = parse(domain_xml("<memoryBacking><hugepages/></memoryBacking>"), 1048576)
    assert guest.page_size_kib == 1048576


def test_functions_are_those_of_the_host_however_they_are_passed_through() -> None:
    devices = (
        f"<hostdev mode='subsystem' type='pci' managed='yes'>"
        f"{source_address(0x82, 0x10, 3)}{GUEST_ADDRESS}</hostdev>"
        f"<hostdev mode='subsystem' type='pci' managed='no'>"
        f"{source_address(0xE1, domain=0x10000)}</hostdev>"
        f"<interface type='hostdev' managed='yes'>"
        f"{source_address(0x18, 2, 1)}{GUEST_ADDRESS}</interface>"
        f"<disk type='nvme' device='disk'><source type='pci' managed='yes' namespace='1'>"
        f"<address domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></source>"
        f"{GUEST_ADDRESS}</disk>"
        f"<interface type='bridge'><source bridge='br0'/>{GUEST_ADDRESS}</interface>"
        "<interface type='network'><source network='a-pool-at-rest'/></interface>"
        "<hostdev mode='subsystem' type='usb'><source><address bus='1' device='2'/></source>"
        "</hostdev>"
    )
    assert parse(domain_xml(devices=devices)).pci_addresses == (
        "0000:01:00.0",
        "0000:18:02.1",
        "0000:82:10.3",
        "10000:e1:00.0",
    )


def test_layers_and_mirrors_of_a_disk_hold_their_drives_and_vdpa_disks_their_function() -> None:
    def nvme(bus: int) -> str:
        return (
            "<source type='pci' managed='yes' namespace='1'>"
            f"<address domain='0x0000' bus='0x{bus:02x}' slot='0x00' function='0x0'/></source>"
        )

    guest = parse(
        domain_xml(
            devices="<disk type='file' device='disk'><source file='/a.qcow2'/>"
            f"<backingStore type='file'><source file='/b'/><backingStore type='nvme'>{nvme(3)}"
            f"</backingStore></backingStore><mirror type='nvme' job='copy'>{nvme(4)}</mirror>"
            f"{GUEST_ADDRESS}</disk>"
            "<disk type='vhostvdpa' device='disk'><source dev='/dev/vhost-vdpa-7'/></disk>"
            "<hostdev mode='capabilities' type='net'><source><interface>ens1f0v3</interface>"
            "</source></hostdev>"
        )
    )
    assert guest.pci_addresses == ("0000:03:00.0", "0000:04:00.0")
    assert guest.vdpa_devices == ("/dev/vhost-vdpa-7",)
    assert guest.host_interfaces == ("ens1f0v3",)


def test_threads_of_disks_are_pinned_as_the_emulators_and_vcpus_without_a_pin_on_the_set() -> None:
    guest = parse(
        domain_xml(
            "<iothreads>2</iothreads><cputune><emulatorpin cpuset='2'/>"
            "<iothreadpin iothread='1' cpuset='9'/><iothreadpin iothread='2' cpuset='3-4'/>"
            "</cputune>",
            vcpu="<vcpu placement='static' cpuset='0-2,8' current='2'>4</vcpu>",
        )
    )
    assert (guest.emulator_cpus, guest.cpuset, guest.vcpus) == ((2, 3, 4, 9), (0, 1, 2, 8), 4)


def test_mediated_devices_interfaces_of_the_host_and_memory_of_its_own_are_named() -> None:
    mdev = "3627463d-b7f0-4fea-b468-f1da537d301b"
    guest = parse(
        domain_xml(
            devices=f"<hostdev mode='subsystem' type='mdev' model='vfio-pci'>"
            f"<source><address uuid='{mdev}'/></source></hostdev>"
            "<interface type='direct'><source dev='ens1f0v2' mode='passthrough'/></interface>"
            "<interface type='direct'><source dev='ens1f1' mode='bridge'/></interface>"
            "<interface type='vdpa'><source dev='/dev/vhost-vdpa-0'/></interface>"
            "<memory model='nvdimm'><source><path>/dev/dax0.1</path><pmem/></source></memory>"
            "<memory model='dimm'/>",
        )
    )
    assert [device.uuid for device in guest.mdevs] == [mdev]
    assert guest.host_interfaces == ("ens1f0v2",)
    assert guest.vdpa_devices == ("/dev/vhost-vdpa-0",)
    assert guest.pmem_paths == ("/dev/dax0.1",)


@pytest.mark.parametrize(
    "xml",
    [
        "<domain",
        domain_xml().replace("domain", "network"),
        "<domain><name>x</name></domain>",
        domain_xml("<cputune><vcpupin vcpu='0' cpuset='a'/></cputune>"),
        domain_xml(vcpu="<vcpu>many</vcpu>"),
        domain_xml(vcpu="<vcpu>-5</vcpu>"),
        domain_xml(vcpu="<vcpu>\u0664</vcpu>"),
        domain_xml(vcpu="<vcpu/>"),
        domain_xml("<cputune><vcpupin vcpu='-1' cpuset='1'/></cputune>"),
        domain_xml("<cputune><vcpupin vcpu='0' cpuset='\u0661-3'/></cputune>"),
        domain_xml("<cputune><vcpupin vcpu='0' cpuset='0-99999999999'/></cputune>"),
        domain_xml() + "<!--" + "x" * (4 << 20) + "-->",
        domain_xml().replace("4194304", "lots"),
        "<domain><uuid>5b1c8a3e-7d0f-4a55-9a51-2f5a8b1b7c11</uuid><vcpu>1</vcpu></domain>",
        domain_xml().replace("KiB", "furlong"),
        domain_xml(
            devices="<hostdev type='pci'><source><address bus='x'/></source></hostdev>",
        ),
        domain_xml("<numatune><memory nodeset='-1'/></numatune>"),
    ],
)
def test_a_description_that_is_not_understood_wholly_is_not_taken_in_part(xml: str) -> None:
    with pytest.raises(FactMalformed):
        parse(xml)


def test_pins_to_several_cpus_are_kept_together() -> None:
    guest = parse(
        domain_xml(
            "<cputune><vcpupin vcpu='0' cpuset='9'/><vcpupin vcpu='1' cpuset='0-3'/>"
            "<vcpupin vcpu='2' cpuset='2-5,8'/></cputune>"
        )
    )
    assert guest.vcpu_pins == ((0, 9),)
    assert guest.wide_cpus == (0, 1, 2, 3, 4, 5, 8)
    assert guest.widely_pinned_vcpus == 2


def test_a_guest_of_many_vcpus_with_wide_pins_takes_little_memory() -> None:
    """Each number of each pin as an object was 690 MiB."""
    pins = "".join(f"<vcpupin vcpu='{n}' cpuset='{n}-16383'/>" for n in range(1000))
    xml = domain_xml(f"<cputune>{pins}</cputune>", vcpu="<vcpu>1000</vcpu>")
    tracemalloc.start()
    guest = parse(xml)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(guest.wide_cpus) == 16384
    assert peak < 8 << 20
