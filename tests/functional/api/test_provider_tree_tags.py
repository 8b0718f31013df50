"""Entity tags of provider trees: the same on every worker, and different after some writes only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from placement_server.store.connection.options import StoreOptions
from placement_server.store.store import Store
from tests.property.api_model.apis import api_of

from .wsgi_client import EXTENDED, Answer, Client

ROOT = "11111111-0000-4000-8000-000000000001"
CELL = "11111111-0000-4000-8000-000000000002"
OTHER = "22222222-0000-4000-8000-000000000001"
POOL = "22222222-0000-4000-8000-000000000002"
NEW = "33333333-0000-4000-8000-000000000001"
AGGREGATES = [f"99999999-0000-4000-8000-00000000000{number}" for number in range(2)]
CONSUMERS = [f"aaaaaaaa-0000-4000-8000-00000000000{number}" for number in range(2)]

SHARING = "MISC_SHARES_VIA_AGGREGATE"
WITH_SHARING = "?include=sharing"

Write = Callable[[Client], object]


class Workers:
    """Two workers on one database, one of which may be started again.

    :ivar statements: what the second one asked of the database.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._stores: list[Store] = []
        self.statements: list[str] = []
        self.writer, self.reader = self._start(), self._start()
        self._watch()

    def _start(self) -> Client:
        store = Store.open(self._url, options=StoreOptions(sqlite_synchronous=False))
        self._stores.append(store)
        return api_of(store)

    def _watch(self) -> None:
        def on_statement(_c: Any, _k: Any, statement: str, *_: Any) -> None:
            self.statements.append(statement)

        for engine in self.reader.store.all_engines():
            event.listen(engine, "before_cursor_execute", on_statement)

    def restart(self) -> None:
        """Start the second worker again."""
        self._stores.pop().close()
        self.reader = self._start()
        self._watch()

    def close(self) -> None:
        for store in self._stores:
            store.close()

    def tag(self, query: str = "") -> str:
        """The tag of the tree, which both workers must agree on, from the cache or not."""
        known = get(self.writer, "", query).headers["etag"]
        assert get(self.reader, known, query).status == 304
        assert get(self.reader, known, query).status == 304
        assert get(self.reader, "", query).headers["etag"] == known
        return known


def get(api: Client, known: str, query: str = "") -> Answer:
    conditions = {"If-None-Match": known} if known else {}
    return api.get(f"/provider_trees/{CELL}{query}", version=EXTENDED, headers=conditions)


@pytest.fixture
def workers(make_database: Callable[[], str]) -> Iterator[Workers]:
    """A tree of a host and a cell, another host, and a pool below that one."""
    pair = Workers(make_database())
    api = pair.writer
    host = api.provider("host", uuid=ROOT)
    api.provider("cell", uuid=CELL, parent_provider_uuid=ROOT)
    api.put("/resource_classes/CUSTOM_CARD")
    api.inventory(host, VCPU=8, CUSTOM_CARD=4)
    api.inventory(f"/resource_providers/{CELL}", VCPU=8)
    api.inventory(api.provider("other", uuid=OTHER), VCPU=8)
    pool = api.provider("pool", uuid=POOL, parent_provider_uuid=OTHER)
    api.inventory(pool, DISK_GB=8)
    api.traits(pool, SHARING)
    api.aggregates(pool, AGGREGATES[1])
    yield pair
    pair.close()


def put_provider(uuid: str, **changes: Any) -> Write:
    def write(api: Client) -> None:
        shown = api.get(f"/resource_providers/{uuid}").json
        body = {key: shown[key] for key in ("name", "parent_provider_uuid")} | changes
        assert api.put(f"/resource_providers/{uuid}", body).status == 200

    return write


def toggle_child(api: Client) -> None:
    if api.delete(f"/resource_providers/{NEW}").status == 404:
        api.provider("new", uuid=NEW, parent_provider_uuid=CELL)


def move_other(api: Client) -> None:
    """Put the other host into the tree, or take it out."""
    inside = api.get(f"/resource_providers/{OTHER}").json["parent_provider_uuid"]
    put_provider(OTHER, parent_provider_uuid=None if inside else ROOT)(api)


def rename(api: Client) -> None:
    old = api.get(f"/resource_providers/{CELL}").json["name"]
    put_provider(CELL, name="cell" if old == "renamed" else "renamed")(api)


def set_total(uuid: str, field: str, resource_class: str = "VCPU") -> Write:
    def write(api: Client) -> None:
        path = f"/resource_providers/{uuid}/inventories/{resource_class}"
        shown = api.get(path).json
        values = {"total": (8, 16), "allocation_ratio": (1.0, 2.5), "step_size": (1, 2)}[field]
        shown[field] = values[shown[field] == values[0]]
        assert api.put(path, shown).status == 200

    return write


def toggle_trait(api: Client) -> None:
    path = f"/resource_providers/{CELL}"
    had = api.get(f"{path}/traits").json["traits"]
    api.traits(path, *([] if had else ["CUSTOM_FAST"]))


def toggle_aggregate(uuid: str) -> Write:
    def write(api: Client) -> None:
        path = f"/resource_providers/{uuid}"
        had = api.get(f"{path}/aggregates").json["aggregates"]
        api.aggregates(path, *([] if had else AGGREGATES))

    return write


def toggle_sharing(api: Client) -> None:
    path = f"/resource_providers/{POOL}"
    had = api.get(f"{path}/traits").json["traits"]
    api.traits(path, *([] if had else [SHARING]))


def rename_class(api: Client) -> None:
    """At 1.6, the last version that renames."""
    old = {entry["name"] for entry in api.get("/resource_classes").json["resource_classes"]}
    names = ("CUSTOM_CARD", "CUSTOM_RENAMED")
    old_name, new_name = names if names[0] in old else names[::-1]
    answer = api.put(f"/resource_classes/{old_name}", {"name": new_name}, version="1.6")
    assert answer.status == 200, answer.body


def toggle_claim(uuid: str) -> Write:
    def write(api: Client) -> None:
        consumer = CONSUMERS[uuid == OTHER]
        if api.delete(f"/allocations/{consumer}").status == 404:
            assert api.claim(consumer, held={uuid: {"VCPU": 2}}).status == 204

    return write


def same_inventories(api: Client) -> None:
    """Write what is there already: the generation rises, and nothing else."""
    path = f"/resource_providers/{CELL}/inventories"
    assert api.put(path, api.get(path).json).status == 200


def toggle_unused_names(api: Client) -> None:
    for path in ("/traits/CUSTOM_UNUSED", "/resource_classes/CUSTOM_UNUSED"):
        if api.delete(path).status == 404:
            assert api.put(path).status == 201


CHANGING: dict[str, Write] = {
    "a child comes or goes": toggle_child,
    "a subtree comes or goes": move_other,
    "a name": rename,
    "a total": set_total(CELL, "total"),
    "a ratio": set_total(CELL, "allocation_ratio"),
    "a trait": toggle_trait,
    "an aggregate": toggle_aggregate(ROOT),
    "the name of a class": rename_class,
}
LEAVING: dict[str, Write] = {
    "a claim": toggle_claim(CELL),
    "a claim in another tree": toggle_claim(OTHER),
    "the same inventories": same_inventories,
    "unused names": toggle_unused_names,
}


OF_POOL: dict[str, Write] = {
    "an aggregate of the pool": toggle_aggregate(POOL),
    "whether it shares": toggle_sharing,
    "its total": set_total(POOL, "total", "DISK_GB"),
}


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(names=st.lists(st.sampled_from([*CHANGING, *LEAVING, *OF_POOL, "a restart"]), max_size=12))
def test_tags_with_sharing_change_with_what_is_shared_too(
    workers: Workers, names: list[str]
) -> None:
    def shown() -> tuple[str, Any]:
        tag = workers.tag(WITH_SHARING)
        body = get(workers.writer, "", WITH_SHARING).json
        for provider in (*body["providers"], *body["sharing_providers"]):
            del provider["generation"]
        return tag, body

    tag, body = shown()
    for name in names:
        if name == "a restart":
            workers.restart()
        else:
            (CHANGING | LEAVING | OF_POOL)[name](workers.writer)
        before, (tag, body) = (tag, body), shown()
        # the trees of what is shared count as a whole
        assert tag != before[0] or body == before[1], name
        assert tag == before[0] or name not in LEAVING, name
        shown_uuids = [provider["uuid"] for provider in body["sharing_providers"]]
        assert shown_uuids == _sharing_by_plain_requests(workers.writer)


def _sharing_by_plain_requests(api: Client) -> list[str]:
    path = f"/resource_providers?in_tree={CELL}"
    own = [provider["uuid"] for provider in api.get(path).json["resource_providers"]]
    reached = {
        aggregate
        for uuid in own
        for aggregate in api.get(f"/resource_providers/{uuid}/aggregates").json["aggregates"]
    }
    if not reached:
        return []
    path = f"/resource_providers?member_of=in:{','.join(sorted(reached))}&required={SHARING}"
    found = api.get(path).json["resource_providers"]
    return [provider["uuid"] for provider in found if provider["uuid"] not in own]


@pytest.mark.parametrize("name", CHANGING)
def test_each_change_has_another_tag_and_back_the_first_one(workers: Workers, name: str) -> None:
    first = workers.tag()
    CHANGING[name](workers.writer)
    assert get(workers.reader, first).status == 200
    assert workers.tag() != first
    CHANGING[name](workers.writer)
    assert workers.tag() == first


@pytest.mark.parametrize("name", LEAVING)
def test_what_is_not_of_the_structure_leaves_the_tag(workers: Workers, name: str) -> None:
    first = workers.tag()
    LEAVING[name](workers.writer)
    assert workers.tag() == first


@pytest.mark.parametrize("query", ["", WITH_SHARING])
def test_another_worker_reads_nothing_but_the_feed(workers: Workers, query: str) -> None:
    toggle_aggregate(ROOT)(workers.writer)
    known = workers.tag(query)
    toggle_claim(CELL)(workers.writer)
    assert get(workers.reader, known, query).status == 304
    del workers.statements[:]
    assert get(workers.reader, known, query).status == 304
    (statement,) = workers.statements
    assert "FROM changes" in statement


def test_a_tree_moved_whole_is_shown_by_the_tag_of_the_new_one(workers: Workers) -> None:
    known = workers.tag()
    put_provider(ROOT, parent_provider_uuid=OTHER)(workers.writer)
    answer = get(workers.reader, known)
    assert (answer.status, answer.json["root_provider_uuid"]) == (200, OTHER)
    assert workers.tag() != known
