"""Words for what was written to placement, and what of it is a loss."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

import pytest
from msgspec.structs import replace

from compute_agent.provider_tree.inventory import Inventory, complete_inventory
from compute_agent.report.steps import (
    CreateProvider,
    DeleteProvider,
    EnsureTraits,
    Reshape,
    SetInventories,
    SetInventory,
    SetTraits,
    Step,
)
from compute_agent.report.written_changes import written_changes
from compute_agent.virt.driver import ClassChange

UUID = "5b1c8a3e-7d0f-4a55-9a51-2f5a8b1b7c11"


def stock(**totals: int) -> Inventory:
    return complete_inventory({name: {"total": total} for name, total in totals.items()})


def lines(*steps: Step, became: Collection[ClassChange] = ()) -> list[tuple[str, bool]]:
    return [(change.text, change.is_loss) for change in written_changes(steps, became)]


def amounts(before: Inventory, after: Inventory) -> SetInventory:
    return SetInventory(UUID, "h_GPU", before, after)


def test_each_amount_has_a_line_and_less_than_before_is_a_loss() -> None:
    one = amounts(
        stock(VGPU=8, PCPU=4, VCPU=2, CUSTOM_FEWER=3, CUSTOM_SAME=1),
        stock(VGPU=0, PCPU=6, CUSTOM_X=1, CUSTOM_FEWER=2, CUSTOM_SAME=1),
    )
    wanted_lines = [
        ("CUSTOM_FEWER of h_GPU: total 3 to 2", True),
        ("CUSTOM_X of h_GPU: total 1, new", False),
        ("PCPU of h_GPU: total 4 to 6", False),
        ("VCPU of h_GPU: total 2, removed", True),
        ("VGPU of h_GPU: total 8 to 0", True),
    ]
    found_lines = lines(one)
    assert found_lines == wanted_lines
    assert lines(SetInventories((one,))) == found_lines
    assert lines(Reshape((one,), {"c": {}})) == [
        ("reshape, moving the allocations of 1 consumer(s)", False),
        *found_lines,
    ]


@pytest.mark.parametrize(
    ("most_before", "most", "text"),
    [
        (8, 6, "total 8 to 6"),
        (4, 6, "total 8 to 6, max_unit 4 to 6"),
        (8, 2, "total 8 to 6, max_unit 8 to 2"),
    ],
)
def test_a_most_that_is_all_there_is_goes_without_saying(
    most_before: int, most: int, text: str
) -> None:
    before, after = (
        complete_inventory({"PCPU": {"total": total, "max_unit": max_unit}})
        for total, max_unit in ((8, most_before), (6, most))
    )
    assert lines(amounts(before, after)) == [(f"PCPU of h_GPU: {text}", True)]


def test_what_moves_to_another_provider_is_no_loss() -> None:
    moved = SetInventory(UUID, "h_NUMA0", stock(), stock(VGPU=8))
    assert not any(loss for _, loss in lines(amounts(stock(VGPU=8), stock()), moved))
    fewer = replace(moved, after=stock(VGPU=6))
    found_lines = lines(Reshape((amounts(stock(VGPU=8), stock()), fewer), {}))
    assert [text for text, loss in found_lines if loss] == ["VGPU of h_GPU: total 8, removed"]


@pytest.mark.parametrize(
    ("became", "total", "is_loss"),
    [
        ([], 8, True),
        ([ClassChange("CUSTOM_A", "CUSTOM_C")], 8, True),
        ([ClassChange("CUSTOM_A", "CUSTOM_B")], 8, False),
        ([ClassChange("CUSTOM_A", "CUSTOM_B")], 7, True),
        ([ClassChange("CUSTOM_A", "CUSTOM_B", 1000)], 8000, False),
        ([ClassChange("CUSTOM_A", "CUSTOM_B", 1000)], 7999, True),
        ([ClassChange("CUSTOM_A", "CUSTOM_B", Fraction(1, 3))], 2, False),
        ([ClassChange("CUSTOM_A", "CUSTOM_B", Fraction(1, 3))], 1, True),
        ([ClassChange("CUSTOM_A", "CUSTOM_A", 1, UUID)], 8, False),
    ],
)
def test_what_a_reshape_made_of_a_class_is_no_loss_where_it_is_as_much(
    became: list[ClassChange], total: int, is_loss: bool
) -> None:
    before = stock(CUSTOM_A=8, CUSTOM_GONE=1)
    reshape = Reshape((amounts(before, stock(CUSTOM_B=total)),), {})
    losses = {text.partition(" ")[0] for text, loss in lines(reshape, became=became) if loss}
    assert losses == {"CUSTOM_GONE", *(["CUSTOM_A"] if is_loss else [])}


@pytest.mark.parametrize(("total", "is_loss"), [(99, False), (0, True)])
def test_a_store_that_has_a_bit_less_room_is_no_loss(total: int, is_loss: bool) -> None:
    ((_, found_loss),) = lines(amounts(stock(DISK_GB=100), stock(DISK_GB=total)))
    assert found_loss is is_loss


def test_providers_and_traits_have_a_line_and_names_made_known_have_none() -> None:
    assert lines(
        EnsureTraits(("CUSTOM_A",)),
        CreateProvider(UUID, "h_GPU", None),
        SetTraits(UUID, "h_GPU", frozenset(), frozenset({"CUSTOM_A"})),
        DeleteProvider(UUID, "h_GPU", None),
    ) == [
        (f"create provider h_GPU ({UUID}) as a root", False),
        ("set traits of h_GPU: +CUSTOM_A", False),
        (f"delete provider h_GPU ({UUID})", True),
    ]


def test_a_hundred_traits_are_cut_to_a_line() -> None:
    traits = frozenset(f"HW_CPU_X86_{number}" for number in range(100))
    ((text, _),) = lines(SetTraits(UUID, "h", frozenset(), traits))
    assert len(text) <= 400
    assert text.endswith("[...]")
