"""Random pairs of provider trees, the second edited from the first, and trees in normal form.

The steps from one to the other are carried out here on a tree in memory.
"""

import struct

from hypothesis import strategies as st

from compute_agent.provider_tree import ProviderTree, child_uuid
from compute_agent.provider_tree.inventory import MAX_INT
from compute_agent.report.steps import (
    CreateProvider,
    DeleteProvider,
    EnsureResourceClass,
    EnsureTraits,
    KeepProvider,
    PutProvider,
    Reshape,
    SetAggregates,
    SetInventories,
    SetInventory,
    SetTraits,
    Step,
)

ROOT = "aaaaaaaa-0000-4000-8000-000000000001"
CLASSES = ("VCPU", "MEMORY_MB", "CUSTOM_GPU")
TRAITS = ("HW_NUMA_ROOT", "CUSTOM_A", "COMPUTE_STATUS_DISABLED")
AGGREGATES = tuple(child_uuid(ROOT, f"aggregate {n}") for n in range(3))

records = st.fixed_dictionaries(
    {"total": st.integers(1, 20)},
    optional={
        "reserved": st.integers(0, 3),
        "allocation_ratio": st.sampled_from([1.0, 1.1, 4.0]),
        "max_unit": st.integers(1, 4),
    },
)
inventories = st.dictionaries(st.sampled_from(CLASSES), records)
subsets = st.frozensets(st.sampled_from(TRAITS))
aggregate_sets = st.frozensets(st.sampled_from(AGGREGATES))

EDIT = st.sampled_from(["add", "remove", "move", "swap", "fill", "mark"])


def full(record: dict) -> dict:
    ratio = record.get("allocation_ratio", 1.0)
    return {
        "total": record["total"],
        "reserved": record.get("reserved", 0),
        "min_unit": record.get("min_unit", 1),
        "max_unit": record.get("max_unit", MAX_INT),
        "step_size": record.get("step_size", 1),
        "allocation_ratio": struct.unpack("f", struct.pack("f", ratio))[0],
    }


def content(tree: ProviderTree) -> dict:
    found = (tree.data(uuid) for uuid in tree.get_provider_uuids())
    return {
        p.uuid: {
            "name": p.name,
            "parent": p.parent_uuid,
            "inventory": {rc: full(record) for rc, record in p.inventory.items()},
            "traits": set(p.traits),
            "aggregates": set(p.aggregates),
        }
        for p in found
    }


def _one_of(draw: st.DrawFn, uuids: list[str]) -> str:
    # a strategy of integers is made once for each pair of bounds, others each time
    return uuids[draw(st.integers(0, len(uuids) - 1))]


@st.composite
def edited(draw: st.DrawFn, tree: ProviderTree, edits: int) -> ProviderTree:
    """A copy of `tree` after some random legal edits, names being swapped about among them."""
    tree = tree.snapshot()
    for number in range(draw(st.integers(0, edits))):
        uuids = tree.get_provider_uuids()
        one = _one_of(draw, uuids)
        match draw(EDIT):
            case "add":
                key = f"{draw(st.integers(0, 7))}"
                uuid = child_uuid(ROOT, key)
                name = f"child {draw(st.integers(0, 9))}"
                if not tree.exists(uuid) and not tree.exists(name):
                    tree.new_child(name, one, uuid)
            case "remove" if one != ROOT:
                tree.remove(one)
            case "move" if one != ROOT:
                targets = [u for u in uuids if u not in tree.get_provider_uuids(one)]
                tree.move(one, _one_of(draw, targets))
            case "swap":
                other = _one_of(draw, uuids)
                names = tree.data(one).name, tree.data(other).name
                if one != other:
                    tree.rename(other, "nobody")
                    tree.rename(one, names[1])
                    tree.rename(other, names[0])
                elif one != ROOT and not tree.exists(f"renamed {number}"):
                    tree.rename(one, f"renamed {number}")
            case "fill":
                tree.update_inventory(one, draw(inventories))
            case _:
                tree.update_traits(one, draw(subsets))
                tree.update_aggregates(one, draw(aggregate_sets))
    return tree


@st.composite
def pairs(draw: st.DrawFn) -> tuple[ProviderTree, ProviderTree]:
    tree = ProviderTree()
    tree.new_root("host", ROOT, 0)
    old = draw(edited(tree, 14))
    return old, draw(edited(old, 10))


def carry_out(step: Step, tree: ProviderTree) -> None:
    """Change `tree` as the step changes placement.

    :raises ValueError: the tree does not admit it (a missing parent, a taken name ...).
    """
    match step:
        case CreateProvider(uuid, name, None):
            tree.new_root(name, uuid)
        case CreateProvider(uuid, name, str() as parent_uuid):
            tree.new_child(name, parent_uuid, uuid)
        case PutProvider(uuid, _, name, _, parent_uuid):
            tree.move(uuid, parent_uuid)
            tree.rename(uuid, name)
        case SetInventory(uuid, _, _, after):
            tree.update_inventory(uuid, after)
        case SetInventories(changes) | Reshape(changes, _):
            for change in changes:
                tree.update_inventory(change.uuid, change.after)
        case SetAggregates(uuid, _, _, after):
            tree.update_aggregates(uuid, after)
        case SetTraits(uuid, _, _, after):
            tree.update_traits(uuid, after)
        case DeleteProvider(uuid, name, _):
            if tree.children(uuid):
                raise ValueError(f"provider {name} ({uuid}) has children")
            tree.remove(uuid)
        case EnsureTraits() | EnsureResourceClass() | KeepProvider():
            return
