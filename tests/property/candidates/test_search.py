"""The search against the brute force, on small forests and queries over all parameters."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.query.query import CandidateQuery
from placement_server.candidates.response import Renderer
from placement_server.candidates.search.search import Search, SearchLimits
from tests.property.candidates.strategies import Problem, is_private, known_names, problems
from tests.property.oracle import answer
from tests.unit.candidates.forest import (
    Provider,
    Result,
    ask,
    names_of,
    rendered,
    results,
    root_of,
    trees_of,
    writer_of,
)


@given(problems())
def test_without_limit_the_search_finds_exactly_what_the_definitions_say(problem: Problem) -> None:
    world, query = known_names(problem)
    found = results(ask(world, query))
    assert len(found) == len(set(found))
    assert set(found) == answer(world, query, nested=True)


@given(problems())
def test_nesting_unaware_versions_drop_two_providers_of_one_tree(problem: Problem) -> None:
    world, query = known_names(problem)
    found = results_of(world, query, one_per_tree=True)
    assert len(found) == len(set(found))
    assert set(found) == answer(world, query, nested=False)


@given(problems(), st.integers(10, 39))
def test_every_microversion_renders_the_same_allocations(problem: Problem, version: int) -> None:
    world, query = known_names(problem)
    expected = answer(world, query, nested=version >= 29)
    body = ask(world, query, version)
    listed = [
        allocations_of(allocation_request["allocations"], version)
        for allocation_request in body["allocation_requests"]
    ]
    assert Counter(listed) == Counter(amounts for amounts, _mappings in expected)
    contributing = {name for amounts, _ in expected for name, _rc, _n in amounts}
    by_name = {provider.name: provider for provider in world}
    if version >= 29:
        roots = {root_of(by_name, name) for name in contributing}
        contributing = {name for name in by_name if root_of(by_name, name) in roots}
    assert body["provider_summaries"].keys() == contributing
    keys = 1 if version < 17 else 2 if version < 29 else 4
    assert all(
        len(provider_summary) == keys for provider_summary in body["provider_summaries"].values()
    )


@given(problems(), st.integers(1, 20), st.booleans())
def test_a_limit_gives_that_many_of_the_results_spread_over_trees(
    problem: Problem, limit: int, randomly: bool
) -> None:
    world, query = known_names(problem)
    every = answer(world, query, nested=True)
    shuffle = random.Random(limit) if randomly else None
    found = results_of(world, query, limit=limit, shuffle=shuffle)
    assert len(found) == len(set(found)) == min(limit, len(every))
    assert set(found) <= every
    by_name = {provider.name: provider for provider in world}
    alone = all(is_private(provider) for provider in world)
    # Amounts that are new come before exchanges of who took which provider. (Two trees may give the
    # same amounts of what they share, each with groups without resources on providers of its own.)
    if alone or all(group.resources for group in query.groups):
        assert len(different(found)) == min(limit, len(different(every)))
    # A tree of its own is never starved by another one.
    if alone:
        anchors = {root_of(by_name, name) for amounts, _ in every for name, _rc, _n in amounts}
        reached = {root_of(by_name, name) for amounts, _ in found for name, _rc, _n in amounts}
        assert len(reached) == min(limit, len(anchors))


def different(found: Iterable[Result]) -> set[object]:
    """The amounts of some results, whichever group took them."""
    return {amounts for amounts, _mappings in found}


@given(problems(), st.integers(0, 6), st.booleans(), st.booleans())
def test_a_maximum_ends_generation_before_the_nesting_filter(
    problem: Problem, maximum: int, breadth_first: bool, nested: bool
) -> None:
    world, query = known_names(problem)
    every = answer(world, query, nested=nested)
    limits = SearchLimits(maximum=maximum, breadth_first=breadth_first)
    found = results_of(world, query, limits=limits, one_per_tree=not nested)
    assert len(found) == len(set(found)) <= maximum
    assert set(found) <= every
    if nested:
        assert len(found) == min(maximum, len(every))


@given(problems(), st.data())
def test_a_search_goes_by_the_state_it_began_with(problem: Problem, data: st.DataObject) -> None:
    world, query = known_names(problem)
    writer = writer_of(world)
    search = Search(query, writer.index)
    renderer = Renderer(query, search.plan, writer.index, (1, 39), SummaryCache())
    names = names_of(world)
    trees = {tree.root_id: tree for tree in trees_of(world, names)}
    gone = data.draw(st.sets(st.sampled_from(sorted(trees))))
    writer.apply({root_id: None if root_id in gone else trees[root_id] for root_id in trees})
    body = json.loads(b"".join(renderer.body(search.candidates())))
    assert set(results(body)) == answer(world, query, nested=True)


@given(problems())
def test_what_was_asked_before_is_found_for_what_has_changed_since(problem: Problem) -> None:
    """Which providers pass a filter is kept, and looked up for those that changed."""
    world, query = known_names(problem)
    names, writer = names_of(world), writer_of(world)
    before = writer.index
    results(rendered(query, before))
    tags = [(provider.traits, provider.aggregates) for provider in world]
    changed_world = [
        replace(provider, traits=traits, aggregates=aggregates)
        for provider, (traits, aggregates) in zip(world, tags[1:] + tags[:1], strict=True)
    ]
    writer.apply({tree.root_id: tree for tree in trees_of(changed_world, names)})
    found = results(rendered(query, writer.index))
    assert set(found) == answer(changed_world, query, nested=True)
    assert set(results(rendered(query, before))) == answer(world, query, nested=True)


def allocations_of(allocations: object, version: int) -> frozenset[tuple[str, str, int]]:
    if version < 12:
        assert isinstance(allocations, list)
        pairs = [
            (allocation["resource_provider"]["uuid"], allocation["resources"])
            for allocation in allocations
        ]
    else:
        assert isinstance(allocations, dict)
        pairs = [(name, allocation["resources"]) for name, allocation in allocations.items()]
    return frozenset((name, rc, n) for name, resources in pairs for rc, n in resources.items())


def results_of(
    world: list[Provider],
    query: CandidateQuery,
    *,
    limits: SearchLimits | None = None,
    limit: int | None = None,
    one_per_tree: bool = False,
    shuffle: random.Random | None = None,
) -> list[Result]:
    index = writer_of(world).index
    limits = limits or SearchLimits(limit=limit)
    query = replace(query, limit=limit)
    search = Search(query, index, limits, one_per_tree=one_per_tree, shuffle=shuffle)
    found = []
    for candidate in search.candidates():
        sums: dict[tuple[str, str], int] = {}
        mappings: dict[str, set[str]] = {}
        classes = index.names.class_names
        for item, slot in zip(search.plan.items, candidate.slots(), strict=True):
            name = index.columns.uuid[slot]
            mappings.setdefault(query.groups[item.group].suffix, set()).add(name)
            for class_id, amount in item.amounts:
                key = name, classes[class_id]
                sums[key] = sums.get(key, 0) + amount
        found.append(
            (
                frozenset((name, rc, n) for (name, rc), n in sums.items()),
                frozenset((suffix, frozenset(uuids)) for suffix, uuids in mappings.items()),
            )
        )
    return found
