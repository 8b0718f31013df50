"""An agent whose libvirt daemon hangs, ends or is not there yet goes on, and comes back by itself.

Passes come by events only: the period is an hour.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.libvirtd import Libvirtd, running_libvirtd
from tests.fixtures.ports import free_port
from tests.functional.agent.processes import AgentProcess, PlacementProcess, eventually, read_url

pytestmark = pytest.mark.waiting

pytest.importorskip(
    "libvirt",
    reason="libvirt-python is not installed (pip install '.[libvirt]')",
    exc_type=ImportError,
)

DISABLED = "COMPUTE_STATUS_DISABLED"
SOON = 30.0
"""Seconds: more than a stop takes, and far less than a pass may take (60)."""


@pytest.fixture
def daemon(libvirt_run_directory: Path, node: str) -> Iterator[Libvirtd]:
    """Run a libvirt daemon that can be paused, on a host that no other test has."""
    with running_libvirtd(libvirt_run_directory, hostname=node) as daemon:
        yield daemon


@pytest.fixture
def metrics_port() -> int:
    return free_port()


@pytest.fixture
def agent(
    placement: PlacementProcess,
    new_agent: Callable[..., AgentProcess],
    daemon: Libvirtd,
    metrics_port: int,
) -> AgentProcess:
    """Make an agent of that daemon."""
    return new_agent(
        placement.url,
        DEFAULT={
            "compute_driver": "libvirt.LibvirtDriver",
            "update_resources_interval": 3600,
        },
        libvirt={"connection_uri": daemon.uri, "virt_type": "qemu"},
        compute_agent={"metrics_bind": f"127.0.0.1:{metrics_port}"},
    )


@pytest.fixture
def reported(agent: AgentProcess) -> AgentProcess:
    """Start the agent and wait for its first pass."""
    agent.start()
    agent.started()
    return agent


@pytest.fixture
def impatient(agent: AgentProcess) -> AgentProcess:
    """Start the agent with a deadline of a second, and wait for its first pass."""
    agent.configure(compute_agent={"call_timeout": 1})
    agent.start()
    agent.started()
    return agent


def ask_for_a_pass(agent: AgentProcess) -> None:
    agent.ask("report", wait=False)


def hung_calls(agent: AgentProcess) -> list[dict[str, Any]]:
    status = eventually(agent.status, "an answer on the status socket")
    calls: list[dict[str, Any]] = status["hung_calls"]
    return calls


def trouble(agent: AgentProcess) -> dict[str, Any] | None:
    found: dict[str, Any] | None = agent.node()["trouble"]
    return found


def completed_passes(agent: AgentProcess) -> int:
    return int(eventually(agent.status, "the status")["totals"]["passes"]["completed"])


def is_disabled(placement: PlacementProcess, agent: AgentProcess) -> bool:
    """Whether schedulers see the node as disabled."""
    node = agent.node()
    traits = placement.get(f"/resource_providers/{node['uuid']}/traits")["traits"]
    return DISABLED in traits


def test_a_call_that_hangs_is_named_by_status_metrics_and_the_failed_pass(
    impatient: AgentProcess, daemon: Libvirtd, metrics_port: int
) -> None:
    daemon.pause()
    ask_for_a_pass(impatient)
    [call, *_] = eventually(lambda: hung_calls(impatient), "a call that hangs")
    assert call["source"] == f"libvirt at {daemon.uri}"
    assert call["since"].startswith("20")

    text = impatient.run("status")
    assert f"hangs      libvirt at {daemon.uri}: {call['call']}, since 20" in text.stdout
    metrics = read_url(f"http://127.0.0.1:{metrics_port}/metrics")
    assert "compute_agent_hung_calls 0.0" not in metrics
    assert f'call="{call["call"]}",source="libvirt at {daemon.uri}"' in metrics

    found = eventually(lambda: trouble(impatient), "a pass that failed")
    assert found["what"] == "the driver is not ready"
    # the one that the pass made, while another one may wait for the events of libvirt
    calls = hung_calls(impatient)
    assert any(f"{call['call']} has not returned since 20" in found["message"] for call in calls)


def test_commands_answer_while_a_call_hangs(impatient: AgentProcess, daemon: Libvirtd) -> None:
    daemon.pause()
    ask_for_a_pass(impatient)
    eventually(lambda: hung_calls(impatient), "a call that hangs")
    began = time.monotonic()
    assert impatient.report()["trouble"]["what"] == "the driver is not ready"
    assert impatient.ask("claims") == []
    assert impatient.run("status", "--json").returncode == 0
    for command in ("plan", "show"):
        asked = impatient.run(command)
        assert asked.returncode == 4
        assert "has not returned since" in asked.stderr
    assert time.monotonic() - began < 2 * SOON


def test_a_host_whose_hypervisor_hangs_is_disabled_until_it_answers(
    impatient: AgentProcess, daemon: Libvirtd, placement: PlacementProcess
) -> None:
    assert not is_disabled(placement, impatient)
    daemon.pause()
    ask_for_a_pass(impatient)
    eventually(lambda: is_disabled(placement, impatient), "disabled while it hangs")
    assert impatient.node()["disabled_reason"].startswith("AUTO: ")
    daemon.resume()
    eventually(lambda: not is_disabled(placement, impatient), "enabled when it answers again")
    # another one than that of the pass may have waited for the events of libvirt
    eventually(lambda: hung_calls(impatient) == [], "no call that hangs")
    assert trouble(impatient) is None


def test_an_agent_ends_in_its_normal_time_while_a_call_hangs(
    agent: AgentProcess, daemon: Libvirtd
) -> None:
    agent.configure(compute_agent={"call_timeout": 3600})
    agent.start()
    agent.started()
    daemon.pause()
    ask_for_a_pass(agent)
    eventually(lambda: hung_calls(agent), "a call that hangs")
    began = time.monotonic()
    assert agent.stop(signal.SIGTERM) == 0
    assert time.monotonic() - began < SOON


def test_a_daemon_that_is_gone_disables_the_host_and_its_return_enables_it(
    reported: AgentProcess, daemon: Libvirtd, placement: PlacementProcess
) -> None:
    daemon.kill()
    eventually(lambda: is_disabled(placement, reported), "disabled while libvirt is away")
    found = eventually(lambda: trouble(reported), "a pass that failed")
    assert "cannot connect to libvirt" in found["message"]
    daemon.start()
    eventually(lambda: not is_disabled(placement, reported), "enabled when libvirt is back")
    assert trouble(reported) is None


def test_a_daemon_that_is_restarted_is_found_again_without_disabling_the_host(
    reported: AgentProcess, daemon: Libvirtd
) -> None:
    before = completed_passes(reported)
    daemon.terminate()
    daemon.start()
    eventually(lambda: completed_passes(reported) > before, "a pass after the restart")
    eventually(lambda: trouble(reported) is None, "no trouble")
    assert "disabled" not in reported.logged()


def test_an_agent_started_before_its_hypervisor_reports_as_soon_as_it_is_there(
    agent: AgentProcess, daemon: Libvirtd, placement: PlacementProcess
) -> None:
    daemon.kill()
    agent.start()
    eventually(lambda: "cannot connect to libvirt" in agent.logged(), "a search that failed")
    status = eventually(agent.status, "an answer on the status socket")
    assert status["nodes"] == []
    assert status["trouble"]["what"] == "the driver is not ready"
    assert "cannot connect to libvirt" in status["trouble"]["message"]
    assert status["trouble"]["since"]
    asked = agent.run("report")
    assert asked.returncode == 4
    assert "the driver is not ready" in asked.stdout
    daemon.start()
    agent.started()
    assert agent.run("report").returncode == 0
    assert eventually(agent.status, "an answer")["trouble"] is None
    assert not is_disabled(placement, agent)
