"""Roots of hosts by layout, which a scheduler follows where placement has a feed of changes."""

from __future__ import annotations

import pytest

from compute_agent import errors
from compute_agent.placement import changes
from compute_agent.placement.changes import ChangeFeed, Changes
from compute_agent.scheduler.fleet import followed_roots
from compute_agent.scheduler.fleet.followed_roots import FollowedRoots, Layout
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.testing.transports import RecordingTransport
from tests.fixtures.allocations import new_uuid
from tests.functional.scheduler.moving import World


@pytest.fixture
def recorded(world: World) -> RecordingTransport:
    return RecordingTransport(world.transport)


def listed(world: World) -> followed_roots.Roots:
    """What a client finds that follows nothing."""
    return PlacementClient(world.transport, use_extensions=False).roots_by_layout()


def test_only_trees_that_changed_are_read_again(world: World, recorded: RecordingTransport) -> None:
    client = PlacementClient(recorded)
    flat = world.provider("flat", {"VCPU": 4}, "COMPUTE_NODE")
    nested = world.provider("nested", {}, "COMPUTE_NODE")
    assert client.roots_by_layout() == listed(world)

    recorded.clear()
    world.provider("cell", {"VCPU": 4}, "HW_NUMA_ROOT", parent="nested")
    new = world.provider("new", {"VCPU": 4}, "COMPUTE_NODE")
    world.provider("pool", {"DISK_GB": 4})
    hosts, with_cells = client.roots_by_layout()
    assert (hosts, with_cells) == listed(world)
    assert {flat, nested, new} <= hosts
    assert nested in with_cells
    assert not any("required=" in path for path in recorded.requests), "nothing is listed"

    recorded.clear()
    world.claim(new_uuid(), {flat: {"VCPU": 1}})
    assert client.roots_by_layout() == (hosts, with_cells)
    assert len(recorded.requests) == 1, "a claim is none of its business"

    world.call("DELETE", f"/resource_providers/{new}")
    assert client.roots_by_layout() == listed(world) == (hosts - {new}, with_cells)


def test_when_many_trees_changed_all_are_listed(
    world: World, recorded: RecordingTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_roots, "MOST_READ", 1)
    client = PlacementClient(recorded)
    client.roots_by_layout()
    recorded.clear()
    for name in "ab":
        world.provider(name, {"VCPU": 4}, "COMPUTE_NODE")
    assert client.roots_by_layout() == listed(world)
    assert not any("provider_trees" in path for path in recorded.requests)


def test_when_one_answer_does_not_list_all_changes_all_trees_are_listed(
    world: World, recorded: RecordingTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MOST_LISTED", 2)
    client = PlacementClient(recorded)
    client.roots_by_layout()
    for name in ("again", "and again", "new"):
        world.provider(name, {"VCPU": 4}, "COMPUTE_NODE")
    assert client.roots_by_layout() == listed(world)


class Feed(ChangeFeed):
    """A feed that fails when it is asked for what comes behind an id."""

    def __init__(self, *failures: errors.PlacementError | None) -> None:
        self.failures = list(failures)

    def structure(self, after: int | None, roots: object, wait: int) -> Changes:
        failure = self.failures.pop(0) if after is not None else None
        if failure is not None:
            raise failure
        return Changes(frozenset(), 7)


@pytest.mark.parametrize(
    "failure",
    [errors.ChangesPruned("gone"), errors.ChangesNotOffered("no"), errors.PlacementTooOld("no")],
)
def test_where_the_feed_ends_all_are_listed_and_it_is_tried_again(
    failure: errors.PlacementError,
) -> None:
    lists: list[int] = []

    def listing() -> followed_roots.Roots:
        lists.append(1)
        return frozenset({str(len(lists))}), frozenset()

    roots = FollowedRoots(Feed(failure, None), listing, lambda _root: Layout.FLAT)
    assert [min(roots.current()[0]) for _ in range(4)] == ["1", "2", "3", "3"]
