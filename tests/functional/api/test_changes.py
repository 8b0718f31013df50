"""GET /changes: what was written, in order, each once."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import sqlalchemy as sa

from placement_server.api.extensions.changes import CHANGES
from placement_server.direct import direct
from placement_server.store.changes import changes
from placement_server.store.store import Store
from placement_server.store.transaction import WriteTransaction
from tests.fixtures.allocations import claim_body

from .conftest import MakeApi
from .wsgi_client import EXTENDED, Answer, Client


def ask(api: Client, query: str = "", **arguments: Any) -> Answer:
    return api("GET", f"/changes?{query}", version=EXTENDED, **arguments)


def shown(answer: Answer) -> list[tuple[str | None, str]]:
    assert answer.status == 200, answer.body
    jsonschema.validate(answer.json, CHANGES, format_checker=jsonschema.FormatChecker())
    return [(change["root_provider_uuid"], *change["kinds"]) for change in answer.json["changes"]]


def end(api: Client) -> int:
    last: int = ask(api).json["last"]
    return last


def host(api: Client, parent: str | None = None) -> str:
    made = str(uuid.uuid4())
    api.provider(made, uuid=made, parent_provider_uuid=parent)
    return made


def stock(api: Client, provider: str) -> None:
    api.inventory(f"/resource_providers/{provider}", VCPU=8)


def claim(api: Client, *providers: str) -> str:
    consumer = str(uuid.uuid4())
    held = {provider: {"VCPU": 1} for provider in providers}
    assert api.claim(consumer, held=held).status == 204
    return consumer


def test_every_write_is_listed_with_the_roots_of_its_trees(api: Client) -> None:
    after = end(api)
    first, second = host(api), host(api)
    child = host(api, first)
    stock(api, child)
    stock(api, second)
    claim(api, child, second)
    assert api("PUT", "/traits/CUSTOM_NEW").status == 201
    answer = ask(api, f"after={after}")
    usage = {(first, "usage"), (second, "usage")}
    listed = shown(answer)
    assert listed[:5] == [
        (first, "structure"),
        (second, "structure"),
        (first, "structure"),
        (first, "structure"),
        (second, "structure"),
    ]
    assert set(listed[5:7]) == usage
    assert listed[7:] == [(None, "names")]
    ids = [change["id"] for change in answer.json["changes"]]
    assert ids == sorted(set(ids))
    assert answer.json["last"] == ids[-1]
    now = datetime.now(UTC)
    for change in answer.json["changes"]:
        assert now - datetime.fromisoformat(change["at"]) < timedelta(minutes=1)


def test_without_a_start_it_begins_now(api: Client) -> None:
    host(api)
    answer = ask(api)
    assert shown(answer) == []
    created = host(api)
    assert shown(ask(api, f"after={answer.json['last']}")) == [(created, "structure")]


def test_pages_meet_without_a_gap(api: Client) -> None:
    after = end(api)
    hosts = [host(api) for _ in range(5)]
    listed: list[str | None] = []
    for count in (2, 2, 1, 0):
        page = ask(api, f"after={after}&limit=2")
        assert len(page.json["changes"]) == count
        listed += [root for root, _ in shown(page)]
        after = page.json["last"]
    assert listed == hosts


def test_changes_are_filtered_by_root_and_kind(api: Client) -> None:
    after = end(api)
    first, second, third = (host(api) for _ in range(3))
    for provider in (first, second, third):
        stock(api, provider)
    claim(api, first)
    query = f"after={after}&root={first.upper()}&root={third}"
    assert shown(ask(api, query)) == [
        (first, "structure"),
        (third, "structure"),
        (first, "structure"),
        (third, "structure"),
        (first, "usage"),
    ]
    assert shown(ask(api, f"{query}&kind=usage")) == [(first, "usage")]
    assert shown(ask(api, f"after={after}&kind=usage&kind=names")) == [(first, "usage")]
    nothing = ask(api, f"after={after}&root={uuid.uuid4()}")
    assert shown(nothing) == []
    assert nothing.json["last"] == end(api)


def test_a_reshape_changes_structure_and_usage(api: Client) -> None:
    root = host(api)
    stock(api, root)
    child = host(api, root)
    consumer = claim(api, root)
    after = end(api)
    body = {
        "inventories": {
            root: {"resource_provider_generation": 2, "inventories": {}},
            child: {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}},
        },
        "allocations": {consumer: claim_body({child: {"VCPU": 1}}, 1)},
    }
    answer = api("POST", "/reshaper", body, headers={"X-Roles": "admin,service"})
    assert answer.status == 204, answer.body
    assert shown(ask(api, f"after={after}")) == [(root, "structure"), (root, "usage")]


def test_trees_that_ended_keep_their_names(api: Client) -> None:
    after = end(api)
    child, other, gone = host(api), host(api), host(api)
    assert api("DELETE", f"/resource_providers/{gone}").status == 204
    body = {"name": child, "parent_provider_uuid": other}
    assert api("PUT", f"/resource_providers/{child}", body).status == 200
    assert api("DELETE", f"/resource_providers/{child}").status == 204
    # on SQLite it gets the id of the one that was deleted first
    again = host(api)
    expected = [child, other, gone, gone, child, other, other, again]
    listed = [str(root) for root, _ in shown(ask(api, f"after={after}"))]
    # the move writes the records of its two trees in the order of their ids
    assert sorted(listed[4:6]) == sorted(expected[4:6])
    assert listed[:4] + listed[6:] == expected[:4] + expected[6:]
    for root in (gone, child, again):
        assert len(shown(ask(api, f"after={after}&root={root}"))) == expected.count(root)


def test_a_change_ends_the_wait(api: Client) -> None:
    watched, other = host(api), host(api)
    after = end(api)
    with ThreadPoolExecutor(2) as pool:
        everything = pool.submit(ask, api, f"after={after}&wait=30")
        of_one = pool.submit(ask, api, f"after={after}&wait=30&root={watched}")
        created = host(api)
        assert shown(everything.result(20)) == [(created, "structure")]
        stock(api, other)
        stock(api, watched)
        answer = of_one.result(20)
    assert shown(answer) == [(watched, "structure")]
    assert answer.json["last"] == end(api)


def test_a_wait_ends_with_nothing(api: Client) -> None:
    watched, after = host(api), end(api)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, api, f"after={after}&wait=1&root={watched}")
        host(api)
        answer = waiting.result(20)
    assert shown(answer) == []
    assert after <= answer.json["last"] <= end(api)


def test_more_requests_than_may_wait_are_refused_and_others_are_answered(
    make_api: MakeApi,
) -> None:
    api = make_api(placement_server__max_watchers=1)
    created = host(api)
    after = end(api)
    begun = threading.Event()
    environ = {"placement_server.give_turn_back": begun.set}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, api, f"after={after}&wait=60", environ=environ)
        assert begun.wait(20)
        refused = ask(api, f"after={after}&wait=1")
        assert refused.status == 503
        assert "max_watchers" in refused.detail
        assert int(refused.headers["retry-after"]) > 0
        assert shown(ask(api, f"after={after - 1}&wait=1")) == [(created, "structure")]
        assert shown(ask(api, f"after={after}")) == []
        host(api)
        assert waiting.result(20).status == 200
    assert ask(api, f"after={end(api)}&wait=1").status == 200


def test_a_thread_that_does_not_start_takes_no_place(
    make_api: MakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = make_api(placement_server__max_watchers=1)
    after = end(api)

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        assert ask(api, f"after={after}&wait=1").status == 500
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, api, f"after={after}&wait=30")
        created = host(api)
        assert shown(waiting.result(40)) == [(created, "structure")]


def test_what_was_deleted_is_gone(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        host(api)
    prune_all_but(api.store, 2, monkeypatch)
    oldest = ask(api).json["oldest"]
    assert oldest == end(api) - 1
    gone = ask(api, f"after={oldest - 2}")
    assert gone.status == 410
    assert gone.code == "placement.changes_pruned"
    assert str(oldest) in gone.detail
    assert len(shown(ask(api, f"after={oldest - 1}"))) == 2
    assert ask(api, f"after={oldest - 2}&wait=60").status == 410


def prune_all_but(store: Store, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_old(tx: WriteTransaction) -> None:
        tx.execute(sa.text("UPDATE changes SET created_at = '2020-01-01 00:00:00.000000'"))

    store.write(make_old)
    monkeypatch.setattr(changes, "KEPT_ROWS", count)
    assert store.write(changes.prune)


def test_a_number_that_the_database_has_not_reached_is_gone(api: Client) -> None:
    assert ask(api, f"after={end(api) + 1}").code == "placement.changes_pruned"


@pytest.mark.parametrize(
    "query",
    [
        *("after=-1", "after=x", "after=", "limit=0", "limit=10001", "wait=61", "wait=1.5"),
        *("kind=other", "kind=other&kind=usage", "root=x", f"root=x&root={uuid.UUID(int=1)}"),
        *("pony=1", "&".join(["kind=usage"] * 1001)),
    ],
)
def test_what_is_malformed_is_refused(api: Client, query: str) -> None:
    assert ask(api, query).status == 400


def test_in_process_it_waits_in_the_thread_of_the_caller(tmp_path: Path) -> None:
    with direct(f"sqlite:///{tmp_path}/placement.db") as session:
        session.headers["OpenStack-API-Version"] = f"placement {EXTENDED}"
        after = session.get("/changes").json()["last"]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(session.get, f"/changes?after={after}&wait=30")
            assert session.put("/traits/CUSTOM_A").status_code == 201
            (change,) = waiting.result(20).json()["changes"]
        assert change["kinds"] == ["names"]
