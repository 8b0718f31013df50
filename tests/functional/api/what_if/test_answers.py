"""Answers about supposed changes: equal to those after the changes were made."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.fixtures.allocations import claim_body

from ..candidate_world import UUID, path_of
from ..conftest import MakeApi
from ..wsgi_client import Client
from .questions import (
    CONSUMERS,
    HELD,
    QUESTIONS,
    answers,
    asked_directly,
    build,
    hosts,
)


class Operator:
    """Makes changes really."""

    def __init__(self, api: Client) -> None:
        self.api = api
        self.copies: dict[str, int] = {}

    def make(self, change: dict[str, Any]) -> None:
        ((kind, body),) = change.items()
        getattr(self, kind)(body)

    def put(self, provider: str, part: str, content: Any) -> None:
        path = path_of(provider)
        body = {"resource_provider_generation": self.api.generation(path), part: content}
        answer = self.api.put(f"{path}/{part}", body)
        assert answer.status == 200, answer.body

    def set_inventory(self, body: dict[str, Any]) -> None:
        provider = body["provider"]
        stock = self.api.get(f"{path_of(provider)}/inventories").json["inventories"]
        record = {
            name: value
            for name, value in body.items()
            if name not in ("provider", "resource_class")
        }
        self.put(provider, "inventories", {**stock, body["resource_class"]: record})

    def set_traits(self, body: dict[str, Any]) -> None:
        self.put(body["provider"], "traits", body["traits"])

    def tree(self, root: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.api.get(f"/resource_providers?in_tree={root}").json[
            "resource_providers"
        ]
        return listed

    def remove_tree(self, root: str) -> None:
        providers = {provider["uuid"] for provider in self.tree(root)}
        for provider in providers:
            holders = self.api.get(f"{path_of(provider)}/allocations").json["allocations"]
            for consumer in holders:
                self.keep(consumer, lambda uuid: uuid not in providers)
        for provider in reversed(self.parents_first(root)):
            assert self.api.delete(path_of(provider["uuid"])).status == 204

    def keep(self, consumer: str, is_kept: Callable[[str], bool]) -> None:
        held = self.api.get(f"/allocations/{consumer}").json
        kept = {
            provider: {"resources": entry["resources"]}
            for provider, entry in held["allocations"].items()
            if is_kept(provider)
        }
        body = claim_body({}, held["consumer_generation"], allocations=kept)
        assert self.api.put(f"/allocations/{consumer}", body).status == 204

    def parents_first(self, root: str) -> list[dict[str, Any]]:
        providers, reached = self.tree(root), {None}
        ordered: list[dict[str, Any]] = []
        while len(ordered) < len(providers):
            for provider in providers:
                if provider["parent_provider_uuid"] in reached and provider not in ordered:
                    ordered.append(provider)
                    reached.add(provider["uuid"])
        return ordered

    def add_tree(self, body: dict[str, Any]) -> None:
        for _ in range(body.get("copies", 1)):
            number = self.copies[body["like"]] = self.copies.get(body["like"], 0) + 1

            def copied(uuid_: str | None, number: int = number) -> str | None:
                return uuid_ and str(uuid.uuid5(uuid.UUID(uuid_), f"copy {number}"))

            for provider in self.parents_first(body["like"]):
                self.copy(provider, copied)

    def copy(self, provider: dict[str, Any], copied: Callable[[str | None], str | None]) -> None:
        old, new = provider["uuid"], copied(provider["uuid"])
        assert new is not None
        created = self.api.post(
            "/resource_providers",
            {
                "name": f"copy {new}",
                "uuid": new,
                "parent_provider_uuid": copied(provider["parent_provider_uuid"]),
            },
        )
        assert created.status == 200, created.body
        for part in ("inventories", "traits", "aggregates"):
            self.put(new, part, self.api.get(f"{path_of(old)}/{part}").json[part])

    def release(self, consumer: str) -> None:
        assert self.api.delete(f"/allocations/{consumer}").status == 204

    def claim(self, body: dict[str, Any]) -> None:
        answer = self.api.put(f"/allocations/{uuid.uuid4()}", claim_body({}, **body))
        assert answer.status == 204, answer.body


class Fleet:
    """What random changes may still name, so that each of them can be made."""

    def __init__(self, choices: random.Random) -> None:
        self.choices = choices
        self.trees = {
            "hostA": ["hostA", "cellA0", "nicA0", "cellA1", "nicA1"],
            "hostB": ["hostB"],
            "pool1": ["pool1"],
            "pool2": ["pool2"],
        }
        self.held = dict(zip(CONSUMERS, HELD, strict=True))

    def providers(self) -> list[str]:
        return [name for names in self.trees.values() for name in names]

    def change(self) -> dict[str, Any]:
        choices = self.choices
        kinds = ["set_inventory", "set_inventory", "set_traits", "add_tree", "release", "claim"]
        kind = choices.choice([*kinds, "remove_tree"] if len(self.trees) > 1 else kinds)
        return {kind: getattr(self, kind)()} if kind != "release" or self.held else self.change()

    def set_inventory(self) -> dict[str, Any]:
        choices = self.choices
        return {
            "provider": UUID[choices.choice(self.providers())],
            "resource_class": choices.choice(["VCPU", "MEMORY_MB", "DISK_GB", "SRIOV_NET_VF"]),
            "total": choices.choice([1, 7, 16, 2000]),
            "reserved": choices.choice([0, 0, 1]),
            "step_size": choices.choice([1, 1, 2]),
            "allocation_ratio": choices.choice([1.0, 1.0, 1.5]),
        }

    def set_traits(self) -> dict[str, Any]:
        names = ["CUSTOM_FAST", "CUSTOM_RACK", "HW_NUMA_ROOT", "MISC_SHARES_VIA_AGGREGATE"]
        traits = self.choices.sample(names, self.choices.randint(0, 3))
        return {"provider": UUID[self.choices.choice(self.providers())], "traits": traits}

    def add_tree(self) -> dict[str, Any]:
        like = self.choices.choice(list(self.trees))
        return {"like": UUID[like], "copies": self.choices.randint(1, 3)}

    def remove_tree(self) -> str:
        root = self.choices.choice(list(self.trees))
        gone = self.trees.pop(root)
        self.held = {
            consumer: rest
            for consumer, held in self.held.items()
            if (rest := {name: what for name, what in held.items() if name not in gone})
        }
        return UUID[root]

    def release(self) -> str:
        consumer = self.choices.choice(list(self.held))
        del self.held[consumer]
        return consumer

    def claim(self) -> dict[str, Any]:
        # On a provider of its own, so that it fits whatever was claimed before.
        return {"allocations": {UUID[self.choices.choice(self.providers())]: None}}


def fitting(operator: Operator, change: dict[str, Any]) -> dict[str, Any] | None:
    """Give a claim an amount that fits by what the real server has by then."""
    if "claim" not in change:
        return change
    ((provider, _),) = change["claim"]["allocations"].items()
    stock = operator.api.get(f"{path_of(provider)}/inventories").json["inventories"]
    usages = operator.api.get(f"{path_of(provider)}/usages").json["usages"]
    for name, entry in stock.items():
        capacity = int((entry["total"] - entry["reserved"]) * entry["allocation_ratio"])
        amount = min(2, entry["max_unit"]) // entry["step_size"] * entry["step_size"]
        if 0 < amount <= capacity - usages[name]:
            return {"claim": {"allocations": {provider: {"resources": {name: amount}}}}}
    return None


def without_names(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without the texts with names, which copies have not, and without who holds what."""
    named = ("sentences", "short") if "closest" in answer else ()
    return {key: value for key, value in answer.items() if key not in named}


@pytest.mark.parametrize("seed", range(10))
def test_the_answers_are_those_of_a_server_on_which_the_changes_were_made(
    make_api: MakeApi, seed: int
) -> None:
    supposed, changed = make_api(filled_by=build), make_api(filled_by=build)
    before = asked_directly(supposed, QUESTIONS)
    fleet, operator = Fleet(random.Random(seed)), Operator(changed)
    changes = []
    for _ in range(7):
        change = fitting(operator, fleet.change())
        if change is not None:
            operator.make(change)
            changes.append(change)
    told = map(without_names, answers(supposed, changes, QUESTIONS))
    assert list(told) == list(map(without_names, asked_directly(changed, QUESTIONS))), changes
    assert asked_directly(supposed, QUESTIONS) == before


def test_a_tree_added_by_one_change_is_named_by_the_next(api: Client) -> None:
    copy = str(uuid.uuid5(uuid.UUID(UUID["hostB"]), "copy 1"))
    changes = [
        {"add_tree": {"like": UUID["hostB"]}},
        {"set_traits": {"provider": copy, "traits": ["CUSTOM_NET1"]}},
        {"claim": {"allocations": {copy: {"resources": {"VCPU": 8}}}, "mappings": {"": [copy]}}},
        {"add_tree": {"like": copy, "copies": 2}},
    ]
    question = {"candidates": "resources=VCPU:1,MEMORY_MB:1&required=CUSTOM_NET1"}
    (answer,) = answers(api, changes, [question])
    assert hosts(answer) == {
        str(uuid.uuid5(uuid.UUID(copy), f"copy {number}")) for number in (1, 2)
    }


def test_a_release_and_the_index_are_of_one_moment(api: Client) -> None:
    """While a consumer moves between two hosts, without it there is always room on both."""
    stop = threading.Event()
    consumer = CONSUMERS[0]
    places = [{UUID["hostB"]: {"VCPU": 4}}, {UUID["cellA0"]: {"VCPU": 2}}]

    def move() -> int:
        moves = 0
        while not stop.is_set():
            generation = api.get(f"/allocations/{consumer}").json["consumer_generation"]
            body = claim_body(places[moves % 2], generation)
            assert api.put(f"/allocations/{consumer}", body).status == 204
            moves += 1
        return moves

    questions = [{"candidates": f"resources=VCPU:{n}"} for n in (2, 8)]
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(move)
        try:
            for _ in range(30):
                two, eight = answers(api, [{"release": consumer}], questions)
                assert hosts(two) == {"cellA0", "hostB"}
                assert hosts(eight) == {"hostB"}
        finally:
            stop.set()
        assert moving.result() > 1
