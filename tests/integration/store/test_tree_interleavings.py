"""A write of a whole tree beside another writer leaves what the two in a row would have left."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pytest

from placement_server.candidates.index.feed import Feed
from placement_server.candidates.tree_reader import StoredTreeReader
from placement_server.store import audit
from placement_server.store.records import InventoryRecord
from placement_server.store.store import Store
from placement_server.store.transactions.transaction import ReadTransaction
from placement_server.store.trees import replacement, tree_rows
from placement_server.store.trees.tree import Tree, TreeProvider
from placement_server.store.trees.tree_write import HoldingsWrite, ProviderWrite, TreeWrite
from tests.integration.store import host_scene
from tests.integration.store.conftest import OPTIONS
from tests.integration.store.host_scene import (
    add_child,
    claim,
    delete_provider,
    look,
    move,
    release,
    reshape_to,
    set_traits,
)
from tests.integration.store.interleaving import Action, Scene, Sessions, check_both_orders


def add_tags(tx: ReadTransaction, scenes: Sequence[Scene]) -> None:
    """Add the tags of the host's tree and of the other host."""
    roles = [(scene, role) for scene in scenes for role in ("host", "other")]
    tags = tags_of(tx, [scene[role] for scene, role in roles])
    for scene, role in roles:
        scene[f"{role} tag"] = tags[scene[role]]


def tags_of(tx: ReadTransaction, uuids: Collection[str]) -> dict[str, str]:
    """The tags of the trees of those providers that are there."""
    roots = {provider.uuid: provider.root_id for provider in tree_rows.read_named(tx, uuids)}
    trees: dict[int, list[TreeProvider]] = {}
    for provider in tree_rows.read_providers(tx, sorted(set(roots.values()))):
        trees.setdefault(provider.root_id, []).append(provider)
    tags = {root_id: Tree.of(root_id, providers).tag() for root_id, providers in trees.items()}
    return {uuid: tags[root_id] for uuid, root_id in roots.items()}


def put(
    store: Store,
    scene: Scene,
    root: str,
    *targets: ProviderWrite,
    absent: tuple[str, ...] = (),
    holdings: tuple[HoldingsWrite, ...] = (),
) -> None:
    """Write the tree of a role: as it was in the scene, or one that must not exist yet."""
    tag = scene.get(f"{root} tag")
    write = TreeWrite(
        scene[root],
        {target.uuid: target for target in targets},
        [scene[role] for role in absent],
        {holding.uuid: holding for holding in holdings},
        None if tag is None else {tag},
    )
    store.write(replacement.apply, write)


def target(
    scene: Scene,
    role: str,
    parent: str | None,
    stock: dict[str, int] | None = None,
    *,
    generation: int | None = None,
    traits: frozenset[str] | None = None,
) -> ProviderWrite:
    return ProviderWrite(
        scene[role],
        f"name-{scene[role]}",
        None if parent is None else scene[parent],
        generation,
        None if stock is None else {name: InventoryRecord(total) for name, total in stock.items()},
        traits,
    )


def reshape_at_once(store: Store, scene: Scene) -> None:
    """Move the VCPUs of the host, with what ``old`` holds of them, to its left device."""
    amounts = {scene["left"]: {"VGPU": 1, "VCPU": 3}}
    put(
        store,
        scene,
        "host",
        target(scene, "host", None, {"DISK_GB": 10}),
        target(scene, "left", "host", {"VGPU": 2, "VCPU": 4}),
        holdings=(HoldingsWrite(scene["old"], amounts, 1),),
    )


def restock(store: Store, scene: Scene) -> None:
    put(store, scene, "host", target(scene, "host", None, {"VCPU": 8, "DISK_GB": 10}))


def end_right(store: Store, scene: Scene) -> None:
    put(store, scene, "host", absent=("right",))


def take_other(store: Store, scene: Scene) -> None:
    put(store, scene, "host", target(scene, "other", "right", generation=0))


def create_tree(store: Store, scene: Scene) -> None:
    put(store, scene, "child", target(scene, "child", None, {"VCPU": 2}))


def new_names(root: str) -> Action:
    """Use a class and a trait that are new, and the same whichever the tree."""

    def action(store: Store, scene: Scene) -> None:
        suffix = _suffix(scene)
        stock = {f"CUSTOM_{suffix}": 4}
        traits = frozenset({f"CUSTOM_A_{suffix}", f"CUSTOM_B_{suffix}"})
        role = "left" if root == "host" else "other"
        parent = "host" if root == "host" else None
        old_stock = {"VGPU": 2} if root == "host" else {"VCPU": 4}
        put(store, scene, root, target(scene, role, parent, {**old_stock, **stock}, traits=traits))

    return action


def _suffix(scene: Scene) -> str:
    """The end of the names that are new in a scene."""
    return scene["project"].replace("-", "").upper()


PAIRS: dict[str, tuple[Action, Action]] = {
    "two writes of one tree": (reshape_at_once, restock),
    "two first writes of one tree": (create_tree, create_tree),
    "a reshape at once and a claim": (reshape_at_once, claim("one", {"host": {"VCPU": 1}}, None)),
    "a reshape at once and a release": (reshape_at_once, release),
    "a reshape at once and a plain one": (reshape_at_once, reshape_to("right")),
    "the end of a provider and a claim of it": (
        end_right,
        claim("one", {"right": {"VGPU": 1}}, None),
    ),
    "the end of a provider and a new child of it": (end_right, add_child),
    "the end of a provider, twice": (end_right, delete_provider("right")),
    "a provider taken and claimed": (take_other, claim("one", {"other": {"VCPU": 1}}, None)),
    "two moves that would close a loop": (take_other, move("host", "other")),
    "new stock and plain traits": (restock, set_traits),
    "new names in two trees": (new_names("host"), new_names("other")),
}


@pytest.fixture(scope="module")
def reader(store: Store, module_database_url: str) -> Iterator[StoredTreeReader]:
    """Follows all the time, even while one of the two is stopped."""
    opened = Store.open(module_database_url, options=OPTIONS)
    feed = Feed(opened)
    feed.index()
    yield StoredTreeReader(opened, feed)
    opened.close()


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_two_at_once_leave_what_two_in_a_row_leave(
    sessions: Sessions, reader: StoredTreeReader, pair: tuple[Action, Action]
) -> None:
    def read_tags(scene: Scene) -> None:
        for role in ("host", "other"):
            reader.read(scene[role])

    def look_at_tags_too(store: Store, scene: Scene) -> object:
        roles = ("host", "other", "right", "child")
        tags = store.read(tags_of, [scene[role] for role in roles])
        for role in roles:
            tag = tags.get(scene[role])
            assert reader.tag(scene[role]) in (None, tag), f"an outdated tag of {role}"
        return str(look(store, scene)).replace(_suffix(scene), "NEW")

    check_both_orders(
        sessions, host_scene.scene, pair, look_at_tags_too, read_tags, complete=add_tags
    )


def test_nothing_is_wrong_after_all_of_this(sessions: Sessions) -> None:
    assert sessions.first.read(audit.audit) == []
