"""GET /provider_trees shows with one request what any number of plain requests show.

A server gets random plain requests that create, rename, move and delete providers of a tree, take
some from another tree, and change what they have and who holds it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placement_server.store import audit
from tests.functional.api.wsgi_client import Client, claim_body
from tests.property.api_model.apis import new_api

EXTENDED = {"OpenStack-API-Version": "placement 1.39, placement-ext 1.1"}
CLASSES = ("VCPU", "DISK_GB", "CUSTOM_CARD", "CUSTOM_UNIT")
TRAITS = ("HW_NUMA_ROOT", "CUSTOM_FAST", "CUSTOM_SLOW")
PROVIDERS = 8
OTHERS = 3
CONSUMERS = 3
NAMES = 10

_examples = itertools.count(1)


class World:
    """The uuids and names of one example: the first providers are in the tree, the last beside.

    :ivar root: of the tree.
    :ivar beside: the root of the other tree.
    """

    def __init__(self) -> None:
        number = next(_examples)
        self.providers = [self._uuid(number, index) for index in range(PROVIDERS)]
        self.consumers = [self._uuid(number, 50 + index) for index in range(CONSUMERS)]
        self.aggregates = [self._uuid(number, 80 + index) for index in range(2)]
        self.names = [f"{number}-{index}" for index in range(NAMES)]
        self.root, self.beside = self.providers[0], self.providers[-1]

    @staticmethod
    def _uuid(example: int, index: int) -> str:
        return f"{example:08x}-0000-4000-8000-{index:012x}"


@pytest.fixture(scope="module")
def api() -> Iterator[Client]:
    made = new_api()
    for name in CLASSES[2:]:
        assert made.put(f"/resource_classes/{name}").status == 201
    for name in TRAITS[1:]:
        assert made.put(f"/traits/{name}").status == 201
    yield made
    assert made.store.read(audit.audit) == []
    made.store.close()


# What consumers are given always fits, and a later change never forbids it.
_record = st.fixed_dictionaries(
    {"total": st.integers(20, 22)},
    optional={
        "reserved": st.integers(0, 5),
        "max_unit": st.integers(5, 9),
        "allocation_ratio": st.sampled_from([1.0, 1.5, 2.25]),
    },
)
_stock = st.dictionaries(st.sampled_from(CLASSES), _record, max_size=3)
_provider = st.integers(0, PROVIDERS - 1)
_amounts = st.dictionaries(
    st.tuples(_provider, st.sampled_from(CLASSES)), st.integers(1, 3), max_size=3
)
_step = st.one_of(
    st.tuples(st.just("create"), _provider, _provider, st.integers(0, NAMES - 1)),
    st.tuples(st.just("rename"), _provider, st.integers(0, NAMES - 1)),
    st.tuples(st.just("move"), _provider, _provider),
    st.tuples(st.just("delete"), _provider),
    st.tuples(st.just("stock"), _provider, _stock),
    st.tuples(st.just("traits"), _provider, st.sets(st.sampled_from(TRAITS))),
    st.tuples(st.just("aggregates"), _provider, st.sets(st.integers(0, 1))),
    st.tuples(st.just("claim"), st.integers(0, CONSUMERS - 1), _amounts),
    st.tuples(st.just("reshape"), _provider, _provider, st.sampled_from(CLASSES)),
)


class Plain:
    """Plain requests to one server; those that are refused change nothing, and are left at that."""

    def __init__(self, api: Client, world: World) -> None:
        self.api = api
        self._world = world

    def members(self, root: str) -> dict[str, dict[str, Any]]:
        listed = self.api.get(f"/resource_providers?in_tree={root}").json["resource_providers"]
        return {entry["uuid"]: entry for entry in listed}

    def holdings(self, consumer: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.api.get(f"/allocations/{consumer}").json
        return shown

    def begin(self) -> None:
        """Make the tree of four, and three providers one below the other beside it."""
        world = self._world
        for index, parent in ((0, None), (1, 0), (2, 1), (3, 0), (7, None), (6, 7), (5, 6)):
            body = {"uuid": world.providers[index], "name": world.names[index]}
            if parent is not None:
                body["parent_provider_uuid"] = world.providers[parent]
            assert self.api.post("/resource_providers", body).status == 200

    def apply(self, step: tuple[Any, ...]) -> None:
        kind, *values = step
        getattr(self, f"_{kind}")(*values)

    def _in_tree(self, *indexes: int) -> list[str] | None:
        """The uuids of providers, if all of them are in the tree."""
        uuids = [self._world.providers[index] for index in indexes]
        return uuids if set(uuids) <= self.members(self._world.root).keys() else None

    def _create(self, index: int, parent: int, name: int) -> None:
        if uuids := self._in_tree(parent):
            self.api.post(
                "/resource_providers",
                {
                    "uuid": self._world.providers[index],
                    "name": self._world.names[name],
                    "parent_provider_uuid": uuids[0],
                },
            )

    def _rename(self, index: int, name: int) -> None:
        if uuids := self._in_tree(index):
            shown = self.api.get(f"/resource_providers/{uuids[0]}").json
            self.api.put(
                f"/resource_providers/{uuids[0]}",
                {
                    "name": self._world.names[name],
                    "parent_provider_uuid": shown["parent_provider_uuid"],
                },
            )

    def _move(self, index: int, parent: int) -> None:
        shown = self.api.get(f"/resource_providers/{self._world.providers[index]}")
        if shown.status == 200 and index and (uuids := self._in_tree(parent)):
            self.api.put(
                f"/resource_providers/{shown.json['uuid']}",
                {"name": shown.json["name"], "parent_provider_uuid": uuids[0]},
            )

    def _delete(self, index: int) -> None:
        if index and (uuids := self._in_tree(index)):
            self.api.delete(f"/resource_providers/{uuids[0]}")

    def _set(self, index: int, what: str, values: Any) -> None:
        if uuids := self._in_tree(index):
            path = f"/resource_providers/{uuids[0]}"
            generation = self.api.generation(path)
            self.api.put(
                f"{path}/{what}", {"resource_provider_generation": generation, what: values}
            )

    def _stock(self, index: int, records: dict[str, Any]) -> None:
        self._set(index, "inventories", records)

    def _traits(self, index: int, names: set[str]) -> None:
        self._set(index, "traits", sorted(names))

    def _aggregates(self, index: int, numbers: set[int]) -> None:
        self._set(index, "aggregates", [self._world.aggregates[number] for number in numbers])

    def _claim(self, number: int, amounts: dict[tuple[int, str], int]) -> None:
        consumer = self._world.consumers[number]
        shown = self.holdings(consumer)
        members = self.members(self._world.root)
        held = {
            uuid: entry["resources"]
            for uuid, entry in shown["allocations"].items()
            if uuid not in members
        }
        for (index, name), amount in amounts.items():
            held.setdefault(self._world.providers[index], {})[name] = amount
        self.api.put(f"/allocations/{consumer}", claim_body(held, shown.get("consumer_generation")))

    def _reshape(self, source: int, destination: int, name: str) -> None:
        """Move an inventory with all that is allocated of it."""
        uuids = self._in_tree(source, destination)
        if uuids is None or source == destination:
            return
        stocks = [self.api.get(f"/resource_providers/{uuid}/inventories").json for uuid in uuids]
        if name not in stocks[0]["inventories"] or name in stocks[1]["inventories"]:
            return
        stocks[1]["inventories"][name] = stocks[0]["inventories"].pop(name)
        writes = {}
        for consumer in self._world.consumers:
            shown = self.holdings(consumer)
            held = {uuid: entry["resources"] for uuid, entry in shown["allocations"].items()}
            if amount := held.get(uuids[0], {}).pop(name, 0):
                held.setdefault(uuids[1], {})[name] = amount
                whole = {uuid: amounts for uuid, amounts in held.items() if amounts}
                writes[consumer] = claim_body(whole, shown["consumer_generation"])
        body = {"inventories": dict(zip(uuids, stocks, strict=True)), "allocations": writes}
        answer = self.api.post("/reshaper", body)
        assert answer.status == 204, answer.body


def shown_plainly(api: Client, world: World) -> dict[str, Any]:
    """Return the tree as plain requests show it, part by part."""
    providers = {}
    holders: set[str] = set()
    for uuid, shown in Plain(api, world).members(world.root).items():
        path = f"/resource_providers/{uuid}"
        parts = {
            key: api.get(f"{path}/{key}").json[key]
            for key in ("inventories", "traits", "aggregates", "usages")
        }
        holders.update(api.get(f"{path}/allocations").json["allocations"])
        keys = ("uuid", "name", "parent_provider_uuid", "generation")
        providers[uuid] = {key: shown[key] for key in keys} | parts
        for key in ("traits", "aggregates"):
            providers[uuid][key].sort()
    return {
        "root_provider_uuid": world.root,
        "providers": providers,
        "allocations": {uuid: api.get(f"/allocations/{uuid}").json for uuid in holders},
    }


@settings(
    max_examples=max(30, settings().max_examples // 2), suppress_health_check=list(HealthCheck)
)
@given(sequence=st.lists(_step, min_size=1, max_size=25))
def test_one_request_shows_what_many_show(api: Client, sequence: list[Any]) -> None:
    world = World()
    writer = Plain(api, world)
    writer.begin()
    for step in sequence:
        writer.apply(step)
    path = f"/provider_trees/{world.root}?include=usages,allocations"
    shown = api.get(path, headers=EXTENDED).json
    assert shown["providers"][0]["uuid"] == world.root
    places = {entry["uuid"]: place for place, entry in enumerate(shown["providers"])}
    for entry in shown["providers"][1:]:
        assert places[entry["parent_provider_uuid"]] < places[entry["uuid"]]
    shown["providers"] = {entry["uuid"]: entry for entry in shown["providers"]}
    assert len(shown["providers"]) == len(places)
    assert shown == shown_plainly(api, world)
