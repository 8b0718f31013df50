"""Observer of a scheduler's work, by default nobody: calls, candidates, claims and moves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Literal

from compute_agent.scheduler.outcomes.causes import FilterCause

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
