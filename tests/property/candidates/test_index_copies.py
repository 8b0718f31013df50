"""An index and a copy of it are changed at the same time; neither sees the changes of the other."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.index.writer import IndexWriter
from placement_server.candidates.query.query import CandidateQuery
from placement_server.store.changes.snapshot import NameRows, TreeRows
from tests.property.candidates.strategies import TRAITS, problems
from tests.unit.candidates.forest import Provider, names_of, rendered, trees_of

Trees = dict[int, TreeRows]


def rows_of(world: list[Provider], names: NameRows) -> Trees:
    return {tree.root_id: tree for tree in trees_of(world, names)}


def difference(before: Trees, after: Trees) -> Mapping[int, TreeRows | None]:
    return {
        root_id: after.get(root_id)
        for root_id in before.keys() | after.keys()
        if before.get(root_id) != after.get(root_id)
    }


@given(problems(), problems(), problems(), st.booleans())
def test_an_index_and_its_copy_go_their_own_ways(
    first: tuple[list[Provider], CandidateQuery],
    second: tuple[list[Provider], CandidateQuery],
    third: tuple[list[Provider], CandidateQuery],
    copy_first: bool,
) -> None:
    query = first[1]
    every = [*first[0], *second[0], *third[0], Provider("names", traits=TRAITS)]
    names = names_of(every)
    before, left, right = (rows_of(world, names) for world, _ in (first, second, third))
    writer = IndexWriter(names, before.values())
    summaries = SummaryCache()
    rendered(query, writer.index, summaries=summaries)
    origin = writer.index
    copy = IndexWriter.on_copy(origin)
    steps = [
        lambda: writer.apply(difference(before, left)),
        lambda: copy.apply(difference(before, right)),
    ]
    for step in reversed(steps) if copy_first else steps:
        step()
    shared = summaries.for_copy(copy.index, origin)
    for index, trees, texts in (
        (writer.index, left, summaries),
        (copy.index, right, shared),
        (origin, before, summaries),
    ):
        fresh = IndexWriter(names, trees.values()).index
        assert list(index.trees()) == list(fresh.trees())
        for provider in {row.uuid for tree in trees.values() for row in tree.providers}:
            slot = index.slot_of(provider)
            assert slot is not None
            assert index.columns.uuid[slot] == provider
        assert rendered(query, index, summaries=texts) == rendered(query, fresh)
