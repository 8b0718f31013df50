"""After any writes the index that followed them equals one that is loaded afresh."""

from __future__ import annotations

import uuid
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from placement_server.candidates import index as indexes
from placement_server.candidates.feed import Feed
from placement_server.store import aggregates, allocations, inventories, providers, traits
from placement_server.store.errors import StoreError
from placement_server.store.records import ANY, ConsumerWrite, InventoryRecord
from placement_server.store.store import Store

UUIDS = [str(uuid.UUID(int=number)) for number in range(1, 6)]
CONSUMERS = [str(uuid.UUID(int=number)) for number in range(101, 103)]
AGGREGATES = [str(uuid.UUID(int=number)) for number in range(201, 203)]
TRAITS = ["MISC_SHARES_VIA_AGGREGATE", "HW_NUMA_ROOT", "STORAGE_DISK_SSD"]

_PROVIDER = st.sampled_from(UUIDS)
_CLASSES = st.sampled_from(["VCPU", "DISK_GB"])
_AMOUNTS = st.dictionaries(_CLASSES, st.integers(1, 4), max_size=2)
_WANTED = st.dictionaries(_CLASSES, st.integers(1, 2), min_size=1, max_size=2)
WRITES = st.one_of(
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
)


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
    else:
        store.write(allocations.write, [ConsumerWrite(target, value, "p", "u", None, ANY)])


@settings(max_examples=40)
@given(st.lists(WRITES, max_size=25), st.sampled_from([3, 4096]))
def test_following_the_changes_gives_what_a_fresh_load_gives(
    writes: list[tuple[str, str, Any]], tolerated_dead: int
) -> None:
    with mock.patch.object(indexes, "_TOLERATED_DEAD", tolerated_dead):
        follow(writes)


def follow(writes: list[tuple[str, str, Any]]) -> None:
    store = Store.open("sqlite://")
    store.synchronise_standard_names()
    feed = Feed(store)
    feed.index()
    for kind, target, value in writes:
        try:
            write(store, kind, target, value)
        except StoreError:
            continue
        index = feed.index()
        fresh = Feed(store).index()
        assert list(index.trees()) == list(fresh.trees())
        assert index.root_ids.tolist() == fresh.root_ids.tolist()
        assert links(index) == links(fresh)
        assert index.nested == fresh.nested
        assert index.names == fresh.names
    store.close()


def links(index: Any) -> set[tuple[str, str]]:
    name = index.columns.uuid
    pairs = zip(index.links.share.tolist(), index.links.anchor.tolist(), strict=True)
    return {(name[share], name[anchor]) for share, anchor in pairs}
