"""Changes of a query, each of which leaves out one condition or lowers one amount.

A change of a condition is the field of the query, or of one of its groups, that holds the
condition, and the condition itself. Without it the query has at least the candidates that it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from placement_server.candidates.query.query import CandidateQuery, RequestGroup, SameSubtree

NO_AMOUNTS: Final[Mapping[QueryChange, int]] = MappingProxyType({})

AMOUNT: Final = "resources"
ROOT_TRAITS: Final = "root_required"

#: By field, the key under which an answer shows what is left out.
_KEYS: Final = {
    "required": "drop_trait",
    "forbidden": "allow_trait",
    "member_of": "drop_aggregate",
    "forbidden_aggregates": "allow_aggregate",
    "in_tree": "drop_in_tree",
    "group_policy": "drop_group_policy",
    "isolate": "drop_isolate",
    "same_subtree": "drop_same_subtree",
    ROOT_TRAITS: "drop_root_required",
    "root_member_of": "drop_aggregate",
    "root_forbidden_aggregates": "allow_aggregate",
}

#: By field, the words for the query that is left, before what is left out and after it.
_WORDS: Final = {
    "required": ("without required ", ""),
    "forbidden": ("with ", " allowed"),
    "member_of": ("without member_of ", ""),
    "forbidden_aggregates": ("with aggregate ", " allowed"),
    "in_tree": ("without in_tree ", ""),
    "group_policy": ("without group_policy=", ""),
    "isolate": ("without isolate=", ""),
    "same_subtree": ("without same_subtree=", ""),
    ROOT_TRAITS: ("without root_required=", ""),
    "root_member_of": ("without root_member_of ", ""),
    "root_forbidden_aggregates": ("with aggregate ", " allowed on roots"),
}


H = TypeVar("H", CandidateQuery, RequestGroup)


@dataclass(frozen=True, slots=True)
class QueryChange:
    """One change of a query.

    :param group: the suffix of the group that it is about; None for the query as a whole.
    :param field: the field that holds the condition, of the group or of the query.
    :param condition: the member of the field that is left out; for an amount the name of the class;
        None for all of the field.
    :param shown_value: the condition as a query string has it.
    :param requested_amount: the amount that is lowered; 0 for another change.
    """

    group: str | None
    field: str
    condition: Any
    shown_value: str
    requested_amount: int = 0

    def remaining_fields(
        self, holder: CandidateQuery | RequestGroup, amount: int
    ) -> dict[str, Any]:
        """Return the fields of the query or group that change, with what is left in them.

        :param amount: what is asked for instead, where an amount is lowered.
        """
        value = getattr(holder, self.field)
        if self.requested_amount:
            return {
                AMOUNT: tuple((name, amount if name == self.condition else n) for name, n in value)
            }
        if self.field == ROOT_TRAITS:
            return {"root_required": frozenset(), "root_forbidden": frozenset()}
        if self.condition is None:
            return {self.field: type(holder).__dataclass_fields__[self.field].default}
        if isinstance(value, frozenset):
            return {self.field: value - {self.condition}}
        return {self.field: tuple(member for member in value if member != self.condition)}

    def entry(self, amount: int = 0) -> dict[str, Any]:
        """Return the change as an answer shows it."""
        if self.requested_amount:
            return {
                "group": self.group,
                "resource_class": self.condition,
                "from": self.requested_amount,
                "to": amount,
            }
        return {"group": self.group, _KEYS[self.field]: self.shown_value}

    def words(self, amount: int = 0) -> str:
        """Return the change in words that follow "would fit"."""
        of_group = f" in group '{self.group}'" if self.group else ""
        if self.requested_amount:
            return f"with {self.condition}:{amount} instead of {self.requested_amount}{of_group}"
        before, after = _WORDS[self.field]
        return f"{before}{self.shown_value}{after}{of_group}"


def with_changes(
    query: CandidateQuery,
    changes: Iterable[QueryChange],
    amounts: Mapping[QueryChange, int] = NO_AMOUNTS,
) -> CandidateQuery:
    """Return a query with some changes.

    :param amounts: to what an amount is lowered, by the change that lowers it.
    """
    by_group: dict[str | None, list[QueryChange]] = {}
    for change in changes:
        by_group.setdefault(change.group, []).append(change)
    groups = tuple(
        _apply(group, by_group[group.suffix], amounts) if group.suffix in by_group else group
        for group in query.groups
    )
    return replace(_apply(query, by_group.get(None, ()), amounts), groups=groups)


def _apply(holder: H, changes: Iterable[QueryChange], amounts: Mapping[QueryChange, int]) -> H:
    for change in changes:
        holder = replace(holder, **change.remaining_fields(holder, amounts.get(change, 0)))
    return holder


def changes_of(query: CandidateQuery) -> list[QueryChange]:
    """List the changes that a query allows: group by group, then of the whole.

    Amounts above 1 are among them, though no provider may have a smaller one.
    """
    return [*(change for group in query.groups for change in _of_group(group)), *_of_whole(query)]


def _of_group(group: RequestGroup) -> Iterator[QueryChange]:
    suffix = group.suffix
    for name, amount in group.resources:
        if amount > 1:
            yield QueryChange(suffix, AMOUNT, name, name, amount)
    yield from _members(suffix, "required", group.required, group.forbidden, "forbidden")
    yield from _members(
        suffix, "member_of", group.member_of, group.forbidden_aggregates, "forbidden_aggregates"
    )
    if group.in_tree is not None:
        yield QueryChange(suffix, "in_tree", None, group.in_tree)


def _members(
    suffix: str | None,
    field: str,
    terms: Iterable[frozenset[str]],
    forbidden_aggregates: Iterable[str],
    forbidden_field: str,
) -> Iterator[QueryChange]:
    for term in terms:
        names = sorted(term)
        yield QueryChange(
            suffix, field, term, names[0] if len(names) == 1 else f"in:{','.join(names)}"
        )
    for name in sorted(forbidden_aggregates):
        yield QueryChange(suffix, forbidden_field, name, name)


def _of_whole(query: CandidateQuery) -> Iterator[QueryChange]:
    for subtree in dict.fromkeys(query.same_subtree):
        yield QueryChange(None, "same_subtree", subtree, _subtree(subtree))
    if query.group_policy != "none":
        yield QueryChange(None, "group_policy", None, query.group_policy)
    if query.isolate:
        yield QueryChange(None, "isolate", None, ",".join(sorted(query.isolate)))
    traits = [*sorted(query.root_required), *(f"!{name}" for name in sorted(query.root_forbidden))]
    if traits:
        yield QueryChange(None, ROOT_TRAITS, None, ",".join(traits))
    yield from _members(
        None,
        "root_member_of",
        query.root_member_of,
        query.root_forbidden_aggregates,
        "root_forbidden_aggregates",
    )


def _subtree(subtree: SameSubtree) -> str:
    return ",".join(
        [*sorted(subtree.together), *(f"!{suffix}" for suffix in sorted(subtree.apart))]
    )
