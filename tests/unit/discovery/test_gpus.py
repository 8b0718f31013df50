"""GPUs by PCI class, mediated devices, and vGPUs of the vendor's VFIO driver."""

from __future__ import annotations

import pytest

from compute_agent.discovery.facts import Mdev, MdevType
from tests.data.machine_builder import MachineBuilder
from tests.unit.discovery.conftest import Machine

GPU = "0000:84:00.0"
UUID_A = "4b20d080-1b54-4048-85b3-a6a62d165c01"
UUID_B = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"
CREATABLE = """ID    : vGPU Name
1145  : NVIDIA L40S-1Q
1146  : NVIDIA L40S-2Q
"""


def add_vf(machine: MachineBuilder, index: int = 0) -> str:
    address = f"0000:84:00.{4 + index}"
    machine.gpu(address, product="26b9")
    machine.virtual_function(GPU, index, address)
    return address


@pytest.mark.parametrize("class_code", ["030000", "030200", "038000"])
def test_display_controllers_are_gpus(machine: Machine, class_code: str) -> None:
    machine.gpu(GPU, class_code=class_code)
    (gpu,) = machine.look().gpus
    assert (gpu.address, gpu.vendor_id, gpu.nvml) == (GPU, "10de", False)


def test_the_sound_function_of_a_gpu_is_none(machine: Machine) -> None:
    machine.gpu(GPU)
    machine.gpu("0000:84:00.1", class_code="040300", driver="snd_hda_intel")
    assert [gpu.address for gpu in machine.look().gpus] == [GPU]


@pytest.mark.parametrize("vendor", ["1a03", "102b", "1234", "1af4"])
def test_a_management_or_emulated_screen_is_no_gpu(machine: Machine, vendor: str) -> None:
    machine.pci("0000:03:00.0", vendor=vendor, product="2000", class_code="030000")
    topology = machine.look()
    assert topology.gpus == ()
    assert len(topology.pci_devices) == 1


@pytest.mark.parametrize(
    "ids", ["19e5:1711", "126f:0750", "1002:515e", "1d0f:1111", "1b36:0100", "0014:7a06"]
)
def test_a_screen_is_no_gpu_also_where_its_maker_makes_gpus(machine: Machine, ids: str) -> None:
    vendor, product = ids.split(":")
    machine.pci("0000:03:00.0", vendor=vendor, product=product, class_code="030000")
    machine.gpu("0000:04:00.0", product="1eb8")
    machine.pci("0000:05:00.0", vendor="1002", product="740f", class_code="038000")
    assert [gpu.address for gpu in machine.look().gpus] == ["0000:04:00.0", "0000:05:00.0"]


@pytest.mark.parametrize(
    ("ids", "is_gpu"),
    [
        ("1002:740c", True),  # Instinct MI250X
        ("1002:74a1", True),  # Instinct MI300X
        ("1b36:0005", False),  # QEMU's test device
        ("8086:09c4", False),  # a card with an FPGA
        ("8086:7d1d", False),  # a processor for neural networks
        ("1da3:1020", False),  # Gaudi2
        ("10ee:5000", False),  # Alveo
    ],
)
def test_a_processing_accelerator_is_a_gpu_where_its_makers_are(
    machine: Machine, ids: str, is_gpu: bool
) -> None:
    vendor, product = ids.split(":")
    machine.pci(GPU, vendor=vendor, product=product, class_code="120000")
    machine.sriov(GPU, total=8, made=1)
    machine.pci("0000:84:02.0", vendor=vendor, product="74b5", class_code="120000")
    machine.virtual_function(GPU, 0, "0000:84:02.0")
    gpus = machine.look().gpus
    assert [(gpu.address, len(gpu.vfs)) for gpu in gpus] == ([(GPU, 1)] if is_gpu else [])


def test_mdev_types_and_devices_are_found_with_their_parent(machine: Machine) -> None:
    machine.gpu(GPU)
    machine.mdev_type(GPU, "nvidia-35", "GRID M60-0B", 15)
    machine.mdev_type(GPU, "nvidia-36", "GRID M60-0Q", 0)
    machine.mdev(GPU, UUID_B, "nvidia-35")
    machine.mdev(GPU, UUID_A, "nvidia-35")
    (gpu,) = machine.look().gpus
    assert gpu.mdev_types == (MdevType("nvidia-35", 15), MdevType("nvidia-36", 0))
    assert gpu.mdevs == (Mdev("nvidia-35", UUID_A), Mdev("nvidia-35", UUID_B))


def test_vfs_that_make_vgpus_are_with_their_gpu(machine: Machine) -> None:
    machine.gpu(GPU, product="20b5")
    machine.sriov(GPU, total=16, made=2)
    for index in range(2):
        vf = add_vf(machine, index)
        machine.mdev_type(vf, "nvidia-558", "NVIDIA A100-4C", 1 - index)
    machine.mdev("0000:84:00.5", UUID_A, "nvidia-558")
    (gpu,) = machine.look().gpus
    assert gpu.mdev_types == ()
    assert [vf.mdev_types[0].available_instances for vf in gpu.vfs] == [1, 0]
    assert [vf.mdevs for vf in gpu.vfs] == [(), (Mdev("nvidia-558", UUID_A),)]


def test_a_free_vf_of_the_vendors_driver_has_one_of_each_creatable_type(machine: Machine) -> None:
    machine.gpu(GPU, product="26b9")
    vf = machine.device(add_vf(machine))
    machine.sys(f"{vf}/nvidia/creatable_vgpu_types", CREATABLE.strip())
    machine.sys(f"{vf}/nvidia/current_vgpu_type", 0)
    (found,) = machine.look().gpus[0].vfs
    assert found.mdev_types == (MdevType("nvidia-1145", 1), MdevType("nvidia-1146", 1))
    assert found.mdevs == ()


def test_a_vf_that_is_a_vgpu_has_nothing_free(machine: Machine) -> None:
    machine.gpu(GPU, product="26b9")
    vf = machine.device(add_vf(machine))
    machine.sys(f"{vf}/nvidia/creatable_vgpu_types", "")
    machine.sys(f"{vf}/nvidia/current_vgpu_type", 1145)
    (found,) = machine.look().gpus[0].vfs
    assert found.mdevs == (Mdev("nvidia-1145", None),)
    assert sum(kind.available_instances for kind in found.mdev_types) == 0


def test_a_type_without_its_number_is_left_out(machine: Machine) -> None:
    machine.gpu(GPU)
    machine.mdev_type(GPU, "nvidia-35", "GRID M60-0B", 15)
    machine.mdev_type(GPU, "nvidia-36", "GRID M60-0Q", 15)
    machine.remove(f"sys/{machine.device(GPU)}/mdev_supported_types/nvidia-35/available_instances")
    topology = machine.look()
    assert [kind.id for kind in topology.gpus[0].mdev_types] == ["nvidia-36"]
    assert "nvidia-35" in topology.warnings[0]


def test_a_card_that_is_no_gpu_and_makes_mdevs_counts(machine: Machine) -> None:
    machine.nic("0000:81:00.0", "ens1")
    machine.mdev_type("0000:81:00.0", "mlx5_core-local", "local", 8)
    assert [gpu.address for gpu in machine.look().gpus] == ["0000:81:00.0"]


def test_mdevs_of_parents_off_the_pci_bus_are_passed_over(machine: Machine) -> None:
    machine.sys("devices/virtual/mtty/mtty/mdev_supported_types/mtty-2/available_instances", 22)
    here = f"devices/virtual/mtty/mtty/{UUID_A}"
    machine.link(f"{here}/mdev_type", "devices/virtual/mtty/mtty/mdev_supported_types/mtty-2")
    machine.link(f"bus/mdev/devices/{UUID_A}", here)
    topology = machine.look()
    assert topology.gpus == ()
    assert topology.warnings == ()


def test_a_vgpu_inside_a_guest_stands_for_itself(machine: Machine) -> None:
    machine.gpu(GPU, product="26b9")
    machine.link(f"{machine.device(GPU)}/physfn", "devices/pci0000:00/0000:00:01.0")
    assert [gpu.address for gpu in machine.look().gpus] == [GPU]


def amd_gpu(machine: MachineBuilder, address: str, number: int, hive: str | None) -> None:
    """An Instinct as the driver amdgpu shows it."""
    here = machine.pci(address, vendor="1002", product="74a1", class_code="120000", driver="amdgpu")
    machine.sys(f"{here}/mem_info_vram_total", 192 << 30)
    machine.sys(f"{here}/product_name", "AMD Instinct MI300X OAM")
    machine.sys(f"{here}/unique_id", f"9f2c36b61b0c5f0{number}")
    machine.sys(f"{here}/serial_number", f"69242500000{number}")
    if hive is not None:
        machine.sys(f"{here}/xgmi_hive_info/xgmi_hive_id", hive)


def test_gpus_of_amd_have_the_facts_that_their_driver_shows(machine: Machine) -> None:
    amd_gpu(machine, "0000:05:00.0", 1, "11836410862103441712")
    (gpu,) = machine.look().gpus
    assert (gpu.model, gpu.memory_mib) == ("AMD Instinct MI300X OAM", 192 * 1024)
    assert (gpu.uuid, gpu.serial) == ("9f2c36b61b0c5f01", "692425000001")
    assert gpu.link_group == "11836410862103441712"


def test_an_amd_gpu_without_any_of_it_is_a_gpu(machine: Machine) -> None:
    here = machine.pci("0000:05:00.0", vendor="1002", product="740f", class_code="038000")
    machine.sys(f"{here}/product_name", "")
    machine.sys(f"{here}/unique_id", "0000000000000000")
    machine.sys(f"{here}/mem_info_vram_total", "much")
    topology = machine.look()
    (gpu,) = topology.gpus
    assert (gpu.model, gpu.uuid, gpu.memory_mib, gpu.link_group) == (None, None, None, None)
    assert len(topology.warnings) == 1


def test_gpus_of_intel_have_the_memory_of_their_tiles(machine: Machine) -> None:
    here = machine.pci(GPU, vendor="8086", product="0bd5", class_code="038000", driver="xe")
    for tile in range(2):
        machine.sys(f"{here}/tile{tile}/physical_vram_size_bytes", hex(64 << 30))
    (gpu,) = machine.look().gpus
    assert gpu.memory_mib == 128 * 1024
