"""Three requests at once leave what the same three in a row would have left."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator

import pytest

from placement_server.store import audit
from tests.fixtures.databases import DATABASES, fresh_database, migrated_sqlite
from tests.functional.api.wsgi_client import Answer, Client, claim_body
from tests.integration.bank.sessions import Action, Scene, Sessions
from tests.integration.store.copied_scenes import OriginalScene


@pytest.fixture(scope="module", params=DATABASES)
def sessions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sessions]:
    if request.param == "sqlite":
        opened = Sessions(migrated_sqlite(tmp_path_factory.mktemp("database") / "placement.db"))
        yield opened
        opened.close()
        return
    with fresh_database(request.getfixturevalue(f"{request.param}_server"), migrated=True) as url:
        opened = Sessions(url)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def original(sessions: Sessions) -> OriginalScene:
    client = sessions.all[0].client
    return client.store.read(OriginalScene.read, make_scene(client))


def make_scene(client: Client) -> dict[str, str]:
    """`host` (VCPU 4) with its child `device` (VGPU 2), and `other` (VCPU 4).

    `old` holds VCPU 2 of the host and VGPU 1 of the device.
    """
    scene = {role: str(uuid.uuid4()) for role in ("host", "device", "other", "old", "a", "b", "c")}
    for role, parent, stock in (
        ("host", None, {"VCPU": 4}),
        ("device", scene["host"], {"VGPU": 2}),
        ("other", None, {"VCPU": 4}),
    ):
        client.provider(scene[role], uuid=scene[role], parent_provider_uuid=parent)
        client.inventory(f"/resource_providers/{scene[role]}", **stock)
    held = {scene["host"]: {"VCPU": 2}, scene["device"]: {"VGPU": 1}}
    assert client.claim(scene["old"], held=held).status == 204
    return scene


def look(client: Client, scene: Scene) -> object:
    """All that there is to see, with roles instead of uuids."""
    seen: dict[str, object] = {}
    roles = {uuid_: role for role, uuid_ in scene.items()}
    for role in ("host", "device", "other"):
        path = f"/resource_providers/{scene[role]}"
        provider = client.get(path)
        if provider.status == 404:
            seen[role] = "gone"
            continue
        seen[role] = (
            provider.json["generation"],
            roles.get(provider.json["parent_provider_uuid"]),
            roles[provider.json["root_provider_uuid"]],
            client.get(f"{path}/inventories").json["inventories"],
            client.get(f"{path}/usages").json["usages"],
        )
    for role in ("old", "a", "b", "c"):
        shown = client.get(f"/allocations/{scene[role]}").json
        seen[role] = (
            shown.get("consumer_generation"),
            {
                roles[provider]: entry["resources"]
                for provider, entry in shown["allocations"].items()
            },
        )
    assert client.store.read(audit.audit) == []
    return seen


def claim(
    consumer: str, amounts: dict[str, dict[str, int]], generation: int | None = None
) -> Action:
    def action(client: Client, scene: Scene) -> Answer:
        held = {scene[role]: resources for role, resources in amounts.items()}
        return client.claim(scene[consumer], held=held, generation=generation)

    return action


def release(client: Client, scene: Scene) -> Answer:
    return client.delete(f"/allocations/{scene['old']}")


def shrink(total: int) -> Action:
    def action(client: Client, scene: Scene) -> Answer:
        return client.put(
            f"/resource_providers/{scene['host']}/inventories/VCPU",
            {"resource_provider_generation": 2, "total": total},
        )

    return action


def delete(role: str) -> Action:
    def action(client: Client, scene: Scene) -> Answer:
        return client.delete(f"/resource_providers/{scene[role]}")

    return action


def move(role: str, parent: str) -> Action:
    def action(client: Client, scene: Scene) -> Answer:
        return client.put(
            f"/resource_providers/{scene[role]}",
            {"name": scene[role], "parent_provider_uuid": scene[parent]},
        )

    return action


def migrate(client: Client, scene: Scene) -> Answer:
    """`old` goes to the other host; `c` keeps its place for it."""
    place = {scene["host"]: {"VCPU": 2}, scene["device"]: {"VGPU": 1}}
    return client.post(
        "/allocations",
        {
            scene["c"]: claim_body(place),
            scene["old"]: claim_body({scene["other"]: {"VCPU": 2}}, generation=1),
        },
    )


def reshape(client: Client, scene: Scene) -> Answer:
    """The VCPUs go from the host to its device, with what `old` holds of them."""
    stock = {"VGPU": {"total": 2}, "VCPU": {"total": 4}}
    return client.post(
        "/reshaper",
        {
            "inventories": {
                scene["host"]: {"resource_provider_generation": 2, "inventories": {}},
                scene["device"]: {"resource_provider_generation": 2, "inventories": stock},
            },
            "allocations": {
                scene["old"]: claim_body({scene["device"]: {"VGPU": 1, "VCPU": 2}}, generation=1)
            },
        },
    )


two = {"host": {"VCPU": 2}}

THREES: dict[str, tuple[Action, Action, Action]] = {
    "three claims for the last two units": (
        claim("a", {"host": {"VCPU": 1}}),
        claim("b", {"host": {"VCPU": 1}}),
        claim("c", {"host": {"VCPU": 1}}),
    ),
    "two claims and a shrinking inventory": (claim("a", two), shrink(3), claim("b", two)),
    "a release, a claim that needs it, and one that does not": (
        release,
        claim("a", {"host": {"VCPU": 3}}),
        claim("b", {"host": {"VCPU": 1}, "other": {"VCPU": 1}}),
    ),
    "claims in opposite order and a shrinking inventory": (
        claim("a", {"host": {"VCPU": 1}, "other": {"VCPU": 1}}),
        claim("b", {"other": {"VCPU": 1}, "host": {"VCPU": 1}}),
        shrink(3),
    ),
    "a claim, the end of the provider, and a claim": (
        claim("a", {"other": {"VCPU": 1}}),
        delete("other"),
        claim("b", {"other": {"VCPU": 4}}),
    ),
    "a claim, a reshape, and another reshape": (claim("a", two), reshape, reshape),
    "a reshape, a claim, and a shrinking inventory": (reshape, claim("a", two), shrink(2)),
    "a move in the tree, a claim, and the end of where it goes": (
        move("device", "other"),
        claim("a", {"device": {"VGPU": 1}}),
        delete("other"),
    ),
    "a migration, a resize of what migrates, and a claim": (
        migrate,
        claim("old", {"host": {"VCPU": 3}}, generation=1),
        claim("a", {"other": {"VCPU": 3}}),
    ),
    "a migration, a reshape, and the end of the consumer": (migrate, reshape, release),
}


@pytest.mark.parametrize("actions", THREES.values(), ids=THREES.keys())
def test_three_at_once_are_as_three_in_a_row(
    sessions: Sessions, original: OriginalScene, actions: tuple[Action, Action, Action]
) -> None:
    client = sessions.all[0].client
    orders = list(itertools.permutations(range(3)))
    # one for each order, one to count the statements, and one for each stop
    scenes = iter(client.store.write(original.copy, len(orders) + 1 + 3))
    allowed = []
    for order in orders:
        scene = next(scenes)
        statuses = sessions.one_after_the_other(actions, order, scene)
        allowed.append((statuses, look(client, scene)))
    last = sessions.statements_of(actions[0], next(scenes)) - 1
    assert last > 2, "the first request hardly asks the database"
    for number, stop_at in enumerate(sorted({last // 2, last - 1, last})):
        scene = next(scenes)
        statuses = sessions.all_at_once(actions, scene, stop_at, first_goes_first=number % 2 == 0)
        got = (statuses, look(client, scene))
        assert got in allowed, f"stopped before statement {stop_at} of {last}: {got}"
