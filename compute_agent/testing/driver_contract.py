"""The contract with drivers as tests, for drivers of this project and of others.

    from compute_agent.testing.driver_contract import DriverContract

    class TestMyDriver(DriverContract):
        driver = "mine.Driver"
        options = {"mine": {"size": 3}}

pytest and unittest's loaders run every method of it against the driver.
"""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from pathlib import Path
from typing import ClassVar, Final

import os_traits

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.provider import ProviderData
from compute_agent.testing.configuration import Options, configuration
from compute_agent.tracker.passes.node_pass import MANDATORY_FACTS
from compute_agent.virt.driver import ComputeDriver
from compute_agent.virt.loading import load_driver

_ROOT: Final = "5a0c8d2c-6b0a-4e0e-8a53-3b3e9d9e6c11"
_AGGREGATE: Final = "0f3b5f0e-7d6b-4c3d-9a64-0d1f2b7a8c11"


class DriverContract:
    """Tests that every driver passes, which has a node and something to report.

    :cvar driver: as `[DEFAULT]compute_driver` names it.
    :cvar options: values of options, by group and name.
    """

    driver: ClassVar[str]
    options: ClassVar[Options] = {}

    def make_driver(self) -> ComputeDriver:
        """Return a new driver that has been initialised; each test makes one or more."""
        directory = Path(tempfile.mkdtemp(prefix="driver-contract-"))
        defaults: Options = {"DEFAULT": {"host": "host1", "state_path": directory}}
        driver = load_driver(self.driver, configuration(directory, defaults, self.options))
        driver.init_host("host1")
        return driver

    def test_reports_inventory_within_what_placement_can_store(self) -> None:
        tree, _node = _reported(self.make_driver())
        records = [r for p in _content(tree) for r in p.inventory.values()]
        assert records
        for record in records:
            assert 1 <= record["total"] <= 2147483647
            assert 0 <= record["reserved"] <= record["total"]
            assert 1 <= record["min_unit"] <= record["max_unit"] <= record["total"]

    def test_changes_nothing_on_a_second_call(self) -> None:
        driver = self.make_driver()
        tree, node = _reported(driver)
        before = _content(tree)
        driver.update_provider_tree(tree, node)
        assert _content(tree) == before

    def test_gives_the_same_tree_in_the_same_order_again(self) -> None:
        driver = self.make_driver()
        assert _content(_reported(driver)[0]) == _content(_reported(driver)[0])

    def test_leaves_foreign_providers_alone(self) -> None:
        driver = self.make_driver()
        tree, node = _reported(driver)
        last = tree.get_provider_uuids(_ROOT)[-1]
        agent = tree.new_child(f"{node}:NIC Switch agent", _ROOT, str(uuid.uuid4()), 3)
        port = tree.new_child(f"{node}:NIC Switch agent:ens1", agent, str(uuid.uuid4()), 3)
        accelerator = tree.new_child("fpga-1", last, str(uuid.uuid4()), 3)
        tree.update_inventory(port, {"NET_BW_EGR_KILOBIT_PER_SEC": {"total": 1000}})
        tree.add_traits(accelerator, "OWNER_CYBORG", "CUSTOM_FPGA")
        before = [tree.data(provider_uuid) for provider_uuid in (agent, port, accelerator)]
        driver.update_provider_tree(tree, node)
        assert [tree.data(provider_uuid) for provider_uuid in (agent, port, accelerator)] == before

    def test_keeps_traits_and_aggregates_that_others_set(self) -> None:
        driver = self.make_driver()
        tree, node = _reported(driver)
        for provider_uuid in tree.get_provider_uuids():
            tree.add_traits(provider_uuid, "CUSTOM_OPERATORS", "COMPUTE_NODE")
            tree.add_aggregates(provider_uuid, _AGGREGATE)
        before = _content(tree)
        driver.update_provider_tree(tree, node)
        assert _content(tree) == before

    def test_leaves_sharing_providers_alone(self) -> None:
        driver = self.make_driver()
        tree, node = _new_tree(driver)
        pool = tree.new_root("nfs", str(uuid.uuid4()), 9)
        tree.add_traits(pool, "MISC_SHARES_VIA__AGGREGATE")
        tree.update_inventory(pool, {"DISK_GB": {"total": 10}})
        tree.add_aggregates(pool, _AGGREGATE)
        tree.add_aggregates(_ROOT, _AGGREGATE)
        before = tree.data(pool)
        driver.update_provider_tree(tree, node)
        assert tree.data(pool) == before

    def test_accepts_allocations_when_nothing_has_to_move(self) -> None:
        driver = self.make_driver()
        tree, node = _reported(driver)
        before = _content(tree)
        allocations = {
            str(uuid.uuid4()): {
                "allocations": {
                    str(uuid.uuid4()): {"generation": 1, "resources": {"VCPU": 1}},
                },
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": 1,
            }
        }
        untouched = repr(allocations)
        driver.update_provider_tree(tree, node, allocations=allocations)
        assert repr(allocations) == untouched
        assert _content(tree) == before

    def test_keeps_a_root_ratio_that_an_operator_set(self) -> None:
        driver = self.make_driver()
        tree, node = _reported(driver)
        changed = []
        for provider in _content(tree):
            if "VCPU" in provider.inventory:
                record = {**provider.inventory["VCPU"], "allocation_ratio": 7.5}
                tree.update_inventory(provider.uuid, {**provider.inventory, "VCPU": record})
                changed.append(provider.uuid)
        driver.update_provider_tree(tree, node)
        ratios = [tree.data(u).inventory["VCPU"]["allocation_ratio"] for u in changed]
        assert ratios == [7.5] * len(changed)

    def test_gives_the_facts_the_tracker_needs(self) -> None:
        driver = self.make_driver()
        node = driver.get_available_nodes()[0]
        facts = driver.get_available_resource(node)
        assert set(MANDATORY_FACTS) <= facts.keys()
        assert facts["hypervisor_hostname"] == node
        if driver.several_nodes:
            assert driver.get_nodenames_by_uuid()[facts["uuid"]] == node

    def test_does_not_know_a_node_it_does_not_have(self) -> None:
        driver = self.make_driver()
        assert not driver.node_is_available("elsewhere")
        facts = None
        with contextlib.suppress(errors.ComputeHostNotFound):
            facts = driver.get_available_resource("elsewhere")
        assert facts is None, "expected ComputeHostNotFound"

    def test_names_only_traits_placement_knows(self) -> None:
        driver = self.make_driver()
        tree, _node = _reported(driver)
        traits = {t for p in _content(tree) for t in p.traits} | set(
            driver.capabilities_as_traits()
        )
        custom = {t for t in traits if t.startswith("CUSTOM_")}
        assert traits - custom <= set(os_traits.get_traits())


def _new_tree(driver: ComputeDriver) -> tuple[ProviderTree, str]:
    node = driver.get_available_nodes()[0]
    tree = ProviderTree()
    tree.new_root(node, _ROOT, generation=1)
    return tree, node


def _reported(driver: ComputeDriver) -> tuple[ProviderTree, str]:
    tree, node = _new_tree(driver)
    driver.update_provider_tree(tree, node)
    return tree, node


def _content(tree: ProviderTree) -> list[ProviderData]:
    return [tree.data(provider_uuid) for provider_uuid in tree.get_provider_uuids()]
