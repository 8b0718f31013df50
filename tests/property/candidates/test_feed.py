"""After any writes the index that followed them equals one that is loaded afresh, and so do the
answers that are made from it."""

from __future__ import annotations

import uuid
from typing import Any
from unittest import mock
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_server.candidates import index as indexes
from placement_server.candidates.errors import QueryError
from placement_server.candidates.feed import Feed
from placement_server.candidates.query import parse
from placement_server.candidates.service import CandidateService
from placement_server.store import (
    aggregates,
    allocations,
    inventories,
    providers,
    resource_classes,
    traits,
)
from placement_server.store.errors import StoreError
from placement_server.store.records import ANY, ConsumerWrite, InventoryRecord
from placement_server.store.store import Store

UUIDS = [str(uuid.UUID(int=number)) for number in range(1, 6)]
CONSUMERS = [str(uuid.UUID(int=number)) for number in range(101, 103)]
AGGREGATES = [str(uuid.UUID(int=number)) for number in range(201, 203)]
CUSTOM = ["CUSTOM_A", "CUSTOM_B"]
TRAITS = ["MISC_SHARES_VIA_AGGREGATE", "HW_NUMA_ROOT", *CUSTOM]
CLASSES = ["VCPU", "DISK_GB", *CUSTOM]

Write = tuple[str, str, Any]

_PROVIDER = st.sampled_from(UUIDS)
_CLASSES = st.sampled_from(CLASSES)
_AMOUNTS = st.dictionaries(_CLASSES, st.integers(1, 4), max_size=2)
_WANTED = st.dictionaries(_CLASSES, st.integers(1, 2), min_size=1, max_size=2)
ONE_WRITE: st.SearchStrategy[Write] = st.one_of(
    st.tuples(st.just("create"), _PROVIDER, st.sampled_from([None, *UUIDS])),
    st.tuples(st.just("move"), _PROVIDER, st.sampled_from([None, *UUIDS])),
    st.tuples(st.just("delete"), _PROVIDER, st.none()),
    st.tuples(st.just("stock"), _PROVIDER, _AMOUNTS),
    st.tuples(st.just("traits"), _PROVIDER, st.lists(st.sampled_from(TRAITS), unique=True)),
    st.tuples(st.just("join"), _PROVIDER, st.lists(st.sampled_from(AGGREGATES), unique=True)),
    st.tuples(
        st.just("claim"),
        st.sampled_from(CONSUMERS),
        st.dictionaries(_PROVIDER, _WANTED, max_size=2),
    ),
    st.tuples(
        st.sampled_from(["make trait", "drop trait", "make class", "drop class"]),
        st.sampled_from(CUSTOM),
        st.none(),
    ),
)


def exchange_trait(provider: str, old: str, new: str) -> list[Write]:
    """A trait goes and another one comes, which SQLite gives the same id."""
    return [
        ("make trait", old, None),
        ("traits", provider, [old]),
        ("traits", provider, []),
        ("drop trait", old, None),
        ("make trait", new, None),
        ("traits", provider, [new]),
    ]


def exchange_class(provider: str, old: str, new: str) -> list[Write]:
    """The same for a resource class."""
    return [
        ("make class", old, None),
        ("stock", provider, {old: 2}),
        ("stock", provider, {}),
        ("drop class", old, None),
        ("make class", new, None),
        ("stock", provider, {new: 2}),
    ]


_PRESENT = st.sampled_from(UUIDS[:2])
_PAIR = st.permutations(CUSTOM)
WRITES = st.one_of(
    ONE_WRITE.map(lambda one: [one]),
    ONE_WRITE.map(lambda one: [one]),
    st.tuples(st.sampled_from([exchange_trait, exchange_class]), _PRESENT, _PAIR).map(
        lambda drawn: drawn[0](drawn[1], *drawn[2])
    ),
)
# Hardly anything would be found in a world that begins empty.
BEGINNING: list[Write] = [
    ("create", UUIDS[0], None),
    ("stock", UUIDS[0], {"VCPU": 2}),
    ("create", UUIDS[1], UUIDS[0]),
    ("stock", UUIDS[1], {"DISK_GB": 3}),
]
QUERIES = [
    (f"resources={name}:1{more}", version)
    for name in CLASSES
    for more, version in (
        ("", (1, 39)),
        ("", (1, 17)),
        ("&required=in:HW_NUMA_ROOT,CUSTOM_A", (1, 39)),
        ("&required=!CUSTOM_B", (1, 39)),
    )
]


def write(store: Store, kind: str, target: str, value: Any) -> None:
    """Do one write; the store may refuse it."""

    def generation() -> int:
        return store.read(providers.get, target).generation

    if kind == "create":
        store.write(providers.create, uuid=target, name=target, parent_uuid=value)
    elif kind == "move":
        store.write(
            providers.update, target, name=target, parent_uuid=value, reparenting_allowed=True
        )
    elif kind == "delete":
        store.write(providers.delete, target)
    elif kind == "stock":
        records = {
            name: InventoryRecord(total=n, allocation_ratio=1.5) for name, n in value.items()
        }
        store.write(
            inventories.replace,
            target,
            generation=generation(),
            records=records,
            reserved_may_equal_total=True,
        )
    elif kind == "traits":
        store.write(traits.replace_of_provider, target, value, generation=generation())
    elif kind == "join":
        store.write(aggregates.replace, target, value, generation=generation())
    elif kind == "make trait":
        store.write(traits.ensure, target)
    elif kind == "drop trait":
        store.write(traits.delete, target)
    elif kind == "make class":
        store.write(resource_classes.ensure, target)
    elif kind == "drop class":
        store.write(resource_classes.delete, target)
    else:
        store.write(allocations.write, [ConsumerWrite(target, value, "p", "u", None, ANY)])


@settings(max_examples=40)
@given(st.lists(WRITES, min_size=4, max_size=20), st.sampled_from([3, 4096]))
def test_following_the_changes_gives_what_a_fresh_load_gives(
    writes: list[list[Write]], tolerated_dead: int
) -> None:
    with mock.patch.object(indexes, "_TOLERATED_DEAD", tolerated_dead):
        follow([*BEGINNING, *(one for some in writes for one in some)])


@pytest.mark.parametrize("exchange", [exchange_trait, exchange_class])
def test_an_id_that_is_given_out_again_is_shown_by_its_new_name(exchange: Any) -> None:
    follow(
        [
            *BEGINNING,
            *exchange(UUIDS[0], *CUSTOM),
            *exchange(UUIDS[0], *reversed(CUSTOM)),
        ]
    )


def follow(writes: list[Write]) -> None:
    store = Store.open("sqlite://")
    store.synchronise_standard_names()
    feed = Feed(store)
    followed = CandidateService(store, feed=feed)
    feed.index()
    for kind, target, value in writes:
        try:
            write(store, kind, target, value)
        except StoreError:
            continue
        index = feed.index()
        fresh_feed = Feed(store)
        fresh = fresh_feed.index()
        assert list(index.trees()) == list(fresh.trees())
        assert index.root_ids.tolist() == fresh.root_ids.tolist()
        assert links(index) == links(fresh)
        assert index.nested == fresh.nested
        assert index.names == fresh.names
        fresh_answers = CandidateService(store, feed=fresh_feed)
        for query, version in QUERIES:
            assert answer(followed, query, version) == answer(fresh_answers, query, version)
    store.close()


def answer(service: CandidateService, query: str, version: tuple[int, int]) -> bytes | str:
    """The body, or what is said of a trait or class that there is not."""
    try:
        return b"".join(service.answer(parse(parse_qsl(query), version), version).chunks)
    except QueryError as error:
        return str(error)


def links(index: Any) -> set[tuple[str, str]]:
    name = index.columns.uuid
    pairs = zip(index.links.share.tolist(), index.links.anchor.tolist(), strict=True)
    return {(name[share], name[anchor]) for share, anchor in pairs}
