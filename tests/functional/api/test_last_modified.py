"""Last-Modified of a provider, by a clock that stands still but where the test moves it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import sqlalchemy as sa
import time_machine

from placement_server.store.tables import (
    inventories,
    resource_classes,
    resource_providers,
    traits,
)
from placement_server.store.transaction import EPOCH, WriteTransaction

from .wsgi_client import Client

START = datetime(2040, 1, 1, tzinfo=UTC)
LATER = START + timedelta(hours=1)
AGGREGATE = "11111111-0000-4000-8000-0000000000aa"


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(START, tick=False) as traveller:
        yield traveller


def changed(api: Client, provider: str) -> str:
    return api.get(provider).headers["last-modified"]


def test_old_puts_of_aggregates_change_a_provider_no_more_than_its_generation(
    api: Client, clock: time_machine.Traveller
) -> None:
    provider = api.provider()
    clock.move_to(LATER)
    assert api.put(f"{provider}/aggregates", [AGGREGATE], version="1.18").status == 200
    assert changed(api, provider) == format_datetime(START, usegmt=True)
    api.aggregates(provider, AGGREGATE)
    assert changed(api, provider) == format_datetime(LATER, usegmt=True)


@pytest.mark.parametrize("parent", [{}, {"parent_provider_uuid": None}])
def test_a_put_of_what_a_provider_is_already_changes_nothing(
    api: Client, clock: time_machine.Traveller, parent: dict[str, None]
) -> None:
    provider = api.provider("host")
    clock.move_to(LATER)
    for name, moment in (("host", START), ("renamed", LATER)):
        answer = api.put(provider, {"name": name, **parent})
        assert answer.headers["last-modified"] == format_datetime(moment, usegmt=True)
        assert changed(api, provider) == format_datetime(moment, usegmt=True)


@pytest.mark.parametrize("becomes_root", [True, False])
def test_a_move_changes_every_provider_that_has_a_new_root(
    api: Client, clock: time_machine.Traveller, becomes_root: bool
) -> None:
    uuid = {name: api.provider(name).rpartition("/")[2] for name in ("old", "new")}
    middle = api.provider("middle", parent_provider_uuid=uuid["old"])
    leaf = api.provider("leaf", parent_provider_uuid=middle.rpartition("/")[2])
    clock.move_to(LATER)
    parent = None if becomes_root else uuid["new"]
    answer = api.put(middle, {"name": "middle", "parent_provider_uuid": parent})
    assert answer.headers["last-modified"] == format_datetime(LATER, usegmt=True)
    assert changed(api, leaf) == format_datetime(LATER, usegmt=True)
    for unmoved in uuid.values():
        assert changed(api, f"/resource_providers/{unmoved}") == format_datetime(START, usegmt=True)


def test_a_move_within_a_tree_changes_only_what_moves(
    api: Client, clock: time_machine.Traveller
) -> None:
    root = api.provider("root").rpartition("/")[2]
    beside = api.provider("beside", parent_provider_uuid=root).rpartition("/")[2]
    middle = api.provider("middle", parent_provider_uuid=root)
    leaf = api.provider("leaf", parent_provider_uuid=middle.rpartition("/")[2])
    clock.move_to(LATER)
    answer = api.put(middle, {"name": "middle", "parent_provider_uuid": beside})
    assert answer.status == 200
    assert changed(api, middle) == format_datetime(LATER, usegmt=True)
    assert changed(api, leaf) == format_datetime(START, usegmt=True)


def test_rows_of_old_databases_without_times_are_as_old_as_can_be(api: Client) -> None:
    provider = api.provider()
    api.inventory(provider, VCPU={"total": 8})
    assert api("PUT", "/traits/CUSTOM_OLD").status == 201
    paths = [provider, f"{provider}/inventories/VCPU", "/traits/CUSTOM_OLD", "/resource_classes"]

    def forget_times(tx: WriteTransaction) -> None:
        for table in (resource_providers, inventories, traits, resource_classes):
            tx.execute(sa.update(table).values(created_at=None, updated_at=None))

    api.store.write(forget_times)
    for path in paths:
        assert changed(api, path) == format_datetime(EPOCH, usegmt=True), path
