"""The filters of a listing of providers: the index against the store, after any writes."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.query.query import RequestGroup
from placement_server.candidates.search.eligible import passing_providers
from placement_server.store.errors import StoreError
from placement_server.store.providers import providers
from tests.fixtures.memory_stores import memory_store
from tests.property.candidates.writes import AGGREGATES, ONE_WRITE, UUIDS, write

TRAITS = ["MISC_SHARES_VIA_AGGREGATE", "HW_NUMA_ROOT"]
# Something to be found, whatever the writes that follow do to it.
FIRST: list[tuple[str, str, Any]] = [
    ("create", UUIDS[0], None),
    ("create", UUIDS[1], UUIDS[0]),
    ("stock", UUIDS[0], {"VCPU": 4}),
    ("stock", UUIDS[1], {"VCPU": 2, "DISK_GB": 3}),
    ("traits", UUIDS[0], TRAITS),
    ("join", UUIDS[0], AGGREGATES[:1]),
    ("join", UUIDS[1], AGGREGATES),
]


def terms(values: list[str]) -> st.SearchStrategy[tuple[frozenset[str], ...]]:
    term = st.frozensets(st.sampled_from(values), min_size=1, max_size=2)
    return st.one_of(st.just(()), st.lists(term, max_size=2).map(tuple))


def some(values: list[str]) -> st.SearchStrategy[frozenset[str]]:
    none: frozenset[str] = frozenset()
    return st.one_of(st.just(none), st.frozensets(st.sampled_from(values), max_size=1))


FILTERS = st.builds(
    RequestGroup,
    suffix=st.just(""),
    resources=st.dictionaries(
        st.sampled_from(["VCPU", "DISK_GB"]), st.integers(1, 7), max_size=2
    ).map(lambda amounts: tuple(amounts.items())),
    required=terms(TRAITS),
    forbidden=some(TRAITS),
    member_of=terms(AGGREGATES),
    forbidden_aggregates=some(AGGREGATES),
)


@settings(max_examples=60)
@given(st.lists(ONE_WRITE, max_size=25), st.lists(FILTERS, min_size=4, max_size=12))
def test_the_index_finds_the_providers_that_the_store_finds(
    writes: list[tuple[str, str, Any]], queries: list[RequestGroup]
) -> None:
    store = memory_store()
    follower = IndexFollower(store)
    follower.index()
    for kind, target, value in [*FIRST, *writes]:
        try:
            write(store, kind, target, value)
        except StoreError:
            continue
        # Followed one by one, so that the index holds states that are no more.
        follower.index()
    for group in queries:
        ids = passing_providers(group, follower.index())
        found = store.read(
            providers.find,
            resources=dict(group.resources),
            required=group.required,
            forbidden=group.forbidden,
            member_of=group.member_of,
            forbidden_aggregates=group.forbidden_aggregates,
        )
        if ids is None:
            event("an aggregate that has no members: the store's to say")
        else:
            event("found" if ids else "none passes")
            assert ids == sorted(provider.id for provider in found)
    store.close()
