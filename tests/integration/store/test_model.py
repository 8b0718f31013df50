"""The store against the model of dictionaries, in the words of each database."""

from __future__ import annotations

from typing import ClassVar

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from placement_server.store import tables
from placement_server.store.store import Store
from placement_server.store.transactions.transaction import WriteTransaction
from tests.property.store.store_machine import StoreMachine

_EMPTIED = (
    tables.allocations,
    tables.consumers,
    tables.inventories,
    tables.resource_provider_traits,
    tables.resource_provider_aggregates,
    tables.resource_providers,
)


def empty(tx: WriteTransaction) -> None:
    columns = tables.resource_providers.c
    # a row that others refer to, or that refers to itself, cannot be deleted everywhere
    tx.execute(
        sa.update(tables.resource_providers).values(
            {columns.parent_provider_id: None, columns.root_provider_id: None}
        )
    )
    for table in _EMPTIED:
        tx.execute(sa.delete(table))


@pytest.fixture
def machine(store: Store) -> type[StoreMachine]:
    class OnThisDatabase(StoreMachine):
        shared: ClassVar[Store] = store

        def open_store(self) -> Store:
            self.shared.write(empty)
            return self.shared

        def teardown(self) -> None:
            """The store is that of the module."""

    return OnThisDatabase


# a failure takes minutes to be made small
@pytest.mark.timeout(900)
def test_every_write_is_granted_or_refused_as_by_the_model(machine: type[StoreMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=settings().max_examples // 5,
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
        ),
    )
