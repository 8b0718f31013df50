"""References to a name or a provider, written beside the end of what they refer to.

A row that refers to something that is gone is what `placement-manage audit` finds and nobody can
mend. Projects, users, consumer types and aggregates are removed by `placement-manage prune`
alone, a day after it found them out of use.
"""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from placement_server.store import audit, resource_classes, unused
from placement_server.store.allocations import allocations, reshape
from placement_server.store.errors import StoreUnavailable
from placement_server.store.providers import aggregates, inventories, providers, traits
from placement_server.store.records import InventoryRecord
from placement_server.store.store import Store
from placement_server.store.tables import consumer_types, placement_aggregates, projects, users
from placement_server.store.tables import resource_classes as table
from placement_server.store.transaction import WriteTransaction
from tests.integration.store import scene_rows
from tests.integration.store.conftest import (
    OPTIONS,
    add_stock,
    move_provider,
    new_provider,
    new_uuid,
    opened,
    set_of,
    stock,
)
from tests.integration.store.interleaving import (
    Action,
    Scene,
    Sessions,
    check_both_orders,
    writing,
)


def new_name() -> str:
    return f"CUSTOM_{new_uuid().replace('-', '_').upper()}"


def scene(store: Store) -> Scene:
    """Two hosts without anything, a host that has `stocked` 4, and names that nobody uses.

    `fresh` names and labels are not there yet; `idle` ones were found out of use long ago.
    """
    names = {role: new_name() for role in ("class", "stocked", "trait")}
    names |= {role: new_name() for role in ("fresh class", "fresh type", "idle type")}
    names |= {role: new_uuid() for role in ("idle owner", "idle aggregate")}
    store.write(add_idle_names, names)
    store.write(resource_classes.create, names["class"])
    store.write(resource_classes.create, names["stocked"])
    store.write(traits.ensure, names["trait"])
    return names | {
        "host": new_provider(store),
        "other": new_provider(store),
        "stock": new_provider(store, {names["stocked"]: 4}),
        "consumer": new_uuid(),
        "second consumer": new_uuid(),
        "fresh owner": new_uuid(),
        "fresh aggregate": new_uuid(),
    }


def add_idle_names(tx: WriteTransaction, names: Scene) -> None:
    long_ago = {
        "created_at": tx.now - 3 * unused.MARKED_FOR,
        "updated_at": tx.now - 2 * unused.MARKED_FOR,
    }
    for column, role in (
        (projects.c.external_id, "idle owner"),
        (users.c.external_id, "idle owner"),
        (consumer_types.c.name, "idle type"),
        (placement_aggregates.c.uuid, "idle aggregate"),
    ):
        tx.execute(sa.insert(column.table).values({column.name: names[role], **long_ago}))


def look(store: Store, scene: Scene) -> object:
    """All there is to see, with roles instead of names."""
    labels = ("classes", "traits", "aggregates of providers", "traits of providers")
    rows = ("providers", "inventories", "consumers", "allocations")
    return scene_rows.look(store, scene, *labels, *rows)


def add_inventory(store: Store, scene: Scene) -> None:
    add_stock(store, scene["host"], scene["class"], InventoryRecord(4))


def replace_inventory(store: Store, scene: Scene) -> None:
    stock(store, scene["host"], 0, {scene["class"]: 4, scene["stocked"]: 4})


def reshape_inventory(store: Store, scene: Scene) -> None:
    records = {scene["class"]: InventoryRecord(4)}
    store.write(
        reshape.apply,
        {scene["host"]: (0, records)},
        [set_of(scene["consumer"], {scene["host"]: {scene["class"]: 1}}, None)],
    )


def claim(store: Store, scene: Scene) -> None:
    amounts = {scene["stock"]: {scene["stocked"]: 1}}
    store.write(allocations.write, [set_of(scene["consumer"], amounts, None)])


def claim_of_an_owner(kind: str, consumer: str) -> Action:
    def action(store: Store, scene: Scene) -> None:
        write = set_of(
            scene[consumer],
            {scene["stock"]: {scene["stocked"]: 1}},
            None,
            project=scene[f"{kind} owner"],
            user=scene[f"{kind} owner"],
            consumer_type=scene[f"{kind} type"],
        )
        store.write(allocations.write, [write])

    return action


def delete_stock_and_class(tx: WriteTransaction, provider: str, name: str) -> None:
    inventories.delete_all(tx, provider)
    resource_classes.delete(tx, name)


end_class = writing(resource_classes.delete, "class")
rename_class = writing(resource_classes.rename, "class", "fresh class")
make_class = writing(resource_classes.ensure, "fresh class")
end_stock_and_class = writing(delete_stock_and_class, "stock", "stocked")
end_trait = writing(traits.delete, "trait")


def set_trait(store: Store, scene: Scene) -> None:
    store.write(traits.replace_of_provider, scene["host"], [scene["trait"]], generation=0)


def prune(*tables: str) -> Action:
    def action(store: Store, _scene: Scene) -> None:
        for name in tables:
            store.write(unused.prune, name)

    return action


def set_aggregate(role: str, generation: int | None, *, kind: str = "fresh") -> Action:
    def action(store: Store, scene: Scene) -> None:
        label = scene[f"{kind} aggregate"]
        store.write(aggregates.replace, scene[role], [label], generation=generation)

    return action


def end_provider(role: str) -> Action:
    return writing(providers.delete, role)


def move_below_host(store: Store, scene: Scene) -> None:
    move_provider(store, scene["other"], scene["host"])


PAIRS: dict[str, tuple[Action, Action]] = {
    "a new inventory and the end of its class": (add_inventory, end_class),
    "a whole inventory and the end of a class of it": (replace_inventory, end_class),
    "a reshape and the end of a class of it": (reshape_inventory, end_class),
    "a new inventory and a new name of its class": (add_inventory, rename_class),
    "a new name and the end of a class": (rename_class, end_class),
    "a new name of a class and a new class of that name": (rename_class, make_class),
    "two ends of a class": (end_class, end_class),
    "a claim and the end of its class": (claim, end_stock_and_class),
    "a trait of a provider and its end": (set_trait, end_trait),
    "a trait and the end of its provider": (set_trait, end_provider("host")),
    "an aggregate and the end of its provider": (set_aggregate("host", 0), end_provider("host")),
    "an aggregate that raises no generation and the end of its provider": (
        set_aggregate("host", None),
        end_provider("host"),
    ),
    "the same new aggregate of two providers": (
        set_aggregate("host", 0),
        set_aggregate("other", 0),
    ),
    "two first uses of one project, user and type": (
        claim_of_an_owner("fresh", "consumer"),
        claim_of_an_owner("fresh", "second consumer"),
    ),
    "two claims of one owner who is out of use": (
        claim_of_an_owner("idle", "consumer"),
        claim_of_an_owner("idle", "second consumer"),
    ),
    "a claim of an owner who is out of use and a prune": (
        claim_of_an_owner("idle", "consumer"),
        prune("projects", "users", "consumer_types"),
    ),
    "an aggregate that is out of use and a prune": (
        set_aggregate("host", 0, kind="idle"),
        prune("placement_aggregates"),
    ),
    "a move below a provider and its end": (move_below_host, end_provider("host")),
    "a new inventory and the end of its provider": (add_inventory, end_provider("host")),
    "a claim and the end of its provider": (claim, end_provider("stock")),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_nothing_is_left_that_refers_to_what_is_gone(
    sessions: Sessions, pair: tuple[Action, Action]
) -> None:
    check_both_orders(sessions, scene, pair, look, ahead=1)
    assert sessions.first.read(audit.audit) == []


def test_a_claim_waits_for_no_class_and_an_inventory_for_no_standard_one(
    sessions: Sessions,
) -> None:
    if sessions.family == "sqlite":
        pytest.skip("SQLite has no locks of rows")
    names = scene(sessions.first)
    options = replace(OPTIONS, lock_timeout=1, claim_tries=1)
    with (
        opened(sessions.first.url, options) as hasty,
        sessions.second.engine.begin() as connection,
    ):
        for name in ("VCPU", names["class"], names["stocked"]):
            # as the end of a class does
            connection.execute(
                sa.select(table.c.id).where(table.c.name == name).with_for_update()
            ).one()
        claim(hasty, names)
        new_provider(hasty, {"VCPU": 4})
        with pytest.raises(StoreUnavailable):
            add_inventory(hasty, names)
