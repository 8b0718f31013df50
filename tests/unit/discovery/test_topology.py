"""The whole machine: what is joined, read once, and fatal."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from compute_agent.discovery.capture import RecordedGpus
from compute_agent.discovery.facts import HostTopology, MemoryEncryption
from compute_agent.discovery.nvml import NvmlGpu, NvmlReading
from compute_agent.discovery.storage import FileSystem
from compute_agent.discovery.sysfs.reader import read_file
from compute_agent.discovery.topology import Discovery
from tests.data.make_two_cells import TWO_CELLS, build, write
from tests.unit.discovery.conftest import Machine

GPU = "0000:84:00.0"


def test_the_committed_machine_is_what_its_script_makes(tmp_path: Path) -> None:
    write(tmp_path)

    def content(root: Path) -> dict[str, object]:
        return {
            str(path.relative_to(root)): path.readlink() if path.is_symlink() else path.read_bytes()
            for path in root.rglob("*")
            if path.is_symlink() or path.is_file()
        }

    assert content(TWO_CELLS) == content(tmp_path)


def test_the_committed_machine_is_discovered_whole() -> None:
    topology = Discovery(str(TWO_CELLS / "sys"), str(TWO_CELLS / "proc")).discover()
    assert topology.warnings == ()
    assert topology.hostname == "two-cells.example.org"
    assert [cell.cpus for cell in topology.cells] == [
        (0, 1, 2, 3, 8, 9, 10, 11),
        (4, 5, 6, 7, 12, 13, 14, 15),
    ]
    assert [(nic.address, nic.numa_node, len(nic.vfs)) for nic in topology.nics] == [
        ("0000:18:00.0", 0, 8),
        ("0000:81:00.0", 1, 8),
    ]
    assert [(gpu.address, gpu.numa_node) for gpu in topology.gpus] == [
        ("0000:17:00.0", 0),
        ("0000:84:00.0", 1),
    ]


def test_every_file_is_read_at_most_once(tmp_path: Path) -> None:
    build().write(tmp_path)
    reads: Counter[str] = Counter()

    def count(path: str, limit: int) -> bytes:
        reads[str(Path(path).resolve())] += 1
        return read_file(path, limit)

    Discovery(str(tmp_path / "sys"), str(tmp_path / "proc"), read=count).discover()
    assert [path for path, times in reads.items() if times > 1] == []
    assert len(reads) > 100


def test_the_live_machine_is_the_same_twice() -> None:
    discovery = Discovery()
    first, second = discovery.discover(FileSystem("/")), discovery.discover(FileSystem("/"))
    assert first == second
    assert hash(first) == hash(second)
    assert first.memory_kib > 0
    assert first.online_cpus
    assert first.disk is not None
    assert first.disk.size_bytes > 0


def test_a_given_host_name_goes_before_the_kernels(machine: Machine) -> None:
    discovery = machine.discovery()
    assert discovery.discover().hostname == "host.example.org"
    assert discovery.discover(hostname="cmp1").hostname == "cmp1"


def test_a_missing_instances_path_is_no_disk_and_a_fault(machine: Machine, tmp_path: Path) -> None:
    topology = machine.discovery().discover(FileSystem(str(tmp_path / "not-mounted")))
    assert topology.disk is None
    assert topology.disk_fault is not None
    assert "not-mounted" in topology.disk_fault
    assert "instances_path" in topology.disk_fault


def test_the_disk_is_the_size_of_the_file_system(machine: Machine, tmp_path: Path) -> None:
    topology = machine.discovery().discover(FileSystem(str(tmp_path)))
    assert topology.disk is not None
    assert topology.disk.size_bytes >= 1 << 20


def test_memory_encryption_is_read_with_its_contexts(machine: Machine) -> None:
    machine.sys("module/kvm_amd/parameters/sev", "Y")
    machine.sys("module/kvm_amd/parameters/sev_es", 1)
    machine.sys("module/kvm_amd/parameters/sev_snp", "N")
    machine.sys("fs/cgroup/misc.capacity", "sev_es 99\nsev 410")
    assert machine.look().memory_encryption == MemoryEncryption(
        amd_sev=True, amd_sev_es=True, capacity=(("sev", 410), ("sev_es", 99))
    )


def test_tdx_is_read(machine: Machine) -> None:
    machine.sys("module/kvm_intel/parameters/tdx", "Y")
    machine.sys("fs/cgroup/misc.capacity", "tdx 31")
    found = machine.look().memory_encryption
    assert (found.intel_tdx, found.capacity) == (True, (("tdx", 31),))


class TestNvmlJoined:
    def join(self, machine: Machine, *gpus: NvmlGpu, lost: tuple[str, ...] = ()) -> HostTopology:
        class Source:
            def read(self) -> NvmlReading:
                return NvmlReading(gpus=gpus, lost_gpus=lost, warnings=())  # type: ignore[arg-type]

        return machine.discovery(gpu_source=Source()).discover()

    def test_facts_meet_by_pci_address(self, machine: Machine) -> None:
        machine.gpu(GPU)
        machine.gpu("0000:85:00.0", driver="vfio-pci")
        seen = NvmlGpu(GPU, uuid="GPU-1", model="Tesla T4")  # type: ignore[arg-type]
        first, second = self.join(machine, seen).gpus
        assert (first.nvml, first.uuid, first.model) == (True, "GPU-1", "Tesla T4")
        assert (second.nvml, second.uuid) == (False, None)

    @pytest.mark.parametrize(
        ("by_the_bus", "near", "expected"),
        [(-1, (1,), 1), (0, (1,), 0), (-1, (1, 7), 1), (-1, (0, 1), None), (-1, (), None)],
    )
    def test_affinity_helps_where_firmware_is_silent_and_never_overrules_the_bus(
        self, two_cells: Machine, by_the_bus: int, near: tuple[int, ...], expected: int | None
    ) -> None:
        two_cells.gpu(GPU, numa_node=by_the_bus)
        seen = NvmlGpu(GPU, near_cells=near)  # type: ignore[arg-type]
        assert self.join(two_cells, seen).gpus[0].numa_node == expected

    def test_memory_of_a_gpu_is_marked_as_such(self, two_cells: Machine) -> None:
        two_cells.gpu(GPU, numa_node=0)
        two_cells.cpus("0-1")
        two_cells.node(1, cpus="", memory_kib=1 << 20, distance="40 10")
        seen = NvmlGpu(GPU, memory_cell=1)  # type: ignore[arg-type]
        cells = self.join(two_cells, seen).cells
        assert [cell.gpu_memory_of for cell in cells] == [None, GPU]

    def test_a_lost_gpu_is_out(self, machine: Machine) -> None:
        machine.gpu(GPU)
        topology = self.join(machine, lost=(GPU,))
        assert topology.gpus == ()
        assert len(topology.pci_devices) == 1

    def test_a_gpu_that_only_nvml_sees_is_named_and_left_out(self, machine: Machine) -> None:
        topology = self.join(machine, NvmlGpu(GPU))  # type: ignore[arg-type]
        assert topology.gpus == ()
        assert GPU in topology.warnings[0]


@pytest.mark.parametrize("vfs", [0, 64])
def test_a_recorded_source_gives_equal_facts_each_time(tmp_path: Path, vfs: int) -> None:
    machine = Machine(tmp_path)
    machine.nic("0000:81:00.0", "ens1", vfs=vfs)
    machine.gpu(GPU)
    source = RecordedGpus((NvmlGpu(GPU, uuid="GPU-1"),))  # type: ignore[arg-type]
    discovery = machine.discovery(gpu_source=source)
    assert discovery.discover() == discovery.discover()
