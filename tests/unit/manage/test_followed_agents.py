"""Agents as a watch of the fleet knows them: up, silent since when, and unknown."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from compute_agent.cmd.manage.fleet import host_document, since_text
from compute_agent.cmd.manage.host_list import FollowedAgents
from compute_agent.manage import fleet
from compute_agent.manage.tree_reading import ProviderLines


class Bus:
    """Announcements that a test makes."""

    patience = 30.0

    def __init__(self) -> None:
        self.is_away = False
        self.announced: dict[str, tuple[float, Mapping[str, Any]]] = {}

    def last(self) -> dict[str, tuple[float, Mapping[str, Any]]]:
        return self.announced

    def is_bus_away(self) -> bool:
        return self.is_away


class Scene:
    """One host, and a clock that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0
        self.bus = Bus()
        self.agents = FollowedAgents(self.bus, lambda: self.now)  # type: ignore[arg-type]

    def hear(self) -> None:
        self.bus.announced["root"] = (self.now, {"uuid": "root", "service": "agent"})

    def host(self) -> fleet.FleetHost:
        return fleet.describe([ProviderLines("root", "host", None)], self.agents.look())


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_an_agent_that_was_not_heard_is_silent_after_a_while(scene: Scene) -> None:
    assert scene.host().agent == "unknown"
    scene.now += 31
    assert (scene.host().agent, scene.host().silent_since) == ("silent", None)
    scene.hear()
    assert scene.host().agent == "up"
    before = time.time()
    scene.now += 31
    silent = scene.host()
    assert silent.agent == "silent"
    assert silent.silent_since == pytest.approx(before - 31, abs=20)
    assert since_text(silent.agent, silent.silent_since).startswith("silent since ")
    assert str(host_document(silent)["silent_since"]).endswith("+00:00")


def test_nobody_is_taken_for_silent_while_the_bus_is_away(scene: Scene) -> None:
    scene.hear()
    scene.bus.is_away = True
    scene.now += 60
    assert scene.host().agent == "unknown"
    scene.bus.is_away = False
    scene.now += 1
    # it has had no time yet to announce itself
    assert scene.host().agent == "unknown"
    scene.now += 31
    assert scene.host().agent == "silent"
