"""Orders of moves against all orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_server.candidates.make_room import plan
from placement_server.candidates.make_room.holdings import Amounts
from placement_server.candidates.make_room.places import Place, Places
from placement_server.candidates.make_room.plan import Move, find_order
from placement_server.candidates.search.tree_classes import TreeView

CLASS, SLOTS = 7, 4
AMOUNTS = st.dictionaries(st.integers(0, SLOTS - 1), st.integers(1, 2), min_size=1, max_size=2)
MOVES = st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=4)
FREE = st.lists(st.integers(0, 2), min_size=SLOTS, max_size=SLOTS)


def amounts_of(slots: dict[int, int]) -> Amounts:
    return tuple(((slot, CLASS), amount) for slot, amount in slots.items())


def move_of(consumer: int, held: dict[int, int], taken: dict[int, int]) -> Move:
    place = Place(0, amounts_of(taken), TreeView(0, SLOTS, ()), (), cast(Places, None))
    return Move(consumer, amounts_of(held), place)


def lacks(order: Sequence[Move], free: list[int]) -> Iterator[frozenset[object]]:
    """Yield what each move lacks in its turn, up to the first that lacks something."""
    left = list(free)
    for move in order:
        lack = {(k, n - left[k[0]]) for k, n in move.place.amounts if n > left[k[0]]}
        yield frozenset(lack)
        if lack:
            return
        for (slot, _class), amount in move.place.amounts:
            left[slot] -= amount
        for (slot, _class), amount in move.held:
            left[slot] += amount


@given(MOVES, FREE)
def test_an_order_is_found_where_there_is_one_and_else_all_that_is_lacked(
    amounts: list[tuple[dict[int, int], dict[int, int]]], free: list[int]
) -> None:
    moves = [move_of(number, *pair) for number, pair in enumerate(amounts)]
    lacked = [list(lacks(order, free)) for order in permutations(moves)]
    steps = find_order(moves, {CLASS: np.array(free)}, lambda: None)
    assert steps.is_whole
    all_lacks = {lack for lacks in lacked for lack in lacks} - {frozenset()}
    if steps.order is None:
        assert all(lacks[-1] for lacks in lacked)
        assert steps.blocked == all_lacks
    else:
        assert sorted(move.consumer for move in steps.order) == [*range(len(moves))]
        assert not any(lacks(steps.order, free))
        assert steps.blocked <= all_lacks


@pytest.mark.parametrize(("most", "is_whole"), [(24, False), (25, True)])
def test_after_many_sets_of_moves_no_further_order_is_tried(
    monkeypatch: pytest.MonkeyPatch, most: int, is_whole: bool
) -> None:
    """The first five may be made in any order, the last one never: 31 sets are made."""
    monkeypatch.setattr(plan, "_MOST_SETS", most)
    moves = [*(move_of(number, {1: 1}, {0: 1}) for number in range(5)), move_of(5, {1: 1}, {0: 9})]
    looks: list[None] = []
    steps = find_order(moves, {CLASS: np.array([5, 0])}, lambda: looks.append(None))
    assert (steps.order, steps.is_whole) == (None, is_whole)
    assert 31 <= len(looks) <= 64
