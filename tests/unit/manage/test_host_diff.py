"""Two hosts side by side."""

import uuid
from collections.abc import Mapping

import pytest

from compute_agent.cmd.agent.diff import HostDifference, differences, providers_of
from compute_agent.provider_tree import ProviderData, ProviderTree


def record(total: int, **fields: float) -> dict[str, float]:
    whole = {"total": total, "reserved": 0, "min_unit": 1, "max_unit": total, "step_size": 1}
    return {**whole, "allocation_ratio": 1.0, **fields}


def host(
    name: str, *, total: int = 8, cells: int = 2, traits: tuple[str, ...] = ()
) -> Mapping[str, ProviderData]:
    tree = ProviderTree()
    root = tree.new_root(name, str(uuid.uuid4()))
    tree.update_inventory(root, {"DISK_GB": record(100)})
    for cell in range(cells):
        child = tree.new_child(f"{name}_NUMA{cell}", root)
        tree.update_inventory(child, {"VCPU": record(total, allocation_ratio=4.0)})
        tree.update_traits(child, {"HW_NUMA_ROOT", *traits})
    return providers_of(tree, root)


def test_hosts_that_differ_in_their_names_alone_are_equal() -> None:
    assert differences(host("one"), host("two")) == []


@pytest.mark.parametrize("swapped", [False, True])
def test_everything_that_differs_is_told_by_provider(swapped: bool) -> None:
    pair = [host("one"), host("two", total=4, cells=3, traits=("CUSTOM_A",))]
    if swapped:
        pair.reverse()
    found = differences(*pair)

    def sides(first: object, second: object) -> tuple[object, object]:
        return (second, first) if swapped else (first, second)

    per_cell = [
        ("VCPU total", *sides(8, 4)),
        ("VCPU max_unit", *sides(8, 4)),
        ("traits", *sides([], ["CUSTOM_A"])),
    ]
    expected = [
        HostDifference(f"_NUMA{cell}", aspect, first, second)
        for cell in (0, 1)
        for aspect, first, second in per_cell
    ]
    expected.append(HostDifference("_NUMA2", "provider", *sides("absent", "present")))
    assert sorted(found, key=str) == sorted(expected, key=str)
