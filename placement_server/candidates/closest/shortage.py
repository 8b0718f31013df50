"""Providers that come closest to what a query asks for, and lack nothing but free amounts.

Of a tree only those are looked at whose shortage is in its way: where one provider has enough for a
group, another one that has not is no obstacle. Trees come first that lack the smallest share of
what they lack most of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits import Account
from placement_server.candidates.query.query import CandidateQuery, Item, Plan
from placement_server.candidates.search.eligible import EligibleProviders, find_eligible
from placement_server.candidates.search.known_query import known_query
from placement_server.store.allocations.room import Room

Shares = npt.NDArray[np.float64]

# Shares of a tree count more than any share of a provider in it.
_TREE_WEIGHT = 1e6


class Shortage(NamedTuple):
    """A provider that cannot give what a group asks of one class.

    :ivar group: the suffix of the group.
    :ivar slot: the slot of the provider.
    """

    group: str
    slot: int
    resource_class: str
    requested_amount: int

    def words(self, room: Room) -> str:
        """Return what a provider with this room has or gives, and what is asked for."""
        what, amount = self.resource_class, self.requested_amount
        of_group = f" by group '{self.group}'" if self.group else ""
        if room.free < amount:
            verb = "consumer holds" if room.consumers == 1 else "consumers hold"
            holders = f", {room.consumers} {verb} some" if room.consumers else ""
            had = f"has {room.free} of {room.capacity} {what} free{holders}"
        else:
            had = {
                "min_unit": f"gives at least {room.min_unit} {what} at a time (min_unit)",
                "max_unit": f"gives at most {room.max_unit} {what} at a time (max_unit)",
                "step_size": f"gives {what} in multiples of {room.step_size} (step_size)",
            }[room.unit_against(amount) or "max_unit"]
        return f"{had}; {amount} asked for{of_group}"


class _Lack(NamedTuple):
    """Providers that lack amounts for one item, each with a tree in whose way that is.

    :ivar share: by slot, the share that it has of what it lacks most of, up to 1.
    :ivar lacking: for each amount of the item, by slot, whether it is lacked.
    """

    item: Item
    slots: IntArray
    trees: IntArray
    share: Shares
    lacking: list[BoolArray]


def find_shortages(
    query: CandidateQuery, index: Index, account: Account, most: int
) -> list[Shortage]:
    """Find the closest providers, each with every class that it is short of.

    :param account: counts what is held meanwhile.
    :param most: how many providers at most.
    :raises SearchGaveUp: there is not enough memory.
    """
    held_bytes = account.held_bytes
    try:
        known = known_query(query, index.names)
        eligible = find_eligible(query, known, index, account, whatever_amounts=True)
        if not len(eligible.roots):
            return []
        # The arrays that are made for one item after the other.
        account.take(6 * 8 * index.size)
        return _closest(query, index, list(_lacks(known.plan, index, eligible, account)), most)
    finally:
        account.give(account.held_bytes - held_bytes)


def _closest(query: CandidateQuery, index: Index, lacks: list[_Lack], most: int) -> list[Shortage]:
    of_tree = np.ones(index.size)
    for lack in lacks:
        best = np.full(index.size, -1.0)
        np.maximum.at(best, lack.trees, lack.share[lack.slots])
        of_tree = np.minimum(of_tree, np.where(best < 0, 1.0, best))
    score = np.full(index.size, -1.0)
    for lack in lacks:
        shares = of_tree[lack.trees] * _TREE_WEIGHT + lack.share[lack.slots]
        np.maximum.at(score, lack.slots, shares)
    # Of the groups that ask a provider for one class, that which asks for most tells enough.
    largest: dict[tuple[int, str], Shortage] = {}
    for slot in _largest(score, most):
        for lack in (lack for lack in lacks if slot in lack.slots):
            suffix = query.groups[lack.item.group].suffix
            for (class_id, amount), lacking in zip(lack.item.amounts, lack.lacking, strict=True):
                name = index.names.class_names[class_id]
                if lacking[slot]:
                    shortage = Shortage(suffix, slot, name, amount)
                    if largest.setdefault((slot, name), shortage).requested_amount < amount:
                        largest[slot, name] = shortage
    return list(largest.values())


def _lacks(
    plan: Plan, index: Index, eligible: EligibleProviders, account: Account
) -> Iterator[_Lack]:
    """Yield what is lacked of each item; of equal items once."""
    own_slots = np.flatnonzero(index.columns.living_mask(eligible.roots))
    links = eligible.links
    # Each provider with its own tree, and then with the trees that it is linked to.
    slots = np.concatenate((own_slots, links.share))
    trees = np.concatenate((index.root[own_slots], links.anchor))
    seen_keys: set[tuple[object, int]] = set()
    for item, own, foreign in zip(plan.items, eligible.own, eligible.foreign, strict=True):
        if not item.amounts or (item.amounts, id(own)) in seen_keys:
            continue
        seen_keys.add((item.amounts, id(own)))
        # What is kept: the pairs, what is lacking, and the share.
        account.take(2 * 8 * len(slots) + (8 + len(item.amounts)) * index.size)
        lacking, share = _measured(item, index)
        usable = np.concatenate((own[own_slots], foreign[links.share]))
        fits = ~np.logical_or.reduce(lacking)
        is_served = np.zeros(index.size, dtype=bool)
        is_served[trees[usable & fits[slots]]] = True
        in_the_way = usable & ~is_served[trees]
        if in_the_way.any():
            yield _Lack(item, slots[in_the_way], trees[in_the_way], share, lacking)


def _measured(item: Item, index: Index) -> tuple[list[BoolArray], Shares]:
    """Return for each amount of an item which slots lack it, and what share of it they have."""
    lacking, smallest_share = [], np.ones(index.size)
    for class_id, amount in item.amounts:
        view = index.classes[class_id]
        share = np.zeros(index.size)
        # An integer of any size may be asked for; there is no float for the largest.
        share[view.slot] = np.clip(view.fit / float(min(amount, 2**62)), 0.0, 1.0)
        smallest_share = np.minimum(smallest_share, share)
        lacking.append(~view.mask(index.size, view.fits(amount)))
    return lacking, smallest_share


def _largest(score: Shares, most: int) -> list[int]:
    """Return the slots with the largest scores from 0 on, the largest first."""
    slots: IntArray = np.flatnonzero(score >= 0)
    if len(slots) > most:
        last = np.partition(score[slots], len(slots) - most)[len(slots) - most]
        above, equal = slots[score[slots] > last], slots[score[slots] == last]
        slots = np.concatenate((above, equal[: most - len(above)]))
    ordered_slots: list[int] = slots[np.argsort(-score[slots], kind="stable")].tolist()
    return ordered_slots
