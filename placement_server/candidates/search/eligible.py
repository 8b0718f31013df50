"""Eligible providers by item, and the roots that are left, found with array operations only.

Groups are looked at in the order of the query, and the search stops at the first that nothing can
serve.
"""

from collections.abc import Iterable
from functools import reduce
from operator import and_, or_
from typing import NoReturn

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from placement_server.candidates.index.arrays import BoolArray, IntArray, SlotArray, has_any
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.set_table import looked_up
from placement_server.candidates.index.sharing import NO_LINKS, Links
from placement_server.candidates.limits import Account
from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from placement_server.candidates.search.course import Course
from placement_server.candidates.search.known_query import KnownQuery, UnknownName, known_query


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
    roots: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    links: Links = NO_LINKS


class _RootFilter:
    """The roots of one search, narrowed group by group.

    They are kept as a mask of slots: taking them out of an array costs many times what a filter
    does.
    """

    def __init__(
        self,
        query: CandidateQuery,
        known: KnownQuery,
        index: Index,
        account: Account,
        course: Course | None,
        *,
        whatever_amounts: bool,
    ) -> None:
        self.whatever_amounts = whatever_amounts
        self.query = query
        self.known = known
        self.index = index
        self.course = course
        self.account = account
        account.take(index.size)
        self.remaining_mask = index.is_root
        self.eligible = EligibleProviders()
        self._masks: dict[tuple[object, ...], BoolArray] = {}

    def run(self) -> EligibleProviders:
        """Return what is eligible; with no roots when nothing can be."""
        try:
            self._narrow_by_root()
            for number, group in enumerate(self.query.groups):
                if group.suffix:
                    self._restrict_by_suffixed(number, group)
                else:
                    self._restrict_by_unsuffixed(number, group)
        except _Nothing:
            return self.eligible
        self.eligible.roots = self._roots_in(self.remaining_mask)
        self.eligible.links = self._useful_links()
        return self.eligible

    def _roots_in(self, slots: BoolArray) -> IntArray:
        """Return some roots, given as slots, in canonical order."""
        roots = self.index.roots
        if np.count_nonzero(slots) == len(roots):
            return roots
        return roots.take(slots.take(roots).nonzero()[0])

    def _keep_roots(self, passing_mask: BoolArray, group: str, reason: str) -> None:
        """Keep the roots among some slots.

        :param passing_mask: over all slots.
        """
        before, self.remaining_mask = self.remaining_mask, self.remaining_mask & passing_mask
        if self.course is not None:
            self.course.roots_rejected(group, reason, self._roots_in(before & ~passing_mask))
        if not has_any(self.remaining_mask):
            raise _Nothing

    def _narrow_by_root(self) -> None:
        query = self.query
        if query.root_required or query.root_forbidden:
            terms = [[number] for number in self.known.root_required_ids]
            passing_mask = self._with_traits(terms, self.known.root_forbidden_ids)
            self._keep_roots(passing_mask, "root", "root_required")
        if query.root_member_of or query.root_forbidden_aggregates:
            members, forbidden_aggregates = query.root_member_of, query.root_forbidden_aggregates
            passing_mask = self._with_aggregates(members, forbidden_aggregates)
            self._keep_roots(passing_mask, "root", "root_member_of")

    def _with_traits(self, terms: Iterable[list[int]], forbidden_ids: list[int]) -> BoolArray:
        """Return which slots have a trait of each term and none that is forbidden."""
        index = self.index
        return looked_up(index.passing_trait_sets(terms, forbidden_ids), index.trait_set)

    def _with_aggregates(
        self, terms: Iterable[frozenset[str]], forbidden_aggregates: frozenset[str]
    ) -> BoolArray:
        """Return which slots are in an aggregate of each term and in none that is forbidden."""
        sets = self.index.passing_aggregate_sets(terms, forbidden_aggregates)
        return looked_up(sets, self.index.aggregate_set)

    def _places_of(self, group: RequestGroup) -> tuple[BoolArray | None, int | None]:
        """Return which sets of aggregates pass `member_of`, and the root of the tree of a group.

        None for what is not asked for; nothing is left where none can pass.
        """
        index = self.index
        member_sets: BoolArray | None = None
        if group.member_of:
            member_sets = index.passing_aggregate_sets(group.member_of, ())
            if not has_any(member_sets):
                self._nothing(group, "member_of")
        root: int | None = None
        if group.in_tree is not None:
            slot = index.slot_of(group.in_tree)
            if slot is None:
                self._nothing(group, "in_tree")
            root = int(index.root[slot])
        return member_sets, root

    def _nothing(self, group: RequestGroup, reason: str) -> NoReturn:
        self._keep_roots(np.zeros(self.index.size, dtype=bool), group.suffix, reason)
        raise _Nothing

    def _fitting(self, name: str, amount: int) -> BoolArray:
        """Return which slots have room for an amount, dead ones included."""
        view = self.index.classes.get(self.index.names.class_ids[name])
        if view is None:
            return np.zeros(self.index.size, dtype=bool)
        return view.mask(self.index.size, None if self.whatever_amounts else view.fits(amount))

    def _restrict_by_suffixed(self, number: int, group: RequestGroup) -> None:
        key = (
            tuple(sorted(group.resources)), group.required, group.forbidden, group.member_of,
            group.forbidden_aggregates, group.in_tree,
        )  # fmt: skip
        mask = self._masks.get(key)
        if mask is None:
            self.account.take(self.index.size)
            mask = self._masks[key] = self._suffixed_mask(number, group)
            self._keep_reached(mask, mask, group, "group")
        self.eligible.own.append(mask)
        self.eligible.foreign.append(mask)

    def _suffixed_mask(self, number: int, group: RequestGroup) -> BoolArray:
        _member_sets, tree = self._places_of(group)
        terms, forbidden_ids = self.known.terms[number], self.known.forbidden_ids[number]
        passing_mask = np.ones(self.index.size, dtype=bool)
        for name, amount in group.resources:
            passing_mask &= self._fitting(name, amount)
            self._report_left(group, f"resources {name}:{amount}", passing_mask)
        if terms or forbidden_ids:
            passing_mask &= self._with_traits(terms, forbidden_ids)
            self._report_left(group, "required", passing_mask)
        if group.member_of or group.forbidden_aggregates:
            passing_mask &= self._with_aggregates(group.member_of, group.forbidden_aggregates)
            self._report_left(group, "member_of", passing_mask)
        if tree is not None:
            passing_mask &= self.index.root == tree
            self._report_left(group, "in_tree", passing_mask)
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
        index = self.index
        member_sets, tree = self._places_of(group)
        terms, forbidden_ids = self.known.terms[number], self.known.forbidden_ids[number]
        if group.forbidden_aggregates:
            clean = self._with_aggregates((), group.forbidden_aggregates)
            self._keep_roots(clean, "", "member_of")
        own_filter = self._unsuffixed_filter(group, forbidden_ids, member_sets, tree)
        # No provider shares with a tree that a group is bound to.
        shares = len(index.links.share) > 0 and tree is None
        foreign_filter = self._foreign_filter(group, forbidden_ids) if shares else None
        none = np.zeros(index.size, dtype=bool)
        owns, foreigns = self.eligible.own, self.eligible.foreign
        first = len(owns)
        # For its own tree, for others, and what they come to so far.
        self.account.take((4 if terms else 2) * index.size * len(group.resources))
        for name, amount in group.resources:
            own = self._fitting(name, amount)
            reason = f"resources {name}:{amount}"
            self._report_left(group, reason, own)
            foreign = none if foreign_filter is None else own & foreign_filter
            if own_filter is not None:
                own = own & own_filter
            self._keep_reached(own, foreign if shares else None, group, reason)
            owns.append(own)
            foreigns.append(foreign)
        if not terms:
            return
        self.account.take(index.size * len(terms))
        any_own = reduce(or_, owns[first:])
        any_foreign = reduce(or_, foreigns[first:]) if shares else None
        for names, term in zip(group.required, terms, strict=True):
            having = self._with_traits([term], [])
            self.eligible.terms.append(having)
            self._keep_reached(
                any_own & having,
                None if any_foreign is None else any_foreign & having,
                group,
                f"required {','.join(sorted(names))}",
            )

    def _unsuffixed_filter(
        self,
        group: RequestGroup,
        forbidden_ids: list[int],
        member_sets: BoolArray | None,
        tree: int | None,
    ) -> BoolArray | None:
        """Return which slots may serve the unsuffixed group for their own tree; None for all."""
        index, filters = self.index, list[BoolArray]()
        if forbidden_ids:
            filters.append(self._with_traits([], forbidden_ids))
        if member_sets is not None:
            # One and the same provider, the candidate or its root, must meet all the terms.
            member = looked_up(member_sets, index.aggregate_set)
            if index.has_nested:
                member |= member.take(index.root)
            filters.append(member)
        if group.forbidden_aggregates:
            filters.append(self._with_aggregates((), group.forbidden_aggregates))
        if tree is not None:
            filters.append(index.root == tree)
        return reduce(and_, filters) if filters else None

    def _foreign_filter(self, group: RequestGroup, forbidden_ids: list[int]) -> BoolArray:
        """Return which sharing providers may serve the unsuffixed group for linked trees."""
        index = self.index
        passing_mask = _mask(index.size, index.links.share)
        passing_mask &= self._with_aggregates(group.member_of, group.forbidden_aggregates)
        return passing_mask & self._with_traits([], forbidden_ids)

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
    limits = account, course
    return _RootFilter(query, known, index, *limits, whatever_amounts=whatever_amounts).run()


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
