"""The smallest changes of a query that give it a candidate, by trying all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any

from msgspec.structs import replace

from placement_server.candidates.query.query import CandidateQuery, RequestGroup, SameSubtree
from tests.property.oracle import results_by_root
from tests.unit.candidates.forest import Provider

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Choice:
    """One kind of change: the entries that show it, by the amount for each, and their queries."""

    entries: tuple[Entry, ...]

    @cached_property
    def kind(self) -> frozenset[tuple[str, Any]]:
        return kind_of(self.entries[0])


def kind_of(entry: Entry) -> frozenset[tuple[str, Any]]:
    """A change without the amount."""
    return frozenset((key, value) for key, value in entry.items() if key != "to")


def spelled(term: frozenset[str]) -> str:
    return ",".join(term) if len(term) == 1 else "in:" + ",".join(sorted(term))


def written(subtree: SameSubtree) -> str:
    return ",".join(
        [*sorted(subtree.together), *("!" + suffix for suffix in sorted(subtree.apart))]
    )


def choices(query: CandidateQuery) -> list[Choice]:
    found: list[Choice] = []

    def add(group: str | None, key: str, values: Sequence[str]) -> None:
        found.extend(Choice(({"group": group, key: value},)) for value in values)

    for group in query.groups:
        suffix = group.suffix
        for name, asked in group.resources:
            lower = [
                {"group": suffix, "resource_class": name, "from": asked, "to": to}
                for to in range(1, asked)
            ]
            if lower:
                found.append(Choice(tuple(lower)))
        add(suffix, "drop_trait", [spelled(term) for term in group.required])
        add(suffix, "allow_trait", sorted(group.forbidden))
        add(suffix, "drop_aggregate", [spelled(term) for term in group.member_of])
        add(suffix, "allow_aggregate", sorted(group.forbidden_aggregates))
        add(suffix, "drop_in_tree", [group.in_tree] if group.in_tree else [])
    add(None, "drop_same_subtree", sorted({written(subtree) for subtree in query.same_subtree}))
    add(None, "drop_group_policy", ["isolate"] if query.group_policy == "isolate" else [])
    add(None, "drop_isolate", [",".join(sorted(query.isolate))] if query.isolate else [])
    traits = [*sorted(query.root_required), *("!" + name for name in sorted(query.root_forbidden))]
    add(None, "drop_root_required", [",".join(traits)] if traits else [])
    add(None, "drop_aggregate", [spelled(term) for term in query.root_member_of])
    add(None, "allow_aggregate", sorted(query.root_forbidden_aggregates))
    return found


def applied(query: CandidateQuery, entry: Entry) -> CandidateQuery:
    """The query with a change, as an operator would read the entry."""
    if entry["group"] is not None:
        groups = [
            _of_group(group, entry) if group.suffix == entry["group"] else group
            for group in query.groups
        ]
        return replace(query, groups=tuple(groups))
    match entry:
        case {"drop_same_subtree": text}:
            kept = [subtree for subtree in query.same_subtree if written(subtree) != text]
            return replace(query, same_subtree=tuple(kept))
        case {"drop_group_policy": _}:
            return replace(query, group_policy="none")
        case {"drop_isolate": _}:
            return replace(query, isolate=frozenset())
        case {"drop_root_required": _}:
            return replace(query, root_required=frozenset(), root_forbidden=frozenset())
        case {"drop_aggregate": text}:
            kept_terms = [term for term in query.root_member_of if spelled(term) != text]
            return replace(query, root_member_of=tuple(kept_terms))
        case {"allow_aggregate": name}:
            left = query.root_forbidden_aggregates - {name}
            return replace(query, root_forbidden_aggregates=left)
    raise AssertionError(entry)


def _of_group(group: RequestGroup, entry: Entry) -> RequestGroup:
    match entry:
        case {"resource_class": name, "from": asked, "to": to}:
            assert (name, asked) in group.resources
            resources = [
                (resource_class, to if resource_class == name else n)
                for resource_class, n in group.resources
            ]
            return replace(group, resources=tuple(resources))
        case {"drop_trait": text}:
            kept = [term for term in group.required if spelled(term) != text]
            return replace(group, required=tuple(kept))
        case {"allow_trait": name}:
            return replace(group, forbidden=group.forbidden - {name})
        case {"drop_aggregate": text}:
            kept = [term for term in group.member_of if spelled(term) != text]
            return replace(group, member_of=tuple(kept))
        case {"allow_aggregate": name}:
            return replace(group, forbidden_aggregates=group.forbidden_aggregates - {name})
        case {"drop_in_tree": uuid}:
            assert uuid == group.in_tree
            return replace(group, in_tree=None)
    raise AssertionError(entry)


class Trees:
    """The trees with a candidate, under changes of one query of one world."""

    def __init__(self, world: Sequence[Provider], query: CandidateQuery, *, nested: bool) -> None:
        self._world = world
        self._query = query
        self._nested = nested
        self._roots: dict[frozenset[frozenset[tuple[str, Any]]], frozenset[str]] = {}

    def with_changes(self, entries: Sequence[Entry]) -> frozenset[str]:
        """The roots of these trees."""
        key = frozenset(frozenset(entry.items()) for entry in entries)
        if key not in self._roots:
            query = self._query
            for entry in entries:
                query = applied(query, entry)
            found = results_by_root(self._world, query, nested=self._nested)
            self._roots[key] = frozenset(root for root, _result in found)
        return self._roots[key]

    def smallest(self) -> Iterator[tuple[Choice, ...]]:
        """Every set of one or two kinds of change that gives a candidate, and no subset does."""
        every = choices(self._query)
        alone = {choice.kind for choice in every if self._any(choice)}
        yield from ((choice,) for choice in every if choice.kind in alone)
        others = [choice for choice in every if choice.kind not in alone]
        yield from (pair for pair in combinations(others, 2) if self._any(*pair))

    def _any(self, *some: Choice) -> bool:
        return any(map(self.with_changes, product(*(choice.entries for choice in some))))
