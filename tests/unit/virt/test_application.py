"""A layout meets the tree that placement has: adoption, ratios, what is held, what is others'."""

from __future__ import annotations

import json
import uuid as uuidlib

import pytest
from msgspec.structs import replace

from compute_agent.discovery.facts import HostTopology, PciAddress
from compute_agent.provider_tree import child_uuid
from compute_agent.virt.fake.topology import MDEV_TYPE, MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.layout.device_spec import parse_device_specs
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions, PciOptions, Ratio

from .hosts import NAME, ROOT, Host, content, reported

SIZE = MachineSize(cells=2, cpus_per_cell=4, memory_mib_per_cell=8192, gpus=2, nics=1)
VGPU = GpuOptions(mdev_types=(MdevTypeOptions(MDEV_TYPE),))
NESTED = LayoutOptions(is_nested=True, gpu=VGPU)
FLAT = LayoutOptions(gpu=VGPU)
GPU0, GPU1 = "_pci_0000_20_00_0", "_pci_0000_21_00_0"


def machine(**size: int) -> HostTopology:
    return fake_topology(NAME, replace(SIZE, **size))


def without_gpu(host: Host, number: int) -> None:
    gpus = host.driver.machine.gpus
    host.change_machine(gpus=gpus[:number] + gpus[number + 1 :])


class TestIdentity:
    """Which provider of placement is which of the layout."""

    def test_a_provider_lost_in_placement_comes_back_under_its_old_uuid(self) -> None:
        host = Host(machine(), NESTED)
        before = {p.name: p.uuid for p in content(host.update())}
        host.tree.remove(f"{NAME}_NUMA0")
        assert {p.name: p.uuid for p in content(host.update())} == before
        assert before[f"{NAME}_NUMA0"] == child_uuid(ROOT, "numa:0")

    @pytest.mark.parametrize(("theirs", "ours"), [("_NUMA0", "_NUMA0"), ("_0000:20:00.0", GPU0)])
    def test_what_another_service_made_is_adopted_by_its_name_or_by_its_address_and_renamed(
        self, theirs: str, ours: str
    ) -> None:
        host = Host(machine(), NESTED)
        uuid = str(uuidlib.uuid4())
        host.tree.new_child(f"{NAME}{theirs}", ROOT, uuid, 7)
        number = len(reported(machine(), NESTED).names())
        host.update()
        assert host.provider(ours).uuid == uuid
        assert "OWNER_NOVA" in host.provider(ours).traits
        assert len(host.names()) == number

    def test_a_provider_of_another_owner_is_not_adopted(self) -> None:
        host = Host(machine(), NESTED)
        theirs = str(uuidlib.uuid4())
        host.tree.new_child(f"{NAME}{GPU0}", ROOT, theirs, 7)
        host.tree.add_traits(theirs, "OWNER_CYBORG")
        before = host.tree.data(theirs)
        host.update()
        assert host.tree.data(theirs) == before
        ours = [p for p in content(host.tree) if p.name.startswith(f"{NAME}{GPU0}~")]
        assert [p.inventory["VGPU"]["total"] for p in ours] == [4]

    @pytest.mark.parametrize(
        ("name", "owners", "goes"),
        [
            ("_NUMA7", ["OWNER_NOVA"], True),
            ("_NUMA7", [], False),
            ("_NUMA7", ["OWNER_NOVA", "OWNER_CYBORG"], False),
            ("_accelerator", ["OWNER_NOVA"], False),
        ],
    )
    def test_only_what_a_layout_made_is_taken_away(
        self, name: str, owners: list[str], goes: bool
    ) -> None:
        host = Host(machine(), NESTED)
        host.update()
        uuid = str(uuidlib.uuid4())
        host.tree.new_child(f"{NAME}{name}", ROOT, uuid, 7)
        host.tree.add_traits(uuid, *owners)
        host.update()
        assert host.tree.exists(uuid) is not goes

    def test_a_gpu_moved_to_another_slot_keeps_its_provider(self) -> None:
        host = Host(machine(gpus=1), NESTED)
        uuid = [p.uuid for p in content(host.update()) if p.name == f"{NAME}{GPU0}"]
        gpu = replace(host.driver.machine.gpus[0], address=PciAddress("0000:c4:00.0"))
        host.change_machine(gpus=(replace(gpu, numa_node=host.driver.machine.cells[1].id),))
        host.update()
        assert host.provider("_pci_0000_c4_00_0").uuid == uuid[0]
        assert host.parent_name("_pci_0000_c4_00_0") == "_NUMA1"
        assert not host.exists(GPU0)

    def test_a_card_in_the_slot_that_another_left_gets_a_provider_of_its_own(self) -> None:
        host = reported(machine(gpus=1), NESTED)
        uuid = host.provider(GPU0).uuid
        (gpu,) = host.driver.machine.gpus
        moved_gpu = replace(gpu, address=PciAddress("0000:c4:00.0"))
        host.change_machine(gpus=(replace(gpu, uuid="GPU-ffff"), moved_gpu))
        host.update()
        assert host.provider("_pci_0000_c4_00_0").uuid == uuid
        assert host.provider(GPU0).uuid != uuid

    def test_a_card_in_the_slot_of_one_that_is_gone_keeps_its_own_provider(self) -> None:
        host = reported(machine(), NESTED)
        uuid = host.provider(GPU0).uuid
        moved_gpu, gone_gpu = host.driver.machine.gpus
        host.change_machine(gpus=(replace(moved_gpu, address=gone_gpu.address),))
        host.update()
        assert [p.uuid for p in content(host.tree) if "_pci_" in p.name] == [uuid]

    def test_a_provider_without_an_address_is_not_adopted_for_a_cell(self) -> None:
        host = Host(machine(), NESTED)
        theirs = str(uuidlib.uuid4())
        host.tree.new_child(f"{NAME}:NIC Switch agent", ROOT, theirs, 7)
        host.update()
        assert host.provider(":NIC Switch agent").uuid == theirs
        assert host.provider("_NUMA0").uuid != theirs

    def test_a_card_put_in_the_place_of_a_broken_one_takes_over_its_provider(self) -> None:
        host = reported(machine(gpus=1), NESTED)
        uuid = host.provider(GPU0).uuid
        gpu = replace(host.driver.machine.gpus[0], uuid="GPU-ffff", model="Other B200")
        host.change_machine(gpus=(gpu,))
        host.update()
        assert host.provider(GPU0).uuid == uuid

    def test_a_moved_device_is_re_parented_without_a_reshape(self) -> None:
        host = reported(machine(), NESTED)
        uuid = host.provider(GPU0).uuid
        host.change(gpu=replace(VGPU, numa_node_override={PciAddress("0000:20:00.0"): 1}))
        host.update()
        assert (host.provider(GPU0).uuid, host.parent_name(GPU0)) == (uuid, "_NUMA1")


class TestRatios:
    """Precedence: option, else what placement has, else the initial one."""

    @pytest.mark.parametrize(
        ("fixed", "stored", "expected"),
        [
            (None, None, 4.0),
            (None, 9.0, 9.0),
            (0.0, 9.0, 9.0),
            (2.0, 9.0, 2.0),
            (2.0, None, 2.0),
        ],
    )
    @pytest.mark.parametrize("nested", [False, True])
    def test_the_ratio_in_force(
        self, nested: bool, fixed: float | None, stored: float | None, expected: float
    ) -> None:
        host = Host(machine(), replace(NESTED, is_nested=nested))
        name = "_NUMA1" if nested else ""
        if stored is not None:
            host.update()
            inventory = host.provider(name).inventory
            record = {**inventory["VCPU"], "allocation_ratio": stored}
            host.tree.update_inventory(f"{NAME}{name}", {**inventory, "VCPU": record})
        ratios = {**NESTED.ratios, "VCPU": Ratio(fixed, 4.0)}
        host.change(ratios=ratios)
        host.update()
        assert host.provider(name).inventory["VCPU"]["allocation_ratio"] == expected


class TestHeld:
    """What disappears while somebody holds it."""

    def test_a_missing_device_that_comes_back_is_given_out_again(self) -> None:
        host = Host(machine(), NESTED)
        before = content(host.update())
        whole = host.driver.machine
        host.holds({GPU0: {"VGPU": 3}})
        without_gpu(host, 0)
        host.update()
        host.driver.machine = whole
        assert {p.uuid: p for p in content(host.update())} == {p.uuid: p for p in before}

    def test_a_class_that_is_held_stays_when_its_device_offers_it_no_more(self) -> None:
        host = reported(machine(), NESTED)
        host.holds({GPU0: {"VGPU": 2}})
        bare = tuple(replace(gpu, mdev_types=()) for gpu in host.driver.machine.gpus)
        host.change_machine(gpus=bare)
        host.update()
        assert host.totals(GPU0) == {"VGPU": 2}
        assert host.totals(GPU1) == {}

    def test_a_total_may_fall_below_what_is_held(self) -> None:
        host = reported(machine(), NESTED)
        host.holds({"_NUMA0": {"MEMORY_MB": 8000}})
        cells = host.driver.machine.cells
        host.change_machine(cells=(replace(cells[0], memory_kib=4096 * 1024), *cells[1:]))
        host.update()
        assert host.totals("_NUMA0")["MEMORY_MB"] == 4096

    def test_what_is_kept_is_said_once_per_change(self, caplog: pytest.LogCaptureFixture) -> None:
        host = reported(machine(), NESTED)
        host.holds({GPU0: {"VGPU": 3}})
        without_gpu(host, 0)
        host.update()
        host.update()
        assert caplog.text.count("no longer has VGPU") == 1
        host.holds({GPU0: {"VGPU": 2}})
        host.update()
        assert caplog.text.count("no longer has VGPU") == 2

    def test_nothing_is_asked_while_nothing_is_taken_away(self) -> None:
        host = reported(machine(), NESTED)
        asked: list[str] = []
        host.driver.usage_source = lambda uuid: asked.append(uuid) or {}  # type: ignore[func-returns-value]
        host.update()
        assert asked == []

    def test_a_cell_that_is_gone_keeps_what_others_hung_below_it(self) -> None:
        host = reported(machine(), NESTED)
        host.tree.new_child("accelerator", f"{NAME}_NUMA1", generation=4)
        host.change_machine(cells=host.driver.machine.cells[:1])
        host.update()
        assert host.parent_name("accelerator") == "_NUMA1"
        assert host.totals("_NUMA1") == {}


class TestOthers:
    """What is not the driver's stays as it is."""

    def test_a_custom_trait_in_the_place_of_ours_goes_only_where_it_is_ours(self) -> None:
        host = reported(machine(), NESTED)
        host.tree.add_traits(
            f"{NAME}{GPU0}", "CUSTOM_MDEV_OLD", "CUSTOM_GPU_POOL_A", "CUSTOM_GPU_FAKE_B99"
        )
        host.update()
        traits = host.provider(GPU0).traits
        assert "CUSTOM_GPU_POOL_A" in traits
        assert not traits & {"CUSTOM_MDEV_OLD", "CUSTOM_GPU_FAKE_B99"}

    def test_a_trait_of_hardware_the_host_lacks_is_taken_off(self) -> None:
        host = reported(machine(), FLAT)
        host.tree.add_traits(ROOT, "HW_CPU_X86_SGX", "HW_ARCH_AARCH64", "COMPUTE_TRUSTED_CERTS")
        host.update()
        traits = host.provider().traits
        assert not traits & {"HW_CPU_X86_SGX", "HW_ARCH_AARCH64"}
        assert "COMPUTE_TRUSTED_CERTS" in traits


class TestSharedDisk:
    """Disk that a sharing provider gives."""

    def share(self, host: Host) -> None:
        pool, aggregate = str(uuidlib.uuid4()), str(uuidlib.uuid4())
        host.tree.new_root("pool", pool, 5)
        host.tree.update_inventory(pool, {"DISK_GB": {"total": 10_000}})
        host.tree.add_traits(pool, "MISC_SHARES_VIA_AGGREGATE")
        host.tree.update_aggregates(pool, [aggregate])
        host.tree.update_aggregates(ROOT, [aggregate])

    def test_a_new_host_does_not_count_it_again(self) -> None:
        host = Host(machine(), FLAT)
        self.share(host)
        before = host.provider("pool")
        host.update()
        assert "DISK_GB" not in host.totals()
        assert host.provider("pool") == before

    def test_disk_of_the_host_goes_when_nobody_holds_it(self) -> None:
        host = reported(machine(), FLAT)
        self.share(host)
        host.holds({})
        host.update()
        assert "DISK_GB" not in host.totals()

    @pytest.mark.parametrize("known", [True, False])
    def test_disk_that_may_be_held_stays_with_an_error(
        self, known: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        host = reported(machine(), FLAT)
        self.share(host)
        if known:
            host.holds({"": {"DISK_GB": 20}})
        host.update()
        assert host.totals()["DISK_GB"] == 1024
        assert "counted twice" in caplog.text

    def test_a_pool_that_is_not_connected_to_the_root_changes_nothing(self) -> None:
        host = Host(machine(), FLAT)
        self.share(host)
        host.tree.update_aggregates(ROOT, [])
        host.update()
        assert "DISK_GB" in host.totals()


class TestReservedByOthers:
    """What operators and cleaning tools reserve of PCI devices."""

    CARD = "_0000:80:00.0"

    def host(self, **tags: str) -> Host:
        specs = parse_device_specs([json.dumps({"product_id": "1593", **tags})], report=True)
        return reported(machine(), LayoutOptions(pci=PciOptions(True, specs)))

    def reserved(self, host: Host) -> float:
        return host.provider(self.CARD).inventory["CUSTOM_PCI_8086_1593"]["reserved"]

    def reserve(self, host: Host, amount: int) -> None:
        name = f"{NAME}{self.CARD}"
        record = {**host.provider(self.CARD).inventory["CUSTOM_PCI_8086_1593"], "reserved": amount}
        host.tree.update_inventory(name, {"CUSTOM_PCI_8086_1593": record})

    def test_an_operators_reserve_stays(self) -> None:
        host = self.host()
        assert self.reserved(host) == 0
        self.reserve(host, 1)
        host.update()
        assert self.reserved(host) == 1

    def test_a_one_time_device_is_reserved_once_it_was_given_out_and_stays_so(self) -> None:
        host = self.host(one_time_use="true")
        host.update()
        assert self.reserved(host) == 0
        host.holds({self.CARD: {"CUSTOM_PCI_8086_1593": 1}})
        host.update()
        assert self.reserved(host) == 1
        host.holds({})
        host.update()
        assert self.reserved(host) == 1

    def test_a_one_time_device_is_given_out_again_once_it_was_cleaned(self) -> None:
        host = self.host(one_time_use="true")
        self.reserve(host, 1)
        host.update()
        self.reserve(host, 0)
        host.holds({})
        host.update()
        assert self.reserved(host) == 0

    def test_a_missing_device_that_comes_back_is_not_taken_for_reserved(self) -> None:
        host = self.host()
        host.holds({self.CARD: {"CUSTOM_PCI_8086_1593": 1}})
        devices = host.driver.machine.pci_devices
        host.change_machine(pci_devices=())
        host.update()
        assert self.reserved(host) == 1
        host.change_machine(pci_devices=devices)
        host.update()
        assert self.reserved(host) == 0
