"""The follower of the feed on real databases, in one process."""

from __future__ import annotations

import itertools
import random
import threading
import uuid
from typing import Any
from unittest import mock

import pytest
import sqlalchemy as sa

from placement_server.candidates.index.class_columns import GrowableArray
from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.writer import IndexWriter
from placement_server.store import resource_classes
from placement_server.store.changes import snapshot
from placement_server.store.changes.snapshot import ChangeRow
from placement_server.store.connection.options import StoreOptions
from placement_server.store.known_owners import KnownOwners
from placement_server.store.providers import inventories, providers, traits
from placement_server.store.store import Store
from placement_server.store.tables import changes, resource_providers
from placement_server.store.tables import inventories as stored_inventories
from placement_server.store.transaction import STRUCTURE, USAGE, ReadTransaction, WriteTransaction
from tests.integration.candidates.followed_index import total, trait_count
from tests.integration.candidates.writes import claim, create, restock

CONSUMER = str(uuid.uuid4())


def uuids(follower: IndexFollower) -> list[str]:
    return [row.uuid for tree in follower.index().trees() for row in tree.providers]


def used(follower: IndexFollower, name: str) -> list[int]:
    index = follower.index()
    slot = index.slot_of(name)
    assert slot is not None
    return [inventory.used for inventory in index.inventories(slot)]


@pytest.mark.usefixtures("several_writers")
def test_a_change_that_commits_after_a_later_one_is_seen(store: Store) -> None:
    slow, quick = create(store, {"VCPU": 8}), create(store, {"VCPU": 8})
    follower = IndexFollower(store)
    follower.index()
    with store.engine.connect() as connection, connection.begin():
        transaction = WriteTransaction(connection, KnownOwners())
        traits.replace_of_provider(
            transaction,
            slow,
            ["HW_NUMA_ROOT"],
            generation=providers.get(transaction, slow).generation,
        )
        transaction.append_changes()
        restock(store, quick, {"VCPU": 4})
        assert total(follower, quick) == 4
        assert trait_count(follower, slow) == 0
    assert trait_count(follower, slow) == 1


@pytest.mark.usefixtures("several_writers")
def test_a_feed_that_starts_amid_writes_sees_them_when_they_commit(store: Store) -> None:
    slow, quick = create(store, {"VCPU": 8}), create(store, {"VCPU": 8})
    with store.engine.connect() as connection, connection.begin():
        transaction = WriteTransaction(connection, KnownOwners())
        inventories.delete_all(transaction, slow)
        transaction.append_changes()
        restock(store, quick, {"VCPU": 4})
        follower = IndexFollower(store)
        assert (total(follower, slow), total(follower, quick)) == (8, 4)
    assert total(follower, slow) == 0


def test_a_feed_that_was_pruned_past_reads_everything_again(store: Store) -> None:
    first = create(store)
    follower = IndexFollower(store)
    assert uuids(follower) == [first]
    second = create(store)
    third = create(store)
    with store.engine.connect() as connection, connection.begin():
        newest = connection.execute(sa.select(sa.func.max(changes.c.id))).scalar_one()
        connection.execute(sa.delete(changes).where(changes.c.id < newest))
    assert uuids(follower) == [first, second, third]


def test_deleting_a_class_and_creating_one_of_the_same_name_is_followed(store: Store) -> None:
    follower = IndexFollower(store)
    assert "CUSTOM_X" not in follower.index().names.class_ids
    store.write(resource_classes.create, "CUSTOM_X")
    assert "CUSTOM_X" in follower.index().names.class_ids
    store.write(resource_classes.delete, "CUSTOM_X")
    assert "CUSTOM_X" not in follower.index().names.class_ids


def test_after_memory_ran_out_amid_a_change_the_index_is_equal_to_the_store(store: Store) -> None:
    one, other = create(store, {"VCPU": 1, "MEMORY_MB": 1}), create(store, {"VCPU": 7})
    follower = IndexFollower(store)
    follower.index()
    extend = GrowableArray.extend
    for failing_call in range(100):
        calls = itertools.count()

        def extend_or_fail(*arguments: Any, at: int = failing_call, calls: Any = calls) -> None:
            if next(calls) == at:
                raise MemoryError
            extend(*arguments)

        restock(store, one, {"VCPU": 2 + failing_call, "MEMORY_MB": 3 + failing_call})
        with mock.patch.object(GrowableArray, "extend", extend_or_fail):
            try:
                follower.index()
            except MemoryError:
                pass
            else:
                break
        assert (total(follower, one), total(follower, other)) == (5 + 2 * failing_call, 7)
    assert 10 < failing_call < 99, "each of the growing arrays failed, and at last none"


def test_a_transaction_is_never_seen_by_half(store: Store) -> None:
    one, other = create(store, {"VCPU": 1}), create(store, {"VCPU": 1})
    consumer = str(uuid.uuid4())
    claim(store, consumer, {one: {"VCPU": 1}})
    follower = IndexFollower(store)
    done = threading.Event()
    halves: list[Any] = []

    def read() -> None:
        while not done.is_set():
            index = follower.index()
            slots = [index.slot_of(name) for name in (one, other)]
            sums = [
                inventory.used
                for slot in slots
                if slot is not None
                for inventory in index.inventories(slot)
            ]
            if sum(sums) != 1:
                halves.append(sums)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(40):
            claim(store, consumer, {(other if number % 2 else one): {"VCPU": 1}})
    finally:
        done.set()
        reader.join()
    assert halves == []


def test_the_first_reading_of_whole_tables_is_that_of_all_trees_one_by_one(store: Store) -> None:
    def read(tx: ReadTransaction) -> Index:
        ids = tx.execute(sa.select(resource_providers.c.root_provider_id)).scalars().all()
        trees = snapshot.trees(tx, set(ids))
        return IndexWriter(snapshot.names(tx), [tree for tree in trees.values() if tree]).index

    def shown(index: Index) -> list[Any]:
        slots = [index.slot_of(row.uuid) for tree in index.trees() for row in tree.providers]
        return [
            list(index.trees()),
            [list(index.usage(slot)) for slot in slots if slot is not None],
        ]

    assert shown(IndexFollower(store).index()) == shown(store.read(read)) == [[], []]
    draw = random.Random(11)
    numbers = (0, 1, 2, 255, 65_536, 2**31 - 1)
    rows = []
    for host in [create(store) for _ in range(12)]:
        names = [host, *(create(store, parent=host) for _ in range(draw.choice((0, 0, 3))))]
        for name, class_id in itertools.product(names, draw.sample(range(12), 5)):
            total, reserved, used = draw.choice(numbers), draw.choice(numbers), draw.choice(numbers)
            ratio, most = draw.choice((0.1, 1.0, 1e-5, 16.0, 1 / 3, 3e4)), draw.choice((1, 2**30))
            rows.append(
                {
                    "resource_provider_id": store.read(providers.get, name).id,
                    "resource_class_id": class_id,
                    "total": total,
                    "reserved": reserved,
                    "min_unit": draw.choice(numbers[1:]),
                    "max_unit": draw.choice(numbers[1:]),
                    "step_size": draw.choice(numbers[1:]),
                    "allocation_ratio": ratio,
                    "capacity": most * (total - reserved),
                    "used": most * used,
                }
            )
    assert shown(IndexFollower(store).index()) == shown(store.read(read))
    with store.engine.begin() as connection:
        connection.execute(sa.insert(stored_inventories), rows)
    index = IndexFollower(store).index()
    assert shown(index) == shown(store.read(read))
    assert sum(len(row.inventories) for tree in index.trees() for row in tree.providers) == len(
        rows
    )


def test_only_the_trees_that_changed_are_read(store: Store) -> None:
    for _ in range(3):
        create(store, {"VCPU": 1})
    touched = create(store, {"VCPU": 1})
    follower = IndexFollower(store)
    before = follower.index()
    restock(store, touched, {"VCPU": 2})
    after = follower.index()
    moved = set(after.roots.tolist()) - set(before.roots.tolist())
    assert [after.columns.uuid[slot] for slot in moved] == [touched]
    assert after.columns is before.columns


def test_a_root_that_was_noted_but_never_existed_is_harmless(store: Store) -> None:
    follower = IndexFollower(store)
    follower.index()
    store.write(lambda tx: tx.touch([987654], STRUCTURE))
    assert uuids(follower) == []


def test_on_postgresql_a_search_that_finds_nothing_new_or_claims_begins_no_transaction(
    store: Store,
) -> None:
    if store.engine.dialect.name != "postgresql":
        pytest.skip("on this database a transaction costs no more than its statement")
    name = create(store, {"VCPU": 8})
    follower = IndexFollower(store)
    follower.index()
    with mock.patch.object(store, "read", side_effect=AssertionError("a transaction")):
        follower.index()
        for in_use in (3, 5):
            claim(store, CONSUMER, {name: {"VCPU": in_use}})
            assert used(follower, name) == [in_use]
    restock(store, name, {"VCPU": 9})
    assert total(follower, name) == 9


def test_more_claims_than_one_statement_reads_are_seen_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placement_server.candidates.index.follower._READ_AT_ONCE", 3)
    names = [create(store, {"VCPU": 8}) for _ in range(5)]
    follower = IndexFollower(store)
    follower.index()
    for number, name in enumerate(names, start=1):
        claim(store, str(uuid.uuid4()), {name: {"VCPU": number}})
    assert [used(follower, name) for name in names] == [[1], [2], [3], [4], [5]]


def test_a_claim_and_a_new_inventory_in_one_tree_are_seen_together(store: Store) -> None:
    name = create(store, {"VCPU": 8})
    follower = IndexFollower(store)
    follower.index()
    claim(store, CONSUMER, {name: {"VCPU": 3}})
    restock(store, name, {"VCPU": 8, "DISK_GB": 5})
    assert used(follower, name) == [3, 0]
    claim(store, CONSUMER, {name: {"VCPU": 4, "DISK_GB": 1}})
    assert used(follower, name) == [4, 1]


def test_news_are_the_notes_with_the_use_of_the_trees_where_only_that_changed(
    store: Store,
) -> None:
    roots = [create(store, {"VCPU": 8, "DISK_GB": 5}) for _ in range(3)]
    children = [create(store, {"VGPU": 2}, root) for root in roots]
    create(store)
    for number, (root, child) in enumerate(zip(roots, children, strict=True), start=1):
        claim(store, str(uuid.uuid4()), {root: {"VCPU": number}, child: {"VGPU": 1}})
        claim(store, str(uuid.uuid4()), {root: {"VCPU": 1, "DISK_GB": number}})
    restock(store, roots[1], {"VCPU": 8, "DISK_GB": 6})
    claim(store, CONSUMER, {root: {"VCPU": 1} for root in roots})
    every = store.read(snapshot.changes_since, 0, ())
    ids = sorted(row.id for row in every)
    # some numbers never appear
    store.write(
        lambda tx: tx.execute(
            sa.delete(changes).where(changes.c.id.in_(ids[3::4]), changes.c.id != ids[-2])
        )
    )
    for last in (ids[0], ids[len(ids) // 2], ids[-2], ids[-1], ids[-1] + 1):
        for gaps in ([], [last - 1], list(range(max(last - 9, 1), last, 2))):
            rows, use = store.read_single(snapshot.news, last, gaps, 500)
            assert _by_id(rows) == _by_id(store.read(snapshot.changes_since, last, gaps))
            touched = {row.root_id for row in rows if row.kind == USAGE and row.id != last}
            known = store.read(snapshot.usage, touched)
            assert use == {root_id: amounts for root_id, amounts in known.items() if amounts}


def _by_id(rows: list[ChangeRow]) -> list[ChangeRow]:
    return sorted(rows, key=lambda row: row.id)


_FLEET = """
INSERT INTO resource_providers (id, uuid, name, generation, root_provider_id)
SELECT n, n::text, n::text, 1, n - (n - 1) % 50 FROM generate_series(1, 20000) AS n;
INSERT INTO inventories (resource_provider_id, resource_class_id, total, reserved, min_unit,
    max_unit, step_size, allocation_ratio)
SELECT n, 0, 9, 0, 1, 9, 1, 1 FROM generate_series(1, 20000) AS n;
INSERT INTO changes (id, created_at, root_provider_id, kind, write_id)
SELECT 2 * n, now(), 1 + 50 * (n % 400), 1, n FROM generate_series(1, 20000) AS n;
"""


@pytest.mark.parametrize("more", ["", "ANALYZE;"], ids=["no-statistics", "statistics"])
def test_on_postgresql_the_news_of_some_trees_are_read_without_walking_a_table(
    postgresql_url: str, more: str
) -> None:
    store = Store.open(postgresql_url, options=StoreOptions(sync_on_startup=True))
    with store.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        for statement in (_FLEET + more).split(";"):
            if statement.strip():
                connection.exec_driver_sql(statement.replace("%", "%%"))
    last, times = 2 * 20000 - 6, 10

    def read(tx: ReadTransaction) -> dict[str, int]:
        # what is prepared on a connection gets the plan for any values sooner or later
        tx.execute(sa.text("SET LOCAL plan_cache_mode = force_generic_plan"))
        for _ in range(times):
            rows, use = snapshot.news(tx, last, list(range(last - 199, last, 2)), 500)
            assert len(rows) == 4
            assert [len(amounts) for amounts in use.values()] == [50, 50, 50]
        statement = sa.text(
            "SELECT relname, seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"
        )
        return {str(name): int(count) for name, count in tx.execute(statement)}

    rows_read = store.read(read)
    store.close()
    assert {
        name: rows_read[name] // times for name in ("changes", "resource_providers", "inventories")
    } == {"changes": 4, "resource_providers": 150, "inventories": 150}
