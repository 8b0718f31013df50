"""A scheduler on a message bus that lives in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.scheduler.assembly import parts_of
from compute_agent.scheduler.bus.rpc import SchedulerClient, SchedulerService
from compute_agent.scheduler.explanation import Explainer
from compute_agent.scheduler.placement.client import PlacementClient

_IN_MEMORY = "fake://"


class Bus(Struct, frozen=True):
    """What a caller needs: the scheduler over the bus, placement, and explanations."""

    scheduler: SchedulerClient
    placement: PlacementClient
    explainer: Explainer


@contextmanager
def scheduler_on_bus(config_file: Path) -> Iterator[Bus]:
    """Run a scheduler service on a bus in memory, and stop it at the end.

    :raises InvalidConfiguration: the file cannot be used.
    """
    conf = agent_conf.new_config([f"--config-file={config_file}"])
    transport = KeystoneTransport.from_conf(conf)
    bus = message_bus.open_transport(conf, _IN_MEMORY)
    service = SchedulerService(conf, bus, transport, conf.DEFAULT.host)
    service.start()
    try:
        explainer = parts_of(conf, transport, None, serving=False).explainer
        yield Bus(SchedulerClient(bus), PlacementClient(transport), explainer)
    finally:
        service.stop()
        bus.cleanup()
