"""What a running scheduler says of a fleet in the middle of an upgrade, for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from compute_agent import bus as message_bus
from compute_agent.scheduler.errors import NoSchedulerAnswers

if TYPE_CHECKING:
    from oslo_config import cfg

TIMEOUT = 30.0


def status_on_bus(conf: cfg.ConfigOpts, timeout: float = TIMEOUT) -> dict[str, Any]:
    """Return `Fleet.status` of a running scheduler.

    :raises InvalidConfiguration: there is no bus.
    :raises NoSchedulerAnswers: nobody answered in `timeout` seconds, or with a defect.
    """
    from compute_agent.scheduler.rpc import SchedulerClient

    message_bus.use_threads()
    import oslo_messaging

    bus = message_bus.open_transport(conf)
    try:
        cap = message_bus.version_cap(conf, "scheduler")
        status: dict[str, Any] = SchedulerClient(bus, timeout, cap).call("upgrade_status")
    except oslo_messaging.MessagingException as error:
        raise NoSchedulerAnswers(
            f"No scheduler answered on the message bus within {timeout:.0f} s ({error}): is "
            "compute-scheduler serve running on the same bus?"
        ) from error
    finally:
        bus.cleanup()
    return status


def print_status(status: Mapping[str, Any], out: TextIO | None = None) -> None:
    """Print a status line by line."""
    out = out or sys.stdout
    lowest = status["minimum_service_version"]
    heard = "no agent was heard of yet" if lowest == 0 else f"lowest service version {lowest}"
    out.write(f"Agents: {heard}\n")
    for one in status["behaviours"]:
        if one["in_force"]:
            out.write(f"in force   {one['name']}: {one['means']}\n")
            continue
        hosts = ", ".join(one["held_back_by"]) or "no agent has announced itself"
        out.write(f"held back  {one['name']}: {one['means']}; by {hosts}\n")
