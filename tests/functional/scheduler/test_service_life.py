"""The state of a scheduler that serves, where its threads meet."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path

import pytest

from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from compute_agent.errors import PlacementUnavailable
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.scheduler.bus.rpc import SchedulerService
from compute_agent.scheduler.service import life as life_module
from compute_agent.scheduler.service.life import SchedulerLife


def test_a_bus_that_is_joined_during_the_upkeep_is_not_reported_as_away(
    config: Path, placement: InProcessTransport
) -> None:
    conf = agent_conf.new_config([f"--config-file={config}"])
    bus = message_bus.open_transport(conf, "fake://")
    life = SchedulerLife(conf, placement)
    life._service = SchedulerService(conf, bus, placement, "scheduler")
    looks = count()

    class JoinedMeanwhile(threading.Event):
        def is_set(self) -> bool:
            was_set = super().is_set()
            # the first look is for the status of before
            if next(looks) == 1:
                life._join_the_bus()
            return was_set

    life._serving = JoinedMeanwhile()
    try:
        life._keep_up()
        assert life._serving.is_set()
        assert life._status() == "serving topic scheduler; placement answers"
    finally:
        life._service.stop()
        bus.cleanup()


def test_why_placement_cannot_be_reached_is_known_also_while_it_is_asked_again(
    config: Path, placement: InProcessTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = agent_conf.new_config([f"--config-file={config}"])
    bus = message_bus.open_transport(conf, "fake://")
    life = SchedulerLife(conf, placement)
    life._service = SchedulerService(conf, bus, placement, "scheduler")
    known: list[list[str]] = []

    def fail() -> None:
        known.append(life._causes())
        raise PlacementUnavailable("nothing listens there.")

    monkeypatch.setattr(life._service.endpoint.parts.client, "connect", fail)
    for _ in range(2):
        life._keep_up()
    assert known == [[], ["nothing listens there"]]
    bus.cleanup()


def test_a_defect_in_the_upkeep_is_logged_and_the_next_one_follows(
    config: Path,
    placement: InProcessTransport,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    life = SchedulerLife(agent_conf.new_config([f"--config-file={config}"]), placement)
    faults = iter([ValueError("a defect"), None])

    def keep_up() -> None:
        if (fault := next(faults)) is not None:
            raise fault
        life.stop()

    monkeypatch.setattr(life_module, "UPKEEP_SECONDS", 0.0)
    monkeypatch.setattr(life, "_keep_up", keep_up)
    life._bus_settled.set()
    life._upkeep()
    (record,) = caplog.records
    assert "a defect" in record.getMessage()
    assert record.exc_info
