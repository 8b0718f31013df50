"""Schedulers in this process, whose requests are recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from compute_agent import conf as agent_conf
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Response
from compute_agent.scheduler import assembly
from compute_agent.scheduler.manager import Scheduler
from compute_agent.testing.transports import RecordingTransport

Before = Callable[[str, str, Any], Response | None]


def scheduler(config: Path, before: Before | None = None) -> tuple[Scheduler, RecordingTransport]:
    conf = agent_conf.new_config([f"--config-file={config}"])
    transport = RecordingTransport(KeystoneTransport.from_conf(conf), before=before)
    return assembly.parts_of(conf, transport).scheduler, transport


def claimed_by(method: str, path: str, body: Any) -> dict[str, Any]:
    """Return the allocations that a request claims; none of other requests."""
    return body["allocations"] if method == "PUT" and "/allocations/" in path else {}
