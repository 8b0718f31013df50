"""Links between sharing providers and the trees that may use them.

A provider with the trait MISC_SHARES_VIA_AGGREGATE serves every tree that has a provider with an
aggregate in common with it. The pairs (sharing provider, root of such another tree) are *links*;
that a sharing provider serves its own tree needs no link.
"""

import numpy as np
from msgspec import Struct

from placement_server.candidates.index.arrays import IntArray
from placement_server.candidates.index.columns import Columns


class Links(Struct, frozen=True):
    """Pairs of slots, by anchor and then by sharing provider.

    :param share: slots of sharing providers.
    :param anchor: slots of the roots whose trees may use them.
    """

    share: IntArray
    anchor: IntArray

    def to(self, root_slot: int) -> list[int]:
        """Return the slots of the sharing providers that the tree of a root may use."""
        start, stop = np.searchsorted(self.anchor, (root_slot, root_slot + 1))
        return [int(slot) for slot in self.share[start:stop]]


NO_LINKS = Links(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def links_in_order(share: IntArray, anchor: IntArray) -> Links:
    """Return links by anchor and then by sharing provider."""
    order = np.lexsort((share, anchor))
    return Links(share[order], anchor[order])


def find_links(columns: Columns, roots: IntArray, sharing_trait: int | None) -> Links:
    """Compute the links of the living trees from scratch.

    :param roots: the slots of the living roots.
    :param sharing_trait: the id of the sharing trait, None where the store does not know it.
    """
    if (
        sharing_trait is None
        or not columns.trait_sets.numbers_with(sharing_trait)
        or not len(roots)
    ):
        return NO_LINKS
    slots = np.flatnonzero(columns.living_mask(roots))
    shares = columns.trait_sets.containing_any((sharing_trait,), len(columns.trait_sets.members))
    aggregate_set = columns.aggregate_set.view()
    share_slots = slots[shares[columns.trait_set.view()[slots]]]
    root = columns.root.view()
    sets = aggregate_set[slots]
    order = np.argsort(sets, kind="stable")
    numbers, starts = np.unique(sets[order], return_index=True)
    groups = np.split(root[slots[order]], starts[1:])
    by_set = {
        int(number): np.unique(group).astype(np.int64)
        for number, group in zip(numbers, groups, strict=True)
    }
    anchors_by_number: dict[int, IntArray] = {}
    share_parts: list[IntArray] = []
    anchor_parts: list[IntArray] = []
    for slot in share_slots.tolist():
        number = int(aggregate_set[slot])
        anchors = anchors_by_number.get(number)
        if anchors is None:
            anchors = anchors_by_number[number] = _anchors(columns, number, by_set)
        anchors = anchors[anchors != root[slot]]
        share_parts.append(np.full(len(anchors), slot, dtype=np.int64))
        anchor_parts.append(anchors)
    if not share_parts:
        return NO_LINKS
    return links_in_order(np.concatenate(share_parts), np.concatenate(anchor_parts))


def _anchors(columns: Columns, number: int, by_set: dict[int, IntArray]) -> IntArray:
    sets = {
        other
        for aggregate in columns.aggregate_sets.members[number]
        for other in columns.aggregate_sets.numbers_with(aggregate)
    }
    roots = [by_set[other] for other in sorted(sets) if other in by_set]
    return np.unique(np.concatenate(roots)) if roots else np.empty(0, dtype=np.int64)
