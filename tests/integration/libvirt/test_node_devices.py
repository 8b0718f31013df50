"""Node devices read through libvirt's test driver, which takes them from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import libvirt
import pytest

from compute_agent.discovery.errors import CallFailed, HypervisorUnreachable
from compute_agent.discovery.facts import Mdev, MdevType
from compute_agent.discovery.libvirt import node_devices, source
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.cpu_features import GuestCpuOptions
from compute_agent.discovery.libvirt.guest_abilities import AbilityReader
from compute_agent.discovery.libvirt.join import join
from tests.data.machines import make
from tests.fixtures.libvirtd import running_libvirtd
from tests.unit.discovery.libvirt.node_devices import UUID, address, device, mdev, net, pci

_Result = TypeVar("_Result")

TYPES = (
    "<capability type='mdev_types'><type id='nvidia-35'><name>GRID</name><deviceAPI>vfio-pci"
    "</deviceAPI><availableInstances>15</availableInstances></type></capability>"
)
VFS = f"<capability type='virt_functions' maxCount='8'>{address('0000:81:02.0')}</capability>"
PF = f"<capability type='phys_function'>{address('0000:81:00.0')}</capability>"
COMPUTER = device(
    "computer",
    "<capability type='system'><hardware><vendor>V</vendor><version>1</version><serial>s</serial>"
    "<uuid>11111111-2222-3333-4444-555555555555</uuid></hardware><firmware><vendor>V</vendor>"
    "<version>1</version><release_date>01/01/2020</release_date></firmware></capability>",
).replace("<parent>computer</parent>", "")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A host with a PF, its VF and interface, and a GPU that made one mediated device."""
    devices = (
        COMPUTER,
        pci("0000:81:00.0", f"{VFS}<numa node='1'/>"),
        pci("0000:81:02.0", PF),
        net("ens1f0", "pci_0000_81_00_0", "<feature name='rx'/>"),
        pci("0000:84:00.0", TYPES, class_code="030200"),
        mdev("mdev_" + UUID.replace("-", "_"), f"<uuid>{UUID}</uuid>"),
    )
    file = tmp_path / "host.xml"
    file.write_text(
        "<node><cpu><mhz>2600</mhz><model>x86_64</model><active>4</active><nodes>1</nodes>"
        "<sockets>1</sockets><cores>4</cores><threads>1</threads></cpu><memory>16777216</memory>"
        f"{''.join(devices)}</node>"
    )
    return f"test://{file}"


class InterruptedConnection(LibvirtConnection):
    """A connection on which the description of one device cannot be had."""

    def __init__(self, uri: str, name: str, error: Exception) -> None:
        super().__init__(uri)
        self._name = name
        self._error = error

    def call(self, name: str, function: Callable[[libvirt.virConnect], _Result]) -> _Result:
        if name.endswith(self._name):
            raise self._error
        return super().call(name, function)


def test_a_host_of_another_machine_is_what_its_node_devices_say(uri: str) -> None:
    connection = LibvirtConnection(uri)
    reading = source.read(connection, AbilityReader(connection, GuestCpuOptions("qemu")))
    host = join(reading, None)
    (port,) = host.nics
    assert (port.name, port.features, port.is_pf) == ("ens1f0", ("rx",), True)
    assert [vf.address for vf in port.vfs] == ["0000:81:02.0"]
    (gpu,) = host.gpus
    assert gpu.mdev_types == (MdevType("nvidia-35", 15),)
    assert gpu.mdevs == (Mdev("nvidia-35", UUID),)
    (cell,) = host.cells
    assert cell.memory_kib == host.memory_kib == 16777216
    assert "PCI device 0000:81:00.0 names NUMA node 1" in host.warnings[0]


def test_what_the_hypervisor_cannot_say_of_a_mediated_device_is_unknown(uri: str) -> None:
    devices, warnings = node_devices.read(LibvirtConnection(uri))
    (made,) = devices.mdevs
    assert (made.active, made.persistent) == (True, False)
    assert not warnings


def test_a_device_that_vanishes_while_it_is_read_is_left_out_with_a_warning(uri: str) -> None:
    gone = CallFailed("XMLDesc", "Node device not found", int(libvirt.VIR_ERR_NO_NODE_DEVICE))
    devices, warnings = node_devices.read(InterruptedConnection(uri, "pci_0000_81_02_0", gone))
    assert [device.function.address for device in devices.pci] == ["0000:81:00.0", "0000:84:00.0"]
    assert warnings == (
        "XMLDesc failed: Node device not found; node device pci_0000_81_02_0 left out",
    )


def test_a_connection_that_is_lost_meanwhile_ends_the_look(uri: str) -> None:
    lost = HypervisorUnreachable("the daemon ended the connection")
    with pytest.raises(HypervisorUnreachable):
        node_devices.read(InterruptedConnection(uri, "pci_0000_81_02_0", lost))


class CountingConnection(LibvirtConnection):
    """A connection that remembers what was described.

    :ivar described: names of node devices.
    """

    described: tuple[str, ...] = ()

    def call(self, name: str, function: Callable[[libvirt.virConnect], _Result]) -> _Result:
        if name.startswith("XMLDesc of "):
            self.described += (name.removeprefix("XMLDesc of "),)
        return super().call(name, function)


def described_in_two_looks(
    machine: Path, run_directory: Path, change: Callable[[Path], None]
) -> set[str]:
    """What the second look described, with the machine changed before it."""
    with running_libvirtd(run_directory, machine) as daemon:
        connection = CountingConnection(daemon.uri)
        first, _ = node_devices.read(connection)
        connection.described = ()
        assert daemon.machine is not None
        change(daemon.machine)
        second, _ = node_devices.read(connection, before=first)
        described = set(connection.described)
        assert second == node_devices.read(connection)[0]
        connection.close()
    return described


def test_vfs_are_described_once_while_their_pf_stays_as_it_is(
    libvirt_run_directory: Path, tmp_path: Path
) -> None:
    machine = make("two-cells", tmp_path)
    described = described_in_two_looks(machine, libvirt_run_directory, lambda _: None)
    assert {"pci_0000_18_00_0", "pci_0000_17_00_0"} <= described
    assert [name for name in described if name.startswith("net_ens1f0_")]
    assert not [name for name in described if "18_01" in name or "ens1f0v" in name]


def test_the_vfs_of_a_pf_that_changed_are_described_again(
    libvirt_run_directory: Path, tmp_path: Path
) -> None:
    def remove_a_vf(machine: Path) -> None:
        (machine / "sys/bus/pci/devices/0000:18:00.0/virtfn7").unlink()

    described = described_in_two_looks(
        make("two-cells", tmp_path), libvirt_run_directory, remove_a_vf
    )
    assert "pci_0000_18_01_0" in described
    assert "pci_0000_81_01_0" not in described
