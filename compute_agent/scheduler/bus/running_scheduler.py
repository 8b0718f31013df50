"""Running schedulers as commands ask and tell them over the message bus, not being on it."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from compute_agent.daemon import message_bus
from compute_agent.daemon.bus_server import check_broker
from compute_agent.daemon.message_bus import fault_of
from compute_agent.scheduler.claiming.claims import RecentClaims
from compute_agent.scheduler.errors import NoSchedulerAnswers
from compute_agent.scheduler.fleet.announcements import Announcements, AskedAnnouncements

if TYPE_CHECKING:
    from oslo_config import cfg

LOG = logging.getLogger(__name__)

STATUS_TIMEOUT = 30.0
ANNOUNCEMENTS_TIMEOUT = 5.0
"""Seconds that a command waits to learn who is alive; without an answer it goes on."""
SEND_RETRIES = 2


class ClaimsOfSchedulers(RecentClaims):
    """Claims of a process that ends, which the schedulers that run are to remember."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__()
        self._conf = conf

    def record(self, consumers: Collection[str]) -> None:
        """Tell every scheduler that claims for these consumers begin now."""
        import oslo_messaging

        from compute_agent.scheduler.bus.rpc import STATE_TOPIC, STATE_VERSION

        bus = message_bus.open_transport(self._conf)
        target = oslo_messaging.Target(topic=STATE_TOPIC, version=STATE_VERSION, fanout=True)
        client = oslo_messaging.get_rpc_client(bus, target, retry=SEND_RETRIES)
        try:
            client.cast({}, "recent_claims", consumers=list(consumers))
        except oslo_messaging.MessagingException as error:
            LOG.warning(
                "No scheduler learned of the claim of %s (%s). Agents that heal take it for an "
                "orphan where its instance takes longer than their audit_grace.",
                *(", ".join(consumers), error),
            )
        finally:
            bus.cleanup()


def upgrade_status(conf: cfg.ConfigOpts) -> dict[str, Any]:
    """Return `Fleet.status` of a running scheduler.

    :raises InvalidConfiguration: there is no bus.
    :raises NoSchedulerAnswers: no scheduler answered in time, or it answered with an error.
    """
    status: dict[str, Any] = _ask_scheduler(conf, "upgrade_status", STATUS_TIMEOUT)
    return status


def announcements(conf: cfg.ConfigOpts) -> Announcements:
    """Return what a running scheduler has heard of all hosts; it is asked again from time to time.

    :raises InvalidConfiguration: there is no bus.
    :raises NoSchedulerAnswers: no scheduler answered in time, or it answered with an error; later
        a search may raise it.
    """
    asked_announcements = AskedAnnouncements(
        lambda: _ask_scheduler(conf, "announced_hosts", ANNOUNCEMENTS_TIMEOUT)["hosts"]
    )
    asked_announcements.refresh()
    return asked_announcements


def _ask_scheduler(conf: cfg.ConfigOpts, method: str, timeout: float) -> Any:
    message_bus.use_threads()
    import oslo_messaging

    from compute_agent.scheduler.bus.rpc import TOPIC, SchedulerClient

    bus = message_bus.open_transport(conf)
    try:
        check_broker(bus, TOPIC)
    except Exception as error:
        # a broker that refuses is an error of the driver's own library
        bus.cleanup()
        state, why = fault_of(error)
        raise NoSchedulerAnswers(
            f"No scheduler can be asked: the message bus is {state}: {why}. Check "
            "[DEFAULT]transport_url, and that its broker runs."
        ) from error
    try:
        cap = message_bus.version_cap(conf, "scheduler")
        return SchedulerClient(bus, timeout, cap, retry=SEND_RETRIES).call(method)
    except oslo_messaging.RemoteError as error:
        # its text has the traceback too
        raise NoSchedulerAnswers(
            f"A scheduler answered {method} with an error: {error.value}"
        ) from error
    except oslo_messaging.MessagingException as error:
        raise NoSchedulerAnswers(
            f"No scheduler answered {method} on the message bus within {timeout:.0f} s "
            f"({type(error).__name__}: {error}). Check that compute-scheduler serve runs on the "
            "same bus, in the same version."
        ) from error
    finally:
        bus.cleanup()
