"""Overview of all trees: what each has and uses of every class, its traits and its aggregates.

Sums are over the providers of a tree; a tree has the traits and aggregates of any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from placement_server.candidates.index.arrays import IntArray
from placement_server.candidates.index.class_columns import ClassView
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.set_table import SetTable

_LARGEST = 2**53
"""JSON numbers beyond this are not exact in a browser."""


@dataclass(frozen=True, slots=True)
class ClassUse:
    """What trees have and use of one class.

    :ivar hosts: the places of these trees; `None` when all trees have the class.
    """

    hosts: list[int] | None
    capacity: list[int]
    used: list[int]


@dataclass(frozen=True, slots=True)
class Overview:
    """All trees, or some: each list has an entry for each.

    :ivar trait_sets: numbers of entries of `traits`.
    :ivar aggregate_sets: numbers of entries of `aggregates`.
    """

    uuids: list[str]
    provider_counts: list[int]
    trait_sets: list[int]
    aggregate_sets: list[int]
    traits: list[list[str]]
    aggregates: list[list[str]]
    classes: dict[str, ClassUse]


def overview(index: Index, uuids: Sequence[str] | None = None) -> Overview:
    """Return the overview of the trees with these roots, or of all.

    Those that are not a root, or do not exist, are left out.
    """
    roots = index.roots if uuids is None else _roots(index, uuids)
    places = np.full(index.size, -1, dtype=np.int64)
    places[roots] = np.arange(len(roots))
    place_of_slot = places[index.root]
    is_living = place_of_slot >= 0
    owners = place_of_slot[is_living]
    trait_sets, traits = _unions(owners, index.trait_set[is_living], index.columns.trait_sets)
    aggregate_sets, aggregates = _unions(
        owners, index.aggregate_set[is_living], index.columns.aggregate_sets
    )
    names = index.names
    uses = {
        name: _use(view, place_of_slot, len(roots))
        for name, view in index.classes_by_name().items()
    }
    return Overview(
        uuids=[index.columns.uuid[slot] for slot in roots.tolist()],
        provider_counts=(index.end[roots] - roots).tolist(),
        trait_sets=trait_sets,
        aggregate_sets=aggregate_sets,
        traits=[sorted(names.trait_names[trait] for trait in members) for members in traits],
        aggregates=[sorted(members) for members in aggregates],
        classes={name: use for name, use in sorted(uses.items()) if use.capacity},
    )


def _roots(index: Index, uuids: Iterable[str]) -> IntArray:
    slots = {slot for uuid in uuids if (slot := index.slot_of(uuid)) is not None}
    return np.array(sorted(slot for slot in slots if index.root[slot] == slot), dtype=np.int64)


def _use(view: ClassView, place_of_slot: IntArray, count: int) -> ClassUse:
    places = place_of_slot[view.slot]
    is_living = places >= 0
    places = places[is_living]

    def sum_of(values: npt.NDArray[Any]) -> IntArray:
        sums = np.bincount(places, weights=np.floor(values[is_living]), minlength=count)
        return np.minimum(sums, _LARGEST).astype(np.int64)

    have = np.unique(places)
    return ClassUse(
        have.tolist() if len(have) < count else None,
        sum_of(view.shown_capacity)[have].tolist(),
        sum_of(view.used)[have].tolist(),
    )


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
