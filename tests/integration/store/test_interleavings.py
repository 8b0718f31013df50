"""Two writers at once leave what two writers in a row would have left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from placement_server.candidates.index.feed import Feed
from placement_server.store import audit
from placement_server.store.allocations import allocations, reshape
from placement_server.store.errors import ProviderNotFound
from placement_server.store.providers import inventories, providers, traits
from placement_server.store.records import InventoryRecord
from placement_server.store.store import Store
from tests.integration.candidates.feed_worker import content
from tests.integration.store.conftest import (
    OPTIONS,
    new_provider,
    new_uuid,
    set_of,
    use_of,
)
from tests.integration.store.interleaving import (
    Action,
    Scene,
    Sessions,
    check_serializable,
    deadlocks_of,
)


def scene(store: Store) -> Scene:
    """A host with two devices, and another host:

        host (VCPU 4, DISK_GB 10)        other (VCPU 4)
        ├── left (VGPU 2)
        └── right (VGPU 2)

    ``child`` and ``project`` are not there yet. ``old`` holds VCPU 3 of the host and VGPU 1 of
    the left device.
    """
    host, other = new_provider(store, {"VCPU": 4, "DISK_GB": 10}), new_provider(store, {"VCPU": 4})
    left, right = (new_provider(store, {"VGPU": 2}, parent=host) for _ in range(2))
    child, project, old, one, two = (new_uuid() for _ in range(5))
    store.write(allocations.write, [set_of(old, {host: {"VCPU": 3}, left: {"VGPU": 1}}, None)])
    return {
        "host": host,
        "other": other,
        "left": left,
        "right": right,
        "child": child,
        "project": project,
        "old": old,
        "one": one,
        "two": two,
    }


def look(store: Store, scene: Scene) -> object:
    """All there is to see, with roles instead of uuids."""
    roles = {uuid: role for role, uuid in scene.items()}
    seen: dict[str, object] = {}
    for role in ("host", "other", "left", "right", "child"):
        try:
            provider, records = store.read(inventories.of_provider, scene[role])
        except ProviderNotFound:
            seen[role] = "gone"
            continue
        seen[role] = (
            provider.generation,
            roles.get(provider.parent_uuid or ""),
            roles[provider.root_uuid],
            {name: stored.total for name, stored in records.items()},
            use_of(store, scene[role]),
        )
    for role in ("old", "one", "two"):
        record, rows = store.read(allocations.of_consumer, scene[role])
        seen[role] = record and (
            record.generation,
            roles.get(record.project_id, record.project_id),
            {(roles[row.provider_uuid], row.resource_class): row.used for row in rows},
        )
    return seen


def claim(
    consumer: str,
    amounts: dict[str, dict[str, int]],
    expected: int | None,
    *,
    new_project: bool = False,
) -> Action:
    def action(store: Store, scene: Scene) -> None:
        sets = {scene[role]: resources for role, resources in amounts.items()}
        project = scene["project"] if new_project else consumer
        store.write(allocations.write, [set_of(scene[consumer], sets, expected, project=project)])

    return action


def claim_two(first: str, second: str, *, new_project: bool = False) -> Action:
    """One write for two consumers, ``old`` among them or not."""

    def action(store: Store, scene: Scene) -> None:
        wanted = {scene["right"]: {"VGPU": 1}}
        store.write(
            allocations.write,
            [
                set_of(
                    scene[role],
                    wanted,
                    1 if role == "old" else None,
                    project=scene["project"] if new_project else role,
                )
                for role in (first, second)
            ],
        )

    return action


def shrink(total: int) -> Action:
    def action(store: Store, scene: Scene) -> None:
        store.write(
            inventories.replace,
            scene["host"],
            generation=2,
            records={"VCPU": InventoryRecord(total), "DISK_GB": InventoryRecord(10)},
            reserved_may_equal_total=True,
        )

    return action


def drop_disk(store: Store, scene: Scene) -> None:
    store.write(inventories.delete_one, scene["host"], "DISK_GB")


def set_step(store: Store, scene: Scene) -> None:
    store.write(
        inventories.update_one,
        scene["right"],
        "VGPU",
        InventoryRecord(2, step_size=2),
        generation=1,
        reserved_may_equal_total=True,
    )


def delete_provider(role: str) -> Action:
    def action(store: Store, scene: Scene) -> None:
        store.write(providers.delete, scene[role])

    return action


def move(role: str, parent: str | None) -> Action:
    def action(store: Store, scene: Scene) -> None:
        moved = store.read(providers.get, scene[role])
        store.write(
            providers.update,
            scene[role],
            name=moved.name,
            parent_uuid=None if parent is None else scene[parent],
            reparenting_allowed=True,
        )

    return action


def release(store: Store, scene: Scene) -> None:
    store.write(allocations.delete, scene["old"])


def add_child(store: Store, scene: Scene) -> None:
    child = scene["child"]
    store.write(providers.create, uuid=child, name=child, parent_uuid=scene["right"])


def set_traits(store: Store, scene: Scene) -> None:
    store.write(traits.replace_of_provider, scene["host"], ["HW_CPU_X86_AVX"], generation=2)


def reshape_to(role: str, *, new_project: bool = False) -> Action:
    """Move the VCPUs of the host, with what ``old`` holds of them, to one of its children."""

    def action(store: Store, scene: Scene) -> None:
        host, child, left = scene["host"], scene[role], scene["left"]
        child_generation = 2 if role == "left" else 1
        amounts = {left: {"VGPU": 1}}
        amounts[child] = amounts.get(child, {}) | {"VCPU": 3}
        store.write(
            reshape.apply,
            {
                host: (2, {"DISK_GB": InventoryRecord(10)}),
                child: (
                    child_generation,
                    {"VGPU": InventoryRecord(2), "VCPU": InventoryRecord(4)},
                ),
            },
            [
                set_of(
                    scene["old"],
                    amounts,
                    1,
                    project=scene["project"] if new_project else "project",
                )
            ],
        )

    return action


last_unit = claim("one", {"host": {"VCPU": 1}}, None)
both = claim("one", {"right": {"VGPU": 1}, "host": {"DISK_GB": 1}}, None)

PAIRS: dict[str, tuple[Action, Action]] = {
    "two claims for the last unit": (last_unit, claim("two", {"host": {"VCPU": 1}}, None)),
    "two first writes for one consumer": (last_unit, claim("one", {"host": {"DISK_GB": 1}}, None)),
    "two claims with room for both": (
        claim("one", {"host": {"DISK_GB": 1}, "right": {"VGPU": 1}}, None),
        claim("two", {"right": {"VGPU": 1}, "host": {"DISK_GB": 2}}, None),
    ),
    "a claim and a shrinking inventory": (last_unit, shrink(3)),
    "a claim and a shrinking inventory below use": (last_unit, shrink(2)),
    "a claim and the end of the inventory": (
        claim("one", {"host": {"DISK_GB": 1}}, None),
        drop_disk,
    ),
    "a claim and a new step size": (claim("one", {"right": {"VGPU": 1}}, None), set_step),
    "a claim and the end of the provider": (
        claim("one", {"right": {"VGPU": 1}}, None),
        delete_provider("right"),
    ),
    "a claim and a release": (claim("one", {"host": {"VCPU": 2}}, None), release),
    "a resize and a release": (claim("old", {"host": {"VCPU": 2}}, 1), release),
    "two resizes of one consumer": (
        claim("old", {"host": {"VCPU": 2}}, 1),
        claim("old", {"host": {"VCPU": 1}}, 1),
    ),
    "two releases of one consumer": (release, release),
    "an emptying and a release": (claim("old", {}, 1), release),
    "a write of two consumers and a release of one": (claim_two("old", "one"), release),
    "a write of two consumers and a resize of one": (
        claim_two("old", "one"),
        claim("old", {"host": {"VCPU": 2}}, 1),
    ),
    "two writes of the same two consumers": (claim_two("old", "one"), claim_two("one", "old")),
    "a reshape and a release": (reshape_to("left"), release),
    "a claim and a reshape": (last_unit, reshape_to("left")),
    "a claim where a reshape goes": (
        claim("one", {"right": {"VGPU": 2}}, None),
        reshape_to("right"),
    ),
    "two reshapes": (reshape_to("left"), reshape_to("right")),
    "a claim and a reshape that make one project": (
        claim("one", {"host": {"VCPU": 1}}, None, new_project=True),
        reshape_to("left", new_project=True),
    ),
    "a resize and a write of two that make one project": (
        claim("old", {"host": {"VCPU": 2}}, 1, new_project=True),
        claim_two("old", "one", new_project=True),
    ),
    "a reshape and the end of the provider": (reshape_to("right"), delete_provider("right")),
    "a claim and a move": (claim("one", {"right": {"VGPU": 1}}, None), move("right", "other")),
    "a release and a move": (release, move("left", None)),
    "two moves that would close a loop": (move("host", "other"), move("other", "host")),
    "a move and a new child": (move("right", "other"), add_child),
    "the end of a provider and a move of it": (delete_provider("right"), move("right", "other")),
    "the end of a provider and a move of its tree": (
        delete_provider("right"),
        move("host", "other"),
    ),
    "the end of a provider and a new child": (delete_provider("right"), add_child),
    "new traits and a claim": (set_traits, last_unit),
    "new traits and a claim of two providers": (set_traits, both),
    "two claims of two classes of one provider": (
        claim("one", {"host": {"VCPU": 1}}, None),
        claim("two", {"host": {"DISK_GB": 1}}, None),
    ),
    "two claims of a pool and of each other's hosts": (
        claim("one", {"left": {"VGPU": 1}, "other": {"VCPU": 1}, "host": {"DISK_GB": 1}}, None),
        claim("two", {"host": {"DISK_GB": 2}, "other": {"VCPU": 1}, "left": {"VGPU": 1}}, None),
    ),
    "a claim of two providers and the end of one": (both, delete_provider("right")),
    "a claim of two providers and a move of one": (both, move("right", "other")),
    "a claim of two providers and a move of their tree": (both, move("host", "other")),
}


@pytest.fixture(scope="module")
def feed(store: Store, module_database_url: str) -> Iterator[Feed]:
    """Follows all the time, even while one of the two is stopped."""
    opened = Store.open(module_database_url, options=OPTIONS)
    yield Feed(opened)
    opened.close()


@pytest.fixture(scope="module")
def deadlocks(sessions: Sessions) -> Iterator[list[str]]:
    """All that this module met."""
    with deadlocks_of([sessions.first, sessions.second]) as told:
        yield told


@pytest.mark.usefixtures("deadlocks")
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_two_at_once_leave_what_two_in_a_row_leave(
    sessions: Sessions, feed: Feed, pair: tuple[Action, Action]
) -> None:
    first, second = pair
    check_serializable(sessions, scene, first, second, look, feed.index)
    if sessions.family != "sqlite":
        # SQLite runs one write transaction after the other by itself: once is enough there
        check_serializable(sessions, scene, second, first, look, feed.index)
    assert content(feed.index()) == content(Feed(sessions.first).index())


def test_nothing_is_wrong_after_all_of_this(sessions: Sessions) -> None:
    assert sessions.first.read(audit.audit) == []


def test_none_of_this_was_a_deadlock(deadlocks: list[str]) -> None:
    """One lock order: sessions wait for each other, and never in a circle."""
    assert deadlocks == []
