"""The wall clocks of an agent and a scheduler are set while both are on a bus."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from tests.fixtures import clocks, programs
from tests.fixtures.clocks import Clock
from tests.functional.agent.processes import AgentProcess, PlacementProcess, eventually
from tests.functional.scheduler.conftest import write_config

pytestmark = [
    pytest.mark.waiting,
    pytest.mark.skipif(clocks.missing() is not None, reason=str(clocks.missing())),
]

DAY = 24 * 3600
SPEC = {"project_id": "p", "user_id": "u", "flavor": {"vcpus": 1, "memory_mb": 64}}


@pytest.mark.parametrize("before", [60, 365 * DAY, -60, -365 * DAY])
def test_calls_and_announcements_go_on_when_the_clock_is_set_right(
    tmp_path: Path, bus_url: str, before: int
) -> None:
    placement = PlacementProcess(tmp_path)
    placement.start()
    clock = Clock(tmp_path / "clock")
    clock.set(before)
    node = f"host-{uuid.uuid4().hex[:8]}"
    (tmp_path / "agent").mkdir()
    agent = AgentProcess(
        tmp_path / "agent",
        placement.url,
        DEFAULT={"transport_url": bus_url, "host": node, "report_interval": 1},
    )
    agent.script(nodes=[node], inventory={"VCPU": {"total": 8}, "MEMORY_MB": {"total": 4096}})
    config = write_config(tmp_path / "scheduler.conf", placement.url)
    config.write_text(
        config.read_text().replace("[DEFAULT]\n", f"[DEFAULT]\ntransport_url = {bus_url}\n")
    )
    log = tmp_path / "scheduler.log"
    transport = message_bus.open_transport(agent_conf.new_config([f"--config-file={config}"]))
    import oslo_messaging

    scheduler_target = oslo_messaging.Target(topic="scheduler", version="4.5")
    scheduler = oslo_messaging.get_rpc_client(transport, scheduler_target, timeout=20, retry=1)
    agent_target = oslo_messaging.Target(topic="compute-agent", server=node, version="1.0")
    of_host = oslo_messaging.get_rpc_client(transport, agent_target, timeout=20, retry=1)

    def announcement() -> dict[str, Any] | None:
        hosts = scheduler.call({}, "announced_hosts")["hosts"]
        return next((entry for entry in hosts if entry["host"] == node), None)

    with log.open("wb") as output:
        process = programs.start(
            "compute-scheduler",
            *("--config-file", str(config), "serve"),
            output=output,
            environment={**os.environ, "PRELOADED": "no", **clock.environment},
        )
    agent.start(PRELOADED="no", **clock.environment)
    try:
        agent.started()
        eventually(lambda: "Serving topic scheduler" in log.read_text(), "a scheduler")
        eventually(announcement, "an announcement")
        clock.set(0)
        claim = scheduler.call({}, "claim", spec_obj=SPEC, instance_uuid=str(uuid.uuid4()))
        assert claim["host"] == node
        assert of_host.call({}, "ping") == "pong"
        assert of_host.call({}, "report_now", node=node, wait=True)["nodes"][0]["name"] == node
        of_host.call({}, "set_host_enabled", enabled=False, reason="clock")
        eventually(
            lambda: (heard := announcement()) and not heard["enabled"], "announcements go on"
        )
        assert "Traceback" not in agent.logged() + log.read_text()
        process.terminate()
        assert process.wait(60) == 0
        assert agent.stop() == 0
    finally:
        agent.cleanup()
        process.kill()
        process.wait()
        transport.cleanup()
        placement.kill()
