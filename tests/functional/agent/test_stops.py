"""Stops of an agent whose driver raises, or does not return; in this process."""

from __future__ import annotations

import json
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compute_agent.agent import agent as agent_module
from compute_agent.agent.agent import Agent
from compute_agent.agent.commands import AgentCommands
from compute_agent.daemon import signals
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.tracker.decisions import ExitCode
from compute_agent.tracker.pass_attempt import PassResult
from tests.functional.agent.in_process import assembled

PATIENCE = 30.0


class StopScene:
    """One agent, with a pass that does not end until it is told to."""

    def __init__(self, app: Any, directory: Path) -> None:
        conf, self.parts = assembled(
            directory,
            InProcessTransport(app),
            "periodic_fuzzy_delay = 0\ntransport_url = fake://\n"
            "compute_driver = tests.functional.agent.scripted_driver.ScriptedDriver\n"
            "[compute_agent]\nmetrics_bind = 127.0.0.1:0\n",
        )
        self.driver: Any = self.parts.driver
        self.agent = Agent(conf, self.parts)
        self.pass_may_end = threading.Event()
        self.lay_out = self.driver.update_provider_tree
        self.driver.update_provider_tree = self._asked_in_a_pass

    def _asked_in_a_pass(self, *arguments: Any) -> None:
        self.lay_out(*arguments)
        os.kill(os.getpid(), signal.SIGTERM)
        assert self.pass_may_end.wait(PATIENCE), "the pass was not abandoned"


@pytest.fixture
def scene(app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StopScene]:
    script_path = tmp_path / "script.json"
    script_path.write_text(json.dumps({"nodes": [f"host-{uuid.uuid4().hex[:8]}"]}))
    monkeypatch.setenv("SCRIPTED_DRIVER", str(script_path))
    # the end of a process, which these tests share
    monkeypatch.setattr(agent_module, "GRACE", threading.TIMEOUT_MAX)
    scene = StopScene(app, tmp_path)
    yield scene
    scene.parts.close()


def raise_error() -> None:
    raise RuntimeError("the driver cannot give up")


@pytest.mark.parametrize("fault", ["raises", "does not return"])
def test_a_stop_is_bounded_whatever_the_driver_does_when_it_is_asked_to_give_up(
    scene: StopScene, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    abandoned: list[int] = []

    def abandon(code: int) -> None:
        abandoned.append(code)
        scene.pass_may_end.set()

    faults: dict[str, Callable[[], object]] = {
        "raises": raise_error,
        "does not return": scene.pass_may_end.wait,
    }
    monkeypatch.setattr(agent_module, "GRACE", 0.01)
    monkeypatch.setattr(signals, "exit_at_once", abandon)
    scene.driver.stop_waiting = faults[fault]
    assert scene.agent.run() == 0
    assert abandoned == [0]


def test_only_the_second_request_to_stop_abandons_a_pass_also_after_a_fatal_one(
    scene: StopScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned: list[int] = []
    abandoned_at: list[int] = []

    def receive_stop() -> None:
        asked_to_stop()
        abandoned_at.append(len(abandoned))
        asked_to_stop()
        scene.pass_may_end.set()

    def end_fatally(*arguments: Any) -> None:
        scene.agent._fatal(PassResult(False, 0.0, exit_code=ExitCode.RESHAPE_FAILED))
        lay_out(*arguments)

    asked_to_stop, lay_out = scene.agent._asked_to_stop, scene.driver.update_provider_tree
    monkeypatch.setattr(signals, "exit_at_once", abandoned.append)
    monkeypatch.setattr(scene.agent, "_asked_to_stop", receive_stop)
    scene.driver.update_provider_tree = end_fatally
    assert scene.agent.run() == int(ExitCode.RESHAPE_FAILED)
    assert (abandoned_at, abandoned) == ([0], [int(ExitCode.RESHAPE_FAILED)])


def test_a_driver_that_cannot_let_go_does_not_change_the_status_of_the_end(
    scene: StopScene, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_host: str) -> None:
        scene.driver.cleanup_host = let_go
        raise_error()

    let_go, scene.driver.cleanup_host = scene.driver.cleanup_host, fail
    scene.pass_may_end.set()
    assert scene.agent.run() == 0
    assert "the driver cannot give up" in caplog.text


def test_a_stop_without_a_free_thread_ends_well_and_leaves_no_socket(
    scene: StopScene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def announce(commands: AgentCommands, sequence: int) -> dict[str, Any]:
        """Announce the agent, which is on the bus and was reported by then, and end it."""
        state = announcement(commands, sequence)
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        os.kill(os.getpid(), signal.SIGTERM)
        return state

    announcement = AgentCommands.announcement
    monkeypatch.setattr(AgentCommands, "announcement", announce)
    scene.driver.update_provider_tree = scene.lay_out
    assert scene.agent.run() == 0
    assert scene.parts.socket_path is not None
    assert not scene.parts.socket_path.exists()
    ours = [record for record in caplog.records if record.name.startswith("compute_agent")]
    assert [record.message for record in ours if record.exc_info] == []
