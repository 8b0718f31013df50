"""An out-of-tree driver whose behaviour a test changes while the agent runs.

It reads a JSON file before every call, named by the environment variable SCRIPTED_DRIVER:

    nodes       names, or names to uuids for a driver of several nodes
    raise       method to exception (name of a class in compute_agent.errors, or of a builtin)
    local_gb    size of the disk; missing: 0
    inventory   of each root; missing: VCPU 8, MEMORY_MB 1024
    children    name suffix to inventory
    reshape     "once": VGPU on the root moves to the child "_gpu" when that may be done;
                "broken": the second call asks again; "failing": it raises ReshapeFailed;
                "losing": it loses allocations
    instances   uuids
    units       class to names of the root's units
    deleted     names of nodes that are gone for good
    grows       true: once a pass has read it, the machine gets a CPU more, and that is reported
                to the agent if it watches by then
    changes     true: a change is reported as soon as the agent watches
"""

import builtins
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compute_agent import errors
from compute_agent.provider_tree.provider import Resource
from compute_agent.virt.driver import ComputeDriver


class ScriptedDriver(ComputeDriver):
    """One node, as the script says."""

    _changed: Callable[[str], None] | None = None
    _has_grown = False

    def _script(self) -> dict[str, Any]:
        return json.loads(Path(os.environ["SCRIPTED_DRIVER"]).read_text())

    def _begin(self, method: str, node: str = "") -> dict[str, Any]:
        script = self._script()
        wanted = script.get("raise", {})
        name = wanted.get(f"{method} {node}") or wanted.get(method)
        if name:
            kind = getattr(errors, name, None) or getattr(builtins, name)
            raise kind(f"the script says so for {method}")
        return script

    def init_host(self, host):
        self._begin("init_host")

    def cleanup_host(self, host):
        Path(os.environ["SCRIPTED_DRIVER"]).with_name("cleaned").write_text(host)

    def watch(self, changed):
        super().watch(changed)
        self._changed = changed
        if self._script().get("changes"):
            changed("a device came")

    def get_available_nodes(self, refresh=False):
        return list(self._begin("get_available_nodes").get("nodes", ["node1"]))

    def is_node_deleted(self, nodename):
        return nodename in self._begin("is_node_deleted").get("deleted", [])

    def list_instance_uuids(self):
        return self._begin("list_instance_uuids").get("instances", [])

    def get_available_resource(self, nodename):
        script = self._begin("get_available_resource", nodename)
        facts = {
            "hypervisor_hostname": nodename,
            "hypervisor_type": "scripted",
            "hypervisor_version": 1,
            "vcpus": 8,
            "vcpus_used": 0,
            "memory_mb": 1024,
            "memory_mb_used": 0,
            "local_gb": script.get("local_gb", 0),
            "local_gb_used": 0,
            "cpu_info": "{}",
            "numa_topology": None,
        }
        for key in script.get("missing_facts", []):
            del facts[key]
        return facts

    def update_provider_tree(self, provider_tree, nodename, allocations=None):
        script = self._begin("update_provider_tree", nodename)
        inventory = dict(
            script.get("inventory", {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 1024}})
        )
        if script.get("reshape"):
            self._reshape(script["reshape"], provider_tree, nodename, allocations)
        elif script.get("vgpu_on_root"):
            inventory["VGPU"] = {"total": 4}
        if self._has_grown:
            inventory["VCPU"] = {"total": 9}
        provider_tree.update_inventory(nodename, inventory)
        if script.get("grows") and not self._has_grown:
            self._has_grown = True
            if self._changed is not None:
                self._changed("a CPU was added")
        root = provider_tree.data(nodename).uuid
        units = script.get("units", {})
        provider_tree.update_resources(
            nodename, {rc: [Resource(root, rc, name) for name in units[rc]] for rc in units}
        )
        wanted = {f"{nodename}_{suffix}" for suffix in script.get("children", {})}
        for child in provider_tree.children(nodename):
            if child.name not in wanted and "VGPU" not in child.inventory:
                provider_tree.remove(child.uuid)
        for suffix, child_inventory in script.get("children", {}).items():
            name = f"{nodename}_{suffix}"
            if not provider_tree.exists(name):
                provider_tree.new_child(name, nodename)
            provider_tree.update_inventory(name, child_inventory)

    def _reshape(self, how, tree, nodename, allocations):
        root = tree.data(nodename)
        if "VGPU" in root.inventory and allocations is None:
            raise errors.ReshapeNeeded("VGPU is on the root")
        child_name = f"{nodename}_gpu"
        if allocations is not None:
            if how == "broken":
                raise errors.ReshapeNeeded("again")
            if how == "failing":
                raise errors.ReshapeFailed("consumer x cannot be placed")
            if not tree.exists(child_name):
                tree.new_child(child_name, nodename)
            child = tree.data(child_name).uuid
            for record in allocations.values():
                on_root = record["allocations"].get(root.uuid, {}).get("resources", {})
                amount = on_root.pop("VGPU", 0)
                if amount and how != "losing":
                    record["allocations"][child] = {"resources": {"VGPU": amount}}
                if root.uuid in record["allocations"] and not on_root:
                    del record["allocations"][root.uuid]
        if tree.exists(child_name):
            tree.update_inventory(child_name, {"VGPU": {"total": 4}})


class ScriptedNodesDriver(ScriptedDriver):
    """Several nodes, each with a uuid of its own."""

    several_nodes = True

    def get_nodenames_by_uuid(self, refresh=False):
        nodes = self._begin("get_available_nodes")["nodes"]
        return {uuid: name for name, uuid in nodes.items()}


class WanderingNodesDriver(ScriptedNodesDriver):
    """Several nodes, which other agents may take over at any moment."""

    rebalances_nodes = True
