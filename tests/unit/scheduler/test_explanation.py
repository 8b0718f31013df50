"""Causes that travel."""

from __future__ import annotations

from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.outcomes import (
    Causes,
    FilterCause,
    LostClaim,
    QueryCause,
    RejectedHost,
)


def test_an_error_that_travels_keeps_all_that_it_carries() -> None:
    explanation = {"closest": [], "sentences": ["No tree would fit."], "complete": True}
    causes = Causes(
        queries=(QueryCause("flat", "q", "1.39", 0, False, explanation),),
        filters=(FilterCause("F", 2, 0, (), (RejectedHost("h", "why"),)),),
        claims_lost=(LostClaim("h", "p", "VCPU", 2),),
        notes=("note",),
        remark="remark",
        request_id="req-1",
    )
    error = NoValidHost("reason", causes)
    # as oslo.messaging makes it again
    again = type(error)(*error.args, **error.kwargs)
    assert (str(again), again.causes.as_dict()) == (str(error), causes.as_dict())
