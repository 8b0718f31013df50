"""Statements that a request costs, each a round trip to the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any, Literal

import pytest
from sqlalchemy import event

from placement_server.store.allocations import allocation_rows, allocations, reshape, usages
from placement_server.store.providers import (
    aggregates,
    inventory_rows,
    providers,
    traits,
)
from placement_server.store.records import (
    KEEP,
    ConsumerRecord,
    ConsumerWrite,
    InventoryRecord,
    Keep,
)
from placement_server.store.store import Store
from tests.integration.store.conftest import (
    generation_of,
    new_provider,
    new_uuid,
    set_of,
)

TYPES: tuple[Literal[Keep.KEEP] | str | None, ...] = (KEEP, "B", None)
CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB", "VGPU")


@contextmanager
def counted(store: Store) -> Iterator[list[str]]:
    """The statements of transactions other than BEGIN, COMMIT and ROLLBACK."""
    statements: list[str] = []

    def on_statement(
        _c: object, _cursor: object, statement: str, rows: Any, _context: object, many: bool
    ) -> None:
        if not statement.startswith("BEGIN"):
            # the drivers of servers send these row by row, and merge only what is inserted
            by_row = many and by_network and not statement.startswith("INSERT")
            statements.extend([statement] * (len(rows) if by_row else 1))

    by_network = store.engine.dialect.name != "sqlite"
    engines = {store._engines.reader, store._engines.writer}
    if not by_network:
        # one is a view of the other, and passes its events on
        engines = {store._engines.reader}
    for engine in engines:
        event.listen(engine, "before_cursor_execute", on_statement)
    yield statements
    for engine in engines:
        event.remove(engine, "before_cursor_execute", on_statement)


def claim_costs(store: Store) -> int:
    """Statements of a claim for a new consumer whose project and user are known."""
    # PostgreSQL inserts in one statement, and does all that others wait for in another
    return 3 if store.engine.dialect.name == "postgresql" else 7


def meet_the_owners(store: Store, host: str) -> None:
    """The first claim of a project makes it, the second finds it and remembers."""
    for _ in range(2):
        store.write(allocations.write, [set_of(new_uuid(), {host: {"VCPU": 1}}, None)])


def test_a_claim_costs_few_statements_however_much_it_claims(store: Store) -> None:
    hosts = [new_provider(store, dict.fromkeys(CLASSES, 100)) for _ in range(3)]
    meet_the_owners(store, hosts[0])
    for claimed in (hosts[:1], hosts):
        with counted(store) as statements:
            amounts = {host: dict.fromkeys(CLASSES, 1) for host in claimed}
            store.write(allocations.write, [set_of(new_uuid(), amounts, None)])
        assert len(statements) <= claim_costs(store), "\n".join(statements)


def test_a_claim_of_fifty_consumers_costs_no_more_than_that_of_one(store: Store) -> None:
    host = new_provider(store, {"VCPU": 100})
    meet_the_owners(store, host)
    with counted(store) as statements:
        store.write(
            allocations.write, [set_of(new_uuid(), {host: {"VCPU": 1}}, None) for _ in range(50)]
        )
    # and the lock of the records
    assert len(statements) <= claim_costs(store) + 1, "\n".join(statements)


@pytest.mark.parametrize(
    ("read", "limit"),
    [
        (providers.get, 1),
        (inventory_rows.of_provider, 1),
        (traits.of_provider, 1),
        (aggregates.of_provider, 1),
        (usages.of_provider, 1),
        (usages.of_project, 1),
        (usages.by_consumer_type, 1),
        (allocations.of_provider, 2),
    ],
)
def test_reads_by_id_cost_one_or_two_statements(
    store: Store, read: Callable[..., object], limit: int
) -> None:
    host = new_provider(store, {"VCPU": 100})
    with counted(store) as statements:
        store.read(read, host)
    assert len(statements) <= limit, "\n".join(statements)


def written(
    consumers: Sequence[str], amounts: Mapping[str, Mapping[str, int]], generations: Sequence[int]
) -> list[ConsumerWrite]:
    """New allocations of consumers with owners of their own, and by turns each kind of type."""
    return [
        ConsumerWrite(uuid, amounts, f"p-{uuid}", f"u-{uuid}", consumer_type, generation)
        for uuid, generation, consumer_type in zip(
            consumers, generations, cycle(TYPES), strict=False
        )
    ]


def test_many_consumers_with_little_in_common_cost_no_more_statements_than_few(
    store: Store,
) -> None:
    """Each has owners of its own, one of two generations, and a type that is kept, set or taken."""
    costs = []
    for count in (5, 50):
        old, new = (new_provider(store, {"VCPU": 100}) for _ in range(2))
        consumers = [new_uuid() for _ in range(count)]

        for uuid in consumers:
            store.write(allocations.write, [set_of(uuid, {old: {"VCPU": 1}}, consumer_type="A")])
        store.write(allocations.write, written(consumers, {old: {"VCPU": 1}}, [1] * count)[::2])
        generations = [2 - i % 2 for i in range(count)]
        moved = written(consumers, {new: {"VCPU": 1}}, generations)
        wanted = {new: (1, {"VCPU": InventoryRecord(100)})}
        with counted(store) as statements:
            store.write(reshape.apply, wanted, moved)
        costs.append(len(statements))
        records = [store.read(allocation_rows.of_consumer, uuid)[0] for uuid in consumers]
        assert records == [
            ConsumerRecord(uuid, generation + 1, f"p-{uuid}", f"u-{uuid}", consumer_type)
            for uuid, generation, consumer_type in zip(
                consumers, generations, cycle(["A", "B", None]), strict=False
            )
        ]
        with counted(store) as statements:
            store.write(allocations.write, written(consumers, {}, [n + 1 for n in generations]))
        costs.append(len(statements))
        assert store.read(allocations.of_provider, new)[1] == []
    assert costs[:2] == costs[2:], costs


def test_a_reshape_costs_no_statement_for_a_provider_or_consumer(store: Store) -> None:
    host = new_provider(store, dict.fromkeys(CLASSES, 1000))
    children = [new_provider(store, parent=host) for _ in range(5)]
    consumers = [new_uuid() for _ in range(100)]
    everything = dict.fromkeys(CLASSES, 1)
    store.write(
        allocations.write, [set_of(consumer, {host: everything}, None) for consumer in consumers]
    )
    records = {name: InventoryRecord(500) for name in CLASSES}
    wanted = {host: (generation_of(store, host), {})} | dict.fromkeys(children, (0, records))
    moved = [
        set_of(consumer, {children[i % 5]: everything}, 1) for i, consumer in enumerate(consumers)
    ]
    with counted(store) as statements:
        store.write(reshape.apply, wanted, moved)
    assert len(statements) <= 16, "\n".join(statements)


def test_a_reshape_changes_the_inventories_of_all_providers_in_one_statement(store: Store) -> None:
    hosts = [new_provider(store, dict.fromkeys(CLASSES, 1000)) for _ in range(5)]
    records = {
        name: InventoryRecord(500 + number, 1, 2, 400, 2, 1.5)
        for number, name in enumerate(CLASSES)
    }
    wanted = {host: (generation_of(store, host), records) for host in hosts}
    with counted(store) as statements:
        store.write(reshape.apply, wanted, [])
    changes = [text for text in statements if "inventories" in text and " SET " in text]
    assert len(changes) == 1, "\n".join(changes)
    for host in hosts:
        stored = store.read(inventory_rows.of_provider, host)[1]
        assert {name: inventory.record for name, inventory in stored.items()} == records
