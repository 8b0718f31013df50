"""Conflicts of PUT /provider_trees/{uuid}: each is listed."""

from typing import Any

from ..wsgi_client import Answer, Client
from .trees import CARD, CELL, LEAF, ROOT, A, B, C, claim, held, must, provider, put


def conflicts(answer: Answer) -> list[tuple[Any, ...]]:
    assert answer.status == 409, answer.body
    keys = ("code", "provider", "resource_class", "consumer", "asked", "free")
    return [tuple(entry[key] for key in keys) for entry in answer.error["conflicts"]]


def test_every_holder_of_what_would_vanish_is_listed(api: Client, tree: str) -> None:
    claim(api, A, CELL, VCPU=1)
    claim(api, B, CELL, VCPU=2)
    claim(api, C, CARD, CUSTOM_CARD=3)
    answer = put(
        api,
        [provider(CELL, "cell", ROOT, inventories={})],
        tree,
        absent=[CARD],
        allocations={A: {"allocations": {}, "consumer_generation": 1}},
    )
    assert sorted(conflicts(answer)) == [
        ("placement.inventory.inuse", CELL, "VCPU", B, 2, 0),
        ("placement.resource_provider.inuse", CARD, "CUSTOM_CARD", C, 3, 0),
    ]


def test_every_amount_that_does_not_fit_is_listed(api: Client, tree: str) -> None:
    claim(api, A, CELL, VCPU=5)
    records = {"VCPU": 6, "MEMORY_MB": {"total": 10, "step_size": 2}}
    owner = {"project_id": "p", "user_id": "u", "consumer_generation": None}
    answer = put(
        api,
        [provider(CELL, "cell", ROOT, inventories=records)],
        tree,
        allocations={
            B: {"allocations": {CELL: held(VCPU=2, MEMORY_MB=3)}, **owner},
            C: {"allocations": {ROOT: held(VCPU=1)}, **owner},
        },
    )
    undefined = "placement.undefined_code"
    assert conflicts(answer) == [
        (undefined, CELL, "VCPU", B, 2, 1),
        (undefined, CELL, "MEMORY_MB", B, 3, 10),
        (undefined, ROOT, "VCPU", C, 1, 0),
    ]
    assert [entry["reason"] for entry in answer.error["conflicts"]] == [
        *("capacity", "inventory_constraint", "no_inventory")
    ]


def test_every_outdated_consumer_and_taken_name_is_listed(api: Client, tree: str) -> None:
    claim(api, A, CELL, VCPU=1)
    api.provider("taken")
    answer = put(
        api,
        [provider(ROOT, "taken", None), provider(LEAF, "card", ROOT)],
        tree,
        allocations={
            A: {"allocations": {}, "consumer_generation": 7},
            B: {
                "allocations": {CELL: held(VCPU=1)},
                "consumer_generation": 3,
                "project_id": "p",
                "user_id": "u",
            },
        },
    )
    assert sorted(conflicts(answer), key=str) == sorted(
        [
            ("placement.duplicate_name", ROOT, None, None, None, None),
            ("placement.duplicate_name", LEAF, None, None, None, None),
            ("placement.concurrent_update", None, None, A, None, None),
            ("placement.concurrent_update", None, None, B, None, None),
        ],
        key=str,
    )


def test_a_consumer_that_is_gone_is_a_conflict(api: Client, tree: str) -> None:
    gone = {"allocations": {CELL: held(VCPU=1)}, "consumer_generation": 1}
    answer = put(api, [], tree, allocations={A: gone})
    assert conflicts(answer) == [("placement.concurrent_update", None, None, A, None, None)]


def test_a_provider_with_children_that_stay_is_not_deleted(api: Client, tree: str) -> None:
    ((code, uuid, *_),) = conflicts(put(api, [], tree, absent=[CELL]))
    assert (code, uuid) == ("placement.resource_provider.cannot_delete_parent", CELL)
    must(put(api, [provider(CARD, "card", ROOT)], tree, absent=[CELL]))


def test_a_provider_of_another_tree_is_not_deleted(api: Client, tree: str, other_tree: str) -> None:
    answer = put(api, [], tree, absent=[LEAF])
    assert [entry["reason"] for entry in answer.error["conflicts"]] == ["provider_in_another_tree"]
