"""A captured machine is the machine."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from compute_agent.discovery import capture as capture_module
from compute_agent.discovery.capture import RecordedGpus, capture, read_description, replay
from compute_agent.discovery.errors import DiscoveryError
from compute_agent.discovery.facts import GpuInstance, MigDevice, MigProfile, NvLink, VgpuType
from compute_agent.discovery.nvml import NvmlGpu
from compute_agent.discovery.storage import FileSystem
from compute_agent.discovery.sysfs.reader import read_file
from compute_agent.discovery.topology import Discovery
from tests.data.kernel_formats import vpd
from tests.data.machine_builder import MachineBuilder
from tests.data.make_two_cells import TWO_CELLS

WHOLE = NvmlGpu(
    "0000:17:00.0",  # type: ignore[arg-type]
    uuid="GPU-1",
    model="NVIDIA A100-SXM4-80GB",
    compute_capability=(8, 0),
    near_cells=(0,),  # type: ignore[arg-type]
    mig_enabled=True,
    mig_profiles=(MigProfile("1g.10gb", 19, 1, 9728, 7),),
    mig_devices=(MigDevice("MIG-1", "1g.10gb", 7, 0, start=6, size=1),),
    mig_remaining=(("1g.10gb", 6),),
    gpu_instances=(GpuInstance(6, 1, 19, 7),),
    vgpu_types=(
        VgpuType("nvidia-474", "GRID A100-1-5C", 5120, 7, 1, 19, 2),
        VgpuType("nvidia-700", "A100-8C", 8192, 10, 4, None, None, (0, 8, 24), 8),
    ),
    vgpu_sizes_mixed=True,
    nvlinks=(NvLink("0000:85:00.0", "gpu", 4),),  # type: ignore[arg-type]
)


def test_replaying_a_capture_gives_the_machine_it_was_taken_from(tmp_path: Path) -> None:
    source = RecordedGpus((WHOLE,))
    sysfs, procfs = str(TWO_CELLS / "sys"), str(TWO_CELLS / "proc")
    capture(
        tmp_path / "copy",
        sysfs_root=sysfs,
        procfs_root=procfs,
        disk_source=FileSystem(str(tmp_path)),
        gpu_source=source,
    )
    there = Discovery(sysfs, procfs, gpu_source=source).discover(FileSystem(str(tmp_path)))
    assert replay(tmp_path / "copy") == there
    gpu = there.gpus[0]
    for name in ("mig_devices", "mig_remaining", "gpu_instances", "vgpu_types", "nvlinks"):
        assert getattr(gpu, name) == getattr(WHOLE, name)
    assert gpu.vgpu_sizes_mixed
    assert any(device.bridges for device in there.pci_devices)


def test_facts_of_another_release_are_passed_over(tmp_path: Path) -> None:
    piece = {"uuid": "MIG-1", "profile": "1g.10gb", "gpu_instance": 1, "compute_instance": 0}
    pieces = [{**piece, "slices": 1, "later": 1}]
    recorded = [{"address": "0000:84:00.0", "uuid": "GPU-1", "later": 1, "mig_devices": pieces}]
    (tmp_path / "capture.json").write_text(json.dumps({"format": 1, "nvml": recorded, "later": 1}))
    (gpu,) = read_description(tmp_path).nvml
    assert (gpu.address, gpu.uuid) == ("0000:84:00.0", "GPU-1")
    assert gpu.mig_devices == (MigDevice("MIG-1", "1g.10gb", 1, 0),)


def test_addresses_are_read_in_any_spelling(tmp_path: Path) -> None:
    link = {"remote": "00000000:AF:00.0", "kind": "GPU", "links": 4}
    recorded = [{"address": "84:00.0", "nvlinks": [link]}]
    (tmp_path / "capture.json").write_text(json.dumps({"format": 1, "nvml": recorded}))
    (gpu,) = read_description(tmp_path).nvml
    assert gpu.address == "0000:84:00.0"
    assert gpu.nvlinks is not None
    assert [link.remote for link in gpu.nvlinks] == ["0000:af:00.0"]


def test_serial_numbers_come_along(tmp_path: Path) -> None:
    machine = MachineBuilder()
    machine.nic("0000:81:00.0", "ens1")
    machine.sys(f"{machine.device('0000:81:00.0')}/vpd", vpd(b"MT2043X01234"))
    machine.write(tmp_path / "machine")
    capture(
        tmp_path / "copy",
        sysfs_root=str(tmp_path / "machine/sys"),
        procfs_root=str(tmp_path / "machine/proc"),
    )
    assert replay(tmp_path / "copy").nics[0].serial == "MT2043X01234"


def test_this_very_machine_can_be_captured(tmp_path: Path) -> None:
    capture(tmp_path / "copy", disk_source=FileSystem("/"))
    here, there = Discovery().discover(FileSystem("/")), replay(tmp_path / "copy")
    assert there.cells == here.cells
    assert there.cpus == here.cpus
    assert there.pci_devices == here.pci_devices
    assert there.disk == here.disk


def test_the_committed_machine_replays_with_its_gpus_and_disk() -> None:
    topology = replay(TWO_CELLS)
    assert {gpu.model for gpu in topology.gpus} == {"Tesla T4"}
    assert topology.gpus[0].uuid is not None
    assert topology.disk is not None
    assert topology.disk.size_bytes == 2 * 1024**4


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("dear")
    with pytest.raises(FileExistsError, match="not empty"):
        capture(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": 99}',
        '{"format": 1, "nvml": [{"nonsense": 1}]}',
        '{"format": 1, "nvml": [{"address": "84:0.0", "nvlinks": [{"remote": "x", "kind": "GPU", '
        '"links": 1}]}]}',
        '{"format": 1, "disk": {"path": 5, "size_bytes": 5}}',
    ],
)
def test_a_damaged_description_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "capture.json").write_text(text)
    with pytest.raises(DiscoveryError, match=r"capture\.json"):
        replay(tmp_path)


def test_a_directory_that_is_no_capture_is_named(tmp_path: Path) -> None:
    with pytest.raises(DiscoveryError, match=r"cannot read .*capture\.json"):
        replay(tmp_path)


def test_what_cannot_be_read_is_listed_and_the_rest_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, limit: int) -> bytes:
        if path.endswith("0000:17:00.0/config"):
            raise PermissionError(13, "Permission denied", path)
        return read_file(path, limit)

    monkeypatch.setattr(capture_module, "read_file", refuse)
    sysfs, procfs = str(TWO_CELLS / "sys"), str(TWO_CELLS / "proc")
    capture(tmp_path / "copy", sysfs_root=sysfs, procfs_root=procfs)
    description = json.loads((tmp_path / "copy/capture.json").read_text())
    (sentence,) = description["unreadable"]
    assert sentence.endswith("0000:17:00.0/config: Permission denied")
    assert len(replay(tmp_path / "copy").gpus) == 2


def test_a_full_disk_is_no_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        capture(tmp_path / "copy", sysfs_root=str(TWO_CELLS / "sys"))


def test_the_architecture_comes_along_also_from_kernels_that_do_not_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of POWER reads alike in both byte orders."""
    machine = MachineBuilder()
    machine.proc("cpuinfo", "processor : 0\ncpu : POWER9, altivec supported")
    root = machine.write(tmp_path / "machine")
    monkeypatch.setattr("compute_agent.discovery.sysfs.cpus.PROCFS", str(root / "proc"))

    def captured(name: str, architecture: str) -> str:
        with monkeypatch.context() as patch:
            patch.setattr("os.uname", lambda: SimpleNamespace(machine=architecture))
            capture(tmp_path / name, sysfs_root=str(root / "sys"), procfs_root=str(root / "proc"))
        return replay(tmp_path / name).cpu_model.arch

    assert captured("big", "ppc64") == "ppc64"
    assert captured("little", "ppc64le") == "ppc64le"


def test_the_memory_of_gpus_comes_along(tmp_path: Path) -> None:
    machine = MachineBuilder()
    machine.proc("driver/nvidia/gpus/0004:04:00.0/numa_status", "Node: 1\nStatus: online")
    machine.nodes("0-1")
    machine.node(0, cpus="0", memory_kib=1 << 20)
    machine.node(1, cpus="", memory_kib=1 << 20)
    machine.gpu("0004:04:00.0")
    root = machine.write(tmp_path / "machine")
    capture(tmp_path / "copy", sysfs_root=str(root / "sys"), procfs_root=str(root / "proc"))
    assert [cell.gpu_memory_of for cell in replay(tmp_path / "copy").cells] == [
        None,
        "0004:04:00.0",
    ]
