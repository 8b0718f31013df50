"""Samples of what the fleet uses: one a minute, whichever worker takes it, and bounded."""

from __future__ import annotations

import threading
import time

import pytest
import time_machine

from placement_server.store.providers import inventory_sums
from placement_server.store.store import Store
from placement_server.web.use import UseSampler

from .conftest import MakeApi
from .wsgi_client import Client

DAY = inventory_sums.DAY


@pytest.fixture
def store(make_api: MakeApi) -> Store:
    return make_api(placement_server__web_path="").store


def minutes(store: Store) -> list[int]:
    return [minute for minute, _ in store.read_single(inventory_sums.samples)]


def test_two_workers_take_one_sample_of_a_minute(store: Store) -> None:
    for minute in (100, 100, 101):
        UseSampler(lambda *_: [], store).sample(minute)
    assert minutes(store) == [100, 101]


def test_a_day_has_every_minute_a_week_one_in_ten_and_nothing_is_older(store: Store) -> None:
    last = 9 * DAY
    sums = store.read_single(inventory_sums.of_fleet)
    for minute in (*range(last - 7 * DAY - 30, last - 7 * DAY + 30), *range(last - DAY - 30, last)):
        store.write(inventory_sums.write_sample, minute, sums)
    store.write(inventory_sums.write_sample, last, sums)
    kept = minutes(store)
    assert kept[0] == last - 7 * DAY
    assert [minute for minute in kept if minute < last - DAY and minute % 10] == []
    assert len([minute for minute in kept if minute >= last - DAY]) == DAY + 1


def test_samples_of_a_clock_that_was_far_ahead_are_deleted(store: Store) -> None:
    for minute in (400 * DAY, 5 * DAY, 5 * DAY + 1):
        store.write(inventory_sums.write_sample, minute, [])
    assert minutes(store) == [5 * DAY, 5 * DAY + 1]


def test_the_first_request_of_a_minute_takes_its_sample(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample, tried_minutes = UseSampler.sample, list[int]()

    def try_to_sample(sampler: UseSampler, minute: int) -> None:
        tried_minutes.append(minute)
        sample(sampler, minute)

    monkeypatch.setattr(UseSampler, "sample", try_to_sample)
    with time_machine.travel(6000.5, tick=False) as clock:
        application = UseSampler(lambda *_: [], store)
        for second in (6001, 6060, 6061, 6125):
            clock.move_to(second)
            application({}, lambda *_: lambda _: None)
            for thread in threading.enumerate():
                if thread.name == "use-sample":
                    thread.join()
    assert minutes(store) == tried_minutes == [101, 102]


def test_a_request_is_passed_on_where_the_system_has_no_thread_for_a_sample(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with time_machine.travel(6000, tick=False) as clock:
        application = UseSampler(lambda *_: [b"answer"], store)
        clock.move_to(6060)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        assert application({}, lambda *_: lambda _: None) == [b"answer"]


def test_the_pages_read_what_requests_left_behind(api: Client) -> None:
    provider = api.post("/resource_providers", {"name": "h"}).json
    inventories = {"VCPU": {"total": 8, "allocation_ratio": 2.0}}
    body = {"resource_provider_generation": provider["generation"], "inventories": inventories}
    api.put(f"/resource_providers/{provider['uuid']}/inventories", body)
    UseSampler(lambda *_: [], api.store).sample(int(time.time()) // 60 + 10)
    shown = api.get("/-/web/use?resource_class=VCPU").json
    assert (shown["used"][-1], shown["capacity"][-1]) == (0, 16)
    assert api.get("/-/web/use?resource_class=NONE").json["minutes"] == []


def test_the_pages_read_the_first_sample_of_each_ten_minutes_in_their_order(api: Client) -> None:
    now = int(time.time()) // 600 * 10
    for minute, used in ((-20, 1), (-19, 2), (-11, 3), (-10, 4), (-2, 5), (-1, 6)):
        sums = [inventory_sums.InventorySum("VCPU", "", 8, 0, used, 8 - used)]
        api.store.write(inventory_sums.write_sample, now + minute, sums)
    shown = api.get("/-/web/use?resource_class=VCPU").json
    assert shown == {
        "minutes": [now - 20, now - 10],
        "used": [1, 4],
        "capacity": [8, 8],
    }
    assert api.get("/-/web/use").json["minutes"] == []
