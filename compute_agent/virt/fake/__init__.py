"""In-memory drivers, complete enough to test an agent, a scheduler and what is built on them.

The sizes and misdeeds of those with a whole machine behind them come from group [fake], which they
register themselves: it is not part of the configuration of a real agent.
"""

from __future__ import annotations

import builtins
import json
import uuid as uuidlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import fields, replace
from oslo_config import cfg

from compute_agent import errors
from compute_agent.discovery.facts import HostTopology
from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import InventoryRecord
from compute_agent.virt.driver import Allocations, ComputeDriver, InstanceDevices
from compute_agent.virt.fake.topology import MDEV_TYPE, MachineSize, fake_topology
from compute_agent.virt.layout.options import LayoutOptions, MdevTypeOptions
from compute_agent.virt.settings import layout_options
from compute_agent.virt.topology_driver import TopologyDriver
from compute_agent.virt.traits import CAPABILITY_TRAITS

__all__ = [
    *("FakeDriver", "FakeDriverWithPciResources", "FakeManyNodesDriver", "FakeMisbehavingDriver"),
    *("FakeNumaDriver", "FakeReshapeDriver", "SmallFakeDriver"),
]

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

GROUP = "fake"

behaviour_opts = [
    cfg.IntOpt("nodes", default=10, min=0, help="How many nodes FakeManyNodesDriver has"),
    cfg.StrOpt("failing_method", default="update_provider_tree", help="What fails"),
    cfg.StrOpt("failing_error", default="RuntimeError", help="Class of the error it raises"),
    cfg.IntOpt("failing_call", default=1, min=1, help="Which call is the first that fails"),
    cfg.IntOpt("failing_calls", default=1, min=0, help="How many calls fail; 0: all from then on"),
]


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


size_opts = [
    cfg.IntOpt(
        field.name,
        default=field.default,
        min=int(field.name == "cells"),
        help=f"{field.name} of the fake machine",
    )
    for field in fields(MachineSize)
]


def _options(conf: cfg.ConfigOpts) -> Any:
    conf.register_opts([*size_opts, *behaviour_opts], group=GROUP)
    return conf[GROUP]


class FakeNumaDriver(FakeHypervisor, TopologyDriver):
    """One machine with NUMA cells, GPUs and NICs, in the nested layout; any topology by `machine`.

    Where no mdev type is enabled, the one its GPUs offer is.
    """

    hypervisor_type = "fake"

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        options = _options(conf)
        self._nodename: str = conf.DEFAULT.host
        size = MachineSize(**{f.name: options[f.name] for f in fields(MachineSize)})
        self.machine: HostTopology = fake_topology(self._nodename, size)
        """What the driver sees; replace it to change the hardware."""
        gpu = self.options.gpu
        if not gpu.mdev_types:
            gpu = replace(gpu, mdev_types=(MdevTypeOptions(MDEV_TYPE),))
        self.options = replace(self.options, is_nested=True, gpu=gpu)

    def get_available_nodes(self, refresh: bool = False) -> list[str]:  # noqa: ARG002 (contract)
        return [self._nodename]

    def topology(self, nodename: str) -> HostTopology:
        if nodename != self._nodename:
            raise errors.ComputeHostNotFound(
                f"There is no fake node {nodename!r}; there is {self._nodename}."
            )
        return self.machine


class FakeReshapeDriver(FakeNumaDriver):
    """Flat on odd starts, nested on even ones: every restart needs a reshape.

    Starts are counted in a file of the state directory, so that they survive `kill -9`.
    """

    COUNTER: ClassVar[str] = "fake-reshape-starts"

    def init_host(self, host: str) -> None:
        path = Path(self.conf.state_path, self.COUNTER)
        path.parent.mkdir(parents=True, exist_ok=True)
        starts = (int(path.read_text()) if path.exists() else 0) + 1
        path.write_text(str(starts))
        self.options = replace(self.options, is_nested=starts % 2 == 0)
        super().init_host(host)


class FakeDriverWithPciResources(FakeNumaDriver):
    """A flat node of the size of FakeDriver with two NICs of four VFs, for [pci]device_spec."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        size = MachineSize(
            cells=1,
            cpus_per_cell=FakeDriver.vcpus,
            memory_mib_per_cell=FakeDriver.memory_mb,
            disk_gib=FakeDriver.local_gb,
            gpus=2,
            vfs_per_pf=4,
        )
        self.machine = fake_topology(self._nodename, size)
        self.options = replace(
            self.options, is_nested=False, gpu=replace(self.options.gpu, mdev_types=())
        )


class Misdeed(Struct, frozen=True):
    """Which calls of which method fail, and with what."""

    method: str
    error: BaseException
    first: int = 1
    calls: int = 1
    """0 = all from the first on."""

    def is_due(self, call: int) -> bool:
        return call >= self.first and (not self.calls or call < self.first + self.calls)


class FakeMisbehavingDriver(FakeNumaDriver):
    """Raises the error, at the call, that [fake] or `misbehave` names."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self._calls: Counter[str] = Counter()
        options = _options(conf)
        self._misdeeds = [
            Misdeed(
                options.failing_method,
                error_named(options.failing_error),
                options.failing_call,
                options.failing_calls,
            )
        ]

    def misbehave(self, *misdeeds: Misdeed) -> None:
        """Do these from now on, counting calls from now; none = behave."""
        self._misdeeds = list(misdeeds)
        self._calls.clear()

    def init_host(self, host: str) -> None:
        self._perhaps_fail("init_host")
        super().init_host(host)

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        self._perhaps_fail("get_available_nodes")
        return super().get_available_nodes(refresh)

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        self._perhaps_fail("get_available_resource")
        return super().get_available_resource(nodename)

    def reading(self, nodename: str) -> object | None:
        """As of a driver that behaves, unless edits of the tree are to fail: these are all made."""
        may_fail = any(misdeed.method == "update_provider_tree" for misdeed in self._misdeeds)
        return None if may_fail else self.own_reading(nodename)

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
    ) -> None:
        """Edits the tree before it raises, as a driver does that breaks half way."""
        super().update_provider_tree(provider_tree, nodename, allocations)
        self._perhaps_fail("update_provider_tree")

    def _perhaps_fail(self, method: str) -> None:
        self._calls[method] += 1
        for misdeed in self._misdeeds:
            if misdeed.method == method and misdeed.is_due(self._calls[method]):
                raise misdeed.error


def error_named(name: str) -> BaseException:
    """Make the error of a class of `compute_agent.errors` or a built-in one.

    :raises InvalidConfiguration: there is none of that name.
    """
    error_class = getattr(errors, name, None) or getattr(builtins, name, None)
    if not (isinstance(error_class, type) and issubclass(error_class, Exception)):
        raise errors.InvalidConfiguration(
            f"[fake]failing_error = {name} is not an error of compute_agent.errors or Python."
        )
    message = f"{name}, raised because [fake]failing_error names it"
    return (
        error_class(error=message)
        if issubclass(error_class, errors.ReshapeFailed)
        else error_class(message)
    )


class FakeManyNodesDriver(FakeDriver):
    """Bare metal nodes, named by their uuids, that come and go."""

    rebalances_nodes: ClassVar[bool] = True
    NODE_CLASS: ClassVar[str] = "CUSTOM_BAREMETAL_FAKE"

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self._deleted_nodenames: set[str] = set()
        self.set_nodes(
            [str(uuidlib.uuid5(uuidlib.NAMESPACE_OID, str(n))) for n in range(_options(conf).nodes)]
        )

    def node_uuid(self, nodename: str) -> str:
        return nodename

    def set_nodes(self, nodenames: Sequence[str], *, deleted_nodenames: Sequence[str] = ()) -> None:
        """Manage these nodes from now on. `deleted_nodenames`: nodes that are gone for good."""
        super().set_nodes(nodenames)
        self._deleted_nodenames.update(deleted_nodenames)

    def is_node_deleted(self, nodename: str) -> bool:
        return nodename in self._deleted_nodenames

    def _inventory(self, tree: ProviderTree, nodename: str) -> dict[str, InventoryRecord]:  # noqa: ARG002
        return {
            self.NODE_CLASS: {
                "total": 1,
                "reserved": 0,
                "min_unit": 1,
                "max_unit": 1,
                "step_size": 1,
                "allocation_ratio": 1.0,
            }
        }
