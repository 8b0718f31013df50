"""Causes that travel."""

from __future__ import annotations

import pytest

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
    assert (str(again), again.causes) == (str(error), causes)


def test_an_error_of_a_newer_scheduler_is_made_again_without_what_is_not_known_here() -> None:
    body = {"notes": ["note"], "claims_lost": [{"host": "h", "since": 3}], "more": {}}
    error = NoValidHost("reason", body)
    assert (error.causes.notes, error.causes.claims_lost) == (("note",), (LostClaim("h"),))


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"filters": [{"name": "F"}]}, r"filters\[0\]\.hosts_before is missing"),
        ({"notes": "n"}, 'notes is "n", not a list'),
        ({"queries": [1]}, r"queries\[0\] is 1, not an object"),
    ],
)
def test_what_is_no_such_error_is_refused_as_the_message_bus_expects_it(
    body: dict[str, object], fault: str
) -> None:
    with pytest.raises(TypeError, match=fault):
        NoValidHost("reason", body)
