"""Outcomes: causes where there is no host, and the observer of calls, claims and moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.programs.decoding import Misfit, convert

SHOWN_HOSTS = 20
"""Names of hosts kept per filter; the number left is always there."""


class QueryCause(Struct, frozen=True):
    """One question to placement: its shape, text, version, and how many candidates came back.

    :param explanation: placement's own answer to why there is none, as it wrote it; `None` where
        there are some, or placement explains nothing.
    """

    shape: str
    query: str
    microversion: str
    candidates: int
    limit_reached: bool
    explanation: Mapping[str, Any] | None = None


class RejectedHost(Struct, frozen=True):
    """A host that a filter rejected; the reason is empty where the filter gives none."""

    host: str
    reason: str = ""


class FilterCause(Struct, frozen=True):
    """How many hosts one filter left, the names of the first of them, and of those rejected."""

    name: str
    hosts_before: int
    hosts_left: int
    names_left: tuple[str, ...]
    rejected: tuple[RejectedHost, ...] = ()


class LostClaim(Struct, frozen=True):
    """A claim that placement refused: on which host, and which provider had too little of what.

    `provider` and `resource_class` are empty and `amount` is 0 where nothing was short, or
    placement did not name it; `detail` is placement's explanation.
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


class Causes(Struct, frozen=True):
    """Everything known about one search that failed.

    :param remark: why nothing is explained, or that the request would fit by now.
    :param request_id: under which placement logged the questions and claims.
    """

    queries: tuple[QueryCause, ...] = ()
    filters: tuple[FilterCause, ...] = ()
    claims_lost: tuple[LostClaim, ...] = ()
    notes: tuple[str, ...] = ()
    remark: str = ""
    request_id: str = ""

    def with_claims_lost(self, lost_claims: tuple[LostClaim, ...]) -> Causes:
        """Return these causes with the claims that were lost on the way."""
        return replace(self, claims_lost=self.claims_lost + lost_claims)

    def with_filter(self, cause: FilterCause | None) -> Causes:
        """Return these causes with those of one more filter, if it rejected any host."""
        return self if cause is None else replace(self, filters=(*self.filters, cause))

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
        if any(query.limit_reached for query in self.queries):
            text += (
                " Placement was at the limit of candidates it may send: raise"
                " [scheduler]max_placement_results, or narrow the request."
            )
        return text

    def closing(self) -> Iterator[str]:
        """Yield placement's sentence on the change that would open the most trees, if any would."""
        changes = [
            ((len(closest["changes"]), -closest["trees"]), sentence)
            for query in self.queries
            if query.explanation is not None
            for closest, sentence in zip(
                query.explanation["closest"], query.explanation["sentences"], strict=False
            )
        ]
        yield from (sentence for _, sentence in sorted(changes)[:1])


def causes_of(body: Mapping[str, Any]) -> Causes:
    """Return the causes that were written down, as a scheduler on the bus sends them.

    Keys that are not known here are left out: that scheduler may be of a newer version.

    :raises TypeError: a key is missing, or has a value of another type.
    """
    try:
        return convert(body, Causes)
    except Misfit as error:
        # what the message bus expects of an error that cannot be made again
        raise TypeError(str(error)) from error


Outcome = Literal["won", "shortage", "race", "group", "consumer", "failed"]
"""What became of one claim.

`shortage`: a provider had too little left. `race`: placement lost too many races of its own, or
the provider is gone. `group`: it was taken back, as another member of the server group was
claimed on the same host at the same time. `consumer`: another caller claims or changed the
consumer. `failed`: placement did not answer, or refused for another reason.
"""


class MoveState(StrEnum):
    """Steps that a move has come to; `recovered`: finished or undone from the journal."""

    BEGUN = "begun"
    NOT_BEGUN = "not_begun"
    CONFIRMED = "confirmed"
    REVERTED = "reverted"
    SOURCE_RETURNED = "source_returned"
    RECOVERED = "recovered"


class Observer:
    """Hears of the work of a scheduler, in whichever thread does it."""

    def answering(self, method: str) -> AbstractContextManager[None]:  # noqa: ARG002 - for others
        """Return what surrounds a call of the bus; its error passes through."""
        return nullcontext()

    def on_search(self, candidates: int) -> None:
        """Hear how many candidates a search got from placement."""

    def on_filtering(self, causes: Sequence[FilterCause]) -> None:
        """Hear what filters left."""

    def on_claim(self, outcome: Outcome, *, again: bool) -> None:
        """Hear of a claim; `again`: others of the same instance were lost before."""

    def on_move(self, kind: str, state: MoveState) -> None:
        """Hear of a move."""
