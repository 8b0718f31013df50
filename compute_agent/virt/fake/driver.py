"""Fake drivers of fixed size, with three resource classes on the root, and guests in memory."""

from __future__ import annotations

import json
import uuid as uuidlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from oslo_config import cfg

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import InventoryRecord
from compute_agent.virt.capabilities import CAPABILITY_TRAITS
from compute_agent.virt.driver import Allocations, ComputeDriver, InstanceDevices
from compute_agent.virt.layout.options import LayoutOptions
from compute_agent.virt.settings import layout_options

NODE_NAMESPACE = uuidlib.UUID("6c3c1ab6-5b0e-5c86-9a29-5a2b4a1d7f10")
"""Fake nodes have the same uuid after every restart, on whatever machine."""


CAPABILITIES: Mapping[str, bool] = {
    **dict.fromkeys(CAPABILITY_TRAITS, False),
    "supports_attach_interface": True,
    "supports_device_tagging": True,
    "supports_tagged_attach_interface": True,
    "supports_tagged_attach_volume": True,
    "supports_extend_volume": True,
    "supports_multiattach": True,
    "supports_trusted_certs": True,
    "supports_image_type_raw": True,
    "supports_image_type_qcow2": True,
}


class GuestFailure(errors.ComputeAgentError):
    """A hypervisor could not start a guest."""


class FakeHypervisor(ComputeDriver):
    """Runs guests in memory."""

    capabilities: ClassVar[Mapping[str, bool]] = CAPABILITIES

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self._devices_by_guest: dict[str, InstanceDevices] = {}

    def list_instance_uuids(self) -> list[str]:
        return sorted(self._devices_by_guest)

    def get_instance_devices(self, uuid: str) -> InstanceDevices | None:
        return self._devices_by_guest.get(uuid)

    def spawn(self, uuid: str, *, devices: InstanceDevices | None = None) -> None:
        """Start a guest.

        :raises GuestFailure: it runs already.
        """
        if uuid in self._devices_by_guest:
            raise GuestFailure(f"Guest {uuid} is running on this host already.")
        self._devices_by_guest[uuid] = devices or InstanceDevices()

    def destroy(self, uuid: str) -> None:
        """End a guest, here or not."""
        self._devices_by_guest.pop(uuid, None)


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
        return {
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
            "uuid": self.node_uuid(nodename),
        }

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


class SmallFakeDriver(FakeDriver):
    """Too small for most guests."""

    vcpus = 2
    memory_mb = 8192
    local_gb = 1028
