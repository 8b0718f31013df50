"""Filters of GET /resource_providers on single providers, evaluated on the index."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from placement_server.candidates.index.arrays import SlotArray
from placement_server.candidates.index.index import Index


class ProviderFilters(Struct, frozen=True):
    """Conditions on a provider by itself; trees and sharing play no role.

    :param required: sets of traits, one of each of which must be there; so for `member_of`.
    """

    resources: Mapping[str, int] = {}
    required: Sequence[frozenset[str]] = ()
    forbidden: frozenset[str] = frozenset()
    member_of: Sequence[frozenset[str]] = ()
    forbidden_aggregates: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Check whether there is any condition."""
        return bool(self.resources or self.traits() or self.aggregates())

    def traits(self) -> frozenset[str]:
        """Return all traits that are named."""
        return self.forbidden.union(*self.required)

    def aggregates(self) -> frozenset[str]:
        """Return all aggregates that are named."""
        return self.forbidden_aggregates.union(*self.member_of)


def matching_ids(filters: ProviderFilters, index: Index) -> list[int] | None:
    """Return the ids of the providers that pass, ascending.

    None when the index leaves out a tree, or when a name of the query is not among those of the
    index as it is spelled there: the store decides what that means.
    """
    names, sets = index.names, index.columns.aggregate_sets
    if (
        index.left_out
        or not names.class_ids.keys() >= filters.resources.keys()
        or not names.trait_ids.keys() >= filters.traits()
        or not all(sets.numbers_with(aggregate) for aggregate in filters.aggregates())
    ):
        return None
    slots: SlotArray = np.arange(index.size, dtype=np.int32)
    for number, (name, amount) in enumerate(filters.resources.items()):
        view = index.classes.get(names.class_ids[name])
        fitting = view.slots_fitting(amount) if view is not None else slots[:0]
        slots = np.intersect1d(slots, fitting, assume_unique=True) if number else fitting
    if filters.required or filters.forbidden:
        terms = [[names.trait_ids[trait] for trait in term] for term in filters.required]
        forbidden_ids = [names.trait_ids[trait] for trait in filters.forbidden]
        slots = slots[index.passing_trait_sets(terms, forbidden_ids)[index.trait_set[slots]]]
    if filters.member_of or filters.forbidden_aggregates:
        passing_sets = index.passing_aggregate_sets(filters.member_of, filters.forbidden_aggregates)
        slots = slots[passing_sets[index.aggregate_set[slots]]]
    ids: list[int] = np.sort(index.columns.provider_id.view()[index.living_slots(slots)]).tolist()
    return ids
