"""The deadline of a request, which all searches of the request share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest

from placement_server.candidates.errors import OutOfTime
from placement_server.candidates.evaluator import SearchOptions, SupposedFleet
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.limits import Account, SearchEffort
from placement_server.candidates.query.parser import parse
from placement_server.candidates.query.query import RequestGroup
from placement_server.candidates.service import CandidateService
from placement_server.candidates.what_if import SupposedTrees

from .forest import NO_STORE, FixedFollower, Provider, writer_of

SECONDS = 0.1
VERSION = (1, 39)
# Seven GPUs, each with room for any two of the fifteen groups and for no three.
WORLD = [
    Provider("host"),
    *(Provider(f"gpu{number}", "host", {"VGPU": 95 + number}) for number in range(7)),
]
GROUPS = "&".join(f"resources{number}=VGPU:{34 + number}" for number in range(15))
QUERY = parse(parse_qsl(f"{GROUPS}&group_policy=none"), VERSION)


@pytest.mark.parametrize(
    ("seconds", "ask"),
    [
        (SECONDS, lambda service: service.answer(QUERY, VERSION)),
        (SECONDS, lambda service: service.explain(QUERY, VERSION)),
        (1e-9, lambda service: service.fragmentation([{"VGPU": 1}], RequestGroup(""))),
    ],
    ids=["candidates", "explanation", "fragmentation"],
)
def test_a_search_without_time_names_the_time_that_the_request_had(
    seconds: float, ask: Callable[[CandidateService], Any]
) -> None:
    follower = FixedFollower(writer_of(WORLD).index)
    service = CandidateService(NO_STORE, SearchOptions(deadline=seconds), follower=follower)
    with pytest.raises(OutOfTime, match=f"gave up after {seconds:g} seconds with 0 candidates"):
        ask(service)


def test_a_question_about_a_supposed_fleet_names_the_time_that_the_request_had() -> None:
    index, account = writer_of(WORLD).index, Account()
    options = SearchOptions(deadline=SECONDS)
    trees = SupposedTrees(index, {}, account)
    fleet = SupposedFleet(trees, [], options, SummaryCache(), account, SearchEffort())
    with pytest.raises(OutOfTime, match=f"gave up after {SECONDS:g} seconds with 0 candidates"):
        fleet.candidates(QUERY, VERSION)
