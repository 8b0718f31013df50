"""Eligible providers by item, and the roots that are left, found with array operations only.

Groups are looked at in the order of the query, and the search stops at the first that nothing can
serve. Before that all names of classes and traits are looked up: whether a client gets
an error for a wrong one must not depend on what else there is.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from placement_server.candidates.errors import QueryError
from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.set_table import looked_up
from placement_server.candidates.index.sharing import NO_LINKS, Links
from placement_server.candidates.limits import Account
from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from placement_server.candidates.search.course import Course


class UnknownName(QueryError):
    """A class or trait of the query is not among the names that the index knows."""


class _Nothing(Exception):
    """No provider or no root is left."""


@dataclass(slots=True)
class EligibleProviders:
    """The providers that can serve each item.

    :ivar own: by item, over all slots: may serve it for its own tree.
    :ivar foreign: by item, over all slots: may serve it for another tree that it is linked to.
    :ivar terms: by required term of the unsuffixed group: the slots that have one of the traits.
    :ivar roots: the roots that may have candidates, in canonical order. A root that is not here
        has none; one that is here need not have any.
    :ivar links: the links to these sharing providers that matter.
    """

    own: list[BoolArray] = field(default_factory=list)
    foreign: list[BoolArray] = field(default_factory=list)
    terms: list[BoolArray] = field(default_factory=list)
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
        index: Index,
        account: Account,
        course: Course | None,
        *,
        whatever_amounts: bool,
    ) -> None:
        self.whatever_amounts = whatever_amounts
        self.query = query
        self.index = index
        self.course = course
        self.account = account
        account.take(index.size)
        self.remaining_mask = index.is_root
        self.eligible = EligibleProviders()
        self._masks: dict[tuple[object, ...], tuple[BoolArray, BoolArray]] = {}

    def run(self) -> EligibleProviders:
        """Return what is eligible; with no roots when nothing can be."""
        self._check_names()
        try:
            self._narrow_by_root()
            for group in self.query.groups:
                if group.suffix:
                    self._restrict_by_suffixed(group)
                else:
                    self._restrict_by_unsuffixed(group)
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
        return roots.take(np.flatnonzero(slots.take(roots)))

    def _keep_roots(self, passing_mask: BoolArray, group: str, reason: str) -> None:
        """Keep the roots among some slots.

        :param passing_mask: over all slots.
        """
        before, self.remaining_mask = self.remaining_mask, self.remaining_mask & passing_mask
        if self.course is not None:
            self.course.roots_rejected(group, reason, self._roots_in(before & ~passing_mask))
        if not self.remaining_mask.any():
            raise _Nothing

    def _narrow_by_root(self) -> None:
        query, index = self.query, self.index
        if query.root_required or query.root_forbidden:
            required_terms = [self._trait_ids([name]) for name in sorted(query.root_required)]
            forbidden_ids = self._trait_ids(sorted(query.root_forbidden))
            sets = index.passing_trait_sets(required_terms, forbidden_ids)
            self._keep_roots(looked_up(sets, index.trait_set), "root", "root_required")
        if query.root_member_of or query.root_forbidden_aggregates:
            sets = index.passing_aggregate_sets(
                query.root_member_of, query.root_forbidden_aggregates
            )
            self._keep_roots(looked_up(sets, index.aggregate_set), "root", "root_member_of")

    def _check_names(self) -> None:
        self._trait_ids(sorted(self.query.root_required))
        self._trait_ids(sorted(self.query.root_forbidden))
        for group in self.query.groups:
            self._check_classes(group)
            for term in group.required:
                self._trait_ids(sorted(term))
            self._trait_ids(sorted(group.forbidden))

    def _check_classes(self, group: RequestGroup) -> None:
        for name, _amount in group.resources:
            if name not in self.index.names.class_ids:
                raise UnknownName(
                    f"Invalid resource class in resources parameter: No such resource class {name}."
                )

    def _trait_ids(self, names: Iterable[str]) -> list[int]:
        trait_ids = self.index.names.trait_ids
        ids = []
        for name in names:
            if name not in trait_ids:
                raise UnknownName(f"No such trait(s): {name}.")
            ids.append(trait_ids[name])
        return ids

    def _traits_and_tree(
        self, group: RequestGroup
    ) -> tuple[list[list[int]], list[int], int | None]:
        """Return the ids of the traits, required and forbidden, and the root that a group names."""
        index = self.index
        if group.member_of and not index.passing_aggregate_sets(group.member_of, frozenset()).any():
            self._nothing(group, "member_of")
        terms = [self._trait_ids(sorted(term)) for term in group.required]
        forbidden_ids = self._trait_ids(sorted(group.forbidden))
        root: int | None = None
        if group.in_tree is not None:
            slot = self.index.slot_of(group.in_tree)
            if slot is None:
                self._nothing(group, "in_tree")
            root = int(self.index.root[slot])
        return terms, forbidden_ids, root

    def _nothing(self, group: RequestGroup, reason: str) -> NoReturn:
        self._keep_roots(np.zeros(self.index.size, dtype=bool), group.suffix, reason)
        raise _Nothing

    def _fitting(self, class_id: int, amount: int) -> BoolArray:
        """Return which slots have room for an amount, dead ones included."""
        view = self.index.classes.get(class_id)
        if view is None:
            return np.zeros(self.index.size, dtype=bool)
        return view.mask(self.index.size, None if self.whatever_amounts else view.fits(amount))

    def _restrict_by_suffixed(self, group: RequestGroup) -> None:
        key = (
            tuple(sorted(group.resources)), group.required, group.forbidden, group.member_of,
            group.forbidden_aggregates, group.in_tree,
        )  # fmt: skip
        if key in self._masks:
            own, foreign = self._masks[key]
        else:
            self.account.take(self.index.size)
            own = foreign = self._suffixed_mask(group)
            self._masks[key] = own, foreign
            self._keep_reached(own, foreign, group, "group")
        self.eligible.own.append(own)
        self.eligible.foreign.append(foreign)

    def _suffixed_mask(self, group: RequestGroup) -> BoolArray:
        index = self.index
        class_ids = index.names.class_ids
        terms, forbidden_ids, tree = self._traits_and_tree(group)
        passing_mask = np.ones(index.size, dtype=bool)
        for name, amount in group.resources:
            passing_mask &= self._fitting(class_ids[name], amount)
            self._report_left(group, f"resources {name}:{amount}", passing_mask)
        if terms or forbidden_ids:
            passing_mask &= looked_up(
                index.passing_trait_sets(terms, forbidden_ids), index.trait_set
            )
            self._report_left(group, "required", passing_mask)
        if group.member_of or group.forbidden_aggregates:
            sets = index.passing_aggregate_sets(group.member_of, group.forbidden_aggregates)
            passing_mask &= looked_up(sets, index.aggregate_set)
            self._report_left(group, "member_of", passing_mask)
        if tree is not None:
            passing_mask &= index.root == tree
            self._report_left(group, "in_tree", passing_mask)
        return passing_mask

    def _report_left(self, group: RequestGroup, reason: str, passing_mask: BoolArray) -> None:
        if self.course is not None:
            self.course.providers_left(group.suffix, reason, np.flatnonzero(passing_mask))

    def _keep_reached(
        self, own: BoolArray, foreign: BoolArray, group: RequestGroup, reason: str
    ) -> None:
        """Keep the roots whose trees have an eligible provider or are linked to one."""
        index, links = self.index, self.index.links
        reached_mask = own
        if index.has_nested:
            reached_mask = _mask(index.size, index.root.take(np.flatnonzero(own)))
        if len(links.share):
            reached_mask = reached_mask.copy()
            reached_mask[links.anchor[foreign[links.share]]] = True
        self._keep_roots(reached_mask, group.suffix, reason)

    def _restrict_by_unsuffixed(self, group: RequestGroup) -> None:
        index = self.index
        class_ids = index.names.class_ids
        terms, forbidden_ids, tree = self._traits_and_tree(group)
        if group.forbidden_aggregates:
            clean = index.passing_aggregate_sets((), group.forbidden_aggregates)
            self._keep_roots(looked_up(clean, index.aggregate_set), "", "member_of")
        own_filter = self._unsuffixed_filter(group, forbidden_ids, tree)
        foreign_filter = self._foreign_filter(group, forbidden_ids)
        has_links = len(index.links.share) > 0
        any_own = any_foreign = none = np.zeros(index.size, dtype=bool)
        for name, amount in group.resources:
            own = self._fitting(class_ids[name], amount)
            self._report_left(group, f"resources {name}:{amount}", own)
            # For its own tree, for others, and what they come to so far.
            self.account.take((4 if terms else 2) * index.size)
            # No provider shares with a tree that a group is bound to.
            foreign = own & foreign_filter if tree is None and has_links else none
            if own_filter is not None:
                own = own & own_filter
            self._keep_reached(own, foreign, group, f"resources {name}:{amount}")
            if terms:
                any_own = any_own | own
                any_foreign = any_foreign | foreign
            self.eligible.own.append(own)
            self.eligible.foreign.append(foreign)
        for names, term in zip(group.required, terms, strict=True):
            self.account.take(index.size)
            having = looked_up(index.passing_trait_sets([term], []), index.trait_set)
            self.eligible.terms.append(having)
            self._keep_reached(
                any_own & having, any_foreign & having, group, f"required {','.join(sorted(names))}"
            )

    def _unsuffixed_filter(
        self, group: RequestGroup, forbidden_ids: list[int], tree: int | None
    ) -> BoolArray | None:
        """Return which slots may serve the unsuffixed group for their own tree; None for all."""
        index = self.index
        passing_mask: BoolArray | None = None
        if forbidden_ids:
            passing_mask = looked_up(index.passing_trait_sets([], forbidden_ids), index.trait_set)
        if group.member_of:
            # One and the same provider, the candidate or its root, must meet all the terms.
            sets = index.passing_aggregate_sets(group.member_of, frozenset())
            member = looked_up(sets, index.aggregate_set)
            if index.has_nested:
                member |= member.take(index.root)
            passing_mask = member if passing_mask is None else passing_mask & member
        if group.forbidden_aggregates:
            sets = index.passing_aggregate_sets((), group.forbidden_aggregates)
            clean = looked_up(sets, index.aggregate_set)
            passing_mask = clean if passing_mask is None else passing_mask & clean
        if tree is not None:
            inside = index.root == tree
            passing_mask = inside if passing_mask is None else passing_mask & inside
        return passing_mask

    def _foreign_filter(self, group: RequestGroup, forbidden_ids: list[int]) -> BoolArray:
        """Return which sharing providers may serve the unsuffixed group for linked trees."""
        index = self.index
        passing_mask = np.zeros(index.size, dtype=bool)
        if len(index.links.share):
            share = np.flatnonzero(_mask(index.size, index.links.share))
            sets = index.passing_aggregate_sets(group.member_of, group.forbidden_aggregates)
            share = share[sets[index.aggregate_set[share]]]
            passing_mask[
                share[index.passing_trait_sets([], forbidden_ids)[index.trait_set[share]]]
            ] = True
        return passing_mask

    def _useful_links(self) -> Links:
        links = self.index.links
        if not len(links.share):
            return links
        self.account.take(links.share.nbytes + links.anchor.nbytes)
        useful = np.zeros(self.index.size, dtype=bool)
        for foreign in self.eligible.foreign:
            useful |= foreign
        if not useful.any():
            return NO_LINKS
        matter = useful[links.share] & self.remaining_mask[links.anchor]
        return Links(links.share[matter], links.anchor[matter])


def _mask(size: int, slots: IntArray) -> BoolArray:
    mask = np.zeros(size, dtype=bool)
    mask[slots] = True
    return mask


def find_eligible(
    query: CandidateQuery,
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
    :raises UnknownName: a class or trait does not exist, as far as the index knows.
    """
    return _RootFilter(query, index, account, course, whatever_amounts=whatever_amounts).run()
