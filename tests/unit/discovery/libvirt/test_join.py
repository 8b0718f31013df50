"""One topology of libvirt's facts and those of sysfs."""

from __future__ import annotations

from msgspec.structs import replace

from compute_agent.discovery.facts import (
    DiskStore,
    HostTopology,
    HugePages,
    Mdev,
    MdevType,
    NicPort,
    NicVf,
    PciDevice,
    PhysicalGpu,
)
from compute_agent.discovery.libvirt.facts import NodeDevices, VdpaNodeDevice
from compute_agent.discovery.libvirt.join import join
from compute_agent.discovery.pci_address import pci_address
from tests.unit.discovery.libvirt.readings import (
    GIB,
    cell,
    function,
    gpu,
    interface,
    mdev,
    pf,
    reading,
)

UUIDS = ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002")


def by_sysfs(like: HostTopology) -> HostTopology:
    """The same host by sysfs, with what only sysfs can report."""
    return replace(like, disk=DiskStore("/guests", 1 << 40))


# -- libvirt alone ----------------------------------------------------------------------------


def test_a_host_of_libvirt_alone_has_its_cells_ports_and_gpus() -> None:
    devices = NodeDevices(
        pci=(
            *pf("0000:81:00.0", "0000:81:01.0", "0000:81:01.1"),
            gpu("0000:84:00.0", 14),
            function("0000:00:1f.0", class_code="060100"),
        ),
        net=(
            interface("ens1f0", "0000:81:00.0", "rx", "tso"),
            interface("ens1f0v0", "0000:81:01.0"),
        ),
        mdevs=(mdev(UUIDS[1], "0000:84:00.0"), mdev(UUIDS[0], "0000:84:00.0")),
        vdpa=(VdpaNodeDevice("vdpa0", "pci_0000_81_01_1"),),
    )
    host = join(reading(cell(0, 0, 1), cell(1, 2, 3), devices=devices), None)
    assert [cell.id for cell in host.cells] == [0, 1]
    assert [device.address for device in host.pci_devices] == [
        *("0000:00:1f.0", "0000:81:00.0", "0000:81:01.0", "0000:81:01.1", "0000:84:00.0")
    ]
    (port,) = host.nics
    assert (port.name, port.features, port.is_pf) == ("ens1f0", ("rx", "tso"), True)
    assert port.vfs == (
        NicVf(pci_address("0000:81:01.0"), 0, "ens1f0v0", in_use_by_host=False),
        NicVf(pci_address("0000:81:01.1"), 1, None, in_use_by_host=False, vdpa="vdpa0"),
    )
    (whole,) = host.gpus
    assert whole.mdev_types == (MdevType("nvidia-35", 14),)
    assert whole.mdevs == tuple(Mdev("nvidia-35", uuid) for uuid in UUIDS)
    assert not host.warnings


def test_without_a_topology_all_cpus_and_memory_are_one_cell() -> None:
    host = join(reading(), None)
    (only,) = host.cells
    assert (only.cpus, only.memory_kib) == (host.online_cpus, 2 * GIB)


def test_a_defined_mediated_device_takes_nothing_of_its_gpu() -> None:
    devices = NodeDevices(
        pci=(gpu("0000:84:00.0", 16),), mdevs=(mdev(UUIDS[0], "0000:84:00.0", active=False),)
    )
    (whole,) = join(reading(cell(0, 0), devices=devices), None).gpus
    assert (whole.mdevs, whole.mdev_types) == ((), (MdevType("nvidia-35", 16),))


def test_the_vfs_of_a_gpu_are_with_it() -> None:
    pf_and_vf = pf("0000:41:00.0", "0000:41:00.4", class_code="030200")
    devices = NodeDevices(
        pci=(pf_and_vf[0], replace(pf_and_vf[1], mdev_types=(MdevType("nvidia-557", 1),))),
        mdevs=(mdev(UUIDS[0], "0000:41:00.4"),),
    )
    (whole,) = join(reading(cell(0, 0), devices=devices), None).gpus
    (vf,) = whole.vfs
    assert (vf.address, vf.mdev_types) == ("0000:41:00.4", (MdevType("nvidia-557", 1),))
    assert vf.mdevs == (Mdev("nvidia-35", UUIDS[0]),)


def test_a_device_that_names_an_unknown_cell_has_none() -> None:
    devices = NodeDevices(pci=(gpu("0000:84:00.0", 16, node=7),))
    host = join(reading(cell(0, 0), devices=devices), None)
    assert {host.pci_devices[0].numa_node, host.gpus[0].numa_node} == {None}
    assert host.warnings == (
        "PCI device 0000:84:00.0 names NUMA node 7, which this host does not have; the device's "
        "cell is unknown",
    )


# -- with sysfs -------------------------------------------------------------------------------


def test_two_equal_descriptions_are_joined_in_silence() -> None:
    look = reading(cell(0, 0, 1), devices=NodeDevices(pci=pf("0000:81:00.0", "0000:81:01.0")))
    topology = by_sysfs(join(look, None))
    assert join(look, topology) == topology


def test_what_libvirt_reports_of_cells_replaces_what_sysfs_shows_and_is_told() -> None:
    pools = (HugePages(2048, 4),)
    sysfs = join(reading(replace(cell(0, 0, 1), huge_pages=pools), cell(1, 2, 3)), None)
    host = join(reading(cell(0, 0), cell(1, 1, 2, 3, memory_kib=3 * GIB)), by_sysfs(sysfs))
    assert [(cell.cpus, cell.memory_kib) for cell in host.cells] == [
        ((0,), GIB),
        ((1, 2, 3), 3 * GIB),
    ]
    assert (host.cells[0].huge_pages, host.memory_kib) == (pools, 2 * GIB)
    assert host.warnings == (
        "libvirt reports 4194304 KiB of memory of the host, /proc/meminfo 2097152 KiB; the "
        "smaller is used",
        "libvirt reports CPUs 0 of NUMA cell 0, sysfs 0-1; libvirt's are used",
        "libvirt reports 3145728 KiB of memory of NUMA cell 1, sysfs 1048576 KiB; libvirt's is "
        "used",
        "libvirt reports CPUs 1-3 of NUMA cell 1, sysfs 2-3; libvirt's are used",
    )


def test_cells_and_cpus_of_one_source_only_are_told() -> None:
    sysfs = by_sysfs(join(reading(cell(0, 0), cell(1, 1, 2)), None))
    host = join(reading(cell(0, 0, 1, memory_kib=2 * GIB)), sysfs)
    assert ([cell.id for cell in host.cells], host.online_cpus) == ([0], (0, 1))
    assert host.warnings[:2] == (
        "libvirt reports CPUs 0-1 online, sysfs 0-2; libvirt's are used",
        "libvirt reports NUMA cells 0, sysfs 0-1; libvirt's are used",
    )


def test_where_libvirt_knows_no_cells_and_no_memory_sysfs_counts() -> None:
    sysfs = by_sysfs(join(reading(cell(0, 0, 1)), None))
    host = join(replace(reading(), memory_kib=0), sysfs)
    assert (host.cells, host.memory_kib, host.warnings) == (sysfs.cells, GIB, ())


def test_a_device_of_one_source_only_is_kept_and_told() -> None:
    addresses = [f"0000:{bus:02x}:00.0" for bus in range(0x10, 0x1C)]
    sysfs = join(
        reading(cell(0, 0), devices=NodeDevices(pci=tuple(map(function, addresses)))), None
    )
    devices = NodeDevices(
        pci=(function("0000:81:00.0"), function("10000:81:00.0", class_code="030200"))
    )
    host = join(reading(cell(0, 0), devices=devices), by_sysfs(sysfs))
    assert [device.address for device in host.pci_devices] == [
        *addresses,
        "0000:81:00.0",
        "10000:81:00.0",
    ]
    assert [gpu.address for gpu in host.gpus] == ["10000:81:00.0"]
    assert len(host.nics) == 13
    assert host.warnings == (
        "libvirt lists PCI devices 0000:81:00.0, 10000:81:00.0, which sysfs does not; they are "
        "kept",
        f"sysfs lists PCI devices {', '.join(addresses[:8])} and 4 more, which libvirt does not; "
        "they are kept",
    )


def test_a_hypervisor_that_lists_no_devices_contradicts_none() -> None:
    devices = NodeDevices(pci=(function("0000:81:00.0"),))
    sysfs = by_sysfs(join(reading(cell(0, 0), devices=devices), None))
    assert join(reading(cell(0, 0)), sysfs) == sysfs


def test_the_cell_of_a_device_is_libvirts_and_a_difference_is_told_once() -> None:
    devices, others = (NodeDevices(pci=(gpu("0000:84:00.0", 1, node=node),)) for node in (1, 0))
    cells = (cell(0, 0), cell(1, 1))
    sysfs = by_sysfs(join(reading(*cells, devices=others), None))
    host = join(reading(*cells, devices=devices), sysfs)
    assert (host.pci_devices[0].numa_node, host.gpus[0].numa_node) == (1, 1)
    assert host.warnings == (
        "libvirt reports NUMA node 1 of PCI device 0000:84:00.0, sysfs 0; libvirt's is used",
    )


def test_what_only_sysfs_knows_of_a_port_stays_and_offloads_are_added() -> None:
    look = reading(
        cell(0, 0),
        devices=NodeDevices(
            pci=pf("0000:81:00.0", "0000:81:01.0", "0000:81:01.1"),
            net=(interface("ens1f0", "0000:81:00.0", "rx", "tso"),),
        ),
    )
    address = pci_address("0000:81:00.0")
    vf = NicVf(pci_address("0000:81:01.1"), 5, "ens1f0v5", in_use_by_host=True)
    port = NicPort(
        address=address,
        vendor_id="8086",
        product_id="1592",
        numa_node=None,
        names=("ens1f0np0",),
        mac="b4:96:91:00:00:01",
        mac_permanent=True,
        speed_mbps=25000,
        is_pf=True,
        vfs=(vf,),
        serial="S1",
        features=("rdma",),
    )
    alone = join(look, None)
    sysfs = by_sysfs(replace(alone, nics=(port,)))
    host = join(look, sysfs)
    further = NicVf(pci_address("0000:81:01.0"), 6, None, in_use_by_host=False)
    assert host.nics == (replace(port, features=("rdma", "rx", "tso"), vfs=(vf, further)),)


def test_vgpus_are_those_of_both_and_a_difference_is_told() -> None:
    types = (MdevType("nvidia-35", 3), MdevType("nvidia-36", 1))
    devices = NodeDevices(pci=(gpu("0000:84:00.0", 2),), mdevs=(mdev(UUIDS[0], "0000:84:00.0"),))
    look = reading(cell(0, 0), devices=devices)
    whole = replace(
        join(look, None).gpus[0],
        mdev_types=types,
        mdevs=(Mdev("nvidia-35", UUIDS[1]), Mdev("nvidia-40", None)),
        nvml=True,
    )
    host = join(look, by_sysfs(replace(join(look, None), gpus=(whole,))))
    assert host.gpus[0].nvml
    assert host.gpus[0].mdev_types == (MdevType("nvidia-35", 2), MdevType("nvidia-36", 1))
    assert host.gpus[0].mdevs == (
        Mdev("nvidia-35", UUIDS[0]),
        Mdev("nvidia-35", UUIDS[1]),
        Mdev("nvidia-40", None),
    )
    assert host.warnings == (
        f"libvirt lists mediated device {UUIDS[0]}, which sysfs does not; it is kept",
        f"sysfs lists mediated device {UUIDS[1]}, which libvirt does not; it is kept",
    )


def test_a_gpu_that_fell_off_the_bus_does_not_come_back_through_libvirt() -> None:
    look = reading(cell(0, 0), devices=NodeDevices(pci=(gpu("0000:84:00.0", 2),)))
    without = by_sysfs(replace(join(look, None), gpus=()))
    assert join(look, without).gpus == ()


def test_a_vf_is_in_one_gpu_only_where_one_source_lacks_the_pf() -> None:
    both = pf("0000:41:00.0", "0000:41:00.4", class_code="030200")
    look = reading(cell(0, 0), devices=NodeDevices(pci=both))
    (vf,) = (
        PciDevice(
            device.function.address, "10de", "1592", "030200", physfn=pci_address("0000:41:00.0")
        )
        for device in both[1:]
    )
    lone = PhysicalGpu(vf.address, "10de", "1592", None)
    sysfs = replace(join(look, None), pci_devices=(vf,), gpus=(lone,))
    host = join(look, by_sysfs(sysfs))
    assert [(gpu.address, [vf.address for vf in gpu.vfs]) for gpu in host.gpus] == [
        ("0000:41:00.0", ["0000:41:00.4"])
    ]
