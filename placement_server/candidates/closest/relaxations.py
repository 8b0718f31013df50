"""Relaxations of a query, each of which leaves out one condition or lowers one amount, and trials.

That of a condition is the field of the query, or of one of its groups, that holds the
condition, and the condition itself. Without it the query has at least the candidates that it had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import fields, replace

from placement_server.candidates import sizes
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits import Account, Deadline, SearchEffort
from placement_server.candidates.query.query import CandidateQuery, RequestGroup, SameSubtree
from placement_server.candidates.search.course import Course
from placement_server.candidates.search.search import Search, SearchLimits

AMOUNT: Final = "resources"
ROOT_TRAITS: Final = "root_required"

_FIELDS: Final = {
    "required": ("drop_trait", "without required {}"),
    "forbidden": ("allow_trait", "with {} allowed"),
    "member_of": ("drop_aggregate", "without member_of {}"),
    "forbidden_aggregates": ("allow_aggregate", "with aggregate {} allowed"),
    "in_tree": ("drop_in_tree", "without in_tree {}"),
    "same_subtree": ("drop_same_subtree", "without same_subtree={}"),
    "group_policy": ("drop_group_policy", "without group_policy={}"),
    "isolate": ("drop_isolate", "without isolate={}"),
    ROOT_TRAITS: ("drop_root_required", "without root_required={}"),
    "root_member_of": ("drop_aggregate", "without root_member_of {}"),
    "root_forbidden_aggregates": ("allow_aggregate", "with aggregate {} allowed on roots"),
}
"""By field of a group or of the query, in the order in which relaxations are listed: the key under
which an answer shows what is left out, and the words for the query that is left."""

_WHOLE: Final = frozenset({"in_tree", "group_policy", "isolate", ROOT_TRAITS})
"""Fields that are left out as a whole."""

H = TypeVar("H", CandidateQuery, RequestGroup)


class Relaxation(Struct, frozen=True):
    """One relaxation of a query.

    :param group: the suffix of the group that it is about; None for the query as a whole.
    :param field: the field that holds the condition, of the group or of the query.
    :param condition: what is left out: a member of the field, or all of it; for an amount the name
        of the class.
    :param requested_amount: the amount that is lowered; 0 where a condition is left out.
    """

    group: str | None
    field: str
    condition: Any
    requested_amount: int = 0

    def remaining_fields(
        self, holder: CandidateQuery | RequestGroup, amount: int
    ) -> dict[str, Any]:
        """Return the fields of the query or group that change, with what is left in them."""
        value = getattr(holder, self.field)
        if self.field == AMOUNT:
            return {
                AMOUNT: tuple((name, amount if name == self.condition else n) for name, n in value)
            }
        if self.field == ROOT_TRAITS:
            return {ROOT_TRAITS: frozenset(), "root_forbidden": frozenset()}
        if self.field in _WHOLE:
            defaults = {field.name: field.default for field in fields(holder)}
            return {self.field: defaults[self.field]}
        return {self.field: type(value)(member for member in value if member != self.condition)}

    def entry(self, amount: int = 0) -> dict[str, Any]:
        """Return the relaxation as an answer shows it."""
        if self.requested_amount:
            amounts = {"from": self.requested_amount, "to": amount}
            return {"group": self.group, "resource_class": self.condition, **amounts}
        return {"group": self.group, _FIELDS[self.field][0]: _spelled(self.condition)}

    def words(self, amount: int = 0) -> str:
        """Return the relaxation in words that follow "would fit"."""
        of_group = f" in group '{self.group}'" if self.group else ""
        if self.requested_amount:
            return f"with {self.condition}:{amount} instead of {self.requested_amount}{of_group}"
        return _FIELDS[self.field][1].format(_spelled(self.condition)) + of_group


def with_relaxations(
    query: CandidateQuery, relaxations: Mapping[Relaxation, int]
) -> CandidateQuery:
    """Return a query with some relaxations, each to the amount that is asked for instead."""
    by_group: dict[str | None, list[Relaxation]] = {}
    for relaxation in relaxations:
        by_group.setdefault(relaxation.group, []).append(relaxation)

    def apply(holder: H, suffix: str | None) -> H:
        for relaxation in by_group.get(suffix, ()):
            holder = replace(holder, **relaxation.remaining_fields(holder, relaxations[relaxation]))
        return holder

    groups = tuple(apply(group, group.suffix) for group in query.groups)
    return replace(apply(query, None), groups=groups)


def relaxations_of(query: CandidateQuery) -> Iterator[Relaxation]:
    """Yield the relaxations that a query allows: group by group, then of the whole.

    Amounts above 1 are among them, though no provider may have a smaller one.
    """
    for group in query.groups:
        for name, amount in group.resources:
            if amount > 1:
                yield Relaxation(group.suffix, AMOUNT, name, amount)
        yield from _conditions(group.suffix, group)
    yield from _conditions(None, query)


def _conditions(suffix: str | None, holder: CandidateQuery | RequestGroup) -> Iterator[Relaxation]:
    for name in _FIELDS:
        value = getattr(holder, name, None)
        if isinstance(holder, CandidateQuery) and name == ROOT_TRAITS:
            value = (
                *sorted(value or ()),
                *(f"!{trait}" for trait in sorted(holder.root_forbidden)),
            )
        if not value or value == "none":
            continue
        members = tuple(sorted(value)) if isinstance(value, frozenset) else value
        for condition in (members,) if name in _WHOLE else dict.fromkeys(members):
            yield Relaxation(suffix, name, condition)


def _spelled(condition: Any) -> str:
    """Return a condition as a query string has it."""
    match condition:
        case str():
            return condition
        case SameSubtree(together, apart):
            return ",".join([*sorted(together), *(f"!{suffix}" for suffix in sorted(apart))])
        case frozenset():
            return f"{'in:' * (len(condition) > 1)}{','.join(sorted(condition))}"
    return ",".join(condition)


# Of queries with more groups than this nothing is kept: the next is seldom like one before.
_MOST_GROUPS = 64
# What is kept about a group, in bytes.
_GROUP_SIZE = 1024

_TERMS = "required", "forbidden", "member_of", "forbidden_aggregates"
_OF_GROUP = attrgetter("resources", "in_tree", *_TERMS)
_OF_QUERY = attrgetter("same_subtree", "group_policy", *(f"root_{name}" for name in _TERMS))


@dataclass(slots=True)
class Trials:
    """Searches on one state of the index, which share a deadline and an account of memory.

    :param deadline: until when trials go on; later ones give up.
    :param one_per_tree: see `Search`.
    """

    index: Index
    deadline: Deadline
    one_per_tree: bool = False
    account: Account = field(default_factory=Account)
    effort: SearchEffort = field(default_factory=SearchEffort)
    _openings: dict[Hashable, tuple[int, int]] = field(init=False, default_factory=dict)

    def opening(self, query: CandidateQuery, most: int | None = None) -> tuple[int, int]:
        """Return how many trees have a candidate, up to some number, and the first of their roots.

        :returns: for the root its slot, -1 where there is none.
        :raises SearchGaveUp: the time is over, or there is no place for one more heavy search.
        """
        key = (_kind(query), most) if len(query.groups) <= _MOST_GROUPS else None
        opening = self._openings.get(key)
        if opening is None:
            with self.roots(query, most) as found_roots:
                roots = list(islice(found_roots, most))
            opening = len(roots), roots[0] if roots else -1
            if key is not None:
                self._openings[key] = opening
                self.account.take(sizes.ENTRY + len(query.groups) * _GROUP_SIZE)
        return opening

    @contextmanager
    def roots(
        self, query: CandidateQuery, limit: int | None = None, course: Course | None = None
    ) -> Iterator[Iterator[int]]:
        """Search for roots; what the search holds is given back at the end of the block."""
        self.effort.look(self.deadline.require_left())
        held_bytes = self.account.held_bytes
        try:
            yield Search(
                query,
                self.index,
                SearchLimits(limit),
                one_per_tree=self.one_per_tree,
                course=course,
                deadline=self.deadline,
                account=self.account,
                effort=self.effort,
            ).roots()
        finally:
            self.account.give(self.account.held_bytes - held_bytes)


def _kind(query: CandidateQuery) -> Hashable:
    """Return what is equal for queries that differ in the names and the order of groups only.

    Groups for devices of one kind come in eights: what is known of one is known of eight.
    """
    named_suffixes = {""}.union(
        *(subtree.together | subtree.apart for subtree in query.same_subtree)
    )
    groups = Counter(
        (g.suffix in named_suffixes and g.suffix, g.suffix in query.isolate, _OF_GROUP(g))
        for g in query.groups
    )
    return frozenset(groups.items()), _OF_QUERY(query)
