"""A scene with a host, and writes of it, for two writers at once."""

from __future__ import annotations

import sqlalchemy as sa

from placement_server.store.allocations import allocations, reshape
from placement_server.store.providers import inventories, providers, traits
from placement_server.store.records import InventoryRecord
from placement_server.store.store import Store
from placement_server.store.tables import resource_providers
from tests.fixtures.allocations import new_uuid
from tests.integration.store import scene_rows
from tests.integration.store.conftest import move_provider, restock, set_of, stock
from tests.integration.store.interleaving import Action, Scene, writing


def scene(store: Store) -> Scene:
    """A host with two devices, and another host:

        host (VCPU 4, DISK_GB 10)        other (VCPU 4)
        ├── left (VGPU 2)
        └── right (VGPU 2)

    `child` and `project` are not there yet. `old` holds VCPU 3 of the host and VGPU 1 of
    the left device. Both are of generation 1, the others of 0.
    """
    roles = ("host", "other", "left", "right", "child", "project", "old", "one", "two")
    scene = {role: new_uuid() for role in roles}
    host, left = scene["host"], scene["left"]
    new(store, host, None, VCPU=4, DISK_GB=10)
    new(store, left, host, VGPU=2)
    new(store, scene["right"], host, VGPU=2)
    new(store, scene["other"], None, VCPU=4)
    held = {host: {"VCPU": 3}, left: {"VGPU": 1}}
    store.write(allocations.write, [set_of(scene["old"], held, None)])
    return scene


def new(store: Store, uuid: str, parent: str | None, **totals: int) -> None:
    """Create a provider of generation 0."""
    store.write(providers.create, uuid=uuid, name=f"name-{uuid}", parent_uuid=parent)
    stock(store, uuid, 0, totals)
    at_first = sa.update(resource_providers).where(resource_providers.c.uuid == uuid)
    store.write(lambda tx: tx.execute(at_first.values(generation=0)))


def look(store: Store, scene: Scene) -> object:
    """All there is to see, with roles instead of uuids."""
    return scene_rows.look(store, scene, "providers", "inventories", "consumers", "allocations")


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
    """One write for two consumers, `old` among them or not."""

    def action(store: Store, scene: Scene) -> None:
        wanted = {scene["right"]: {"VGPU": 1}}
        writes = [
            set_of(
                scene[role],
                wanted,
                1 if role == "old" else None,
                project=scene["project"] if new_project else role,
            )
            for role in (first, second)
        ]
        store.write(allocations.write, writes)

    return action


def migrate(store: Store, scene: Scene) -> None:
    """Move `old` to the other host; `two` keeps its place for it."""
    place = {scene["host"]: {"VCPU": 3}, scene["left"]: {"VGPU": 1}}
    moved = set_of(scene["old"], {scene["other"]: {"VCPU": 3}}, 1)
    store.write(allocations.write, [set_of(scene["two"], place, None), moved])


def shrink(total: int) -> Action:
    def action(store: Store, scene: Scene) -> None:
        stock(store, scene["host"], 1, {"VCPU": total, "DISK_GB": 10})

    return action


def set_step(store: Store, scene: Scene) -> None:
    restock(store, scene["right"], "VGPU", InventoryRecord(2, step_size=2), 0)


def delete_provider(role: str) -> Action:
    return writing(providers.delete, role)


def move(role: str, parent: str | None) -> Action:
    def action(store: Store, scene: Scene) -> None:
        move_provider(store, scene[role], None if parent is None else scene[parent])

    return action


def add_child(store: Store, scene: Scene) -> None:
    child = scene["child"]
    store.write(providers.create, uuid=child, name=child, parent_uuid=scene["right"])


def set_traits(store: Store, scene: Scene) -> None:
    store.write(traits.replace_of_provider, scene["host"], ["HW_CPU_X86_AVX"], generation=1)


def reshape_inventory(store: Store, scene: Scene) -> None:
    store.write(reshape.apply, {scene["right"]: (0, {"VGPU": InventoryRecord(3)})}, [])


def reshape_to(role: str, *, new_project: bool = False) -> Action:
    """Move the VCPUs of the host, with what `old` holds of them, to one of its children."""

    def action(store: Store, scene: Scene) -> None:
        host, child, left = scene["host"], scene[role], scene["left"]
        child_generation = 1 if role == "left" else 0
        amounts = {left: {"VGPU": 1}}
        amounts[child] = amounts.get(child, {}) | {"VCPU": 3}
        devices = {"VGPU": InventoryRecord(2), "VCPU": InventoryRecord(4)}
        wanted = {
            host: (1, {"DISK_GB": InventoryRecord(10)}),
            child: (child_generation, devices),
        }
        project = scene["project"] if new_project else "project"
        write = set_of(scene["old"], amounts, 1, project=project)
        store.write(reshape.apply, wanted, [write])

    return action


drop_disk = writing(inventories.delete_one, "host", "DISK_GB")
release = writing(allocations.delete, "old")
last_unit = claim("one", {"host": {"VCPU": 1}}, None)
both = claim("one", {"right": {"VGPU": 1}, "host": {"DISK_GB": 1}}, None)
