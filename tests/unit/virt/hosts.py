"""A host whose hardware, options and placement a test changes at will."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.conf import new_config
from compute_agent.discovery.facts import HostTopology
from compute_agent.provider_tree import ProviderData, ProviderTree
from compute_agent.tracker.passes import reshape_check
from compute_agent.virt.driver import Allocations, InstanceDevices
from compute_agent.virt.layout.options import LayoutOptions
from compute_agent.virt.topology_driver import TopologyDriver

ROOT = "5a0c8d2c-6b0a-4e0e-8a53-3b3e9d9e6c11"
NAME = "host1"
CONF = new_config([], default_config_dirs=[])


class OneNodeDriver(TopologyDriver):
    """A node made of a topology and options, with guests as given."""

    def __init__(self, machine: HostTopology, options: LayoutOptions) -> None:
        super().__init__(CONF)
        self.machine = machine
        self.options = options
        self.guests: dict[str, InstanceDevices] = {}

    def topology(self, nodename: str) -> HostTopology:
        return self.machine

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return [NAME]

    def list_instance_uuids(self) -> list[str]:
        return sorted(self.guests)

    def get_instance_devices(self, uuid: str) -> InstanceDevices | None:
        return self.guests.get(uuid)


class Host:
    """A driver and the tree that placement has of its node."""

    def __init__(self, machine: HostTopology, options: LayoutOptions | None = None) -> None:
        self.driver = OneNodeDriver(machine, options or LayoutOptions())
        self.tree = ProviderTree()
        self.tree.new_root(NAME, ROOT, generation=1)

    def change(self, **options: Any) -> None:
        self.driver.options = replace(self.driver.options, **options)

    def change_machine(self, **facts: Any) -> None:
        self.driver.machine = replace(self.driver.machine, **facts)

    def update(self) -> ProviderTree:
        """One ordinary call; the tree only changes when it does not raise."""
        wanted = self.tree.snapshot()
        self.driver.update_provider_tree(wanted, NAME)
        self.tree = wanted
        return self.tree

    def reshape(self, allocations: Allocations) -> Allocations:
        """The second call of a reshape; returns what became of the allocations."""
        edited = copy.deepcopy(allocations)
        wanted = self.tree.snapshot()
        self.driver.update_provider_tree(wanted, NAME, allocations=edited)
        self.tree = wanted
        return edited

    def checked_reshape(
        self, allocations: dict[str, Any], match: str | None = None
    ) -> dict[str, Any]:
        """The reshape that is due, checked as the tracker does, and due no more on its result."""
        base = self.tree
        with pytest.raises(errors.ReshapeNeeded, match=match):
            self.update()
        after = self.reshape(allocations)
        reshape_check.check(base, self.tree, allocations, after, ROOT)
        before = content(self.tree)
        assert content(self.update()) == before
        return after

    def holds(self, held: Mapping[str, Mapping[str, int]]) -> None:
        """Let placement tell the driver what is held, by provider name."""
        by_uuid = {self.provider(name).uuid: amounts for name, amounts in held.items()}
        self.driver.usage_source = lambda uuid: by_uuid.get(uuid, {})

    def provider(self, suffix: str = "") -> ProviderData:
        """The provider whose name is the host's and `suffix`, or is just `suffix`."""
        name = f"{NAME}{suffix}"
        return self.tree.data(name if self.tree.exists(name) else suffix)

    def exists(self, suffix: str) -> bool:
        return self.tree.exists(f"{NAME}{suffix}")

    def totals(self, suffix: str = "") -> dict[str, int]:
        inventory = self.provider(suffix).inventory
        return {rc: int(record["total"]) for rc, record in inventory.items()}

    def parent_name(self, suffix: str) -> str | None:
        parent = self.provider(suffix).parent_uuid
        return None if parent is None else self.tree.data(parent).name.removeprefix(NAME)

    def names(self) -> list[str]:
        return [self.tree.data(u).name.removeprefix(NAME) for u in self.tree.get_provider_uuids()]


def reported(machine: HostTopology, options: LayoutOptions | None = None) -> Host:
    """A host that was reported once."""
    host = Host(machine, options)
    host.update()
    return host


def content(tree: ProviderTree) -> list[ProviderData]:
    """Everything in a tree, in its order."""
    return [tree.data(uuid) for uuid in tree.get_provider_uuids()]


def consumer(**held: Mapping[str, int]) -> dict[str, Any]:
    """A consumer's record as placement gives it: provider uuid -> amounts."""
    return {
        "allocations": {
            uuid: {"generation": 3, "resources": dict(amounts)} for uuid, amounts in held.items()
        },
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": 1,
        "consumer_type": "INSTANCE",
    }


def held_of(record: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """What a record says is held: provider uuid -> amounts."""
    return {uuid: dict(entry["resources"]) for uuid, entry in record["allocations"].items()}
