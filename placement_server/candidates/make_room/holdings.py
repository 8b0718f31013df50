"""Holdings of consumers in arrays, and the shape that each of them keeps when it moves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from placement_server.candidates.index.arrays import BoolArray, IntArray, SlotArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.query.query import CandidateQuery, RequestGroup, SameSubtree
from placement_server.store.providers.tree import SHARING_TRAIT

MEMORY: Final = "MEMORY_MB"

Key = tuple[int, int]
"""A provider's slot and a class id."""
Amounts = tuple[tuple[Key, int], ...]


class HeldAmounts(Struct, frozen=True):
    """Allocations as the store has them, one entry of each array for each.

    :ivar consumers: the uuids.
    :ivar consumer: the position of its consumer among them.
    """

    consumers: Sequence[str]
    consumer: IntArray
    provider_id: IntArray
    class_id: IntArray
    amount: IntArray


class _Part(NamedTuple):
    """What a consumer holds of one provider.

    :ivar above: the number of the part of the next provider above; -1 where there is none.
    :ivar amounts: by class id.
    """

    trait_set: int
    above: int
    amounts: tuple[tuple[int, int], ...]


class Holdings:
    """The consumers that may move, by number, in one state of the index.

    Left out is who holds something of several trees, as during a move, or of a provider that is
    not here, or more than is in use: the allocations may have been read a moment later.

    :param is_left_alone: over all slots, the roots of trees whose consumers stay.
    :param left_alone: the uuids of consumers that stay.
    :param ignored_traits: traits that no other place needs to have.
    :param requests: by consumer, what to ask for instead of what it holds.
    :ivar tree: by consumer, the slot of the root of its tree; -1 for those that stay.
    :ivar memory: by consumer, the memory that it holds.
    :ivar identities: by consumer, a number that is equal for those either of which may move for the
        other.
    :ivar is_pool: over all slots, whether other trees may use a provider.
    :ivar is_whole: whether nothing had to be left out.
    """

    def __init__(
        self,
        index: Index,
        held: HeldAmounts,
        is_left_alone: BoolArray,
        left_alone: Collection[str],
        ignored_traits: Collection[str],
        requests: Mapping[str, CandidateQuery],
    ) -> None:
        self.index = index
        self.uuids = held.consumers
        self._requests = requests
        self._ignored_traits = frozenset(ignored_traits)
        slot = _slots_of(index, held.provider_id)
        order = np.lexsort((held.class_id, slot, held.consumer))
        self.consumer = held.consumer[order]
        self.slot, self.class_id = slot[order], held.class_id[order]
        self.amount = held.amount[order]
        count = len(held.consumers)
        self._starts = np.searchsorted(self.consumer, np.arange(count + 1))
        sharing = index.names.trait_ids.get(SHARING_TRAIT)
        # A term of no traits is met by none.
        self.is_pool = index.with_traits((() if sharing is None else (sharing,),))
        root = index.root[self.slot].astype(np.int64)
        is_private = ~self.is_pool[self.slot]
        has_private = np.zeros(count, bool)
        has_private[self.consumer[is_private]] = True
        deciding = is_private | ~has_private[self.consumer]
        lowest, highest = np.full(count, index.size), np.full(count, -1)
        np.minimum.at(lowest, self.consumer[deciding], root[deciding])
        np.maximum.at(highest, self.consumer[deciding], root[deciding])
        stays = lowest != highest
        wrong = (self.slot < 0) | (self.amount > self._used())
        stays[self.consumer[wrong]] = True
        self.is_whole = not stays.any()
        stays |= is_left_alone[lowest]
        stays |= np.fromiter(map(left_alone.__contains__, held.consumers), bool, count)
        self.tree: IntArray = np.where(stays, -1, highest)
        self.memory = np.zeros(count, np.int64)
        of_memory = self.class_id == index.names.class_ids.get(MEMORY, -1)
        np.add.at(self.memory, self.consumer[of_memory], self.amount[of_memory])
        self.shapes: list[CandidateQuery] = []
        self._shape_numbers: dict[object, int] = {}
        self._holders: dict[Key, dict[int, int]] = {}
        position = np.where(self.is_pool[self.slot], self.slot, self.slot - root)
        self._kinds = self._mixed(
            position, index.trait_set[self.slot], index.shape[self.slot], self.class_id, self.amount
        )
        if requests:
            numbers = {request: number for number, request in enumerate(requests.values(), 1)}
            for consumer, uuid in enumerate(held.consumers):
                if uuid in requests:
                    self._kinds[consumer] = -numbers[requests[uuid]]
        mixed = self._mixed(self.slot, self.class_id, self.amount)
        self.identities: IntArray = mixed ^ (self._kinds << 1)
        self._shape_of = np.full(count, -1, np.int64)

    def _mixed(self, *columns: IntArray | SlotArray) -> IntArray:
        """Return a number for each consumer that is equal where all that it holds is equal.

        Others differ, as good as surely: by 64 bits.
        """
        mixed = np.zeros(len(self.consumer), np.uint64)
        for column in columns:
            mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        sums = np.zeros(len(self.uuids), np.uint64)
        np.add.at(sums, self.consumer, mixed * np.uint64(0xBF58476D1CE4E5B9))
        return sums.astype(np.int64)

    def _used(self) -> IntArray:
        """Return what is in use of the inventory of each allocation."""
        used = np.zeros(len(self.slot), np.int64)
        for class_id in np.unique(self.class_id).tolist():
            view = self.index.classes.get(class_id)
            if view is not None:
                of_class = np.flatnonzero(self.class_id == class_id)
                used[of_class] = view.by_slot(self.index.size, view.used)[self.slot[of_class]]
        return used

    def held(self, consumer: int) -> Amounts:
        """Return what a consumer holds."""
        rows = slice(*self._starts[consumer : consumer + 2].tolist())
        keys = zip(self.slot[rows].tolist(), self.class_id[rows].tolist(), strict=True)
        return tuple(zip(keys, self.amount[rows].tolist(), strict=True))

    def memory_of(self, consumers: Iterable[int]) -> int:
        """Return the memory that some consumers hold in sum."""
        return int(sum(self.memory[consumer] for consumer in consumers))

    def size(self, consumer: int) -> tuple[int, int]:
        """Return what the larger of two consumers has more of: memory, or all in sum."""
        return int(self.memory[consumer]), sum(amount for _key, amount in self.held(consumer))

    @cached_property
    def most_in_tree(self) -> int:
        """How many consumers that may move the fullest tree has."""
        return int(np.bincount(self.tree[self.tree >= 0], minlength=1).max())

    @cached_property
    def by_slot(self) -> IntArray:
        """The allocations of the consumers that may move, by slot."""
        movable = np.flatnonzero(self.tree[self.consumer] >= 0)
        by_slot: IntArray = movable[np.argsort(self.slot[movable], kind="stable")]
        return by_slot

    @cached_property
    def _first_by_slot(self) -> IntArray:
        """Where the allocations of each slot begin there."""
        slots = np.arange(self.index.size + 1)
        first: IntArray = np.searchsorted(self.slot[self.by_slot], slots)
        return first

    def holders(self, key: Key) -> dict[int, int]:
        """Return who holds some of an inventory, with the amounts, the largest first."""
        holders = self._holders.get(key)
        if holders is None:
            first, end = self._first_by_slot[key[0] : key[0] + 2].tolist()
            rows = self.by_slot[first:end]
            rows = rows[self.class_id[rows] == key[1]]
            rows = rows[np.argsort(-self.amount[rows], kind="stable")]
            pairs = zip(self.consumer[rows].tolist(), self.amount[rows].tolist(), strict=True)
            holders = self._holders[key] = dict(pairs)
        return holders

    def on_trees(self, roots: Collection[int]) -> tuple[list[int], list[int]]:
        """Return the consumers of some trees that may move, and who stays there."""
        of_trees = np.isin(self.index.root[self.slot], list(roots)) & (self.slot >= 0)
        consumers = np.unique(self.consumer[of_trees])
        moves = np.isin(self.tree[consumers], list(roots))
        return consumers[moves].tolist(), consumers[~moves].tolist()

    def shape(self, consumer: int) -> int:
        """Return the number of the shape of a consumer; equal numbers ask for the same."""
        kind = int(self._kinds[consumer])
        number = self._shape_numbers.get(kind)
        if number is None:
            # What differs by where it is held may ask for the same.
            request = self._requests.get(self.uuids[consumer])
            key: object = request or self._parts(consumer)
            number = self._shape_numbers.setdefault(key, len(self.shapes))
            self._shape_numbers[kind] = number
            if number == len(self.shapes):
                self.shapes.append(request or self._query(self._parts(consumer)))
        return number

    def shapes_of(self, consumers: IntArray) -> IntArray:
        """Return the numbers of the shapes of some consumers."""
        new = consumers[self._shape_of[consumers] < 0]
        _kinds, first, kind = np.unique(self._kinds[new], return_index=True, return_inverse=True)
        shapes = np.array([self.shape(consumer) for consumer in new[first].tolist()], np.int64)
        self._shape_of[new] = shapes[kind]
        shapes_of: IntArray = self._shape_of[consumers]
        return shapes_of

    def held_at(self, class_id: int, position: int) -> IntArray:
        """Return by consumer what it holds of a class at a position of its tree."""
        rows = (self.class_id == class_id) & (self.slot - self.tree[self.consumer] == position)
        held = np.zeros(len(self.tree), np.int64)
        held[self.consumer[rows]] = self.amount[rows]
        return held

    def _parts(self, consumer: int) -> tuple[_Part, ...]:
        """Return what a consumer holds, by provider."""
        by_slot: dict[int, list[tuple[int, int]]] = {}
        for (slot, class_id), amount in self.held(consumer):
            by_slot.setdefault(slot, []).append((class_id, amount))
        slots = list(by_slot)
        ends = self.index.end[slots].tolist()
        above = [
            max((o for o in range(at) if slot < ends[o]), default=-1)
            for at, slot in enumerate(slots)
        ]
        sets = self.index.trait_set[slots].tolist()
        return tuple(map(_Part, sets, above, map(tuple, by_slot.values())))

    def _query(self, parts: Sequence[_Part]) -> CandidateQuery:
        names, groups, subtrees = self.index.names, [], []
        sets = self.index.columns.trait_sets.members
        for number, part in enumerate(parts, 1):
            traits = {names.trait_names[trait] for trait in sets[part.trait_set]}
            resources = [(names.class_names[class_id], n) for class_id, n in part.amounts]
            required = [frozenset({name}) for name in sorted(traits - self._ignored_traits)]
            groups.append(RequestGroup(f"_{number}", tuple(resources), tuple(required)))
            if part.above >= 0:
                subtrees.append(SameSubtree(frozenset({f"_{part.above + 1}", f"_{number}"})))
        return CandidateQuery(tuple(groups), "isolate", same_subtree=tuple(subtrees))


def _slots_of(index: Index, provider_ids: IntArray) -> IntArray:
    """Return the living slots of providers, -1 for those that are not here."""
    slots = np.flatnonzero(index.columns.living_mask(index.roots))
    ids = index.columns.provider_id.view()[slots]
    order = np.argsort(ids)
    if not len(ids):
        return np.full(len(provider_ids), -1, np.int64)
    at = np.minimum(np.searchsorted(ids[order], provider_ids), len(ids) - 1)
    places = order[at]
    return np.where(ids[places] == provider_ids, slots[places], -1)
