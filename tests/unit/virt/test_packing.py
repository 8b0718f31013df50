"""Room on NUMA cells for what was held of the whole host."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute_agent.virt.reshape.packing import Demand, Packing, pack, proportional


def demand(consumer: str, vcpu: int, mib: int, **place: int) -> Demand:
    return Demand(consumer, {"VCPU": vcpu, "MEMORY_MB": mib})


def room(*cells: tuple[int, int]) -> dict[int, dict[str, int]]:
    return {i: {"VCPU": vcpu, "MEMORY_MB": mib} for i, (vcpu, mib) in enumerate(cells)}


def cells_of(packing: Packing, consumer: str) -> list[int]:
    return sorted(packing.parts[consumer])


@pytest.mark.parametrize(
    ("demands", "rooms", "cells"),
    [
        ([demand("a", 2, 1000)], room((8, 4000), (8, 1500), (8, 900)), {"a": 1}),
        ([demand("a", 4, 100)], room((2, 500), (8, 5000)), {"a": 1}),
        (
            [demand("a", 1, 600), demand("b", 1, 900)],
            room((4, 1000), (4, 600)),
            {"a": 1, "b": 0},
        ),
        ([demand("b", 1, 500), demand("a", 1, 500)], room((4, 500), (4, 500)), {"a": 0, "b": 1}),
    ],
    ids=[
        "where least memory is left that still holds it",
        "where there is room of every class",
        "the larger one first",
        "the lower uuid on the lower cell where all is equal",
    ],
)
def test_a_consumer_goes_to_one_cell(
    demands: list[Demand], rooms: dict[int, dict[str, int]], cells: dict[str, int]
) -> None:
    packing = pack(demands, rooms)
    assert {name: cells_of(packing, name) for name in cells} == {n: [c] for n, c in cells.items()}


def test_a_consumer_too_large_for_a_cell_is_split_in_one_proportion() -> None:
    packing = pack([demand("a", 8, 8000)], room((6, 6000), (6, 6000)))
    assert packing.parts["a"] == {
        0: {"VCPU": 4, "MEMORY_MB": 4000},
        1: {"VCPU": 4, "MEMORY_MB": 4000},
    }


def test_a_split_uses_as_few_cells_as_can_be() -> None:
    packing = pack([demand("a", 8, 800)], room((3, 300), (5, 500), (3, 300)))
    assert len(cells_of(packing, "a")) == 2


def test_the_proportion_is_given_up_before_the_consumer_is() -> None:
    packing = pack([demand("a", 6, 6000)], room((5, 2000), (1, 4000)))
    assert packing.misfits == ()
    assert packing.parts["a"] == {
        0: {"VCPU": 5, "MEMORY_MB": 2000},
        1: {"VCPU": 1, "MEMORY_MB": 4000},
    }


def test_one_cpu_cannot_be_split() -> None:
    packing = pack([demand("a", 1, 1000)], room((4, 600), (4, 600)))
    assert [m.consumer for m in packing.misfits] == ["a"]


def test_all_that_do_not_fit_are_told_with_what_is_missing() -> None:
    packing = pack([demand("a", 2, 5000), demand("b", 9, 100), demand("c", 1, 10)], room((8, 1000)))
    assert {m.consumer: dict(m.missing_amounts) for m in packing.misfits} == {
        "a": {"MEMORY_MB": 4000},
        "b": {"VCPU": 1},
    }
    assert cells_of(packing, "c") == [0]


def test_a_known_place_is_followed_even_where_another_would_fit_better() -> None:
    known = Demand(
        "a",
        {"VCPU": 4, "MEMORY_MB": 1000},
        {0: {"VCPU": 1, "MEMORY_MB": 250}, 1: {"VCPU": 3, "MEMORY_MB": 750}},
    )
    packing = pack([known], room((8, 4000), (8, 4000)))
    assert packing.parts["a"] == {
        0: {"VCPU": 1, "MEMORY_MB": 250},
        1: {"VCPU": 3, "MEMORY_MB": 750},
    }


def test_a_known_place_without_room_is_told_with_what_it_lacks() -> None:
    known = Demand("a", {"VCPU": 4}, {0: {"VCPU": 1}, 7: {"VCPU": 1}})
    packing = pack([known], {0: {"VCPU": 1}, 1: {"VCPU": 8}})
    assert packing.parts == {}
    assert [(m.consumer, dict(m.missing_amounts)) for m in packing.misfits] == [("a", {"VCPU": 3})]


def test_known_places_are_taken_before_the_others_choose() -> None:
    known = Demand("z", {"VCPU": 4}, {0: {"VCPU": 4}})
    floating = Demand("a", {"VCPU": 4})
    packing = pack([floating, known], {0: {"VCPU": 4}, 1: {"VCPU": 4}})
    assert cells_of(packing, "a") == [1]


@pytest.mark.parametrize(
    ("total", "weights", "least", "parts"),
    [
        (10, [1, 1, 1], 0, [4, 3, 3]),
        (5, [0, 0], 0, [3, 2]),
        (7, [1, 6], 1, [2, 5]),
        (2, [9, 1], 1, [1, 1]),
    ],
)
def test_whole_units_are_divided_by_weight(
    total: int, weights: list[int], least: int, parts: list[int]
) -> None:
    assert proportional(total, weights, least) == parts


amounts = st.fixed_dictionaries(
    {"MEMORY_MB": st.integers(1, 400)},
    optional={"VCPU": st.integers(1, 12), "PCPU": st.integers(1, 6)},
)
cells = st.dictionaries(
    st.integers(0, 9),
    st.fixed_dictionaries(
        {
            "VCPU": st.integers(0, 16),
            "PCPU": st.integers(0, 8),
            "MEMORY_MB": st.integers(0, 800),
        }
    ),
    min_size=1,
    max_size=5,
)


@given(st.lists(amounts, max_size=8), cells)
def test_nothing_is_lost_nothing_overfilled_and_no_part_is_empty(
    held: list[dict[str, int]], free: dict[int, dict[str, int]]
) -> None:
    demands = [Demand(f"c{i}", holding) for i, holding in enumerate(held)]
    packing = pack(demands, free)
    used: Counter[tuple[int, str]] = Counter()
    misfits = {m.consumer for m in packing.misfits}
    assert misfits.isdisjoint(packing.parts)
    for demand in demands:
        if demand.consumer in misfits:
            continue
        sums: Counter[str] = Counter()
        for cell, part in packing.parts[demand.consumer].items():
            assert set(part) == set(demand.amounts)
            assert all(n >= 1 for n in part.values())
            sums.update(part)
            used.update({(cell, rc): n for rc, n in part.items()})
        assert dict(sums) == demand.amounts
    assert all(n <= free[cell][rc] for (cell, rc), n in used.items())
    assert pack(demands[::-1], dict(reversed(free.items()))) == packing


@given(amounts, cells)
def test_a_lone_consumer_only_misfits_when_no_division_could_fit(
    held: dict[str, int], free: dict[int, dict[str, int]]
) -> None:
    packing = pack([Demand("c", held)], free)
    if packing.misfits:
        usable = [room for room in free.values() if all(room[rc] >= 1 for rc in held)]
        parts = min(len(usable), *held.values())
        for count in range(1, parts + 1):
            for rc, amount in held.items():
                best = sorted((room[rc] for room in usable), reverse=True)[:count]
                if sum(best) < amount:
                    break
            else:
                # enough of each class on some cells, but not on the same ones
                assert count < len(usable)
