"""Causes for a request without a host, as values that a program can read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

Part = TypeVar("Part")

SHOWN_HOSTS = 20
"""Names of hosts kept per filter; the number left is always there."""


@dataclass(frozen=True, slots=True)
class ConstraintCause:
    """Providers that one constraint of a query left, or hosts that it rejected.

    :param group: suffix of the group, "" for the unsuffixed one, `None` for what is asked of hosts.
    :param providers_left: `None` where the constraint is about whole hosts.
    :param trees_rejected: `None` where the constraint is about single providers.
    """

    group: str | None
    constraint: str
    providers_left: int | None = None
    trees_rejected: int | None = None


@dataclass(frozen=True, slots=True)
class QueryCause:
    """One question to placement: its shape, text, version, and how many candidates came back.

    :param constraints: what each constraint left, in the order in which they were applied.
    """

    shape: str
    query: str
    microversion: str
    candidates: int
    limit_reached: bool
    constraints: tuple[ConstraintCause, ...] = ()


@dataclass(frozen=True, slots=True)
class RejectedHost:
    """A host that a filter rejected; the reason is empty where the filter gives none."""

    host: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FilterCause:
    """How many hosts one filter left, the names of the first of them, and of those rejected."""

    name: str
    hosts_before: int
    hosts_left: int
    names_left: tuple[str, ...]
    rejected: tuple[RejectedHost, ...] = ()


@dataclass(frozen=True, slots=True)
class Lack:
    """One thing that a host lacks; the amounts are there where it is an amount.

    :param free: the most that a guest could get there.
    """

    text: str
    group: str | None = None
    resource_class: str = ""
    asked: int = 0
    free: int = 0


@dataclass(frozen=True, slots=True)
class ClosestHost:
    """A host that came close, and all that it lacks."""

    host: str
    lacks: tuple[Lack, ...]


@dataclass(frozen=True, slots=True)
class FittingChange:
    """Changes of a request that together would make it fit, none of which could be left out.

    :param changes: each as the API of placement writes it, with its ``group``.
    :param text: the same to read.
    :param hosts: on how many hosts it fits then, as far as placement's limit shows them.
    """

    changes: tuple[Mapping[str, Any], ...]
    text: str
    hosts: int
    example: str


@dataclass(frozen=True, slots=True)
class LostClaim:
    """A claim that placement refused: on which host, and which provider had too little of what.

    ``provider`` and ``resource_class`` are empty and ``amount`` is 0 where nothing was short, or
    placement did not name it; ``detail`` is placement's explanation.
    """

    host: str
    provider: str = ""
    resource_class: str = ""
    amount: int = 0
    detail: str = ""

    def sentence(self) -> str:
        """Return why the claim was refused, as one sentence."""
        if self.provider and self.resource_class:
            return (
                f"Provider {self.provider} had less than {self.amount} {self.resource_class} left."
            )
        return f"Placement answered: {(self.detail or 'nothing more').rstrip('.')}."


@dataclass(frozen=True, slots=True)
class Causes:
    """Everything known about one search that failed.

    :param closest_hosts: the closest first.
    :param fits_with: the smallest changes that would fit, those that open the most hosts first.
    :param remark: what the explanation cannot say, or that the request would fit by now.
    :param request_id: under which placement logged the questions and claims.
    """

    queries: tuple[QueryCause, ...] = ()
    filters: tuple[FilterCause, ...] = ()
    claims_lost: tuple[LostClaim, ...] = ()
    notes: tuple[str, ...] = field(default=())
    closest_hosts: tuple[ClosestHost, ...] = ()
    fits_with: tuple[FittingChange, ...] = ()
    remark: str = ""
    request_id: str = ""

    def with_claims_lost(self, lost_claims: tuple[LostClaim, ...]) -> Causes:
        """Return these causes with the claims that were lost on the way."""
        return replace(self, claims_lost=self.claims_lost + lost_claims)

    def with_filter(self, cause: FilterCause | None) -> Causes:
        """Return these causes with those of one more filter, if it rejected any host."""
        return self if cause is None else replace(self, filters=(*self.filters, cause))

    @property
    def limit_reached(self) -> bool:
        """Whether placement may have had more candidates than it was allowed to send."""
        return any(query.limit_reached for query in self.queries)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)

    def sentence(self) -> str:
        """Say in one or two sentences where the hosts went."""
        candidates = sum(query.candidates for query in self.queries)
        if self.notes:
            text = " ".join(self.notes)
        elif not candidates:
            text = "Placement has no candidate for what was asked."
        elif self.claims_lost:
            lost_claim = self.claims_lost[-1]
            text = (
                f"Placement refused {len(self.claims_lost)} claim(s), because others claimed at the"
                f" same time; the last was on host {lost_claim.host}. {lost_claim.sentence()}"
            )
        elif self.filters and not self.filters[-1].hosts_left:
            last = self.filters[-1]
            example = "".join(
                f", such as {rejected_host.host} ({rejected_host.reason})"
                for rejected_host in last.rejected[:1]
            )
            text = f"{last.name} dropped the last {last.hosts_before} host(s){example}."
        else:
            text = "No candidate was left to claim."
        if self.limit_reached:
            text += (
                " Placement was at the limit of candidates it may send: raise"
                " [scheduler]max_placement_results, or narrow the request."
            )
        return text

    def closing(self) -> Iterator[str]:
        """Yield what would have fitted, or came closest, as a sentence."""
        if self.fits_with:
            change = self.fits_with[0]
            yield f"It would fit {change.text} ({change.hosts} host(s), such as {change.example})."
        elif self.closest_hosts:
            closest = self.closest_hosts[0]
            lacks = "; ".join(lack.text for lack in closest.lacks)
            yield f"Host {closest.host} came closest: {lacks}."


def causes_of(body: Mapping[str, Any]) -> Causes:
    """Return the causes that `Causes.as_dict` wrote down, as a scheduler on the bus sends them.

    :raises TypeError: a key is missing, or unknown.
    """
    return Causes(
        queries=tuple(
            QueryCause(**{**query, "constraints": _parts(ConstraintCause, query["constraints"])})
            for query in body["queries"]
        ),
        filters=tuple(
            FilterCause(
                **{
                    **cause,
                    "names_left": tuple(cause["names_left"]),
                    "rejected": _parts(RejectedHost, cause["rejected"]),
                }
            )
            for cause in body["filters"]
        ),
        claims_lost=_parts(LostClaim, body["claims_lost"]),
        notes=tuple(body["notes"]),
        closest_hosts=tuple(
            ClosestHost(closest["host"], _parts(Lack, closest["lacks"]))
            for closest in body["closest_hosts"]
        ),
        fits_with=tuple(
            FittingChange(**{**change, "changes": tuple(change["changes"])})
            for change in body["fits_with"]
        ),
        remark=body["remark"],
        request_id=body["request_id"],
    )


def _parts(kind: type[Part], bodies: Iterable[Mapping[str, Any]]) -> tuple[Part, ...]:
    return tuple(kind(**body) for body in bodies)
