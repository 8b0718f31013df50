"""Overview of all trees: what each has and uses of every class, its traits and its aggregates.

Sums are over the providers of a tree; a tree has the traits and aggregates of any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from placement_server.candidates.index.arrays import IntArray
from placement_server.candidates.index.class_columns import ClassView
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.set_table import SetTable

_LARGEST = 2**53
"""JSON numbers beyond this are not exact in a browser."""


def overview(index: Index, uuids: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the overview of the trees with these roots, or of all, as the pages read it.

    Each list has an entry for each tree; `traits` and `aggregates` are numbers of entries of
    `trait_sets` and `aggregate_sets`. Those that are not a root, or do not exist, are left out.
    """
    roots = index.roots if uuids is None else _roots(index, uuids)
    places = np.full(index.size, -1, dtype=np.int64)
    places[roots] = np.arange(len(roots))
    place_of_slot = places[index.root]
    is_living = place_of_slot >= 0
    owners = place_of_slot[is_living]
    numbers_of_traits, trait_sets = _unions(
        owners, index.trait_set[is_living], index.columns.trait_sets
    )
    numbers_of_aggregates, aggregate_sets = _unions(
        owners, index.aggregate_set[is_living], index.columns.aggregate_sets
    )
    names = index.names
    uses = {
        name: _use(view, place_of_slot, len(roots))
        for name, view in index.classes_by_name().items()
    }
    return {
        "uuids": [index.columns.uuid[slot] for slot in roots.tolist()],
        "providers": (index.end[roots] - roots).tolist(),
        "traits": numbers_of_traits,
        "trait_sets": [sorted(map(names.trait_names.__getitem__, traits)) for traits in trait_sets],
        "aggregates": numbers_of_aggregates,
        "aggregate_sets": list(map(sorted, aggregate_sets)),
        "classes": {name: use for name, use in sorted(uses.items()) if use["capacity"]},
    }


def _roots(index: Index, uuids: Iterable[str]) -> IntArray:
    slots = {slot for uuid in uuids if (slot := index.slot_of(uuid)) is not None}
    return np.array(sorted(slot for slot in slots if index.root[slot] == slot), dtype=np.int64)


def _use(view: ClassView, place_of_slot: IntArray, count: int) -> dict[str, list[int] | None]:
    """Return the places of the trees with a class, None for all, and what they have and use."""
    places = place_of_slot[view.slot]
    is_living = places >= 0
    places = places[is_living]

    def sum_of(values: npt.NDArray[Any]) -> IntArray:
        sums = np.bincount(places, weights=np.floor(values[is_living]), minlength=count)
        return np.minimum(sums, _LARGEST).astype(np.int64)

    have = np.unique(places)
    return {
        "host": have.tolist() if len(have) < count else None,
        "capacity": sum_of(view.shown_capacity)[have].tolist(),
        "used": sum_of(view.used)[have].tolist(),
    }


def _unions(
    owners: IntArray, numbers: npt.NDArray[Any], table: SetTable
) -> tuple[list[int], list[tuple[Any, ...]]]:
    """Return for each owner the number of the union of its sets, and these unions."""
    if not len(owners):
        return [], []
    pairs = np.unique(np.stack([owners, numbers], axis=1), axis=0)
    starts = np.flatnonzero(np.diff(pairs[:, 0])) + 1
    unions = SetTable()
    known_unions: dict[tuple[int, ...], int] = {}
    result = []
    for group in np.split(pairs[:, 1], starts):
        key = tuple(group.tolist())
        number = known_unions.get(key)
        if number is None:
            members = {member for number_of_set in key for member in table.members[number_of_set]}
            number = known_unions[key] = unions.intern(tuple(sorted(members)))
        result.append(number)
    return result, unions.members
