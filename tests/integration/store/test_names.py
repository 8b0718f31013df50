"""Resource classes and traits on every database."""

from __future__ import annotations

from datetime import datetime, timedelta

import os_resource_classes
import pytest
import sqlalchemy as sa

from placement_server.store import resource_classes
from placement_server.store import store as store_module
from placement_server.store.allocations import allocations
from placement_server.store.changes import changes
from placement_server.store.errors import ResourceClassExists, ResourceClassNotFound
from placement_server.store.providers import inventories, inventory_rows, traits
from placement_server.store.schema.names import STANDARD_CLASS_IDS
from placement_server.store.store import Store
from placement_server.store.tables import changes as changes_table
from tests.fixtures.allocations import new_uuid
from tests.integration.store.conftest import new_provider, opened, set_of


def custom() -> str:
    return f"CUSTOM_{new_uuid().replace('-', '_').upper()}"


def test_standard_classes_have_the_numbers_of_their_places(store: Store) -> None:
    rows = store.read(resource_classes.list_all)
    standard = {row.name: row.id for row in rows if not row.name.startswith("CUSTOM_")}
    assert standard == STANDARD_CLASS_IDS
    assert standard["VCPU"] == 0
    assert len(standard) == len(os_resource_classes.STANDARDS)


def test_custom_classes_are_numbered_from_ten_thousand(store: Store) -> None:
    first, second = custom(), custom()
    assert store.write(resource_classes.create, first).id >= 10_000
    row, created = store.write(resource_classes.ensure, second)
    assert created
    assert row.id == store.read(resource_classes.get, first).id + 1
    assert store.write(resource_classes.ensure, second) == (row, False)
    with pytest.raises(ResourceClassExists):
        store.write(resource_classes.create, first)


def test_a_renamed_class_keeps_its_inventories(store: Store) -> None:
    old, new = custom(), custom()
    store.write(resource_classes.create, old)
    provider = new_provider(store, {old: 5})
    store.write(resource_classes.rename, old, new)
    assert set(store.read(inventory_rows.of_provider, provider)[1]) == {new}
    with pytest.raises(ResourceClassNotFound):
        store.write(allocations.write, [set_of(new_uuid(), {provider: {old: 1}})])
    store.write(allocations.write, [set_of(new_uuid(), {provider: {new: 1}})])
    with pytest.raises(ResourceClassExists):
        store.write(resource_classes.rename, new, "VCPU")


def test_a_class_number_that_is_used_again_is_not_taken_for_the_old_class(store: Store) -> None:
    old, new = custom(), custom()
    number = store.write(resource_classes.create, old).id
    with opened(store.url) as other:
        provider = new_provider(other, {old: 5})
        store.write(inventories.delete_all, provider)
        store.write(resource_classes.delete, old)
        assert store.write(resource_classes.create, new).id == number
        with pytest.raises(ResourceClassNotFound):
            other.write(allocations.write, [set_of(new_uuid(), {provider: {old: 1}})])


def test_a_writer_that_never_meets_a_multiple_prunes_as_well(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "PRUNE_EVERY", 4)
    monkeypatch.setattr(changes, "KEPT_ROWS", 2)
    monkeypatch.setattr(changes, "KEPT_FOR", timedelta(days=-1))
    count = sa.select(sa.func.count()).select_from(changes_table)
    newest = sa.select(sa.func.max(changes_table.c.id))
    for _ in range(20):
        while _number(store, newest) % 4 == 3:
            _write_as_another(store)
        store.write(traits.ensure, custom())
    assert _number(store, count) < 10


def _write_as_another(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.execute(
            sa.insert(changes_table).values(
                created_at=datetime(2020, 1, 1), root_provider_id=1, kind=1, write_id=1
            )
        )


def _number(store: Store, query: sa.Select[tuple[int]]) -> int:
    return int(store.read(lambda tx: tx.execute(query).scalar_one()))
