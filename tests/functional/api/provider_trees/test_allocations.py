"""Allocations that PUT /provider_trees/{uuid} moves with their inventory."""

from ..wsgi_client import Client
from .trees import (
    CARD,
    CELL,
    ROOT,
    A,
    B,
    C,
    by_uuid,
    claim,
    get,
    held,
    host,
    must,
    provider,
    put,
    tag_of,
)


def test_inventory_moves_with_the_allocations_against_it(api: Client, tree: str) -> None:
    outside = api.provider("outside")
    api.inventory(outside, VCPU=4)
    must(api.claim(A, held={CELL: {"VCPU": 2}, outside: {"VCPU": 1}}))
    claim(api, B, CELL, VCPU=6)
    answer = put(
        api,
        [
            provider(CELL, "cell", ROOT, inventories={}),
            provider(ROOT, "host", None, inventories={"DISK_GB": 100, "VCPU": 8}),
        ],
        tree,
        allocations={
            A: {"allocations": {ROOT: held(VCPU=2)}, "consumer_generation": 1},
            B: {"allocations": {ROOT: held(VCPU=6)}, "consumer_generation": 1},
        },
    )
    assert answer.status == 200, answer.body
    shown = get(api, query="?include=usages,allocations")
    assert by_uuid(shown)[ROOT]["usages"] == {"DISK_GB": 0, "VCPU": 8}
    assert shown.json["allocations"][B]["consumer_generation"] == 2
    whole = api.get(f"/allocations/{A}").json
    assert {uuid: entry["resources"] for uuid, entry in whole["allocations"].items()} == {
        ROOT: {"VCPU": 2},
        outside.rpartition("/")[2]: {"VCPU": 1},
    }
    assert (whole["project_id"], whole["consumer_type"]) == ("project", "INSTANCE")


def test_what_a_consumer_holds_elsewhere_stays_when_it_leaves(api: Client, tree: str) -> None:
    outside = api.provider("outside")
    api.inventory(outside, VCPU=4)
    must(api.claim(A, held={CELL: {"VCPU": 2}, outside: {"VCPU": 1}}))
    claim(api, B, CELL, VCPU=1)
    leaving = {"allocations": {}, "consumer_generation": 1}
    must(put(api, [], tree, allocations={A: leaving, B: leaving}))
    assert list(api.get(f"/allocations/{A}").json["allocations"]) == [outside.rpartition("/")[2]]
    assert api.get(f"/allocations/{B}").json["allocations"] == {}


def test_a_new_consumer_is_made_with_its_owner(api: Client, tree: str) -> None:
    new = {"allocations": {CELL: held(VCPU=1)}, "consumer_generation": None}
    answer = put(api, [], tree, allocations={C: new})
    assert (answer.status, answer.error["pointer"]) == (400, f"/allocations/{C}")
    owner = {"project_id": "p", "user_id": "u", "consumer_type": "MIGRATION"}
    must(put(api, [], tree, allocations={C: {**new, **owner}}))
    shown = get(api, query="?include=allocations").json["allocations"][C]
    assert shown == {**new, **owner, "consumer_generation": 1}
    must(put(api, [], tree, allocations={C: shown}))
    assert get(api, query="?include=allocations").json["allocations"][C] == shown


def test_generations_rise_where_something_changed(api: Client, tree: str) -> None:
    claim(api, A, CELL, VCPU=1)
    claim(api, B, CARD, CUSTOM_CARD=1)
    must(
        put(
            api,
            [*host()[:1], provider(CELL, "cell", ROOT, inventories={"VCPU": 10})],
            tree,
            allocations={
                A: {"allocations": {CELL: held(VCPU=1)}, "consumer_generation": 1},
                B: {"allocations": {CARD: held(CUSTOM_CARD=2)}, "consumer_generation": 1},
            },
        )
    )
    shown = get(api, query="?include=allocations")
    generations = {uuid: entry["generation"] for uuid, entry in by_uuid(shown).items()}
    assert generations == {ROOT: 0, CELL: 2, CARD: 2}
    consumers = shown.json["allocations"]
    assert (consumers[A]["consumer_generation"], consumers[B]["consumer_generation"]) == (1, 2)


def test_an_inventory_may_shrink_below_its_use(api: Client, tree: str) -> None:
    claim(api, A, CELL, VCPU=6)
    must(put(api, [provider(CELL, "cell", ROOT, inventories={"VCPU": 4})], tree))
    less = {A: {"allocations": {CELL: held(VCPU=5)}, "consumer_generation": 1}}
    must(put(api, [], tag_of(api), allocations=less))
    more = {A: {"allocations": {CELL: held(VCPU=6)}, "consumer_generation": 2}}
    assert put(api, [], tag_of(api), allocations=more).status == 409
