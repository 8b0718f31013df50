"""Eligible providers by item, and the roots that are left, found with array operations only.

Groups are looked at in the order of the query, and the search stops at the first that nothing can
serve.
"""

from functools import reduce
from itertools import accumulate
from operator import and_, or_
from typing import NoReturn

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from placement_server.candidates.index.arrays import BoolArray, IntArray, SlotArray, has_any
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.sharing import NO_LINKS, Links
from placement_server.candidates.limits import Account
from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from placement_server.candidates.search.course import Course
from placement_server.candidates.search.known_query import (
    KnownQuery,
    ProviderFilter,
    UnknownName,
    known_query,
)

_NO_ROOTS = np.empty(0, dtype=np.int64)


class _Nothing(Exception):
    """No provider or no root is left."""


class EligibleProviders(Struct):
    """The providers that can serve each item.

    :ivar own: by item, over all slots: may serve it for its own tree.
    :ivar foreign: by item, over all slots: may serve it for another tree that it is linked to.
    :ivar terms: by required term of the unsuffixed group: the slots that have one of the traits.
    :ivar roots: the roots that may have candidates, in canonical order. A root that is not here
        has none; one that is here need not have any.
    :ivar links: the links to these sharing providers that matter.
    """

    own: list[BoolArray] = []
    foreign: list[BoolArray] = []
    terms: list[BoolArray] = []
    roots: IntArray = _NO_ROOTS
    links: Links = NO_LINKS


class _RootFilter(Struct, eq=False):
    """The roots of one search, narrowed group by group.

    They are kept as a mask of slots: taking them out of an array costs many times what a filter
    does.

    :param suffixed_masks: the slots that pass, by what a suffixed group asks for.
    """

    query: CandidateQuery
    known: KnownQuery
    index: Index
    account: Account
    course: Course | None
    whatever_amounts: bool
    remaining_mask: BoolArray
    eligible: EligibleProviders
    suffixed_masks: dict[tuple[object, ...], BoolArray] = {}

    def run(self) -> EligibleProviders:
        """Return what is eligible; with no roots when nothing can be."""
        self.account.take(self.index.size)
        try:
            self._narrow_by_root()
            for number, group in enumerate(self.query.groups):
                if group.suffix:
                    self._restrict_by_suffixed(number, group)
                else:
                    self._restrict_by_unsuffixed(number, group)
        except _Nothing:
            return self.eligible
        self.eligible.roots = self.index.roots_in(self.remaining_mask)
        self.eligible.links = self._useful_links()
        return self.eligible

    def _keep_roots(self, passing_mask: BoolArray, group: str, reason: str) -> None:
        """Keep the roots among some slots.

        :param passing_mask: over all slots.
        """
        before, self.remaining_mask = self.remaining_mask, self.remaining_mask & passing_mask
        if self.course is not None:
            self.course.roots_rejected(group, reason, self.index.roots_in(before & ~passing_mask))
        if not has_any(self.remaining_mask):
            raise _Nothing

    def _narrow_by_root(self) -> None:
        asked = self.known.of_root
        reasons = [f"root_{name}" for name in asked.parameters()]
        for reason, passing_mask in zip(reasons, passing_masks(asked, self.index), strict=True):
            self._keep_roots(passing_mask, "root", reason)

    def _places_of(self, group: RequestGroup) -> tuple[BoolArray | None, int | None]:
        """Return which slots pass `member_of`, and the root of the tree of a group.

        None for what is not asked for; nothing is left where none can pass.
        """
        index = self.index
        member: BoolArray | None = None
        if group.member_of:
            member = index.with_aggregates(group.member_of)
            if not has_any(member):
                self._nothing(group, "member_of")
        root: int | None = None
        if group.in_tree is not None:
            slot = index.slot_of(group.in_tree)
            if slot is None:
                self._nothing(group, "in_tree")
            root = int(index.root[slot])
        return member, root

    def _nothing(self, group: RequestGroup, reason: str) -> NoReturn:
        self._keep_roots(np.zeros(self.index.size, dtype=bool), group.suffix, reason)
        raise _Nothing

    def _restrict_by_suffixed(self, number: int, group: RequestGroup) -> None:
        key = (
            tuple(sorted(group.resources)), group.required, group.forbidden, group.member_of,
            group.forbidden_aggregates, group.in_tree,
        )  # fmt: skip
        mask = self.suffixed_masks.get(key)
        if mask is None:
            self.account.take(self.index.size)
            mask = self.suffixed_masks[key] = self._suffixed_mask(number, group)
            self._keep_reached(mask, mask, group, "group")
        self.eligible.own.append(mask)
        self.eligible.foreign.append(mask)

    def _suffixed_mask(self, number: int, group: RequestGroup) -> BoolArray:
        _member, tree = self._places_of(group)
        asked = self.known.of_groups[number]
        masks = passing_masks(asked, self.index, whatever_amounts=self.whatever_amounts)
        reasons = [f"resources {name}:{amount}" for name, amount in group.resources]
        reasons += asked.parameters()
        if tree is not None:
            masks.append(self.index.root == tree)
            reasons.append("in_tree")
        passing_mask = np.ones(self.index.size, dtype=bool)
        for reason, passing_mask in zip(reasons, accumulate(masks, and_), strict=True):
            self._report_left(group, reason, passing_mask)
        return passing_mask

    def _report_left(self, group: RequestGroup, reason: str, passing_mask: BoolArray) -> None:
        if self.course is not None:
            self.course.providers_left(group.suffix, reason, np.flatnonzero(passing_mask))

    def _keep_reached(
        self, own: BoolArray, foreign: BoolArray | None, group: RequestGroup, reason: str
    ) -> None:
        """Keep the roots whose trees have an eligible provider or are linked to one."""
        index, links = self.index, self.index.links
        reached_mask = own
        if index.has_nested:
            reached_mask = _mask(index.size, index.root.take(own.nonzero()[0]))
        if foreign is not None and len(links.share):
            reached_mask = reached_mask.copy()
            reached_mask[links.anchor[foreign[links.share]]] = True
        self._keep_roots(reached_mask, group.suffix, reason)

    def _restrict_by_unsuffixed(self, number: int, group: RequestGroup) -> None:
        index, asked = self.index, self.known.of_groups[number]
        member, tree = self._places_of(group)
        if asked.forbidden_aggregates:
            self._keep_roots(index.with_aggregates((), asked.forbidden_aggregates), "", "member_of")
        own_filter = self._unsuffixed_filter(asked, member, tree)
        # No provider shares with a tree that a group is bound to.
        shares = len(index.links.share) > 0 and tree is None
        foreign_filter = self._foreign_filter(asked) if shares else None
        none = np.zeros(index.size, dtype=bool)
        owns, foreigns = self.eligible.own, self.eligible.foreign
        first = len(owns)
        # For its own tree, for others, and what they come to so far.
        self.account.take((4 if asked.terms else 2) * index.size * len(group.resources))
        for (name, amount), (class_id, _amount) in zip(group.resources, asked.amounts, strict=True):
            own = _fitting(index, class_id, None if self.whatever_amounts else amount)
            reason = f"resources {name}:{amount}"
            self._report_left(group, reason, own)
            foreign = none if foreign_filter is None else own & foreign_filter
            if own_filter is not None:
                own = own & own_filter
            self._keep_reached(own, foreign if shares else None, group, reason)
            owns.append(own)
            foreigns.append(foreign)
        if not asked.terms:
            return
        self.account.take(index.size * len(asked.terms))
        any_own = reduce(or_, owns[first:])
        any_foreign = reduce(or_, foreigns[first:]) if shares else None
        for names, term in zip(group.required, asked.terms, strict=True):
            having = index.with_traits((term,))
            self.eligible.terms.append(having)
            self._keep_reached(
                any_own & having,
                None if any_foreign is None else any_foreign & having,
                group,
                f"required {','.join(sorted(names))}",
            )

    def _unsuffixed_filter(
        self, asked: ProviderFilter, member: BoolArray | None, tree: int | None
    ) -> BoolArray | None:
        """Return which slots may serve the unsuffixed group for their own tree; None for all."""
        index, filters = self.index, list[BoolArray]()
        if asked.forbidden_ids:
            filters.append(index.with_traits((), asked.forbidden_ids))
        if member is not None:
            # One and the same provider, the candidate or its root, must meet all the terms.
            filters.append(member | member.take(index.root) if index.has_nested else member)
        if asked.forbidden_aggregates:
            filters.append(index.with_aggregates((), asked.forbidden_aggregates))
        if tree is not None:
            filters.append(index.root == tree)
        return reduce(and_, filters) if filters else None

    def _foreign_filter(self, asked: ProviderFilter) -> BoolArray:
        """Return which sharing providers may serve the unsuffixed group for linked trees."""
        index = self.index
        passing_mask = _mask(index.size, index.links.share)
        passing_mask &= index.with_aggregates(asked.member_of, asked.forbidden_aggregates)
        return passing_mask & index.with_traits((), asked.forbidden_ids)

    def _useful_links(self) -> Links:
        links = self.index.links
        if not len(links.share):
            return links
        self.account.take(links.share.nbytes + links.anchor.nbytes)
        useful = reduce(or_, self.eligible.foreign)
        if not useful.any():
            return NO_LINKS
        matter = useful[links.share] & self.remaining_mask[links.anchor]
        return Links(links.share[matter], links.anchor[matter])


def _fitting(index: Index, class_id: int, amount: int | None) -> BoolArray:
    """Return which slots have room for an amount, or any inventory where it is None."""
    view = index.classes.get(class_id)
    if view is None:
        return np.zeros(index.size, dtype=bool)
    return view.mask(index.size, None if amount is None else view.fits(amount))


def passing_masks(
    asked: ProviderFilter, index: Index, *, whatever_amounts: bool = False
) -> list[BoolArray]:
    """Return the slots that pass each part of a filter, dead ones included.

    :param whatever_amounts: see `find_eligible`.
    """
    masks = [
        _fitting(index, class_id, None if whatever_amounts else amount)
        for class_id, amount in asked.amounts
    ]
    if asked.terms or asked.forbidden_ids:
        masks.append(index.with_traits(asked.terms, asked.forbidden_ids))
    if asked.member_of or asked.forbidden_aggregates:
        masks.append(index.with_aggregates(asked.member_of, asked.forbidden_aggregates))
    return masks


def _mask(size: int, slots: IntArray | SlotArray) -> BoolArray:
    mask = np.zeros(size, dtype=bool)
    mask[slots] = True
    return mask


def find_eligible(
    query: CandidateQuery,
    known: KnownQuery,
    index: Index,
    account: Account,
    course: Course | None = None,
    *,
    whatever_amounts: bool = False,
) -> EligibleProviders:
    """Find the providers that can serve the items of a query.

    :param account: counts what is kept of each item.
    :param course: where filters report what they left.
    :param whatever_amounts: an inventory of a class is enough, be it used up.
    """
    parts = query, known, index, account, course, whatever_amounts
    return _RootFilter(*parts, index.is_root, EligibleProviders()).run()


def lone_roots(asked: ProviderFilter, index: Index, account: Account) -> IntArray:
    """Find the trees of a flat fleet that pass a filter, which asks for some amount, in order."""
    account.take(2 * index.size)
    return index.roots_in(reduce(and_, passing_masks(asked, index)))


def passing_providers(group: RequestGroup, index: Index) -> list[int] | None:
    """Return the ids of the providers that pass all filters of a group by themselves, ascending.

    None when the index leaves out a tree, or when a name of the group is not among those of the
    index as it is spelled there: the store decides what that means.
    """
    aggregates = group.forbidden_aggregates.union(*group.member_of)
    if index.left_out or not all(map(index.columns.aggregate_sets.numbers_with, aggregates)):
        return None
    try:
        # one provider has to serve all of a suffixed group
        query = CandidateQuery((replace(group, suffix="_"),))
        known = known_query(query, index.names)
    except UnknownName:
        return None
    eligible = find_eligible(query, known, index, Account())
    if not eligible.own:
        return []
    slots = index.living_slots(eligible.own[0].nonzero()[0])
    ids: list[int] = np.sort(index.columns.provider_id.view()[slots]).tolist()
    return ids
