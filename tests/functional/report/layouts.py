"""Host layouts the tests report."""

from collections.abc import Callable
from typing import Any

from compute_agent.provider_tree import ProviderTree

LayOut = Callable[[ProviderTree], Any]


def also(lay_out: LayOut, *edits: LayOut) -> LayOut:
    """A layout, and what else is done to the tree."""
    return lambda tree: [act(tree) for act in (lay_out, *edits)]


def small(name: str, *, vcpus: int = 8):
    """A root with VCPU and MEMORY_MB and one GPU child."""

    def lay_out(tree: ProviderTree) -> None:
        tree.update_inventory(name, {"VCPU": {"total": vcpus}, "MEMORY_MB": {"total": 1024}})
        tree.add_traits(name, "OWNER_NOVA", "COMPUTE_NODE")
        gpu = f"{name}_GPU0"
        if not tree.exists(gpu):
            tree.new_child(gpu, name)
        tree.update_inventory(gpu, {"VGPU": {"total": 4}})
        tree.add_traits(gpu, "OWNER_NOVA")

    return lay_out


def large(name: str, tag: str, *, disk: int = 100, flat: bool = False):
    """45 providers: root, 2 NUMA cells with 4 GPUs each, 2 NICs with 16 PFs each.

    43 have inventory, 32 of one custom class; four traits are new.  `flat`: all on the root.
    """

    def lay_out(tree: ProviderTree) -> None:
        inventory = {"DISK_GB": {"total": disk}}
        if flat:
            inventory |= {"VCPU": {"total": 32}, "MEMORY_MB": {"total": 131072}}
            inventory |= {"VGPU": {"total": 64}}
        tree.update_inventory(name, inventory)
        tree.add_traits(name, "OWNER_NOVA", "COMPUTE_NODE")
        if flat:
            return
        tree.add_traits(name, f"CUSTOM_A{tag}")
        for cell in range(2):
            numa = f"{name}_NUMA{cell}"
            add(tree, numa, name, {"VCPU": {"total": 16}, "MEMORY_MB": {"total": 65536}})
            tree.add_traits(numa, "HW_NUMA_ROOT", f"CUSTOM_B{tag}")
            for number in range(4):
                gpu = f"{numa}_GPU{number}"
                add(tree, gpu, numa, {"VGPU": {"total": 8}})
                tree.add_traits(gpu, f"CUSTOM_C{tag}")
        for card in range(2):
            nic = f"{name}_NIC{card}"
            add(tree, nic, name, {})
            for number in range(16):
                port = f"{nic}_PF{number}"
                add(tree, port, nic, {f"CUSTOM_VF{tag}": {"total": 64}})
                tree.add_traits(port, f"CUSTOM_D{tag}")

    return lay_out


def add(tree: ProviderTree, name: str, parent: str, inventory: dict) -> None:
    if not tree.exists(name):
        tree.new_child(name, parent)
    tree.update_inventory(name, inventory)
    tree.add_traits(name, "OWNER_NOVA")
