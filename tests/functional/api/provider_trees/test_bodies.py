"""Bodies of PUT /provider_trees/{uuid} that are malformed or large."""

from collections.abc import Callable
from typing import Any

import pytest

from ..wsgi_client import Client
from .trees import (
    BELOW,
    CARD,
    CELL,
    EXTENDED,
    LEAF,
    OTHER,
    ROOT,
    UNKNOWN,
    A,
    Provider,
    held,
    host,
    must,
    provider,
    put,
)


def twice(uuid: str, name: str) -> list[Provider]:
    return [*host(), provider(uuid, name, ROOT)]


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "no providers": ({}, ""),
    "an unknown key": ({"providers": [], "more": 1}, ""),
    "no name": ({"providers": [{"uuid": ROOT, "parent_provider_uuid": None}]}, "/providers/0"),
    "an empty name": ({"providers": [provider(ROOT, "", None)]}, "/providers/0/name"),
    "no uuid": ({"providers": [provider("-" * 36, "x", ROOT)]}, "/providers/0/uuid"),
    "a total of 0": (
        {"providers": [provider(ROOT, "host", None, inventories={"VCPU": 0})]},
        "/providers/0/inventories/VCPU/total",
    ),
    "too much reserved": (
        {
            "providers": [
                provider(ROOT, "host", None, inventories={"VCPU": {"total": 1, "reserved": 2}})
            ]
        },
        "/providers/0/inventories/VCPU/reserved",
    ),
    "a malformed trait": (
        {"providers": [provider(ROOT, "host", None, traits=["COMPUTE_NODE", "custom_x"])]},
        "/providers/0/traits/1",
    ),
    "an unknown standard trait": (
        {"providers": [provider(ROOT, "host", None, traits=["HW_NOTHING"])]},
        "/providers/0/traits",
    ),
    "an unknown standard class": (
        {"providers": [provider(ROOT, "host", None, inventories={"WHEELS": 4})]},
        "/providers/0/inventories/WHEELS",
    ),
    "an unknown class of an allocation": (
        {
            "providers": [],
            "allocations": {
                A: {"allocations": {CELL: held(CUSTOM_NONE=1)}, "consumer_generation": None}
            },
        },
        f"/allocations/{A}/allocations/{CELL}/resources/CUSTOM_NONE",
    ),
    "an allocation elsewhere": (
        {
            "providers": [],
            "allocations": {
                A: {
                    "allocations": {UNKNOWN: held(VCPU=1)},
                    "consumer_generation": None,
                    "project_id": "p",
                    "user_id": "u",
                }
            },
        },
        f"/allocations/{A}/allocations/{UNKNOWN}",
    ),
    "a provider twice": ({"providers": twice(CELL, "x")}, "/providers/3/uuid"),
    "a name twice": ({"providers": twice(LEAF, "cell")}, "/providers/3/name"),
    "kept and absent": ({"providers": host(), "absent": [LEAF, CELL]}, "/absent/1"),
    "an unknown parent": (
        {"providers": [provider(CELL, "cell", UNKNOWN)]},
        "/providers/0/parent_provider_uuid",
    ),
    "a parent that is deleted": (
        {"providers": [provider(CARD, "card", CELL)], "absent": [CELL]},
        "/providers/0/parent_provider_uuid",
    ),
    "a second root": (
        {"providers": [provider(CELL, "cell", None)]},
        "/providers/0/parent_provider_uuid",
    ),
    "a root below another": (
        {"providers": [provider(ROOT, "host", CELL)]},
        "/providers/0/parent_provider_uuid",
    ),
    "a circle": (
        {"providers": [provider(CELL, "cell", CARD)]},
        "/providers/0/parent_provider_uuid",
    ),
    "a circle that outlives its root": (
        {
            "providers": [provider(CELL, "cell", CARD), provider(CARD, "card", CELL)],
            "absent": [ROOT],
        },
        "/providers/0/parent_provider_uuid",
    ),
    "a new circle beside a root that is deleted": (
        {
            "providers": [provider(OTHER, "x", BELOW), provider(BELOW, "y", OTHER)],
            "absent": [ROOT, CELL, CARD],
        },
        "/providers/0/parent_provider_uuid",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_body_is_400_with_a_pointer(api: Client, tree: str, case: str) -> None:
    body, pointer = MALFORMED[case]
    answer = api.put(f"/provider_trees/{ROOT}", body, headers={**EXTENDED, "If-Match": tree})
    assert answer.status == 400, answer.body
    assert answer.error["pointer"] == pointer


def test_a_new_tree_without_its_root_is_400(api: Client) -> None:
    answer = put(api, [provider(CELL, "cell", ROOT)])
    assert answer.status == 400


@pytest.mark.parametrize(
    "body",
    [
        lambda: {"providers": [provider(ROOT, "host", None)] * 10_001},
        lambda: {
            "providers": [],
            "absent": [f"{n:08}-0000-4000-8000-000000000000" for n in range(10_001)],
        },
    ],
    ids=["providers", "absent"],
)
def test_too_much_at_once_is_400(api: Client, tree: str, body: Callable[[], Any]) -> None:
    answer = api.put(f"/provider_trees/{ROOT}", body(), headers={**EXTENDED, "If-Match": tree})
    assert answer.status == 400
    assert "the limit is 10000" in answer.detail


def test_a_tree_of_thousands_is_written_and_replaced(api: Client) -> None:
    uuids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(3000)]
    sent = [provider(uuids[0], "p0", None)] + [
        provider(uuid, f"p{number}", uuids[(number - 1) // 3], inventories={"VCPU": 1})
        for number, uuid in enumerate(uuids[1:], 1)
    ]
    made = must(put(api, sent, root=uuids[0]))
    assert len(made.json["providers"]) == 3000
    gone = must(put(api, [], made.headers["etag"], root=uuids[0], absent=uuids))
    assert gone.status == 204
