"""Schedulers in this process, some of which record their requests or serve on a bus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Response
from compute_agent.scheduler import assembly
from compute_agent.scheduler.bus.rpc import SchedulerService
from compute_agent.scheduler.manager import Scheduler
from compute_agent.testing.transports import RecordingTransport

Before = Callable[[str, str, Any], Response | None]


def scheduler(config: Path, before: Before | None = None) -> tuple[Scheduler, RecordingTransport]:
    conf = agent_conf.new_config([f"--config-file={config}"])
    transport = RecordingTransport(KeystoneTransport.from_conf(conf), before=before)
    return assembly.parts_of(conf, transport).scheduler, transport


@contextmanager
def serving(config: Path, url: str | None = None) -> Iterator[tuple[SchedulerService, Any]]:
    """A scheduler that serves, and its bus: the one of the configuration, or of a URL."""
    conf = agent_conf.new_config([f"--config-file={config}"])
    bus = message_bus.open_transport(conf, url)
    service = SchedulerService(conf, bus, KeystoneTransport.from_conf(conf), "scheduler")
    service.start()
    try:
        yield service, bus
    finally:
        service.stop()
        bus.cleanup()


def claimed_by(method: str, path: str, body: Any) -> dict[str, Any]:
    """Return the allocations that a request claims; none of other requests."""
    return body["allocations"] if method == "PUT" and "/allocations/" in path else {}
