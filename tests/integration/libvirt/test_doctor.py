"""`compute-agent doctor` and a hypervisor: faults, and advice that helps when it is followed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent.cmd.agent import main as agent
from compute_agent.discovery.libvirt.facts import HypervisorReading
from compute_agent.virt.libvirt.driver import LibvirtDriver
from tests.data.machines import make
from tests.fixtures.libvirtd import Libvirtd, running_libvirtd

Doctor = Callable[..., dict[tuple[str, str], dict[str, Any]]]


@pytest.fixture
def doctor(placement_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Examine a host that has these options of [libvirt]: (level, subject) to the diagnosis."""

    def examine(
        more: str = "", driver: str = "libvirt.LibvirtDriver", **options: str
    ) -> dict[tuple[str, str], dict[str, Any]]:
        for name in ("instances", "state"):
            (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / "state" / "compute_id").write_text("5a0c8d2c-6b0a-4e0e-8a53-3b3e9d9e6c11")
        lines = "\n".join(f"{name} = {value}" for name, value in options.items())
        path = tmp_path / "agent.conf"
        path.write_text(
            f"[DEFAULT]\ncompute_driver = {driver}\nhost = service1\n"
            f"state_path = {tmp_path}/state\ninstances_path = {tmp_path}/instances\n"
            f"[placement]\nauth_type = noauth\nendpoint_override = {placement_url}\n"
            f"[gpu]\nnvml = never\n[libvirt]\n{lines}\n{more}\n"
        )
        capsys.readouterr()
        agent.main(["doctor", f"--config-file={path}", "--json"])
        document = json.loads(capsys.readouterr().out)
        return {
            (diagnosis["level"], diagnosis["subject"]): diagnosis
            for diagnosis in document["diagnoses"]
        }

    return examine


def test_a_hypervisor_that_answers_is_described(libvirtd: Libvirtd, doctor: Doctor) -> None:
    found = doctor(connection_uri=libvirtd.uri, virt_type="qemu")
    text = found["fine", "libvirt"]["text"]
    assert f"{libvirtd.uri} answers as" in text
    assert "QEMU" in text
    assert "libvirt 9" in text or "libvirt 1" in text
    assert found["fine", "virt_type"]["text"] == "qemu guests can be run"
    assert found["fine", "guests"]["text"] == "0 known, 0 running"


def test_a_daemon_that_is_not_started_is_an_error(doctor: Doctor, tmp_path: Path) -> None:
    found = doctor(connection_uri=f"qemu+unix:///system?socket={tmp_path}/none")
    assert "No daemon of libvirt listens here" in found["error", "libvirt"]["text"]


class WithoutKvm(LibvirtDriver):
    """A hypervisor that can only emulate CPUs."""

    def hypervisor(self) -> HypervisorReading:
        reading = super().hypervisor()
        emulators = tuple(
            replace(emulator, virt_types=tuple(t for t in emulator.virt_types if t != "kvm"))
            for emulator in reading.capabilities.emulators
        )
        return replace(reading, capabilities=replace(reading.capabilities, emulators=emulators))


def test_guests_that_libvirt_cannot_run_are_a_warning_until_the_advice_is_followed(
    libvirtd: Libvirtd, doctor: Doctor
) -> None:
    driver = f"{__name__}.WithoutKvm"
    found = doctor(driver=driver, connection_uri=libvirtd.uri, virt_type="kvm")
    warning = found["warning", "virt_type"]
    assert "libvirt runs no kvm guests here; it runs qemu. " in warning["text"]
    assert "/dev/kvm" in warning["text"]
    assert warning["set"] == {"group": "libvirt", "option": "virt_type", "value": "qemu"}
    found = doctor(driver=driver, connection_uri=libvirtd.uri, virt_type="qemu")
    assert ("fine", "virt_type") in found


def test_a_hypervisor_of_another_kind_than_the_guests_is_a_warning(
    libvirtd: Libvirtd, doctor: Doctor
) -> None:
    found = doctor(connection_uri=libvirtd.uri, virt_type="lxc")
    text = found["warning", "virt_type"]["text"]
    assert f"guests of virt_type lxc are run by LXC, and {libvirtd.uri} is QEMU" in text


def test_emulated_tpms_that_libvirt_lacks_are_a_warning_until_the_advice_is_followed(
    libvirtd: Libvirtd, doctor: Doctor
) -> None:
    options = {"connection_uri": libvirtd.uri, "virt_type": "qemu"}
    found = doctor(**options, swtpm_enabled="True")
    if ("fine", "swtpm") in found:
        pytest.skip("swtpm is installed here")
    warning = found["warning", "swtpm"]
    assert "install swtpm" in warning["text"]
    advice = warning["set"]
    assert advice == {"group": "libvirt", "option": "swtpm_enabled", "value": "False"}
    assert ("warning", "swtpm") not in doctor(**options, swtpm_enabled="False")


def test_parts_of_the_kernel_that_devices_need_are_found_missing(
    libvirt_run_directory: Path, tmp_path: Path, doctor: Doctor
) -> None:
    directory = make("no-vfs", tmp_path)
    for group in directory.glob("sys/devices/**/iommu_group"):
        group.unlink()
    with running_libvirtd(libvirt_run_directory, directory) as daemon:
        found = doctor(
            f"[host]\nsysfs_root = {daemon.machine}/sys\nprocfs_root = {daemon.machine}/proc\n"
            '[pci]\ndevice_spec = [{"address": "0000:81:00.0"}, {"address": "0000:18:00.0"}]\n'
            "[devices]\nenabled_mdev_types = nvidia-222\n",
            connection_uri=daemon.uri,
            virt_type="qemu",
        )
    assert "intel_iommu=on" in found["warning", "IOMMU"]["text"]
    assert "load the module mdev" in found["warning", "modules"]["text"]
    assert "which no GPU here offers" in found["warning", "enabled_mdev_types"]["text"]
    assert "0000:81:00.0" in found["warning", "device_spec"]["text"]


def test_a_model_of_cpu_that_libvirt_does_not_know_is_an_error(
    libvirtd: Libvirtd, doctor: Doctor
) -> None:
    found = doctor(
        connection_uri=libvirtd.uri, virt_type="qemu", cpu_mode="custom", cpu_models="Westmore"
    )
    assert "[libvirt]cpu_models names Westmore" in found["error", "configuration"]["text"]


def test_a_cpu_that_emulated_guests_cannot_have_is_a_warning(
    libvirtd: Libvirtd, doctor: Doctor
) -> None:
    options = {"connection_uri": libvirtd.uri, "virt_type": "qemu"}
    found = doctor(cpu_mode="host-passthrough", **options)
    assert "needs virt_type = kvm" in found["warning", "CPU of guests"]["text"]
    assert ("warning", "CPU of guests") not in doctor(cpu_mode="host-model", **options)
