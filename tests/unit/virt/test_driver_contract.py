"""The contract with drivers, shown for every driver there is."""

from __future__ import annotations

import uuid as uuidlib
from collections.abc import Callable

import pytest

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.virt import fake
from compute_agent.virt.driver import ComputeDriver
from compute_agent.virt.loading import load_driver

from .conftest import MakeConf
from .hosts import content

NAMES = ["host.HostDriver", *(f"fake.{name}" for name in fake.__all__)]
ROOT = "5a0c8d2c-6b0a-4e0e-8a53-3b3e9d9e6c11"
AGGREGATE = "0f3b5f0e-7d6b-4c3d-9a64-0d1f2b7a8c11"

EXTRA = {
    "host.HostDriver": """
        [host]
        sysfs_root = tests/data/two-cells/sys
        procfs_root = tests/data/two-cells/proc
        [compute]
        enable_numa_reporting_to_placement = True
        [devices]
        enabled_mdev_types = nvidia-222
        """,
    # a node that fails has tests of their own
    "fake.FakeMisbehavingDriver": "[fake]\nfailing_call = 1000\n",
    "fake.FakeDriverWithPciResources": """
        [pci]
        report_in_placement = True
        device_spec = {"product_id": "1889"}
        """,
}

MakeDriver = Callable[[str], ComputeDriver]


@pytest.fixture
def make_driver(make_conf: MakeConf) -> MakeDriver:
    def make(name: str) -> ComputeDriver:
        driver = load_driver(name, make_conf(EXTRA.get(name, "")))
        driver.init_host("host1")
        return driver

    return make


def new_tree(driver: ComputeDriver) -> tuple[ProviderTree, str]:
    node = driver.get_available_nodes()[0]
    tree = ProviderTree()
    tree.new_root(node, ROOT, generation=1)
    return tree, node


def reported(driver: ComputeDriver) -> tuple[ProviderTree, str]:
    tree, node = new_tree(driver)
    driver.update_provider_tree(tree, node)
    return tree, node


@pytest.mark.parametrize("name", NAMES)
class TestEveryDriver:
    def test_reports_inventory_within_what_placement_can_store(
        self, make_driver: MakeDriver, name: str
    ) -> None:
        tree, _node = reported(make_driver(name))
        records = [r for p in content(tree) for r in p.inventory.values()]
        assert records
        for record in records:
            assert 1 <= record["total"] <= 2147483647
            assert 0 <= record["reserved"] <= record["total"]
            assert 1 <= record["min_unit"] <= record["max_unit"] <= record["total"]

    def test_changes_nothing_on_a_second_call(self, make_driver: MakeDriver, name: str) -> None:
        driver = make_driver(name)
        tree, node = reported(driver)
        before = content(tree)
        driver.update_provider_tree(tree, node)
        assert content(tree) == before

    def test_gives_the_same_tree_in_the_same_order_again(
        self, make_driver: MakeDriver, name: str
    ) -> None:
        driver = make_driver(name)
        assert content(reported(driver)[0]) == content(reported(driver)[0])

    def test_leaves_foreign_providers_alone(self, make_driver: MakeDriver, name: str) -> None:
        driver = make_driver(name)
        tree, node = reported(driver)
        last = tree.get_provider_uuids(ROOT)[-1]
        agent = tree.new_child(f"{node}:NIC Switch agent", ROOT, str(uuidlib.uuid4()), 3)
        port = tree.new_child(f"{node}:NIC Switch agent:ens1", agent, str(uuidlib.uuid4()), 3)
        accelerator = tree.new_child("fpga-1", last, str(uuidlib.uuid4()), 3)
        tree.update_inventory(port, {"NET_BW_EGR_KILOBIT_PER_SEC": {"total": 1000}})
        tree.add_traits(accelerator, "OWNER_CYBORG", "CUSTOM_FPGA")
        before = [tree.data(uuid) for uuid in (agent, port, accelerator)]
        driver.update_provider_tree(tree, node)
        assert [tree.data(uuid) for uuid in (agent, port, accelerator)] == before

    def test_keeps_traits_and_aggregates_that_others_set(
        self, make_driver: MakeDriver, name: str
    ) -> None:
        driver = make_driver(name)
        tree, node = reported(driver)
        for uuid in tree.get_provider_uuids():
            tree.add_traits(uuid, "CUSTOM_OPERATORS", "COMPUTE_NODE")
            tree.add_aggregates(uuid, AGGREGATE)
        before = content(tree)
        driver.update_provider_tree(tree, node)
        assert content(tree) == before

    def test_leaves_sharing_providers_alone(self, make_driver: MakeDriver, name: str) -> None:
        driver = make_driver(name)
        tree, node = new_tree(driver)
        pool = tree.new_root("nfs", str(uuidlib.uuid4()), 9)
        tree.add_traits(pool, "MISC_SHARES_VIA_AGGREGATE")
        tree.update_inventory(pool, {"DISK_GB": {"total": 10}})
        tree.add_aggregates(pool, AGGREGATE)
        tree.add_aggregates(ROOT, AGGREGATE)
        before = tree.data(pool)
        driver.update_provider_tree(tree, node)
        assert tree.data(pool) == before

    def test_accepts_allocations_when_nothing_has_to_move(
        self, make_driver: MakeDriver, name: str
    ) -> None:
        driver = make_driver(name)
        tree, node = reported(driver)
        before = content(tree)
        allocations = {
            str(uuidlib.uuid4()): {
                "allocations": {
                    str(uuidlib.uuid4()): {"generation": 1, "resources": {"VCPU": 1}},
                },
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": 1,
            }
        }
        untouched = repr(allocations)
        driver.update_provider_tree(tree, node, allocations=allocations)
        assert repr(allocations) == untouched
        assert content(tree) == before

    def test_keeps_a_root_ratio_that_an_operator_set(
        self, make_driver: MakeDriver, name: str
    ) -> None:
        driver = make_driver(name)
        tree, node = reported(driver)
        changed = []
        for provider in content(tree):
            if "VCPU" in provider.inventory:
                record = {**provider.inventory["VCPU"], "allocation_ratio": 7.5}
                tree.update_inventory(provider.uuid, {**provider.inventory, "VCPU": record})
                changed.append(provider.uuid)
        driver.update_provider_tree(tree, node)
        ratios = [tree.data(u).inventory["VCPU"]["allocation_ratio"] for u in changed]
        assert ratios == [7.5] * len(changed)

    def test_gives_the_facts_the_tracker_needs(self, make_driver: MakeDriver, name: str) -> None:
        driver = make_driver(name)
        node = driver.get_available_nodes()[0]
        facts = driver.get_available_resource(node)
        mandatory = (
            "hypervisor_hostname hypervisor_type hypervisor_version vcpus vcpus_used memory_mb "
            "memory_mb_used local_gb local_gb_used cpu_info numa_topology"
        )
        assert set(mandatory.split()) <= facts.keys()
        assert facts["hypervisor_hostname"] == node
        if driver.several_nodes:
            assert driver.get_nodenames_by_uuid()[facts["uuid"]] == node

    def test_does_not_know_a_node_it_does_not_have(
        self, make_driver: MakeDriver, name: str
    ) -> None:
        driver = make_driver(name)
        assert not driver.node_is_available("elsewhere")
        with pytest.raises(errors.ComputeHostNotFound, match="elsewhere"):
            driver.get_available_resource("elsewhere")

    def test_names_only_traits_placement_knows(self, make_driver: MakeDriver, name: str) -> None:
        import os_traits

        driver = make_driver(name)
        tree, _node = reported(driver)
        traits = {t for p in content(tree) for t in p.traits} | set(driver.capabilities_as_traits())
        custom = {t for t in traits if t.startswith("CUSTOM_")}
        assert traits - custom <= set(os_traits.get_traits())
