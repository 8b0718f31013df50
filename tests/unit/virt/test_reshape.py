"""Inventory moves to its new place and takes what is held of it along."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.discovery.facts import Mdev, MdevType, PciAddress
from compute_agent.provider_tree import child_uuid
from compute_agent.virt.driver import CellUse, InstanceDevices, MdevUse
from compute_agent.virt.fake.topology import MDEV_TYPE
from compute_agent.virt.layout.options import Ratio
from tests.fixtures.allocations import amounts_of

from .hosts import NAME, ROOT, Host, consumer, content, reported
from .reshaped_machine import (
    ELSEWHERE,
    FLAT,
    GPU0,
    HALF_DEDICATED,
    VGPU,
    machine,
    root_with,
    sriov_machine,
)

CELL0, CELL1 = child_uuid(ROOT, "numa:0"), child_uuid(ROOT, "numa:1")
PAGES1 = child_uuid(ROOT, "pages:1:2048")


def flat_host(**options: Any) -> Host:
    return reported(machine(), replace(FLAT, **options))


class TestFlatToNested:
    def test_the_tree_is_left_alone_when_a_reshape_is_needed(self) -> None:
        host = flat_host()
        host.change(is_nested=True)
        tree = host.tree.snapshot()
        with pytest.raises(errors.ReshapeNeeded, match="VCPU, MEMORY_MB move from host1"):
            host.driver.update_provider_tree(tree, NAME)
        assert content(tree) == content(host.tree)

    def test_consumers_move_to_cells_and_the_root_keeps_the_disk(self) -> None:
        host = flat_host()
        host.change(is_nested=True)
        after = host.checked_reshape(
            {
                "small": consumer(**{ROOT: {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 10}}),
                "large": consumer(**{ROOT: {"VCPU": 4, "MEMORY_MB": 6000}}),
            },
        )
        assert amounts_of(after["large"]) == {CELL0: {"VCPU": 4, "MEMORY_MB": 6000}}
        assert amounts_of(after["small"]) == {
            ROOT: {"DISK_GB": 10},
            CELL0: {"VCPU": 1, "MEMORY_MB": 512},
        }
        assert host.totals() == {"DISK_GB": 1024}

    def test_a_consumer_larger_than_a_cell_is_split(self) -> None:
        host = flat_host()
        host.change(is_nested=True)
        after = host.checked_reshape({"huge": consumer(**{ROOT: {"VCPU": 8, "MEMORY_MB": 12000}})})
        assert amounts_of(after["huge"]) == {
            CELL0: {"VCPU": 4, "MEMORY_MB": 6000},
            CELL1: {"VCPU": 4, "MEMORY_MB": 6000},
        }

    def test_a_guest_is_followed_to_its_cells(self) -> None:
        host = flat_host()
        host.change(is_nested=True)
        host.driver.guests["a"] = InstanceDevices(cells=(CellUse(0, 1, 100), CellUse(1, 1, 300)))
        host.driver.guests["b"] = InstanceDevices(pinned_cpus=(4, 5))
        after = host.checked_reshape(
            {
                "a": consumer(**{ROOT: {"VCPU": 2, "MEMORY_MB": 400}}),
                "b": consumer(**{ROOT: {"VCPU": 2, "MEMORY_MB": 100}}),
            },
        )
        assert amounts_of(after["a"]) == {
            CELL0: {"VCPU": 1, "MEMORY_MB": 100},
            CELL1: {"VCPU": 1, "MEMORY_MB": 300},
        }
        assert amounts_of(after["b"]) == {CELL1: {"VCPU": 2, "MEMORY_MB": 100}}

    def test_memory_of_a_guest_in_huge_pages_moves_to_the_pages(self) -> None:
        host = flat_host()
        host.change(is_nested=True)
        host.driver.guests["a"] = InstanceDevices(cells=(CellUse(1, 2, 512),), page_size_kib=2048)
        after = host.checked_reshape({"a": consumer(**{ROOT: {"VCPU": 2, "MEMORY_MB": 512}})})
        assert amounts_of(after["a"]) == {CELL1: {"VCPU": 2}, PAGES1: {"MEMORY_MB": 512}}

    def test_the_cells_take_the_ratio_of_the_root(self) -> None:
        host = flat_host()
        inventory = host.provider().inventory
        vcpu = {**inventory["VCPU"], "allocation_ratio": 16.0}
        host.tree.update_inventory(ROOT, {**inventory, "VCPU": vcpu})
        host.change(is_nested=True)
        after = host.checked_reshape({"a": consumer(**{ROOT: {"VCPU": 4, "MEMORY_MB": 1}})})
        assert amounts_of(after["a"]) == {CELL0: {"VCPU": 4, "MEMORY_MB": 1}}
        assert host.provider("_NUMA1").inventory["VCPU"]["allocation_ratio"] == 16.0

    def test_allocations_elsewhere_and_what_else_a_record_says_stay(self) -> None:
        host = flat_host()
        host.change(is_nested=True)
        moving = consumer(**{ROOT: {"VCPU": 1, "MEMORY_MB": 1}, ELSEWHERE: {"DISK_GB": 5}})
        foreign = consumer(**{ELSEWHERE: {"VCPU": 3}})
        after = host.checked_reshape({"a": moving, "b": foreign})
        assert after["b"] == foreign
        assert after["a"]["allocations"][ELSEWHERE] == moving["allocations"][ELSEWHERE]
        assert {k: v for k, v in after["a"].items() if k != "allocations"} == {
            k: v for k, v in moving.items() if k != "allocations"
        }

    def test_devices_keep_their_providers_and_get_other_parents(self) -> None:
        host = flat_host()
        uuid = host.provider("_pci_0000_21_00_0").uuid
        host.change(is_nested=True)
        after = host.checked_reshape({"a": consumer(**{uuid: {"VGPU": 1}})})
        assert amounts_of(after["a"]) == {uuid: {"VGPU": 1}}
        assert host.parent_name("_pci_0000_21_00_0") == "_NUMA1"

    def test_all_consumers_without_room_are_named_with_what_is_missing(self) -> None:
        host = flat_host(ratios={**FLAT.ratios, "VCPU": Ratio(1.0)})
        host.change(is_nested=True)
        allocations = {
            "a": consumer(**{ROOT: {"VCPU": 8, "MEMORY_MB": 15000}}),
            "b": consumer(**{ROOT: {"VCPU": 1, "MEMORY_MB": 1}}),
        }
        with pytest.raises(errors.ReshapeFailed) as caught:
            host.reshape(allocations)
        assert "consumer a lacks 664 MEMORY_MB" in caught.value.error
        assert "consumer b" not in caught.value.error


class TestNestedToFlat:
    def test_a_cell_below_which_others_hung_something_stays_without_inventory(self) -> None:
        host = reported(machine(), replace(FLAT, is_nested=True))
        host.tree.new_child("fpga", CELL1, generation=1)
        host.change(is_nested=False)
        host.reshape({})
        assert host.parent_name("fpga") == "_NUMA1"
        assert host.totals("_NUMA1") == {}
        assert not host.exists("_NUMA0")
        before = content(host.tree)
        assert content(host.update()) == before


class TestDedicatedCpus:
    def test_without_pinned_guests_none_is_needed(self) -> None:
        host = flat_host()
        host.driver.guests["floating"] = InstanceDevices()
        host.change(cpu_sets=HALF_DEDICATED)
        host.update()
        assert host.totals()["PCPU"] == 4

    def test_they_become_pcpus_of_their_cells_in_the_same_reshape(self) -> None:
        host = flat_host()
        host.driver.guests["pinned"] = InstanceDevices(pinned_cpus=(3, 6))
        host.change(cpu_sets=HALF_DEDICATED, is_nested=True)
        after = host.checked_reshape({"pinned": consumer(**{ROOT: {"VCPU": 2, "MEMORY_MB": 100}})})
        assert amounts_of(after["pinned"]) == {
            CELL0: {"PCPU": 1, "MEMORY_MB": 50},
            CELL1: {"PCPU": 1, "MEMORY_MB": 50},
        }


class TestVgpus:
    @pytest.mark.parametrize(
        ("mdevs", "held", "said"),
        [
            ((MdevUse("u1", GPU0), MdevUse("u2", GPU0)), 1, "consumer guest-1 holds 1 VGPU"),
            ((MdevUse("u", PciAddress("x")),), 1, "consumer guest-1 holds 1 VGPU"),
            ((), 99, "and no GPU of this host has room"),
            (None, 1, "consumer guest-1"),
        ],
        ids=["more devices", "devices of no GPU", "more than all GPUs have", "no guest here"],
    )
    def test_a_consumer_whose_vgpus_have_no_place_is_named(
        self, mdevs: tuple[MdevUse, ...] | None, held: int, said: str
    ) -> None:
        host = flat_host()
        root_with(host, "VGPU", 99)
        if mdevs is not None:
            host.driver.guests["guest-1"] = InstanceDevices(mdevs=mdevs)
        with pytest.raises(errors.ReshapeFailed, match=said):
            host.reshape({"guest-1": consumer(**{ROOT: {"VGPU": held}})})

    @pytest.mark.parametrize("why", ["stopped", "a migration", "a driver that lists no guests"])
    def test_who_shows_no_device_goes_to_the_gpu_with_most_free(
        self, why: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host = flat_host()
        root_with(host, "VGPU", 8)
        unseen = consumer(**{ROOT: {"VGPU": 2, "VCPU": 1}})
        before = {"unseen": unseen}
        if why == "stopped":
            host.driver.guests["unseen"] = InstanceDevices()
        elif why == "a migration":
            unseen["consumer_type"] = "MIGRATION"
        if why == "a driver that lists no guests":
            monkeypatch.setattr(type(host.driver), "list_instance_uuids", lambda _self: None)
        else:
            host.driver.guests["seen"] = InstanceDevices(mdevs=(MdevUse("u1", GPU0),))
            before["seen"] = consumer(**{ROOT: {"VGPU": 1}})
        after = host.checked_reshape(before)
        gpu0, gpu1 = (host.provider(f"_pci_0000_2{i}_00_0").uuid for i in (0, 1))
        held = amounts_of(after["unseen"])
        assert held.pop(ROOT) == {"VCPU": 1}
        if "seen" in after:
            assert amounts_of(after["seen"]) == {gpu0: {"VGPU": 1}}
            assert held == {gpu1: {"VGPU": 2}}
        else:
            assert held in ({gpu0: {"VGPU": 2}}, {gpu1: {"VGPU": 2}})

    def test_devices_that_no_guest_shows_are_those_of_the_unseen(self) -> None:
        """As sysfs shows them to a driver that lists no guests."""
        made = machine()
        existing = tuple(Mdev(MDEV_TYPE, f"u{number}") for number in range(3))
        types = (MdevType(MDEV_TYPE, available_instances=1),)
        gpus = (replace(made.gpus[0], mdevs=existing, mdev_types=types), *made.gpus[1:])
        host = reported(replace(made, gpus=gpus), FLAT)
        root_with(host, "VGPU", 8)
        host.driver.guests["seen"] = InstanceDevices(mdevs=(MdevUse("u0", GPU0),))
        host.driver.guests |= {"one": InstanceDevices(), "two": InstanceDevices()}
        amounts = {"one": 1, "seen": 1, "two": 2}
        after = host.checked_reshape(
            {name: consumer(**{ROOT: {"VGPU": amount}}) for name, amount in amounts.items()}
        )
        gpu0, gpu1 = (host.provider(f"_pci_0000_2{i}_00_0").uuid for i in (0, 1))
        places = {"one": gpu1, "seen": gpu0, "two": gpu0}
        assert {name: amounts_of(after[name]) for name in amounts} == {
            name: {places[name]: {"VGPU": amount}} for name, amount in amounts.items()
        }


class TestGpuFunctions:
    PER_VF = replace(FLAT, gpu=replace(VGPU, vf_providers="per_vf"))
    PER_PF = replace(FLAT, gpu=replace(VGPU, vf_providers="per_pf"))

    def test_back_to_one_per_function_where_the_devices_are(self) -> None:
        host = reported(sriov_machine(), self.PER_PF)
        gpu = host.provider("_pci_0000_20_00_0").uuid
        host.driver.guests["known"] = InstanceDevices(
            mdevs=(MdevUse("u", PciAddress("0000:20:00.1")),)
        )
        host.driver.options = self.PER_VF
        after = host.checked_reshape(
            {
                "known": consumer(**{gpu: {"VGPU": 1}}),
                "a-stranger": consumer(**{gpu: {"VGPU": 2}}),
            },
        )
        vf1, vf2, vf3 = (host.provider(f"_pci_0000_20_00_{i}").uuid for i in (1, 2, 3))
        assert amounts_of(after["known"]) == {vf1: {"VGPU": 1}}
        assert amounts_of(after["a-stranger"]) == {vf2: {"VGPU": 1}, vf3: {"VGPU": 1}}

    def test_more_held_than_there_are_functions_fails_naming_the_consumer(self) -> None:
        host = reported(sriov_machine(), self.PER_PF)
        gpu = host.provider("_pci_0000_20_00_0").uuid
        host.driver.options = self.PER_VF
        with pytest.raises(errors.ReshapeFailed, match="consumer a holds 1 more VGPU"):
            host.reshape({"a": consumer(**{gpu: {"VGPU": 4}})})
