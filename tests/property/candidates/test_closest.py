"""The closest changes against the brute force, on small forests and queries over all parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from placement_server.candidates.closest.closest import RelaxationSet, find_closest
from placement_server.candidates.closest.relaxations import Trials
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits import Deadline
from tests.property.candidates.strategies import Problem, hungry_problems, known_names
from tests.property.closest_oracle import Entry, Trees, kind_of
from tests.unit.candidates.forest import writer_of

EVERY = 1_000_000
Kinds = frozenset[frozenset[tuple[str, Any]]]


def entries_of(relaxation_set: RelaxationSet) -> list[Entry]:
    return [relaxation.entry(amount) for relaxation, amount in relaxation_set.relaxations]


def kinds_of(entries: Sequence[Entry]) -> Kinds:
    return frozenset(map(kind_of, entries))


def raised(entries: Sequence[Entry]) -> list[list[Entry]]:
    """The same changes with one of the amounts closer to what was asked for."""
    return [
        [entry | {"to": to} if other is entry else other for other in entries]
        for entry in entries
        if "to" in entry
        for to in range(entry["to"] + 1, entry["from"])
    ]


# Hundreds of queries by brute force for each: long_run does thousands.
@settings(max_examples=30)
@given(hungry_problems(), st.booleans())
def test_the_changes_found_are_the_smallest_that_give_a_candidate(
    problem: Problem, nested: bool
) -> None:
    world, query = known_names(problem)
    trees = Trees(world, query, nested=nested)
    if trees.with_changes([]):
        return
    index: Index = writer_of(world).index
    closest = find_closest(query, Trials(index, Deadline(60.0), one_per_tree=not nested), EVERY)
    assert closest.complete
    expected = {frozenset(choice.kind for choice in some) for some in trees.smallest()}
    found = [entries_of(relaxation_set) for relaxation_set in closest.sets]
    assert len(found) == len({kinds_of(entries) for entries in found})
    assert {kinds_of(entries) for entries in found} == expected
    for relaxation_set, entries in zip(closest.sets, found, strict=True):
        roots = trees.with_changes(entries)
        assert relaxation_set.trees == len(roots)
        assert index.columns.uuid[relaxation_set.example] in roots
        for more in raised(entries):
            assert not trees.with_changes(more), (entries, more)
    order = [
        (len(relaxation_set.relaxations), -relaxation_set.trees) for relaxation_set in closest.sets
    ]
    assert order == sorted(order)
