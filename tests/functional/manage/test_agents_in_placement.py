"""Agents as placement-server hears of them: their bus, their reasons, and that they are dead."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from compute_agent.programs.exit_status import Exit
from tests.fixtures import programs
from tests.fixtures.ports import free_port
from tests.functional.agent.processes import (
    PATIENCE,
    AgentProcess,
    PlacementProcess,
    eventually,
    running,
)

pytestmark = pytest.mark.waiting

HOST = "host1"


def manage(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command about a host."""
    return programs.run(
        "compute-manage", "host", *arguments, f"--config-file={config}", timeout=PATIENCE
    )


def host_of(config: Path, name: str = HOST) -> dict[str, Any]:
    """Return a host as an operator's `host list` shows it."""
    ended = manage(config, "list", name, "--json")
    [host] = json.loads(ended.stdout)
    return dict(host)


def test_an_agent_whose_broker_is_away_is_up_with_its_bus_and_silent_once_it_is_dead(
    server: PlacementProcess, server_config: str, tmp_path: Path
) -> None:
    operator = Path(server_config.partition("=")[2])
    broker = f"rabbit://guest:guest@127.0.0.1:{free_port()}/"
    agent = AgentProcess(
        tmp_path, server.url, DEFAULT={"transport_url": broker, "report_interval": 1}
    )
    agent.script(nodes=[HOST], inventory={"VCPU": {"total": 2}})
    with running(agent):
        host = eventually(
            lambda: (host := host_of(operator))["bus"] == "unreachable" and host, "the bus"
        )
        assert host["agent"] == "up"
        assert host["bus_since"].endswith("+00:00")
        assert "start the broker" in host["trouble"][0]
        # the operator's own bus is the same, which is away: placement still knows the agent
        assert host_of(agent.config)["agent"] == "up"
        refused = manage(operator, "disable", HOST, "--reason", "fan")
        assert refused.returncode == Exit.REFUSED
        assert "`compute-agent disable --reason TEXT`" in refused.stderr
        assert "its message bus is unreachable" in refused.stderr
        # a look beforehand needs no agent, and says what the order would meet
        for command in ("disable", "drain"):
            looked = manage(operator, command, HOST, "--reason", "fan", "--dry-run")
            assert looked.returncode == Exit.WOULD_CHANGE
            assert "Without --dry-run this is refused" in looked.stderr
            assert "would be disabled" in looked.stdout
        assert "COMPUTE_STATUS_DISABLED" not in server.tree(HOST)[HOST]["traits"]
        # the broker of this one is away, too: one line says so, and no library
        lines = manage(agent.config, "drain", HOST).stderr.splitlines()
        assert [line.partition(" ")[0] for line in lines] == ["The", "compute-manage"]
        assert "message bus is unreachable" in lines[0]
        agent.ask("set_host_enabled", enabled=False, reason="fan")
        eventually(lambda: host_of(operator)["reason"] == "fan", "the reason")
    host = eventually(
        lambda: (host := host_of(operator))["agent"] == "silent" and host, "the dead agent"
    )
    assert (host["bus"], host["reason"]) == ("unknown", "fan")
    assert host["silent_since"] is not None
    enabled = manage(operator, "enable", HOST)
    assert enabled.returncode == 0, enabled.stderr
    assert "COMPUTE_STATUS_DISABLED" not in server.tree(HOST)[HOST]["traits"]


def test_a_broker_that_is_away_at_the_start_is_named_before_the_next_pass(
    server: PlacementProcess, server_config: str, tmp_path: Path
) -> None:
    broker = f"rabbit://guest:guest@127.0.0.1:{free_port()}/"
    agent = AgentProcess(
        tmp_path,
        server.url,
        DEFAULT={"transport_url": broker, "update_resources_interval": 600},
    )
    agent.script(nodes=["host2"], inventory={"VCPU": {"total": 2}})
    with running(agent):
        operator = Path(server_config.partition("=")[2])
        eventually(lambda: host_of(operator, "host2")["bus"] == "unreachable", "the bus")
