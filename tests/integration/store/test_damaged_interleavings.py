"""Damage left by older software, mended while servers write: likewise as if one after the other.

Allocations without an inventory get one while their consumer gives them back, and a repair runs
beside claims and reshapes.
"""

from __future__ import annotations

import pytest

from placement_server.store import audit
from placement_server.store.allocations import allocations, reshape
from placement_server.store.providers import providers
from placement_server.store.records import InventoryRecord
from placement_server.store.store import Store
from tests.integration.store.conftest import (
    add_stock,
    generation_of,
    new_provider,
    new_uuid,
    sabotage,
    set_of,
)
from tests.integration.store.host_scene import claim, look, release
from tests.integration.store.interleaving import (
    Action,
    Scene,
    Sessions,
    check_both_orders,
    writing,
)

ID = "(SELECT id FROM (SELECT id FROM resource_providers WHERE uuid = :{}) AS found)"


def scene(store: Store) -> Scene:
    """A host (VCPU 8, DISK_GB 10) and another one (VCPU 8).

    `old` holds VCPU 3 and, without an inventory, MEMORY_MB 5 of the host, `loose` nothing but
    MEMORY_MB 2. Of DISK_GB the host seems to have 99. The provider `lost` has another's root,
    the consumer `ghost` holds nothing.
    """
    scene = {
        "host": new_provider(store, {"VCPU": 8, "DISK_GB": 10}),
        "other": new_provider(store, {"VCPU": 8}),
        "lost": new_provider(store),
        **{role: new_uuid() for role in ("old", "loose", "one", "ghost")},
    }
    for role, amount in (("old", 3), ("loose", 1)):
        held = {scene["host"]: {"VCPU": amount}}
        store.write(allocations.write, [set_of(scene[role], held, None)])
    sabotage(
        store,
        "INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used) "
        f"VALUES ({ID.format('host')}, :old, 1, 5)",
        "UPDATE allocations SET resource_class_id = 1, used = 2 WHERE consumer_id = :loose",
        "UPDATE inventories SET used = 3 WHERE resource_class_id = 0 "
        f"AND resource_provider_id = {ID.format('host')}",
        "UPDATE inventories SET capacity = 99 WHERE resource_class_id = 2 "
        f"AND resource_provider_id = {ID.format('host')}",
        f"UPDATE resource_providers SET root_provider_id = {ID.format('other')} WHERE uuid = :lost",
        "INSERT INTO consumers (uuid, project_id, user_id, generation) "
        "SELECT :ghost, project_id, user_id, 3 FROM consumers WHERE uuid = :old",
        **scene,
    )
    return scene


def add_memory(store: Store, scene: Scene) -> None:
    add_stock(store, scene["host"], "MEMORY_MB", InventoryRecord(6))


def reshape_memory_in(store: Store, scene: Scene) -> None:
    """Give the host the inventory that it lacks, without a word about who holds it."""
    records = {name: InventoryRecord(8) for name in ("VCPU", "MEMORY_MB")}
    store.write(reshape.apply, {scene["host"]: (generation_of(store, scene["host"]), records)}, [])


def resize(store: Store, scene: Scene) -> None:
    store.write(allocations.write, [set_of(scene["old"], {scene["host"]: {"VCPU": 1}})])


def reshape_away(store: Store, scene: Scene) -> None:
    """`old` leaves the host, which the reshape does not list, for the other one."""
    other = scene["other"]
    store.write(
        reshape.apply,
        {other: (generation_of(store, other), {"VCPU": InventoryRecord(9)})},
        [set_of(scene["old"], {other: {"VCPU": 3}})],
    )


# nothing is locked of what a change of the host's inventories holds at first
release_loose = writing(allocations.delete, "loose")
end_lost = writing(providers.delete, "lost")
repair = writing(audit.repair)
two_hosts = claim("one", {"other": {"VCPU": 1}, "host": {"DISK_GB": 1}}, None)

PAIRS: dict[str, tuple[Action, Action]] = {
    "a new inventory and a release of what had none": (add_memory, release),
    "a new inventory and a release of nothing else": (add_memory, release_loose),
    "a reshape with a new inventory and a release of nothing else": (
        reshape_memory_in,
        release_loose,
    ),
    "a new inventory and a resize that gives up what had none": (add_memory, resize),
    "a new inventory and a reshape that gives up what had none": (add_memory, reshape_away),
    "a reshape with a new inventory and a release of what had none": (reshape_memory_in, release),
    "a claim and a repair": (two_hosts, repair),
    "a release and a repair": (release, repair),
    "a reshape and a repair": (reshape_away, repair),
    "a new inventory and a repair": (add_memory, repair),
    "the end of a provider and a repair": (end_lost, repair),
    "two repairs": (repair, repair),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_two_at_once_leave_what_two_in_a_row_leave(
    sessions: Sessions, pair: tuple[Action, Action]
) -> None:
    check_both_orders(sessions, scene, pair, look, ahead=1)
