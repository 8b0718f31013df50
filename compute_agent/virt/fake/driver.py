"""Fake drivers of fixed size: three classes on the root, and some have a child."""

from __future__ import annotations

import json
import uuid as uuidlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from oslo_config import cfg

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import InventoryRecord
from compute_agent.provider_tree.trait_names import OWNER_NOVA
from compute_agent.virt.driver import Allocations
from compute_agent.virt.fake.hypervisor import CAPABILITIES, EndlessMigrations, FakeHypervisor
from compute_agent.virt.fake.instances import GuestOperation
from compute_agent.virt.layout.options import LayoutOptions
from compute_agent.virt.settings import layout_options

NODE_NAMESPACE = uuidlib.UUID("6c3c1ab6-5b0e-5c86-9a29-5a2b4a1d7f10")
"""Fake nodes have the same uuid after every restart, on whatever machine."""


class FakeDriver(FakeHypervisor):
    """Nodes of one size. One node named [DEFAULT]host, until `set_nodes` names others."""

    several_nodes: ClassVar[bool] = True

    vcpus: ClassVar[int] = 1000
    memory_mb: ClassVar[int] = 800000
    local_gb: ClassVar[int] = 600000

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self.options: LayoutOptions = layout_options(conf)
        self._nodes: list[str] = [conf.DEFAULT.host]

    def set_nodes(self, nodenames: Sequence[str]) -> None:
        """Manage these nodes from now on."""
        self._nodes = list(nodenames)

    def node_uuid(self, nodename: str) -> str:
        return str(uuidlib.uuid5(NODE_NAMESPACE, nodename))

    def get_available_nodes(self, refresh: bool = False) -> list[str]:  # noqa: ARG002 (contract)
        return list(self._nodes)

    def get_nodenames_by_uuid(self, refresh: bool = False) -> dict[str, str]:
        return {self.node_uuid(name): name for name in self.get_available_nodes(refresh)}

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        self._check_node(nodename)
        facts: dict[str, Any] = {
            "hypervisor_hostname": nodename,
            "hypervisor_type": "fake",
            "hypervisor_version": 1000,
            "vcpus": self.vcpus,
            "vcpus_used": 0,
            "memory_mb": self.memory_mb,
            "memory_mb_used": 0,
            "local_gb": self.local_gb,
            "local_gb_used": 0,
            "cpu_info": json.dumps({"arch": "x86_64", "features": []}),
            "numa_topology": None,
        }
        if self.several_nodes:
            facts["uuid"] = self.node_uuid(nodename)
        return facts

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,  # noqa: ARG002 (nothing ever moves)
    ) -> None:
        self._check_node(nodename)
        provider_tree.update_inventory(nodename, self._inventory(provider_tree, nodename))

    def _inventory(self, tree: ProviderTree, nodename: str) -> dict[str, InventoryRecord]:
        options = self.options
        totals = {
            "VCPU": (self.vcpus, options.reserved_cpus),
            "MEMORY_MB": (self.memory_mb, options.reserved_memory_mib),
            "DISK_GB": (self.local_gb, -(-options.reserved_disk_mib // 1024)),
        }
        stored_inventory = tree.data(nodename).inventory
        inventory: dict[str, InventoryRecord] = {}
        for resource_class, (total, reserved) in totals.items():
            stored_record = stored_inventory.get(resource_class)
            ratio = options.ratios[resource_class].of(
                None if stored_record is None else stored_record["allocation_ratio"]
            )
            inventory[resource_class] = {
                "total": total,
                "reserved": min(reserved, total),
                "min_unit": 1,
                "max_unit": total,
                "step_size": 1,
                "allocation_ratio": ratio,
            }
        return inventory

    def _check_node(self, nodename: str) -> None:
        if nodename not in self._nodes:
            raise errors.ComputeHostNotFound(
                f"There is no fake node {nodename!r}; there are {', '.join(self._nodes)}."
            )


class NestedCustomResources(FakeDriver):
    """Adds the child `<node>-child` with 10 of CUSTOM_MAGIC to a fake."""

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
    ) -> None:
        super().update_provider_tree(provider_tree, nodename, allocations)
        child = f"{nodename}-child"
        if not provider_tree.exists(child):
            provider_tree.new_child(child, nodename)
        provider_tree.update_inventory(
            child,
            {
                "CUSTOM_MAGIC": {
                    "total": 10,
                    "reserved": 0,
                    "min_unit": 1,
                    "max_unit": 10,
                    "step_size": 1,
                    "allocation_ratio": 1.0,
                }
            },
        )
        provider_tree.add_traits(child, OWNER_NOVA)


class SmallFakeDriver(FakeDriver):
    """Too small for most guests."""

    vcpus = 2
    memory_mb = 8192
    local_gb = 1028


class MediumFakeDriver(FakeDriver):
    """Fits a few guests, so that one can see it fill up."""

    vcpus = 10
    memory_mb = 8192
    local_gb = 1028


class MediumFakeDriverWithNestedCustomResources(NestedCustomResources, MediumFakeDriver):
    """A medium node with a child."""


class PredictableNodeUUIDDriver(SmallFakeDriver):
    """Its nodes have uuids that other software can compute."""

    def node_uuid(self, nodename: str) -> str:
        return str(uuidlib.uuid5(uuidlib.NAMESPACE_DNS, nodename))


class FakeDriverWithoutFakeNodes(FakeDriver):
    """One node, whose identity is kept in the state directory as a real host's is."""

    several_nodes = False


class SameHostColdMigrateDriver(MediumFakeDriver):
    """A guest may be resized to the host it is on."""

    capabilities: ClassVar[Mapping[str, bool]] = {
        **CAPABILITIES,
        "supports_migrate_to_same_host": True,
    }


class RescueBFVDriver(MediumFakeDriver):
    """Guests booted from a volume can be rescued."""

    capabilities: ClassVar[Mapping[str, bool]] = {**CAPABILITIES, "supports_bfv_rescue": True}


class FakeRescheduleDriver(FakeDriver):
    """The first guest does not start, so that it is tried on another host."""

    failing: ClassVar[Mapping[GuestOperation, int]] = {GuestOperation.SPAWN: 1}


class FakeRescheduleDriverWithNestedCustomResources(NestedCustomResources, FakeRescheduleDriver):
    """The same on a node with a child."""


class FakeBuildAbortDriver(FakeDriver):
    """No guest ever starts, and no other host would do better."""

    failing: ClassVar[Mapping[GuestOperation, int]] = {GuestOperation.SPAWN: -1}
    aborts_builds: ClassVar[bool] = True


class FakeBuildAbortDriverWithNestedCustomResources(NestedCustomResources, FakeBuildAbortDriver):
    """The same on a node with a child."""


class FakeUnshelveSpawnFailDriver(FakeDriver):
    """Guests that were put away do not start again."""

    failing: ClassVar[Mapping[GuestOperation, int]] = {GuestOperation.UNSHELVE: -1}


class FakeUnshelveSpawnFailDriverWithNestedCustomResources(
    NestedCustomResources, FakeUnshelveSpawnFailDriver
):
    """The same on a node with a child."""


class FakeFinishMigrationFailDriver(FakeDriver):
    """Guests from other hosts do not start."""

    failing: ClassVar[Mapping[GuestOperation, int]] = {GuestOperation.FINISH_MIGRATION: -1}


class FakeLiveMigrateDriver(EndlessMigrations, FakeDriver):
    """Live migrations do not end by themselves."""


class FakeLiveMigrateDriverWithNestedCustomResources(NestedCustomResources, FakeLiveMigrateDriver):
    """The same on a node with a child."""


class EphEncryptionDriver(MediumFakeDriver):
    """Encrypts disks of guests that are not volumes."""

    capabilities: ClassVar[Mapping[str, bool]] = {
        **CAPABILITIES,
        "supports_ephemeral_encryption": True,
    }


class EphEncryptionDriverLUKS(EphEncryptionDriver):
    """The same, in format LUKS."""

    capabilities: ClassVar[Mapping[str, bool]] = {
        **EphEncryptionDriver.capabilities,
        "supports_ephemeral_encryption_luks": True,
    }


class EphEncryptionDriverPLAIN(EphEncryptionDriver):
    """The same, without a header."""

    capabilities: ClassVar[Mapping[str, bool]] = {
        **EphEncryptionDriver.capabilities,
        "supports_ephemeral_encryption_plain": True,
    }


class FakeDriverWithCaching(FakeDriver):
    """Keeps images that guests were made from."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self.cached_images: set[str] = set()

    def cache_image(self, image_id: str) -> bool:
        """Fetch an image; False when it was there already."""
        if image_id in self.cached_images:
            return False
        self.cached_images.add(image_id)
        return True
