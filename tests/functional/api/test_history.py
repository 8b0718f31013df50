"""GET /history: what was changed of which consumer and provider, by whom, for some days."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema
import sqlalchemy as sa

from placement_server.api.extensions.history import HISTORY
from placement_server.store.changes import changes
from placement_server.store.tables import past_changes
from tests.fixtures.allocations import claim_body

from .conftest import MakeApi
from .wsgi_client import EXTENDED, Client

REQUEST = f"req-{uuid.uuid4()}"


def history(api: Client, query: str = "") -> list[dict[str, Any]]:
    answer = api("GET", f"/history?{query}", version=EXTENDED)
    assert answer.status == 200, answer.body
    jsonschema.validate(answer.json, HISTORY, format_checker=jsonschema.FormatChecker())
    return list(answer.json["history"])


def entries(past: dict[str, Any]) -> list[tuple[str, str, Any, Any]]:
    """Return what was changed of each provider, from the old to the new."""
    keys = ("what", "name", "before", "after")
    return [tuple(change[key] for key in keys) for change in past["changes"]]


def host(api: Client, parent: str | None = None, **inventories: dict[str, int]) -> str:
    made = str(uuid.uuid4())
    path = api.provider(f"host-{made[:8]}", uuid=made, parent_provider_uuid=parent)
    if inventories:
        api.inventory(path, **inventories)
    return made


def claim(api: Client, consumer: str, held: dict[str, dict[str, int]], generation: Any) -> None:
    headers = {"X-Openstack-Request-Id": REQUEST}
    answer = api.put(f"/allocations/{consumer}", claim_body(held, generation), headers=headers)
    assert answer.status == 204, answer.body


def test_a_server_that_is_to_keep_no_past_changes_keeps_none(make_api: MakeApi) -> None:
    api = make_api(placement_server__history_days=0)
    root = host(api, VCPU={"total": 16})
    claim(api, str(uuid.uuid4()), {root: {"VCPU": 4}}, None)
    assert history(api) == []
    assert api("GET", "/history", version=EXTENDED).json["days"] == 0


def test_claims_say_who_got_what_of_which_provider_from_how_much_to_how_much(api: Client) -> None:
    root = host(api, VCPU={"total": 16}, MEMORY_MB={"total": 4096})
    cell = host(api, root, VCPU={"total": 8})
    consumer = str(uuid.uuid4())
    claim(api, consumer, {root: {"VCPU": 4, "MEMORY_MB": 512}, cell: {"VCPU": 2}}, None)
    claim(api, consumer, {root: {"VCPU": 6, "MEMORY_MB": 512}}, 1)
    assert api("DELETE", f"/allocations/{consumer}").status == 204
    ended, grown, begun = history(api, f"consumer={consumer}")
    assert {past["root_provider_uuid"] for past in (ended, grown, begun)} == {root}
    assert {past["consumer_uuid"] for past in (ended, grown, begun)} == {consumer}
    assert (begun["request_id"], begun["user_id"]) == (REQUEST, "admin")
    assert ended["request_id"].startswith("req-")
    assert sorted(entries(begun)) == [
        ("used", "MEMORY_MB", 0, 512),
        ("used", "VCPU", 0, 2),
        ("used", "VCPU", 0, 4),
    ]
    assert {change["provider_uuid"] for change in begun["changes"]} == {root, cell}
    assert sorted(entries(grown)) == [("used", "VCPU", 2, 0), ("used", "VCPU", 4, 6)]
    assert sorted(entries(ended)) == [("used", "MEMORY_MB", 512, 0), ("used", "VCPU", 6, 0)]
    # by host and by class, page by page
    assert [past["id"] for past in history(api, f"root={root}")][:3] == [
        past["id"] for past in (ended, grown, begun)
    ]
    held = history(api, f"consumer={consumer}&name=MEMORY_MB")
    assert [past["id"] for past in held] == [ended["id"], begun["id"]]
    assert history(api, f"consumer={consumer}&name=DISK_GB") == []
    assert history(api, f"consumer={consumer}&name=NO_SUCH_NAME") == []
    [first] = history(api, f"consumer={consumer}&limit=1")
    assert first == ended
    assert history(api, f"consumer={consumer}&before={ended['id']}") == [grown, begun]
    assert history(api, f"consumer={consumer}&after={begun['id']}") == [grown, ended]


def test_providers_inventories_and_traits_are_remembered_also_of_a_host_that_is_gone(
    api: Client,
) -> None:
    root = host(api, VCPU={"total": 8})
    path = f"/resource_providers/{root}"
    traits = {"resource_provider_generation": 1, "traits": ["COMPUTE_STATUS_DISABLED"]}
    assert api("PUT", f"{path}/traits", traits).status == 200
    one = {"resource_provider_generation": 2, "total": 4, "reserved": 1}
    assert api("PUT", f"{path}/inventories/VCPU", one).status == 200
    assert api("PUT", path, {"name": f"new-{root}"}).status == 200
    group = str(uuid.uuid4())
    aggregates = {"resource_provider_generation": 3, "aggregates": [group]}
    assert api("PUT", f"{path}/aggregates", aggregates, version="1.39").status == 200
    assert api("DELETE", f"{path}/inventories/VCPU").status == 204
    assert api("DELETE", path).status == 204
    found = [entries(past) for past in history(api, f"root={root}")]
    assert found == [
        [("provider", f"new-{root}", 1, 0)],
        [("total", "VCPU", 4, 0)],
        [("aggregate", group, 0, 1)],
        [("name", "", f"host-{root[:8]}", f"new-{root}")],
        [("total", "VCPU", 8, 4), ("reserved", "VCPU", 0, 1)],
        [("trait", "COMPUTE_STATUS_DISABLED", 0, 1)],
        [("total", "VCPU", 0, 8)],
        [("provider", f"host-{root[:8]}", 0, 1)],
    ]
    assert len(history(api, f"root={root}&name=COMPUTE_STATUS_DISABLED")) == 1
    # on SQLite they get the id of the one that is gone, one after the other
    again = host(api)
    assert api("DELETE", f"/resource_providers/{again}").status == 204
    last = host(api)
    roots = [past["root_provider_uuid"] for past in history(api)]
    assert roots == [last, again, again, *[root] * len(found)]
    assert [entries(past) for past in history(api, f"root={root}")] == found
    assert history(api, f"root={again}") == history(api)[1:3]
    assert history(api, f"root={last}") == history(api)[:1]


def test_a_reshape_says_what_moved(api: Client) -> None:
    root = host(api, VGPU={"total": 4})
    gpu = host(api, root)
    consumer = str(uuid.uuid4())
    claim(api, consumer, {root: {"VGPU": 2}}, None)
    generations = {
        provider: api("GET", f"/resource_providers/{provider}").json["generation"]
        for provider in (root, gpu)
    }
    body = {
        "inventories": {
            root: {"resource_provider_generation": generations[root], "inventories": {}},
            gpu: {
                "resource_provider_generation": generations[gpu],
                "inventories": {"VGPU": {"total": 4}},
            },
        },
        "allocations": {
            consumer: claim_body({gpu: {"VGPU": 2}}, 1),
        },
    }
    answer = api("POST", "/reshaper", body, version="1.38")
    assert answer.status == 204, answer.body
    moved = history(api, f"consumer={consumer}")[0]
    assert sorted(
        (change["provider_uuid"], change["before"], change["after"]) for change in moved["changes"]
    ) == sorted([(root, 2, 0), (gpu, 0, 2)])


def test_past_changes_are_kept_for_some_days(
    make_api: MakeApi,
) -> None:
    api = make_api()
    root = host(api)
    with api.store.engine.begin() as connection:
        old = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=8)
        connection.execute(sa.update(past_changes).values(created_at=old))
    new = host(api)
    api.store.write(changes.prune)
    assert history(api, f"root={root}") == []
    assert len(history(api, f"root={new}")) == 1
