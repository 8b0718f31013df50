"""Causes for a request without a host, as values that a program can read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

SHOWN_HOSTS = 20
"""Names of hosts kept per filter; the number left is always there."""


@dataclass(frozen=True, slots=True)
class QueryCause:
    """One question to placement: its shape, text, version, and how many candidates came back."""

    shape: str
    query: str
    microversion: str
    candidates: int
    limit_reached: bool


@dataclass(frozen=True, slots=True)
class FilterCause:
    """How many hosts one filter left, and the names of the first of them."""

    name: str
    hosts_before: int
    hosts_left: int
    names_left: tuple[str, ...]


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

    ``request_id``: under which placement logged the questions and claims.
    """

    queries: tuple[QueryCause, ...] = ()
    filters: tuple[FilterCause, ...] = ()
    claims_lost: tuple[LostClaim, ...] = ()
    notes: tuple[str, ...] = field(default=())
    request_id: str = ""

    def with_claims_lost(self, lost: tuple[LostClaim, ...]) -> Causes:
        """Return these causes with the claims that were lost on the way."""
        return replace(self, claims_lost=self.claims_lost + lost)

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
            lost = self.claims_lost[-1]
            text = (
                f"Placement refused {len(self.claims_lost)} claim(s), because others claimed at the"
                f" same time; the last was on host {lost.host}. {lost.sentence()}"
            )
        elif self.filters and not self.filters[-1].hosts_left:
            last = self.filters[-1]
            text = f"{last.name} dropped the last {last.hosts_before} host(s)."
        else:
            text = "No candidate was left to claim."
        if self.limit_reached:
            text += (
                " Placement was at the limit of candidates it may send: raise"
                " [scheduler]max_placement_results, or narrow the request."
            )
        return text
