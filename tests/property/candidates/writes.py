"""Writes to a store, drawn at random, that an index has to follow."""

from __future__ import annotations

import uuid
from typing import Any

from hypothesis import strategies as st

from placement_server.store import resource_classes
from placement_server.store.allocations import allocations
from placement_server.store.providers import aggregates, inventories, providers, traits
from placement_server.store.records import ANY, ConsumerWrite, InventoryRecord
from placement_server.store.store import Store

UUIDS = [str(uuid.UUID(int=number)) for number in range(1, 6)]
CONSUMERS = [str(uuid.UUID(int=number)) for number in range(101, 103)]
AGGREGATES = [str(uuid.UUID(int=number)) for number in range(201, 203)]
CUSTOM = ["CUSTOM_A", "CUSTOM_B"]
TRAITS = ["MISC_SHARES_VIA_AGGREGATE", "HW_NUMA_ROOT", *CUSTOM]
CLASSES = ["VCPU", "DISK_GB", *CUSTOM]
Write = tuple[str, str, Any]
# Hardly anything would be found in a world that begins empty.
BEGINNING: list[Write] = [
    ("create", UUIDS[0], None),
    ("stock", UUIDS[0], {"VCPU": 2}),
    ("create", UUIDS[1], UUIDS[0]),
    ("stock", UUIDS[1], {"DISK_GB": 3}),
]
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
