"""Claims of many clients that fill a provider to its last unit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from placement_server.store import audit
from placement_server.store.allocations import allocations
from placement_server.store.errors import AllocationRefused
from placement_server.store.providers import providers
from placement_server.store.store import Store
from placement_server.store.tables import inventories as inventories_table
from tests.integration.store.conftest import (
    OPTIONS,
    generation_of,
    new_provider,
    new_uuid,
    set_of,
    use_of,
)

CLIENTS = 6


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_claims_fill_a_provider_to_the_last_unit_without_a_needless_conflict(
    migrated_database_url: str, shared: bool
) -> None:
    """While there is room every claim succeeds at its first try; then every one is refused."""
    store = Store.open(migrated_database_url, options=OPTIONS)
    host = new_provider(store, {"VCPU": 60})
    pool = new_provider(store, {"DISK_GB": 1000})
    stores = [Store.open(migrated_database_url, options=OPTIONS) for _ in range(CLIENTS)]

    def fill(store: Store) -> tuple[int, int]:
        granted = refused = 0
        for _ in range(20):
            amounts = {host: {"VCPU": 1}} | ({pool: {"DISK_GB": 1}} if shared else {})
            try:
                store.write(allocations.write, [set_of(new_uuid(), amounts, None)])
            except AllocationRefused:
                refused += 1
            else:
                granted += 1
        return granted, refused

    with ThreadPoolExecutor(CLIENTS) as threads:
        results = list(threads.map(fill, stores))
    assert sum(granted for granted, _ in results) == 60
    assert sum(refused for _, refused in results) == CLIENTS * 20 - 60
    assert use_of(store, host) == {"VCPU": 60}
    assert generation_of(store, host) == 61
    numbers = store.read(
        lambda tx: tx.execute(
            sa.select(inventories_table.c.used, inventories_table.c.capacity)
        ).all()
    )
    assert all(used <= capacity for used, capacity in numbers)
    assert store.read(audit.audit) == []
    assert len(store.read(providers.find)) == 2
    for opened in [store, *stores]:
        opened.close()
