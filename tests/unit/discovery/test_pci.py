"""PCI functions: what is left out, whose VFs are whose, and which cell they hang off."""

from __future__ import annotations

import errno
import os
import re

import pytest

from compute_agent.discovery.facts import HostTopology, PciAddress
from compute_agent.discovery.pci_address import pci_address
from compute_agent.discovery.sysfs.reader import read_file
from tests.data.machine_builder import MachineBuilder
from tests.unit.discovery.conftest import Machine

DISK = "0000:05:00.0"
OTHER = "0000:06:00.0"


def add_disk(machine: MachineBuilder, address: str = DISK, **more: object) -> str:
    fields = {"vendor": "144d", "product": "a80a", "class_code": "010802", **more}
    return machine.pci(address, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:81:00.0", "0000:81:00.0"),
        ("00000000:84:00.0", "0000:84:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        ("84:0A.7", "0000:84:0a.7"),
        ("0000:81:00.0\n", "0000:81:00.0"),
    ],
)
def test_every_spelling_of_an_address_is_one(text: str, address: str) -> None:
    assert pci_address(text) == PciAddress(address)


@pytest.mark.parametrize("text", ["", "0000:81:00", "0000:81:00.8", "mtty", "0000:811:00.0"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a PCI address"):
        pci_address(text)


def test_ids_are_lower_case_hex(machine: Machine) -> None:
    add_disk(machine)
    (device,) = machine.look().pci_devices
    assert (device.vendor_id, device.product_id, device.class_code) == ("144d", "a80a", "010802")
    assert not device.is_pf
    assert not device.is_vf


def test_devices_are_ordered_by_number_not_by_spelling(machine: Machine) -> None:
    for address in ("10000:01:00.0", "0000:e1:00.0", "2000:01:00.0"):
        add_disk(machine, address)
    addresses = [device.address for device in machine.look().pci_devices]
    assert addresses == ["0000:e1:00.0", "2000:01:00.0", "10000:01:00.0"]


@pytest.mark.parametrize("file", ["vendor", "device", "class"])
def test_a_device_without_its_identity_is_left_out_and_others_are_kept(
    machine: Machine, file: str
) -> None:
    add_disk(machine)
    add_disk(machine, OTHER)
    machine.remove(f"sys/{machine.device(DISK)}/{file}")
    topology = machine.look()
    assert [device.address for device in topology.pci_devices] == [OTHER]
    (warning,) = topology.warnings
    assert f"{DISK}/{file}" in warning
    assert "No such file" in warning


def test_a_file_that_may_not_be_read_leaves_its_device_out_naming_path_and_reason(
    machine: Machine,
) -> None:
    add_disk(machine)
    add_disk(machine, OTHER)

    def refuse(path: str, limit: int) -> bytes:
        if path.endswith(f"{DISK}/vendor"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return read_file(path, limit)

    topology = machine.discovery(read=refuse).discover()
    assert [device.address for device in topology.pci_devices] == [OTHER]
    (warning,) = topology.warnings
    assert f"{DISK}/vendor: Permission denied" in warning


def test_an_optional_file_that_may_not_be_read_makes_one_fact_unknown(machine: Machine) -> None:
    add_disk(machine)

    def refuse(path: str, limit: int) -> bytes:
        if path.endswith("/numa_node"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return read_file(path, limit)

    topology = machine.discovery(read=refuse).discover()
    assert topology.pci_devices[0].numa_node is None
    (warning,) = topology.warnings
    assert "numa_node: Input/output error" in warning


def test_garbage_in_an_identity_is_named(machine: Machine) -> None:
    here = add_disk(machine)
    machine.sys(f"{here}/class", "storage")
    topology = machine.look()
    assert topology.pci_devices == ()
    assert "'storage'" in topology.warnings[0]


def test_a_strange_name_among_the_devices_is_left_out(machine: Machine) -> None:
    machine.sys("bus/pci/devices/README/vendor", "0x1")
    assert "README" in machine.look().warnings[0]


def test_a_vf_knows_its_pf_and_the_pf_its_vfs_in_order(machine: Machine) -> None:
    machine.nic("0000:81:00.0", "ens1", vfs=12)
    devices = {device.address: device for device in machine.look().pci_devices}
    pf = devices[PciAddress("0000:81:00.0")]
    assert pf.is_pf
    assert pf.total_vfs == 64
    assert [vf[-4:] for vf in pf.vfs] == [f"{1 + i // 8:02x}.{i % 8}" for i in range(12)]
    assert all(devices[vf].physfn == pf.address for vf in pf.vfs)


def test_a_virtfn_link_to_nowhere_is_no_vf(machine: Machine) -> None:
    machine.nic("0000:81:00.0", "ens1", vfs=2)
    machine.link(f"{machine.device('0000:81:00.0')}/virtfn2", "devices/pci0000:81/0000:81:01.2")
    topology = machine.look()
    assert len(topology.nics[0].vfs) == 2
    assert "0000:81:01.2, which does not exist" in topology.warnings[0]


def test_links_between_pf_and_vf_that_name_no_function(machine: Machine) -> None:
    pf, vf = "0000:81:00.0", machine.nic("0000:81:00.0", "ens1", vfs=2)[0]
    machine.link(f"{machine.device(pf)}/virtfn2", "devices/pci0000:81")
    machine.link(f"{machine.device(vf)}/physfn", "devices/pci0000:81")
    topology = machine.look()
    assert {device.address: device for device in topology.pci_devices}[vf].physfn is None
    assert len(topology.nics[0].vfs) == 2
    assert [re.findall("physfn|VF 2", warning) for warning in topology.warnings] == [
        ["physfn"],
        ["VF 2"],
    ]


def test_sriov_numvfs_that_runs_ahead_of_the_links_does_not_count(machine: Machine) -> None:
    machine.nic("0000:81:00.0", "ens1", vfs=2)
    machine.sriov("0000:81:00.0", total=64, made=8)
    assert len(machine.look().nics[0].vfs) == 2


def test_a_vf_that_cannot_be_read_is_not_among_its_pfs(machine: Machine) -> None:
    first, second = machine.nic("0000:81:00.0", "ens1", vfs=2)
    machine.remove(f"sys/{machine.device(first)}/vendor")
    topology = machine.look()
    assert [vf.address for vf in topology.nics[0].vfs] == [second]
    assert [vf.index for vf in topology.nics[0].vfs] == [1]


@pytest.mark.parametrize(
    ("node", "near", "expected"),
    [(-1, "2-3", 1), (None, "0-1", 0), (-1, "0-3", None), (-1, "", None), (-1, "nonsense", None)],
)
def test_where_firmware_names_no_node_a_device_is_on_the_cell_of_all_cpus_nearby(
    two_cells: Machine, node: int | None, near: str, expected: int | None
) -> None:
    add_disk(two_cells, numa_node=node, local_cpulist=near)
    topology = two_cells.look()
    assert topology.pci_devices[0].numa_node == expected
    assert ["local_cpulist" in text for text in topology.warnings] == [True] * (near == "nonsense")


def test_a_node_the_host_does_not_have_is_unknown(two_cells: Machine) -> None:
    add_disk(two_cells, numa_node=5, local_cpulist="2-3")
    topology = two_cells.look()
    assert topology.pci_devices[0].numa_node is None
    assert "names node 5" in topology.warnings[0]


ROOT_PORT, UPSTREAM, DOWNSTREAM = "0000:16:01.0", "0000:17:00.0", "0000:18:02.0"


def bridge(machine: MachineBuilder, address: str, below: str | None = None) -> None:
    machine.pci(address, vendor="1000", product="c030", class_code="060400", below=below)


def bridges_of(topology: HostTopology, address: str) -> tuple[str, ...]:
    return next(device.bridges for device in topology.pci_devices if device.address == address)


def test_the_bridges_above_a_device_are_known_with_the_root_port_first(machine: Machine) -> None:
    bridge(machine, ROOT_PORT)
    bridge(machine, UPSTREAM, below=ROOT_PORT)
    bridge(machine, DOWNSTREAM, below=UPSTREAM)
    add_disk(machine, "0000:19:00.0", below=DOWNSTREAM)
    add_disk(machine, "0000:00:1f.2")
    found = machine.look()
    assert bridges_of(found, "0000:19:00.0") == (ROOT_PORT, UPSTREAM, DOWNSTREAM)
    assert bridges_of(found, UPSTREAM) == (ROOT_PORT,)
    assert bridges_of(found, "0000:00:1f.2") == ()


def test_a_virtual_function_leaves_its_bridges_to_its_port(machine: Machine) -> None:
    bridge(machine, ROOT_PORT)
    add_disk(machine, "0000:17:00.0", below=ROOT_PORT)
    add_disk(machine, "0000:17:00.1", below=ROOT_PORT)
    machine.sriov("0000:17:00.0", total=1, made=1)
    machine.virtual_function("0000:17:00.0", 0, "0000:17:00.1")
    found = machine.look()
    assert bridges_of(found, "0000:17:00.0") == (ROOT_PORT,)
    assert bridges_of(found, "0000:17:00.1") == ()


def test_bridges_begin_at_the_root_bus_that_is_nearest(machine: Machine) -> None:
    vmd = "0000:00:0e.0"
    machine.pci(vmd, vendor="8086", product="467f", class_code="010400")
    here = f"{machine.device(vmd)}/pci10000:e0/10000:e0:06.0/10000:e1:00.0"
    for name, text in (("vendor", "0x144d"), ("device", "0xa80a"), ("class", "0x010802")):
        machine.sys(f"{here}/{name}", text)
    machine.link("bus/pci/devices/10000:e1:00.0", here)
    found = machine.look()
    assert bridges_of(found, "10000:e1:00.0") == ("10000:e0:06.0",)
