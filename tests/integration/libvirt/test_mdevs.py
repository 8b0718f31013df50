"""Mediated devices of guests over the reboots of a host, with libvirt and mdevctl."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from compute_agent.agent import assembly
from compute_agent.discovery.errors import CallFailed
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.errors import InvalidConfiguration
from compute_agent.state.claim import AssignedUnit, Claim
from tests.data.machines import sriov_vgpus
from tests.fixtures.allocations import new_uuid
from tests.fixtures.libvirt_guests import mediated_device
from tests.functional.agent.processes import eventually
from tests.integration.libvirt.hosts import Host, hypervisor_host

MADE = "0d5a2e31-6f0c-4a53-9a4b-1a1c2d3e4f50"
"""The device that the machine has, on its first VF."""
OPTIONS = "[devices]\nenabled_mdev_types = nvidia-563\n"
MDEVS = "compute_agent.virt.libvirt.mdevs"

pytestmark = pytest.mark.skipif(
    shutil.which("mdevctl") is None, reason="mdevctl is not installed (Debian package: mdevctl)"
)


@pytest.fixture
def host(libvirt_run_directory: Path, tmp_path: Path) -> Iterator[Host]:
    """A host whose GPU has one vGPU."""
    machine = sriov_vgpus().write(tmp_path / "machine")
    with hypervisor_host(libvirt_run_directory, tmp_path, machine) as running_host:
        yield running_host


def node_device(host: Host, uuid: str) -> libvirt.virNodeDevice | None:
    prefix = f"mdev_{uuid.replace('-', '_')}"
    devices = host.libvirt.listAllDevices(libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV)
    return next((device for device in devices if device.name().startswith(prefix)), None)


def is_persistent(host: Host) -> bool:
    device = node_device(host, MADE)
    return device is not None and bool(device.isPersistent())


def sys(host: Host, path: str) -> Path:
    assert host.daemon.machine is not None
    return host.daemon.machine / "sys" / path


def asked_to_make(host: Host, vf: str) -> str:
    """What the kernel was told to make of the large type on a VF."""
    path = sys(host, f"class/mdev_bus/{vf}/mdev_supported_types/nvidia-563/create")
    return path.read_text().strip() if path.exists() else ""


def reboot(host: Host) -> None:
    """Take every mediated device away, as the end of a kernel does."""
    host.stop()
    host.libvirt.close()
    host.daemon.terminate()
    shutil.rmtree(sys(host, f"bus/mdev/devices/{MADE}").resolve())
    for link in ("devices", "drivers/vfio_mdev"):
        sys(host, f"bus/mdev/{link}/{MADE}").unlink()
    available = "class/mdev_bus/0000:81:00.4/mdev_supported_types/nvidia-563/available_instances"
    sys(host, available).write_text("1\n")
    host.daemon.start()
    host.libvirt = libvirt.open(host.daemon.uri)


def starts_with_the_host(host: Host) -> bool:
    """Whether it is defined so for mdevctl; libvirt may not have listed it yet."""
    (definition,) = (host.daemon.directory / "mdevctl").glob(f"*/{MADE}")
    starts: bool = json.loads(definition.read_text())["start"] == "auto"
    return starts


def test_the_device_of_a_guest_is_defined_to_start_with_the_host(host: Host) -> None:
    host.define(devices=mediated_device(MADE))
    host.passes(OPTIONS)
    assert starts_with_the_host(host)
    device = node_device(host, MADE)
    assert device is not None
    assert device.isActive()
    eventually(lambda: is_persistent(host), "libvirt has listed it as a defined device")


@pytest.mark.parametrize(
    "code", [libvirt.VIR_ERR_NO_NODE_DEVICE, libvirt.VIR_ERR_OPERATION_INVALID]
)
def test_a_device_that_libvirt_has_not_listed_yet_is_defined_to_start_with_the_host(
    host: Host, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The first answer is made up: no call makes libvirt list its devices at this moment."""
    call = LibvirtConnection.call
    refusals = [CallFailed("setAutostart", "not listed", code)]

    def first_refused(connection: LibvirtConnection, name: str, function: Any) -> Any:
        if name.startswith("setAutostart") and refusals:
            raise refusals.pop()
        return call(connection, name, function)

    monkeypatch.setattr(LibvirtConnection, "call", first_refused)
    host.define(devices=mediated_device(MADE))
    host.passes(OPTIONS)
    assert refusals == []
    assert starts_with_the_host(host)


def test_a_device_that_no_guest_holds_is_left_as_it_is(host: Host) -> None:
    host.passes(OPTIONS)
    device = node_device(host, MADE)
    assert device is not None
    assert not device.isPersistent()


def test_a_program_that_only_looks_defines_nothing(host: Host) -> None:
    agent = host.start(OPTIONS)
    host.define(devices=mediated_device(MADE))
    looking = assembly.build(agent.parts.conf, read_only=True)
    looking.driver.init_host(host.name)
    looking.close()
    device = node_device(host, MADE)
    assert device is not None
    assert not device.isPersistent()


def test_a_defined_device_is_started_after_a_reboot(host: Host) -> None:
    host.define(devices=mediated_device(MADE))
    host.passes(OPTIONS)
    reboot(host)
    device = node_device(host, MADE)
    assert device is not None
    assert not device.isActive()

    host.passes(OPTIONS)
    assert asked_to_make(host, "0000:81:00.4") == MADE


def test_a_device_that_was_never_defined_is_made_where_its_guest_was_claimed(host: Host) -> None:
    agent = host.start(OPTIONS)
    guest = host.define(devices=mediated_device(MADE))
    unit = AssignedUnit(new_uuid(), "VGPU", "0000:81:00.4/0")
    agent.parts.ledger.change_claims(add=[Claim(guest, host.name, {}, guest, 0.0, (unit,))])
    reboot(host)
    assert node_device(host, MADE) is None

    host.passes(OPTIONS)
    assert starts_with_the_host(host)
    device = node_device(host, MADE)
    assert device is not None
    eventually(lambda: is_persistent(host), "libvirt has listed it as a defined device")
    assert "<parent>pci_0000_81_00_4</parent>" in device.XMLDesc()
    assert asked_to_make(host, "0000:81:00.4") == MADE


def test_a_device_whose_place_is_unknown_is_told_with_its_guest(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    guest = host.define(devices=mediated_device(MADE))
    reboot(host)
    with caplog.at_level(logging.WARNING, MDEVS):
        host.passes(OPTIONS)
    (warning,) = (record.getMessage() for record in caplog.records if record.name == MDEVS)
    assert guest in warning
    assert MADE in warning
    assert "nvidia-563 of 0000:81:00.5" in warning
    assert node_device(host, MADE) is None


def test_a_type_that_a_guest_holds_cannot_be_disabled(host: Host) -> None:
    guest = host.define(devices=mediated_device(MADE))
    with pytest.raises(InvalidConfiguration, match=f"guest {guest} holds .* type nvidia-563"):
        host.passes("[devices]\nenabled_mdev_types = nvidia-557\n")


def test_a_device_that_cannot_be_defined_is_told_and_the_agent_goes_on(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    guest = host.define(devices=mediated_device(MADE))
    shutil.rmtree(host.daemon.directory / "mdevctl" / "scripts.d")
    with caplog.at_level(logging.WARNING, MDEVS):
        host.passes(OPTIONS)
    (warning,) = (record.getMessage() for record in caplog.records if record.name == MDEVS)
    assert f"mediated device {MADE} of guest test-{guest} ({guest})" in warning
    assert "pci_0000_81_00_4 cannot be made persistent" in warning
    assert "gone after the next reboot" in warning
