"""Claims with alternatives beside other writers: the first that fits, and never one too many."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event

from placement_server.store import audit
from placement_server.store.allocations import allocations, alternatives, reshape
from placement_server.store.errors import NoCandidateLeft
from placement_server.store.providers import inventories
from placement_server.store.records import InventoryRecord
from placement_server.store.store import Store
from tests.integration.store.conftest import (
    OPTIONS,
    new_provider,
    new_uuid,
    set_of,
    use_of,
)
from tests.integration.store.host_scene import look
from tests.integration.store.interleaving import Action, Scene, Sessions, check_both_orders

CLIENTS = 8


def claim(
    store: Store,
    consumer: str,
    hosts: Sequence[str],
    vcpus: int = 1,
    expected: int | None = None,
    **also: Any,
) -> alternatives.Chosen:
    return store.write(
        alternatives.claim,
        [set_of(consumer, {host: {"VCPU": vcpus}, **also}, expected) for host in hosts],
    )


def make_scene(store: Store) -> Scene:
    """Hosts ``a`` and ``b`` with 2 VCPU, ``full`` with none left, and a consumer on ``a``."""
    scene = {
        "a": new_provider(store, {"VCPU": 2}),
        "b": new_provider(store, {"VCPU": 2}),
        "full": new_provider(store, {"VCPU": 1}),
        "one": new_uuid(),
        "two": new_uuid(),
        "old": new_uuid(),
        "filler": new_uuid(),
    }
    for consumer, host in (("old", "a"), ("filler", "full")):
        one_unit = {scene[host]: {"VCPU": 1}}
        store.write(allocations.write, [set_of(scene[consumer], one_unit, None)])
    return scene


def one_claims(store: Store, scene: Scene) -> None:
    claim(store, scene["one"], [scene["full"], scene["a"], scene["b"]])


def two_claims(store: Store, scene: Scene) -> None:
    claim(store, scene["two"], [scene["a"], scene["b"]])


def the_same_consumer_claims(store: Store, scene: Scene) -> None:
    claim(store, scene["one"], [scene["b"], scene["a"]])


def old_moves(store: Store, scene: Scene) -> None:
    claim(store, scene["old"], [scene["full"], scene["b"]], expected=1)


def filler_ends(store: Store, scene: Scene) -> None:
    store.write(allocations.delete, scene["filler"])


def a_gives_out_pairs(store: Store, scene: Scene) -> None:
    store.write(
        inventories.update_one,
        scene["a"],
        "VCPU",
        InventoryRecord(2, min_unit=2, step_size=2),
        generation=2,
        reserved_may_equal_total=True,
    )


def a_is_reshaped_away(store: Store, scene: Scene) -> None:
    store.write(
        reshape.apply,
        {scene["a"]: (2, {})},
        [set_of(scene["old"], {scene["b"]: {"VCPU": 1}}, 1)],
    )


@pytest.mark.parametrize(
    "other",
    [
        two_claims,
        the_same_consumer_claims,
        old_moves,
        filler_ends,
        a_gives_out_pairs,
        a_is_reshaped_away,
    ],
)
def test_a_claim_with_alternatives_and_another_write_are_as_if_one_came_after_the_other(
    sessions: Sessions, other: Action
) -> None:
    check_both_orders(sessions, make_scene, (one_claims, other), look)


def test_a_race_that_is_lost_at_the_last_moment_leads_to_the_next_candidate(
    sessions: Sessions,
) -> None:
    if sessions.family == "sqlite":
        pytest.skip("on SQLite nobody can be faster")
    hosts = [new_provider(sessions.first, {"VCPU": 1}) for _ in range(3)]
    raced: list[str] = []

    def be_faster(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "UPDATE inventories" in statement and len(raced) < 2:
            raced.append(new_uuid())
            claim(sessions.second, raced[-1], hosts)

    event.listen(sessions.first.engine, "before_cursor_execute", be_faster)
    try:
        chosen = claim(sessions.first, new_uuid(), hosts)
    finally:
        event.remove(sessions.first.engine, "before_cursor_execute", be_faster)
    assert chosen.position == 2
    assert [(lost.provider, lost.free) for lost in chosen.lost_candidates] == [
        (hosts[0], 0),
        (hosts[1], 0),
    ]


def test_clients_in_one_order_fill_all_hosts_to_the_last_unit_without_a_conflict(
    migrated_database_url: str,
) -> None:
    """Each is refused only when there is nothing left, and nobody has to ask again."""
    store = Store.open(migrated_database_url, options=OPTIONS)
    hosts = [new_provider(store, {"VCPU": 3}) for _ in range(12)]
    pool = new_provider(store, {"DISK_GB": 1000})
    stores = [Store.open(migrated_database_url, options=OPTIONS) for _ in range(CLIENTS)]

    free: set[int | None] = set()

    def fill(own_store: Store) -> int:
        for granted in itertools.count():
            try:
                claim(own_store, new_uuid(), hosts, **{pool: {"DISK_GB": 1}})
            except NoCandidateLeft as error:
                free.update(lost.free for lost in error.lost_candidates)
                return granted
        raise AssertionError("the count has no end")

    with ThreadPoolExecutor(CLIENTS) as threads:
        granted = sum(threads.map(fill, stores))
    assert (granted, free) == (36, {0})
    assert all(use_of(store, host) == {"VCPU": 3} for host in hosts)
    assert use_of(store, pool) == {"DISK_GB": 36}
    assert store.read(audit.audit) == []
    for opened in (store, *stores):
        opened.close()
