"""A tag that is read beside two writers of a tree is never that of an older one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.tree_reader import StoredTreeReader
from placement_server.store.errors import ProviderNotFound
from placement_server.store.providers import tree_rows
from placement_server.store.store import Store
from tests.integration.store.conftest import OPTIONS
from tests.integration.store.host_scene import (
    add_child,
    delete_provider,
    drop_disk,
    look,
    move,
    release,
    reshape_to,
    scene,
    set_step,
    set_traits,
)
from tests.integration.store.interleaving import Action, Scene, Sessions, check_both_orders

ROLES = ("host", "other", "right", "child")
PAIRS: dict[str, tuple[Action, Action]] = {
    "a reshape and a release": (reshape_to("left"), release),
    "a reshape and new traits": (reshape_to("left"), set_traits),
    "a reshape and a move": (reshape_to("left"), move("right", "other")),
    "new traits and a new step size": (set_traits, set_step),
    "the end of an inventory and new traits": (drop_disk, set_traits),
    "the end of a provider and a new child of it": (delete_provider("right"), add_child),
    "two moves that would close a loop": (move("host", "other"), move("other", "host")),
}


@pytest.fixture(scope="module")
def reader(store: Store, module_database_url: str) -> Iterator[StoredTreeReader]:
    """Follows all the time, even while one of the two is stopped."""
    opened = Store.open(module_database_url, options=OPTIONS)
    follower = IndexFollower(opened)
    follower.index()
    yield StoredTreeReader(opened, follower)
    opened.close()


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_no_tag_is_outdated(
    sessions: Sessions, reader: StoredTreeReader, pair: tuple[Action, Action]
) -> None:
    def read_tags(scene: Scene) -> None:
        for role in ("host", "other"):
            reader.read(scene[role])

    def look_at_tags_too(store: Store, scene: Scene) -> object:
        for role in ROLES:
            try:
                tag = store.read(tree_rows.read, scene[role]).tag
            except ProviderNotFound:
                tag = None
            assert reader.tag(scene[role]) in (None, tag), f"an outdated tag of {role}"
        return look(store, scene)

    check_both_orders(sessions, scene, pair, look_at_tags_too, read_tags)
