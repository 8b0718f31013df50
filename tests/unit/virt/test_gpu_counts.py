"""Physical GPUs in a layout: nothing counts one twice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compute_agent.discovery.facts import MigDevice, PciAddress
from compute_agent.virt.layout import lay_out
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions

from .hosts_with_devices import a_gpu, devices, gpu_options, host, offering, pci, sriov_gpu
from .wanted_providers import named, totals


class TestSilicon:
    """What a GPU is, and that nothing counts it twice."""

    def test_model_capability_and_mig_are_traits(self) -> None:
        gpu = a_gpu(
            model="NVIDIA A100-SXM4-80GB", compute_capability=(8, 0), mig_enabled=True, uuid="GPU-1"
        )
        provider = named(lay_out("host1", host(gpu), gpu_options(nested=True)), "_pci_0000_84_00_0")
        assert provider.traits == {
            "CUSTOM_GPU_NVIDIA_A100_SXM4_80GB",
            "CUSTOM_HW_GPU_CUDA_COMPUTE_CAPABILITY_V8_0",
            "CUSTOM_GPU_MIG",
        }
        assert provider.key == "GPU-1"

    def test_a_capability_placement_knows_keeps_its_standard_name(self) -> None:
        layout = lay_out("host1", host(a_gpu(compute_capability=(7, 0))), gpu_options(nested=True))
        traits = named(layout, "_pci_0000_84_00_0").traits
        assert traits == {"HW_GPU_CUDA_COMPUTE_CAPABILITY_V7_0"}

    def test_mig_devices_are_counted_by_profile_where_asked_for(self) -> None:
        mig = tuple(
            MigDevice(f"MIG-{i}", profile, i, 0)
            for i, profile in enumerate(["1g.10gb", "1g.10gb", "1g.10gb+me"])
        )
        gpu = a_gpu(mig_enabled=True, mig_devices=mig)
        layout = lay_out("host1", host(gpu), gpu_options(mig_classes=True))
        assert totals(layout, "_pci_0000_84_00_0") == {
            "CUSTOM_MIG_1G_10GB": 2,
            "CUSTOM_MIG_1G_10GB_ME": 1,
        }
        assert devices(lay_out("host1", host(gpu), gpu_options())) == []

    def test_mig_devices_are_units_by_uuid_in_the_order_in_which_they_lie_on_the_gpu(self) -> None:
        mig = tuple(
            MigDevice(f"MIG-{name}", profile, instance, 0, start=start, size=size)
            for name, profile, instance, start, size in [
                ("a", "1g.10gb", 7, 6, 1),
                ("b", "3g.40gb", 1, 0, 4),
                ("c", "1g.10gb", 9, 4, 1),
            ]
        )
        gpu = a_gpu(mig_enabled=True, mig_devices=mig, mig_remaining=(("1g.10gb", 1),))
        layout = lay_out("host1", host(gpu), gpu_options(mig_classes=True))
        provider = named(layout, "_pci_0000_84_00_0")
        assert provider.units == {
            "CUSTOM_MIG_1G_10GB": ("MIG-c", "MIG-a"),
            "CUSTOM_MIG_3G_40GB": ("MIG-b",),
        }
        assert totals(layout, "_pci_0000_84_00_0") == {
            "CUSTOM_MIG_1G_10GB": 2,
            "CUSTOM_MIG_3G_40GB": 1,
        }, "what could still be made is not counted"

    def test_two_gpus_of_one_board_share_a_serial_and_have_keys_of_their_own(self) -> None:
        other = replace(a_gpu(serial="0320"), address=PciAddress("0000:85:00.0"))
        layout = lay_out("host1", host(a_gpu(serial="0320"), other), gpu_options(nested=True))
        assert [p.key for p in layout.providers[-2:]] == ["0000:84:00.0", "0000:85:00.0"]

    def test_a_gpu_given_whole_and_cut_is_an_error_and_counts_once(self) -> None:
        gpu = a_gpu(mdev_types=offering(("a", 4)))
        options = replace(gpu_options(MdevTypeOptions("a")), pci=pci(vendor_id="10de"))
        layout = lay_out("host1", host(gpu), options)
        assert any("given whole or cut" in error for error in layout.errors)
        assert totals(layout, "_0000:84:00.0") == {"CUSTOM_PCI_10DE_2236": 1}
        assert len(devices(layout)) == 1

    @pytest.mark.parametrize(
        ("address", "making_functions"),
        [
            ("0000:84:00.[0]", "0000:84:00.4, 0000:84:00.5, 0000:84:00.6"),
            ("84:00.4", "0000:84:00.4"),
        ],
    )
    def test_the_error_names_the_functions_that_make_vgpus(
        self, address: str, making_functions: str
    ) -> None:
        gpu = sriov_gpu()
        facts = host(gpu)
        functions = (replace(facts.pci_devices[0], address=vf.address) for vf in gpu.vfs)
        facts = replace(facts, pci_devices=(*facts.pci_devices, *functions))
        options = replace(gpu_options(MdevTypeOptions("nvidia-35")), pci=pci(address=address))
        (error,) = lay_out("host1", facts, options).errors
        assert f"to guests, and {making_functions} make vGPUs" in error
        assert lay_out("host1", facts, replace(options, gpu=GpuOptions())).errors == ()

    def test_vgpus_and_mig_devices_of_one_gpu_are_an_error_and_count_once(self) -> None:
        mig = (MigDevice("MIG-1", "1g.10gb", 1, 0),)
        gpu = a_gpu(mdev_types=offering(("a", 4)), mig_devices=mig, mig_enabled=True)
        options = gpu_options(MdevTypeOptions("a"), mig_classes=True)
        layout = lay_out("host1", host(gpu), options)
        assert totals(layout, "_pci_0000_84_00_0") == {"VGPU": 4}
        assert any("same silicon" in error for error in layout.errors)
