"""GPUs, network cards, PCI devices and memory encryption in a layout."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from compute_agent.discovery.facts import (
    CellId,
    GpuVf,
    HostTopology,
    Mdev,
    MdevType,
    MemoryEncryption,
    MigDevice,
    PciAddress,
    PciDevice,
    PhysicalGpu,
    VgpuType,
)
from compute_agent.virt.fake.topology import MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions, lay_out
from compute_agent.virt.layout.device_spec import parse_device_specs
from compute_agent.virt.layout.options import (
    GpuOptions,
    MdevTypeOptions,
    NicOptions,
    PciOptions,
)
from compute_agent.virt.layout.wanted import HostLayout, WantedProvider

from .wanted_providers import named, names, totals

NOTHING = MachineSize(cells=2, cpus_per_cell=4, memory_mib_per_cell=8192, gpus=0, nics=0)
ADDRESS = PciAddress("0000:84:00.0")


def a_gpu(**facts: Any) -> PhysicalGpu:
    known: dict[str, Any] = {
        "vendor_id": "10de",
        "product_id": "2236",
        "numa_node": CellId(1),
    }
    return PhysicalGpu(ADDRESS, **{**known, **facts})


def offering(*types: tuple[str, int]) -> tuple[MdevType, ...]:
    return tuple(MdevType(name, count) for name, count in types)


def host(*gpus: PhysicalGpu) -> HostTopology:
    facts = fake_topology("host1", NOTHING)
    functions = tuple(
        PciDevice(gpu.address, gpu.vendor_id, gpu.product_id, "030200", numa_node=gpu.numa_node)
        for gpu in gpus
    )
    return replace(facts, gpus=gpus, pci_devices=functions)


def gpu_options(*types: MdevTypeOptions, nested: bool = False, **gpu: Any) -> LayoutOptions:
    return LayoutOptions(nested=nested, gpu=GpuOptions(mdev_types=types, **gpu))


def devices(layout: HostLayout) -> list[str]:
    return [name for name in names(layout) if "NUMA" not in name and name]


class TestVgpus:
    """GPUs that make mediated devices."""

    def test_total_is_what_exists_and_what_could_be_made(self) -> None:
        gpu = a_gpu(
            mdev_types=offering(("nvidia-35", 12)),
            mdevs=(Mdev("nvidia-35", "u1"), Mdev("nvidia-35", "u2")),
        )
        layout = lay_out("host1", host(gpu), gpu_options(MdevTypeOptions("nvidia-35")))
        assert totals(layout, "_pci_0000_84_00_0") == {"VGPU": 14}
        assert "CUSTOM_MDEV_NVIDIA_35" in named(layout, "_pci_0000_84_00_0").traits

    def test_the_group_of_the_type_sets_class_and_limit(self) -> None:
        gpu = a_gpu(mdev_types=offering(("nvidia-35", 12)))
        chosen = MdevTypeOptions("nvidia-35", (ADDRESS,), "CUSTOM_GRID", 5)
        layout = lay_out("host1", host(gpu), gpu_options(chosen))
        assert totals(layout, "_pci_0000_84_00_0") == {"CUSTOM_GRID": 5}

    def test_a_guest_may_be_kept_from_taking_several(self) -> None:
        gpu = a_gpu(mdev_types=offering(("nvidia-35", 12)))
        options = gpu_options(MdevTypeOptions("nvidia-35"), max_vgpus_per_guest=1)
        record = named(lay_out("host1", host(gpu), options), "_pci_0000_84_00_0").inventory["VGPU"]
        assert (record.total, record.max_unit) == (12, 1)

    def test_a_type_that_names_the_device_goes_before_the_first_type(self) -> None:
        gpu = a_gpu(mdev_types=offering(("a", 4), ("b", 2)))
        options = gpu_options(MdevTypeOptions("a"), MdevTypeOptions("b", (ADDRESS,)))
        assert totals(lay_out("host1", host(gpu), options), "_pci_0000_84_00_0") == {"VGPU": 2}

    def test_a_later_type_without_devices_gets_none(self) -> None:
        other = PciAddress("0000:85:00.0")
        gpu = a_gpu(mdev_types=offering(("a", 4), ("b", 2)))
        options = gpu_options(MdevTypeOptions("a", (other,)), MdevTypeOptions("b"))
        assert devices(lay_out("host1", host(gpu), options)) == []

    def test_a_type_the_device_does_not_offer_is_warned_about_and_gives_nothing(self) -> None:
        gpu = a_gpu(mdev_types=offering(("a", 4)))
        layout = lay_out("host1", host(gpu), gpu_options(MdevTypeOptions("b")))
        assert devices(layout) == []
        assert any("does not offer the mdev type b" in warning for warning in layout.warnings)

    def test_devices_of_another_type_stop_new_ones_and_keep_the_provider(self) -> None:
        gpu = a_gpu(mdev_types=offering(("a", 0), ("b", 3)), mdevs=(Mdev("a", "u1"),))
        layout = lay_out("host1", host(gpu), gpu_options(MdevTypeOptions("b")))
        assert totals(layout, "_pci_0000_84_00_0") == {}

    def test_a_gpu_hangs_under_its_cell_or_where_the_operator_says(self) -> None:
        gpu = a_gpu()
        layout = lay_out("host1", host(gpu), gpu_options(nested=True))
        assert named(layout, "_pci_0000_84_00_0").parent == "numa:1"
        options = gpu_options(nested=True, numa_node_override={ADDRESS: 0})
        assert named(lay_out("host1", host(gpu), options), "_pci_0000_84_00_0").parent == "numa:0"

    def test_a_gpu_of_unknown_cell_hangs_under_the_root_of_a_host_with_several(self) -> None:
        facts = host(a_gpu(numa_node=None))
        layout = lay_out("host1", facts, gpu_options(nested=True))
        assert named(layout, "_pci_0000_84_00_0").parent == ""
        one = replace(facts, cells=facts.cells[:1], online_cpus=facts.cells[0].cpus)
        layout = lay_out("host1", one, gpu_options(nested=True))
        assert named(layout, "_pci_0000_84_00_0").parent == "numa:0"


def sriov_gpu(**facts: Any) -> PhysicalGpu:
    vfs = tuple(
        GpuVf(
            PciAddress(f"0000:84:00.{4 + i}"),
            i,
            CellId(1),
            mdev_types=offering(("nvidia-35", 1)),
        )
        for i in range(3)
    )
    return a_gpu(vfs=vfs, **facts)


def fitting(most: int | None, kind: str = "nvidia-35") -> tuple[VgpuType, ...]:
    """What NVML says: so many vGPUs of a type fit on the GPU."""
    return (VgpuType(kind, "GRID", None, None, most, None, None),)


class TestSriovGpus:
    """GPUs whose virtual functions make one vGPU each."""

    OPTIONS = gpu_options(MdevTypeOptions("nvidia-35"))

    def test_functions_are_counted_on_their_gpu(self) -> None:
        layout = lay_out("host1", host(sriov_gpu()), self.OPTIONS)
        assert devices(layout) == ["_pci_0000_84_00_0"]
        assert totals(layout, "_pci_0000_84_00_0") == {"VGPU": 3}

    def test_a_tree_with_a_provider_per_function_is_continued(self) -> None:
        layout = lay_out(
            "host1",
            host(sriov_gpu()),
            self.OPTIONS,
            existing_names=frozenset({"host1_pci_0000_84_00_5"}),
        )
        assert devices(layout) == [f"_pci_0000_84_00_{n}" for n in (4, 5, 6)]
        assert totals(layout, "_pci_0000_84_00_4") == {"VGPU": 1}

    def test_the_operator_may_ask_for_a_provider_per_function(self) -> None:
        options = gpu_options(MdevTypeOptions("nvidia-35"), vf_providers="per_vf", nested=True)
        layout = lay_out("host1", host(sriov_gpu(uuid="GPU-1")), options)
        assert totals(layout, "_pci_0000_84_00_6") == {"VGPU": 1}
        assert totals(layout, "_pci_0000_84_00_0") == {}
        assert len({p.key for p in layout.providers}) == len(layout.providers)

    @pytest.mark.parametrize("most", [0, 1, 2])
    def test_no_more_are_counted_than_nvml_says_fit_on_the_gpu(self, most: int) -> None:
        layout = lay_out("host1", host(sriov_gpu(vgpu_types=fitting(most))), self.OPTIONS)
        assert totals(layout, "_pci_0000_84_00_0") == ({"VGPU": most} if most else {})
        units = named(layout, "_pci_0000_84_00_0").units["VGPU"]
        assert len(units) == 3, "any of the functions may make it"

    @pytest.mark.parametrize(
        "types", [(), fitting(None), fitting(7), fitting(1, "nvidia-36")], ids=str
    )
    def test_where_nvml_does_not_say_or_more_fit_all_functions_are_counted(
        self, types: tuple[VgpuType, ...]
    ) -> None:
        layout = lay_out("host1", host(sriov_gpu(vgpu_types=types)), self.OPTIONS)
        assert totals(layout, "_pci_0000_84_00_0") == {"VGPU": 3}

    def test_of_a_provider_per_function_as_many_have_one_as_fit_those_in_use_first(self) -> None:
        gpu = sriov_gpu(vgpu_types=fitting(2))
        first, second, third = gpu.vfs
        third = replace(
            third, mdev_types=offering(("nvidia-35", 0)), mdevs=(Mdev("nvidia-35", "u"),)
        )
        options = gpu_options(MdevTypeOptions("nvidia-35"), vf_providers="per_vf")
        layout = lay_out("host1", host(replace(gpu, vfs=(first, second, third))), options)
        assert [totals(layout, f"_pci_0000_84_00_{n}") for n in (4, 5, 6)] == [
            {"VGPU": 1},
            {},
            {"VGPU": 1},
        ]

    def test_vgpus_that_exist_are_counted_whatever_nvml_says(self) -> None:
        gpu = sriov_gpu(vgpu_types=fitting(1))
        used = tuple(
            replace(vf, mdev_types=(), mdevs=(Mdev("nvidia-35", f"u{vf.index}"),)) for vf in gpu.vfs
        )
        layout = lay_out("host1", host(replace(gpu, vfs=used)), self.OPTIONS)
        assert totals(layout, "_pci_0000_84_00_0") == {"VGPU": 3}

    def test_a_limit_counts_for_the_whole_gpu(self) -> None:
        options = gpu_options(MdevTypeOptions("nvidia-35", max_instances=2))
        layout = lay_out("host1", host(sriov_gpu()), options)
        assert totals(layout, "_pci_0000_84_00_0") == {"VGPU": 2}


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

    def test_vgpus_and_mig_devices_of_one_gpu_are_an_error_and_count_once(self) -> None:
        mig = (MigDevice("MIG-1", "1g.10gb", 1, 0),)
        gpu = a_gpu(mdev_types=offering(("a", 4)), mig_devices=mig, mig_enabled=True)
        options = gpu_options(MdevTypeOptions("a"), mig_classes=True)
        layout = lay_out("host1", host(gpu), options)
        assert totals(layout, "_pci_0000_84_00_0") == {"VGPU": 4}
        assert any("same silicon" in error for error in layout.errors)


def pci(**entry: Any) -> PciOptions:
    return PciOptions(True, parse_device_specs([json.dumps(entry)], report=True))


def nic_host(**size: int) -> HostTopology:
    return fake_topology("host1", replace(NOTHING, nics=1, **size))


PF0 = "_0000:80:00.0"


class TestNics:
    """Network cards with SR-IOV."""

    NESTED = LayoutOptions(nested=True)

    def test_a_card_has_a_provider_and_below_it_each_port_counts_its_functions(self) -> None:
        layout = lay_out("host1", nic_host(), self.NESTED)
        assert devices(layout) == ["_NIC_0000:80:00.0", PF0, "_0000:80:00.1"]
        card = named(layout, "_NIC_0000:80:00.0")
        assert (card.inventory, card.traits, card.parent) == ({}, {"CUSTOM_NIC_ROOT"}, "numa:0")
        assert named(layout, PF0).parent == card.key
        assert totals(layout, PF0) == {"SRIOV_NET_VF": 8}
        functions = tuple(vf.address for vf in nic_host().nics[0].vfs)
        assert named(layout, PF0).units == {"SRIOV_NET_VF": functions}
        assert {"HW_NIC_SRIOV", "CUSTOM_VNIC_TYPE_DIRECT"} <= named(layout, PF0).traits

    def test_a_flat_host_has_no_cards_unless_asked_for(self) -> None:
        assert devices(lay_out("host1", nic_host(), LayoutOptions())) == []
        always = LayoutOptions(nic=NicOptions(report_vfs="always"))
        layout = lay_out("host1", nic_host(), always)
        assert named(layout, "_NIC_0000:80:00.0").parent == ""

    def test_cards_can_be_left_out_of_the_nested_layout(self) -> None:
        options = replace(self.NESTED, nic=NicOptions(report_vfs="never"))
        assert devices(lay_out("host1", nic_host(), options)) == []

    def test_functions_the_host_uses_are_reserved(self) -> None:
        facts = nic_host()
        port = facts.nics[0]
        used = tuple(replace(vf, in_use_by_host=vf.index < 3) for vf in port.vfs)
        facts = replace(facts, nics=(replace(port, vfs=used), *facts.nics[1:]))
        provider = named(lay_out("host1", facts, self.NESTED), PF0)
        record = provider.inventory["SRIOV_NET_VF"]
        assert (record.total, record.reserved) == (8, 3)
        free = tuple(vf.address for vf in port.vfs[3:])
        assert provider.units == {"SRIOV_NET_VF": free}, "what the host has no guest gets"

    def test_a_port_without_functions_is_there_for_its_traits(self) -> None:
        layout = lay_out("host1", nic_host(vfs_per_pf=0), self.NESTED)
        assert totals(layout, PF0) == {}
        assert "CUSTOM_VNIC_TYPE_DIRECT" in named(layout, PF0).absent_traits

    def test_the_physical_network_comes_from_the_mapping(self) -> None:
        options = replace(self.NESTED, nic=NicOptions(physnets={"enp128s0f0": "phys-net.a"}))
        layout = lay_out("host1", nic_host(), options)
        assert "CUSTOM_PHYSNET_PHYS_NET_A" in named(layout, PF0).traits
        assert named(layout, PF0).absent_prefixes == ("CUSTOM_PHYSNET_",)
        assert named(layout, "_0000:80:00.1").absent_prefixes == ()

    def test_the_physical_network_comes_else_from_the_device_specification(self) -> None:
        specs = parse_device_specs(
            ['{"address": "0000:80:00.0", "physical_network": "physnet1"}'], report=True
        )
        options = replace(self.NESTED, pci=PciOptions(True, specs))
        layout = lay_out("host1", nic_host(), options)
        assert "CUSTOM_PHYSNET_PHYSNET1" in named(layout, PF0).traits
        assert totals(layout, PF0) == {"SRIOV_NET_VF": 8}

    def test_bandwidth_is_a_share_of_the_links_speed(self) -> None:
        options = LayoutOptions(nic=NicOptions(report_bandwidth=True, bandwidth_share=0.5))
        facts = nic_host()
        down = replace(facts.nics[1], speed_mbps=None)
        layout = lay_out("host1", replace(facts, nics=(facts.nics[0], down)), options)
        assert totals(layout, PF0) == {
            "NET_BW_EGR_KILOBIT_PER_SEC": 12_500_000,
            "NET_BW_IGR_KILOBIT_PER_SEC": 12_500_000,
        }
        assert totals(layout, "_0000:80:00.1") == {}

    def test_offloads_nobody_told_are_neither_present_nor_absent(self) -> None:
        facts = nic_host()
        rdma = replace(facts.nics[0], rdma=True)
        told = replace(facts.nics[1], features=("rx", "tx"))
        layout = lay_out("host1", replace(facts, nics=(rdma, told)), self.NESTED)
        first, second = named(layout, PF0), named(layout, "_0000:80:00.1")
        assert "HW_NIC_OFFLOAD_RDMA" in first.traits
        assert "HW_NIC_OFFLOAD_SWITCHDEV" in first.absent_traits
        assert "HW_NIC_OFFLOAD_TSO" not in first.traits | first.absent_traits
        assert {"HW_NIC_OFFLOAD_RX", "HW_NIC_OFFLOAD_TX"} <= second.traits
        assert "HW_NIC_OFFLOAD_TSO" in second.absent_traits

    def test_cards_that_claim_the_same_mac_have_keys_of_their_own(self) -> None:
        facts = fake_topology("host1", replace(NOTHING, nics=2))
        cards = tuple(replace(card, mac="02:00:00:00:00:01") for card in facts.nic_cards)
        layout = lay_out("host1", replace(facts, nic_cards=cards), self.NESTED)
        assert len({p.key for p in layout.providers}) == len(layout.providers)


class TestPci:
    """Devices that guests get whole."""

    def test_functions_of_a_port_are_counted_on_the_port(self) -> None:
        options = LayoutOptions(pci=pci(product_id="1889"))
        layout = lay_out("host1", nic_host(vfs_per_pf=4), options)
        assert devices(layout) == [PF0, "_0000:80:00.1"]
        assert totals(layout, PF0) == {"CUSTOM_PCI_8086_1889": 4}
        assert "COMPUTE_MANAGED_PCI_DEVICE" in named(layout, PF0).traits

    def test_a_function_is_not_counted_as_pci_device_and_as_network_function(self) -> None:
        options = LayoutOptions(nested=True, pci=pci(product_id="1889", address="*:80:00.[01]"))
        layout = lay_out("host1", nic_host(vfs_per_pf=4), options)
        counted = sum(sum(totals(layout, name).values()) for name in (PF0, "_0000:80:00.1"))
        assert counted == 8

    def test_a_port_given_whole_counts_no_functions(self) -> None:
        options = LayoutOptions(nested=True, pci=pci(product_id="1593"))
        layout = lay_out("host1", nic_host(), options)
        assert totals(layout, PF0) == {"CUSTOM_PCI_8086_1593": 1}
        assert "CUSTOM_VNIC_TYPE_DIRECT_PHYSICAL" in named(layout, PF0).traits

    @pytest.mark.parametrize(
        ("entries", "reason"),
        [
            ([{"vendor_id": "8086"}], "either passed whole"),
            (
                [
                    {"address": "0001:80:00.0", "resource_class": "A"},
                    {"product_id": "1889", "resource_class": "B"},
                ],
                "different classes",
            ),
            ([{"product_id": "1889", "one_time_use": "yes"}], "one_time_use"),
        ],
    )
    def test_a_contradiction_is_an_error_and_leaves_the_device_out(
        self, entries: list[dict[str, Any]], reason: str
    ) -> None:
        specs = parse_device_specs([json.dumps(entries)], report=True)
        layout = lay_out("host1", nic_host(), LayoutOptions(pci=PciOptions(True, specs)))
        assert any(reason in error for error in layout.errors)
        assert PF0 not in devices(layout)

    @pytest.mark.parametrize(
        "entry",
        [
            {"product_id": "1889", "physical_network": "physnet0"},
            {"product_id": "1889", "remote_managed": "true"},
        ],
    )
    def test_devices_that_belong_to_ports_are_not_counted(self, entry: dict[str, Any]) -> None:
        assert devices(lay_out("host1", nic_host(), LayoutOptions(pci=pci(**entry)))) == []

    def test_nothing_is_counted_unless_reporting_is_on(self) -> None:
        options = LayoutOptions(pci=replace(pci(product_id="1889"), report=False))
        assert devices(lay_out("host1", nic_host(), options)) == []


class TestMemoryEncryption:
    """Contexts for encrypted guests."""

    @staticmethod
    def providers(facts: MemoryEncryption, tdx: int | None = None) -> dict[str, WantedProvider]:
        topology = replace(fake_topology("host1", NOTHING), memory_encryption=facts)
        layout = lay_out("host1", topology, LayoutOptions(tdx_guests=tdx))
        return {p.name: p for p in layout.children}

    def test_each_kind_has_a_provider_with_one_context_per_guest(self) -> None:
        found = self.providers(
            MemoryEncryption(amd_sev=True, amd_sev_es=True, capacity=(("sev", 400), ("sev_es", 99)))
        )
        assert list(found) == ["host1_amd_sev", "host1_amd_sev_es"]
        record = found["host1_amd_sev"].inventory["MEM_ENCRYPTION_CONTEXT"]
        assert (record.total, record.max_unit) == (400, 1)
        assert found["host1_amd_sev_es"].traits == {"HW_CPU_X86_AMD_SEV_ES"}

    def test_where_snp_is_there_es_is_not_offered(self) -> None:
        facts = MemoryEncryption(amd_sev_es=True, amd_sev_snp=True, capacity=(("sev_es", 99),))
        assert list(self.providers(facts)) == ["host1_amd_sev_snp"]

    def test_a_kind_without_contexts_has_no_provider(self) -> None:
        assert not self.providers(MemoryEncryption(amd_sev=True))

    def test_the_operators_number_of_tdx_guests_goes_before_the_kernels(self) -> None:
        facts = MemoryEncryption(intel_tdx=True, capacity=(("tdx", 30),))
        total = {
            tdx: self.providers(facts, tdx)["host1_intel_tdx"]
            .inventory["MEM_ENCRYPTION_CONTEXT"]
            .total
            for tdx in (None, 12)
        }
        assert total == {None: 30, 12: 12}
