"""Announcements of wrong shape on a message bus: each is a line of the log, and nothing else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from compute_agent.daemon.bus_server import BusServer
from compute_agent.drift.instances import agents
from compute_agent.scheduler.bus.rpc import STATE_TOPIC, STATE_VERSION, StateEndpoint
from compute_agent.scheduler.fleet.announcements import Announcements

PATIENCE = 30
ROOT = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"
WRONG: dict[str, Any] = {
    "nothing": None,
    "text": "announcement",
    "a number": 5,
    "a list": [1],
    "without a host": {"nodes": [{"uuid": ROOT}]},
    "nodes that are a number": {"host": "h", "nodes": 5},
    "nodes that are text": {"host": "h", "nodes": "ab"},
    "a node that is a number": {"host": "h", "nodes": [5]},
    "a node that is a list": {"host": "h", "nodes": [["uuid", ROOT]]},
    "a node without a uuid": {"host": "h", "nodes": [{}]},
    "a second node that is wrong": {"host": "h", "nodes": [{"uuid": ROOT}, 5]},
}
WRONG_FOR_SCHEDULERS: dict[str, Any] = {
    "operations that are text": {"host": "h", "nodes": [{"uuid": ROOT, "io_ops": "many"}]},
    "operations without end": {"host": "h", "nodes": [{"uuid": ROOT, "io_ops": float("inf")}]},
    "operations beyond measure": {"host": "h", "nodes": [{"uuid": ROOT, "io_ops": 10**400}]},
    "instances beyond measure": {"host": "h", "nodes": [{"uuid": ROOT, "instances": 10**400}]},
    "instances that are a float": {"host": "h", "nodes": [{"uuid": ROOT, "instances": 1.5}]},
    "a version that is a list": {"host": "h", "service_version": [], "nodes": [{"uuid": ROOT}]},
    "a huge one": {"host": "h", "nodes": [{"uuid": ROOT, "io_ops": "x" * 1_000_000}]},
}


class AwaitedAnnouncements(Announcements):
    """Announcements, and an event for the last one of a test."""

    def __init__(self) -> None:
        super().__init__()
        self.last = threading.Event()

    def receive(self, state: Mapping[str, Any]) -> None:
        super().receive(state)
        self.last.set()


@pytest.fixture
def heard() -> AwaitedAnnouncements:
    return AwaitedAnnouncements()


@pytest.fixture
def server_and_bus(heard: AwaitedAnnouncements) -> Iterator[tuple[BusServer, Any]]:
    transport = message_bus.open_transport(
        agent_conf.new_config(default_config_files=[]), "fake://"
    )
    server = BusServer(transport, STATE_TOPIC, "here", [StateEndpoint(heard)])
    server.start()
    yield server, transport
    server.stop()
    transport.cleanup()


@pytest.fixture
def bus(server_and_bus: tuple[BusServer, Any]) -> Any:
    return server_and_bus[1]


def cast(bus: Any, method: str, **arguments: Any) -> None:
    import oslo_messaging

    target = oslo_messaging.Target(topic=STATE_TOPIC, version=STATE_VERSION, server="here")
    oslo_messaging.get_rpc_client(bus, target).cast({}, method, **arguments)


def test_a_scheduler_goes_on_with_the_next_and_keeps_nothing(
    server_and_bus: tuple[BusServer, Any],
    heard: AwaitedAnnouncements,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, bus = server_and_bus
    caplog.set_level(logging.WARNING)
    wrong = [*WRONG.values(), *WRONG_FOR_SCHEDULERS.values()]
    for state in wrong:
        cast(bus, "compute_state", state=state)
    cast(bus, "compute_state", state={"host": "h", "nodes": [{"uuid": OTHER}]})
    assert heard.last.wait(PATIENCE)
    assert server.stop(), "all is processed now"
    assert set(heard.all()) == {OTHER}
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(wrong)
    for line in lines:
        assert "An announcement is ignored" in line
        assert len(line) < 1000
    assert not [record for record in caplog.records if record.exc_info]


def test_a_scheduler_goes_on_after_calls_that_do_not_exist(
    bus: Any, heard: AwaitedAnnouncements
) -> None:
    cast(bus, "compute_state")
    cast(bus, "compute_state", state={}, more=1)
    cast(bus, "no_such_method", state={})
    cast(bus, "_announcements")
    cast(bus, "compute_state", state={"host": "h", "nodes": [{"uuid": OTHER}]})
    assert heard.last.wait(PATIENCE)
    assert set(heard.all()) == {OTHER}


@pytest.mark.parametrize("state", WRONG.values(), ids=WRONG)
def test_a_tool_that_listens_goes_on(state: Any, caplog: pytest.LogCaptureFixture) -> None:
    heard = agents._AnnouncementCollector()
    agents._AnnouncementEndpoint(heard, None).compute_state({}, state)
    assert "An announcement is ignored" in caplog.text
    assert heard._nodes == {}
