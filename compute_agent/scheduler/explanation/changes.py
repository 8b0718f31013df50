"""Changes of a request: one constraint less, or one amount lowered.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from compute_agent.request.candidate_request import (
    UNSUFFIXED,
    CandidateRequest,
    RequestGroup,
)


class ChangeKind(StrEnum):
    """Kinds of changes, under the names that the API of placement has for them."""

    AMOUNT = "resource_class"
    TRAIT = "drop_trait"
    FORBIDDEN_TRAIT = "allow_trait"
    AGGREGATES = "drop_aggregate"
    FORBIDDEN_AGGREGATES = "allow_aggregate"
    TARGET = "drop_in_tree"
    SUBTREE = "drop_same_subtree"
    POLICY = "drop_group_policy"
    FILTER = "skip_filter"


@dataclass(frozen=True, slots=True)
class RequestChange:
    """One change.

    :param group: suffix of the group, `None` for what is asked of the host or of all groups.
    :param subject: what is changed: a class, a trait or several (any of them), aggregates,
        suffixes, the name of a filter.
    :param before: the amount asked, where it is an amount.
    :param after: the amount instead; 0 asks for none.
    """

    kind: ChangeKind
    group: str | None
    subject: frozenset[str]
    before: int = 0
    after: int = 0

    def to(self, amount: int) -> Self:
        """Return this change of an amount, to another amount."""
        return replace(self, after=amount)

    @property
    def name(self) -> str:
        """The subject as a query writes it."""
        names = ",".join(sorted(self.subject))
        any_of = self.kind in (ChangeKind.TRAIT, ChangeKind.AGGREGATES) and len(self.subject) > 1
        return f"in:{names}" if any_of else names

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types, as the API of placement writes a change."""
        amounts = {"from": self.before, "to": self.after} if self.kind is ChangeKind.AMOUNT else {}
        return {"group": self.group, str(self.kind): self.name, **amounts}

    @property
    def text(self) -> str:
        """What the change would be, to follow "It would fit"."""
        of_group = f" in group {self.group}" if self.group else ""
        match self.kind:
            case ChangeKind.AMOUNT if self.after:
                return f"with {self.name}={self.after} instead of {self.before}{of_group}"
            case ChangeKind.AMOUNT:
                return f"without {self.name}={self.before}{of_group}"
            case ChangeKind.TRAIT:
                return f"without trait {self.name}{of_group}"
            case ChangeKind.FORBIDDEN_TRAIT:
                return f"with trait {self.name} allowed{of_group}"
            case ChangeKind.AGGREGATES:
                return f"outside of aggregate {self.name}{of_group}"
            case ChangeKind.FORBIDDEN_AGGREGATES:
                return f"with aggregate {self.name} allowed{of_group}"
            case ChangeKind.TARGET:
                return "on another host than the one named"
            case ChangeKind.SUBTREE:
                return f"without same_subtree {self.name}"
            case ChangeKind.POLICY:
                return "without group_policy isolate"
            case ChangeKind.FILTER:
                return f"without {self.name}"

    @property
    def lack(self) -> str:
        """What a host lacks that this change alone would let the request fit on."""
        of_group = f" (group {self.group})" if self.group else ""
        match self.kind:
            case ChangeKind.TRAIT:
                return f"no trait {self.name}{of_group}"
            case ChangeKind.FORBIDDEN_TRAIT:
                return f"has trait {self.name}{of_group}"
            case ChangeKind.AGGREGATES:
                return f"not in aggregate {self.name}{of_group}"
            case ChangeKind.FORBIDDEN_AGGREGATES:
                return f"in aggregate {self.name}{of_group}"
            case ChangeKind.TARGET:
                return "not the host named"
            case ChangeKind.SUBTREE:
                return f"nothing that fits in one subtree for {self.name}"
            case ChangeKind.POLICY:
                return "not enough providers for group_policy isolate"
            case _:
                return self.name

    def apply(self, request: CandidateRequest) -> CandidateRequest:
        """Return the request with this change; a filter is none of its parts."""
        if self.kind is ChangeKind.TARGET:
            groups = {s: replace(group, in_tree=None) for s, group in request.groups.items()}
            return replace(request, groups={s: g for s, g in groups.items() if not g.empty})
        if self.kind is ChangeKind.SUBTREE:
            return replace(request, same_subtree=request.same_subtree - {self.subject})
        if self.kind is ChangeKind.POLICY:
            return replace(request, group_policy="none")
        if self.group is None:
            return self._of_host(request)
        return request.with_group(self.group, self._of_group(request.group(self.group)))

    def _of_host(self, request: CandidateRequest) -> CandidateRequest:
        match self.kind:
            case ChangeKind.TRAIT:
                return replace(request, root_required=request.root_required - self.subject)
            case ChangeKind.FORBIDDEN_TRAIT:
                return replace(request, root_forbidden=request.root_forbidden - self.subject)
            case ChangeKind.AGGREGATES:
                return replace(request, root_member_of=request.root_member_of - {self.subject})
            case ChangeKind.FORBIDDEN_AGGREGATES:
                remaining_aggregates = request.root_forbidden_aggregates - self.subject
                return replace(request, root_forbidden_aggregates=remaining_aggregates)
            case _:
                return request

    def _of_group(self, group: RequestGroup) -> RequestGroup:
        match self.kind:
            case ChangeKind.AMOUNT:
                amounts = {**group.resources, self.name: self.after}
                return group.with_resources({name: n for name, n in amounts.items() if n})
            case ChangeKind.TRAIT:
                return replace(group, required=group.required - {self.subject})
            case ChangeKind.FORBIDDEN_TRAIT:
                return replace(group, forbidden=group.forbidden - self.subject)
            case ChangeKind.AGGREGATES:
                return replace(group, member_of=group.member_of - {self.subject})
            case ChangeKind.FORBIDDEN_AGGREGATES:
                remaining_aggregates = group.forbidden_aggregates - self.subject
                return replace(group, forbidden_aggregates=remaining_aggregates)
            case _:
                return group


def apply_all(changes: Sequence[RequestChange], request: CandidateRequest) -> CandidateRequest:
    """Return the request with all of `changes`."""
    for change in changes:
        request = change.apply(request)
    return request


def single_changes(request: CandidateRequest) -> Iterator[RequestChange]:
    """Yield every change that takes one constraint away, or lowers one amount to 1."""
    for suffix, group in sorted(request.groups.items()):
        yield from _amounts(suffix, group)
    for suffix, group in sorted(request.groups.items()):
        yield from _clauses(suffix, group)
    yield from (
        RequestChange(ChangeKind.TRAIT, None, frozenset({t})) for t in sorted(request.root_required)
    )
    for trait in sorted(request.root_forbidden):
        yield RequestChange(ChangeKind.FORBIDDEN_TRAIT, None, frozenset({trait}))
    for uuids in sorted(request.root_member_of, key=sorted):
        yield RequestChange(ChangeKind.AGGREGATES, None, uuids)
    for uuid in sorted(request.root_forbidden_aggregates):
        yield RequestChange(ChangeKind.FORBIDDEN_AGGREGATES, None, frozenset({uuid}))
    trees = {group.in_tree for group in request.groups.values()} - {None}
    if trees:
        yield RequestChange(ChangeKind.TARGET, None, frozenset(str(tree) for tree in trees))
    for suffixes in sorted(request.same_subtree, key=sorted):
        yield RequestChange(ChangeKind.SUBTREE, None, suffixes)
    if request.group_policy != "none" and len(set(request.groups) - {UNSUFFIXED}) > 1:
        yield RequestChange(ChangeKind.POLICY, None, frozenset({request.group_policy}))


def omissions(request: CandidateRequest) -> Iterator[RequestChange]:
    """Yield every change that asks for nothing of one class instead of for 1."""
    for suffix, group in sorted(request.groups.items()):
        for name, amount in sorted(group.resources.items()):
            if amount == 1:
                yield RequestChange(ChangeKind.AMOUNT, suffix, frozenset({name}), 1, 0)


def _amounts(suffix: str, group: RequestGroup) -> Iterator[RequestChange]:
    for name, amount in sorted(group.resources.items()):
        if amount > 1:
            yield RequestChange(ChangeKind.AMOUNT, suffix, frozenset({name}), amount, 1)


def _clauses(suffix: str, group: RequestGroup) -> Iterator[RequestChange]:
    yield from (
        RequestChange(ChangeKind.TRAIT, suffix, traits)
        for traits in sorted(group.required, key=sorted)
    )
    for trait in sorted(group.forbidden):
        yield RequestChange(ChangeKind.FORBIDDEN_TRAIT, suffix, frozenset({trait}))
    for uuids in sorted(group.member_of, key=sorted):
        yield RequestChange(ChangeKind.AGGREGATES, suffix, uuids)
    for uuid in sorted(group.forbidden_aggregates):
        yield RequestChange(ChangeKind.FORBIDDEN_AGGREGATES, suffix, frozenset({uuid}))
