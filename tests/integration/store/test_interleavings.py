"""Two or three writers at once leave what as many in a row would have left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.tree_reader import StoredTreeReader
from placement_server.store import audit
from placement_server.store.errors import ProviderNotFound
from placement_server.store.providers.tree import read_tree
from placement_server.store.store import Store
from tests.integration.candidates.follower_worker import content
from tests.integration.store.conftest import OPTIONS
from tests.integration.store.host_scene import (
    add_child,
    both,
    claim,
    claim_two,
    delete_provider,
    drop_disk,
    last_unit,
    look,
    migrate,
    move,
    release,
    reshape_inventory,
    reshape_to,
    scene,
    set_step,
    set_traits,
    shrink,
)
from tests.integration.store.interleaving import (
    Action,
    Scene,
    Sessions,
    check_both_orders,
    check_three,
)

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
    "a reshape and new traits": (reshape_to("left"), set_traits),
    "a reshape and a move": (reshape_to("left"), move("right", "other")),
    "a reshape of an inventory and a move of it": (reshape_inventory, move("right", "other")),
    "new traits and a new step size": (set_traits, set_step),
    "the end of an inventory and new traits": (drop_disk, set_traits),
    "a claim of two providers and the end of one": (both, delete_provider("right")),
    "a claim of two providers and a move of one": (both, move("right", "other")),
    "a claim of two providers and a move of their tree": (both, move("host", "other")),
}


ONE_VCPU = {"host": {"VCPU": 1}}
THREES: dict[str, tuple[Action, Action, Action]] = {
    "three claims for the last units": (
        claim("one", ONE_VCPU, None),
        claim("two", ONE_VCPU, None),
        claim("child", {"host": {"DISK_GB": 10}}, None),
    ),
    "two claims and a shrinking inventory": (
        claim("one", {"other": {"VCPU": 1}, **ONE_VCPU}, None),
        shrink(3),
        claim("two", ONE_VCPU, None),
    ),
    "a release, a claim that needs it, and one that does not": (
        release,
        claim("one", {"host": {"VCPU": 3}}, None),
        claim("two", {"other": {"VCPU": 1}, **ONE_VCPU}, None),
    ),
    "claims in opposite order and a shrinking inventory": (
        claim("one", {**ONE_VCPU, "other": {"VCPU": 1}}, None),
        claim("two", {"other": {"VCPU": 1}, **ONE_VCPU}, None),
        shrink(3),
    ),
    "a claim, the end of the provider, and a claim": (
        claim("one", {"other": {"VCPU": 1}}, None),
        delete_provider("other"),
        claim("two", {"other": {"VCPU": 4}}, None),
    ),
    "a claim, a reshape, and another reshape": (
        last_unit,
        reshape_to("left"),
        reshape_to("right"),
    ),
    "a reshape, a claim, and a shrinking inventory": (reshape_to("left"), last_unit, shrink(2)),
    "a move in the tree, a claim, and the end of where it goes": (
        move("right", "other"),
        claim("one", {"right": {"VGPU": 1}}, None),
        delete_provider("other"),
    ),
    "a migration, a resize of what migrates, and a claim": (
        migrate,
        claim("old", {"host": {"VCPU": 4}}, 1),
        claim("one", {"other": {"VCPU": 3}}, None),
    ),
    "a migration, a reshape, and the end of the consumer": (migrate, reshape_to("left"), release),
}


@pytest.fixture(scope="module")
def trees(module_database_url: str) -> Iterator[StoredTreeReader]:
    """Follows all the time, even while one of the two is stopped, and has it all at the end."""
    with closing(Store.open(module_database_url, options=OPTIONS)) as opened:
        followed = IndexFollower(opened)
        followed.index()
        yield StoredTreeReader(opened, followed)
        assert content(followed.index()) == content(IndexFollower(opened).index())


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_two_at_once_leave_what_two_in_a_row_leave(
    sessions: Sessions, trees: StoredTreeReader, pair: tuple[Action, Action]
) -> None:
    """And a tag that is read beside two writers of a tree is never that of an older one."""

    def read_trees(scene: Scene) -> None:
        for role in ("host", "other"):
            trees.read(scene[role])

    def look_at_tags_too(store: Store, scene: Scene) -> object:
        for role in ("host", "other", "right", "child"):
            try:
                tag = store.read(read_tree, scene[role]).tag
            except ProviderNotFound:
                tag = None
            assert trees.tag(scene[role]) in (None, tag), f"an outdated tag of {role}"
        return look(store, scene)

    check_both_orders(sessions, scene, pair, look_at_tags_too, read_trees)


@pytest.mark.parametrize("actions", THREES.values(), ids=THREES.keys())
def test_three_at_once_leave_what_three_in_a_row_leave(
    sessions: Sessions, actions: tuple[Action, Action, Action]
) -> None:
    check_three(sessions, scene, actions, look)
    assert sessions.first.read(audit.audit) == []


def test_nothing_is_wrong_after_all_of_this(sessions: Sessions) -> None:
    assert sessions.first.read(audit.audit) == []
