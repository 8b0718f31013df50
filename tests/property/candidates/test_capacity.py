"""Counts of further claims against claiming until nothing fits."""

from __future__ import annotations

from hypothesis import given

from placement_server.candidates.capacity import Capacity, capacity
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.search.search import Search
from tests.property.candidates.claiming import Claims
from tests.property.candidates.strategies import (
    Problem,
    fleet_problems,
    is_private,
    known_names,
    problems,
)
from tests.unit.candidates.forest import Provider, writer_of


def check(world: list[Provider], query: CandidateQuery) -> tuple[Capacity, tuple[int, int] | None]:
    """Compare a count with the fewest and the most claims, or with some runs."""
    counted = capacity(Search(query, writer_of(world).index))
    claims = Claims(world, query)
    extremes = claims.extremes()
    if extremes is not None:
        # The claims on the copy are a run like any other.
        assert extremes[0] <= counted.at_least <= extremes[1] <= counted.at_most
    assert counted.at_most >= max(claims.run(seed) for seed in range(6))
    assert counted.at_least <= counted.at_most
    # Whether anything fits is never left open.
    assert (counted.at_least > 0) == (counted.at_most > 0) == bool(claims.claims)
    assert all(counted.low > 0)
    assert all(counted.low <= counted.high)
    assert sum(counted.limited_by.values()) == len(counted.roots)
    return counted, extremes


@given(problems())
def test_claims_until_nothing_fits_are_within_the_bounds(problem: Problem) -> None:
    check(*known_names(problem))


@given(fleet_problems())
def test_claims_on_fleets_are_within_the_bounds(problem: Problem) -> None:
    world, query = known_names(problem)
    counted, extremes = check(world, query)
    if not all(map(is_private, world)):
        return
    assert counted.at_least == sum(counted.low)
    assert counted.at_most == sum(counted.high)
    if any(group.required for group in query.groups):
        return
    of_distinct_providers = not query.same_subtree and len(
        {name for group in query.groups for name, _amount in group.resources}
    ) == len(query.groups)
    if len(query.groups) == 1 or (of_distinct_providers and query.group_policy == "none"):
        assert counted.exact
        assert extremes in (None, (counted.at_least, counted.at_most))
