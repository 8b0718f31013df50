"""Life of a scheduler that serves: ready, reloaded, watched, dumped, stopped.

It is ready once placement and the message bus have answered or are known to be away; the line of
`systemctl status` has which. The watchdog is notified while calls move on or there is none: a
call that ended, or placement that answered, is progress, and the passing of time is not.
"""

from __future__ import annotations

import gc
import logging
import signal
import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from compute_agent.daemon import message_bus, reload, signals, state_dump
from compute_agent.daemon.trouble import dated, moment_text
from compute_agent.errors import (
    ComputeAgentError,
    InvalidConfiguration,
    PlacementError,
    PlacementUnavailable,
)
from compute_agent.placement.transports.transport import Transport
from compute_agent.programs.systemd import ServiceManager
from compute_agent.scheduler import assembly
from compute_agent.scheduler.bus.rpc import TOPIC, SchedulerService
from compute_agent.scheduler.claiming.journal import JournalUnusable
from compute_agent.scheduler.service.metrics import Calls, WatchedTransport

if TYPE_CHECKING:
    from oslo_config import cfg

LOG = logging.getLogger(__name__)

BUS_SECONDS = 10.0
"""How long the start waits for the message bus before it counts as away."""
UPKEEP_SECONDS = 10.0
YOUNG = 50_000
"""New containers after which the collector walks the young ones.

An answer about candidates is hundreds of thousands of objects, none of them in a cycle. With
Python's defaults a quarter of the time of such a request went into walking them again and again.
"""
IDLE_POLL_SECONDS = 0.05
STOP_SECONDS = 50.0
"""How long calls in progress may take after the scheduler was asked to stop."""

PLACEMENT_ANSWERS = "placement answers"
PLACEMENT_AWAY = "placement cannot be reached, requests are refused"


class SchedulerLife:
    """One process that serves.

    :param placement: how requests reach placement.
    :param calls: takes in what is to be known of its work.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        placement: Transport,
        manager: ServiceManager | None = None,
        calls: Calls | None = None,
    ) -> None:
        self._conf = conf
        self._manager = manager or ServiceManager()
        self._calls = calls or Calls()
        self._placement = WatchedTransport(placement, self._calls.record_progress)
        self._stopping = threading.Event()
        self._bus_settled = threading.Event()
        self._serving = threading.Event()
        self._is_ready = threading.Event()
        self._failure: Exception | None = None
        self._placement_state = PLACEMENT_ANSWERS
        self._placement_cause = ""
        self._bus_up = False
        self._journal_trouble = ""

    def run(self) -> int:
        """Answer on the bus until SIGTERM or SIGINT; return the exit status.

        On SIGHUP the configuration and the aggregates are read again, on SIGUSR2 the state is
        written to stderr.

        :raises InvalidConfiguration: there is no bus, or an option cannot be used.
        :raises PlacementError: placement refuses this scheduler. One that cannot be reached is
            waited for: requests are answered with an error that can be retried.
        """
        bus = message_bus.open_transport(self._conf)
        if not check_placement(self._conf, self._placement):
            self._placement_state = PLACEMENT_AWAY
        self._service = SchedulerService(
            self._conf, bus, self._placement, self._conf.DEFAULT.host, self._calls
        )
        handlers = {
            signal.SIGTERM: self._asked_to_stop,
            signal.SIGINT: self._asked_to_stop,
            signal.SIGHUP: self._reload,
            signal.SIGUSR2: self._dump_state,
        }
        bound = signals.bounded_stop(self._stopping, STOP_SECONDS, self._abandon)
        with signals.handle(handlers), bound:
            for work in (self._join_the_bus, self._upkeep, self._watchdog):
                threading.Thread(target=work, name=work.__name__.strip("_"), daemon=True).start()
            if not self._bus_settled.wait(BUS_SECONDS):
                LOG.warning(
                    "The message bus did not answer within %.0f s and is waited for: check "
                    "[DEFAULT]transport_url and the broker",
                    BUS_SECONDS,
                )
            gc.collect()
            gc.freeze()
            gc.set_threshold(YOUNG)
            if not self._stopping.is_set():
                self._manager.ready(self._status())
                self._is_ready.set()
            self._stopping.wait()
            self._stop_serving()
        if self._failure is not None:
            raise self._failure
        return 0

    def stop(self) -> None:
        """End: calls in progress are answered first."""
        self._manager.stopping()
        self._stopping.set()
        self._bus_settled.set()

    # -- work beside the calls -------------------------------------------------------------------

    def _join_the_bus(self) -> None:
        try:
            self._service.start()
        except Exception as error:
            # for the main thread, which ends the process with the status of this error
            LOG.debug("The message bus cannot be joined", exc_info=True)
            why = str(error).rstrip(".")
            self._failure = InvalidConfiguration(
                f"The message bus refuses this scheduler: {why}. Check the user, the password and "
                "the virtual host in [DEFAULT]transport_url."
            )
            self._failure.__cause__ = error
            self.stop()
            return
        self._bus_up = True
        self._serving.set()
        LOG.info("Serving topic %s as %s", TOPIC, self._conf.DEFAULT.host)
        self._manager.status(self._status())
        self._bus_settled.set()

    def _upkeep(self) -> None:
        # else the metrics show a bus that is away until the second time
        self._bus_settled.wait(BUS_SECONDS)
        while True:
            try:
                self._keep_up()
            except Exception as error:
                # whatever it is: without the thread, status and metrics would stay as they are
                LOG.warning(
                    "Journals, aggregates and announcements are checked again in %.0f s: %s",
                    UPKEEP_SECONDS,
                    error,
                    exc_info=not isinstance(error, ComputeAgentError),
                )
            # what is in cycles stays until now
            gc.collect()
            if self._stopping.wait(UPKEEP_SECONDS):
                return

    def _keep_up(self) -> None:
        (state, cause), shown_status = self._placement_now(), self._status()
        self._placement_state, self._placement_cause = state, cause
        if self._serving.is_set():  # else the thread that joins it says so, perhaps just now
            self._bus_up = self._service.reaches_itself()
        self._journal_trouble = self._journal_now()
        if (status := self._status()) != shown_status:
            is_well = self._bus_up and state == PLACEMENT_ANSWERS and not self._journal_trouble
            level = logging.INFO if is_well else logging.WARNING
            LOG.log(level, "State of the scheduler: %s", ". ".join((status, *self._causes())))
            self._manager.status(status)
        answers = state == PLACEMENT_ANSWERS
        ages = self._announcement_ages(only_existing=answers)
        self._calls.on_upkeep(
            placement_up=answers, bus_up=self._bus_up, oldest_announcement=max(ages, default=0.0)
        )
        if answers:
            self._service.endpoint.parts.recover()

    def _announcement_ages(self, *, only_existing: bool) -> list[float]:
        """Return the seconds since each host was last heard.

        :param only_existing: leave out hosts that placement no longer has.
        """
        announcements = self._service.announcements
        by_root = announcements.all()
        existing_roots: Collection[str] = by_root
        if only_existing:
            existing_roots = self._service.endpoint.parts.client.provider_names(tuple(by_root))
        return [announcements.age(last) for root, last in by_root.items() if root in existing_roots]

    def _causes(self) -> list[str]:
        """Return why placement and the bus cannot be used, or what to look at."""
        causes = [self._placement_cause] if self._placement_cause else []
        if self._serving.is_set() and not self._bus_up:
            causes.append("Check [DEFAULT]transport_url, and that its broker runs")
        return causes

    def _placement_now(self) -> tuple[str, str]:
        """Return how placement answers, and why it cannot be reached."""
        try:
            self._service.endpoint.parts.client.connect()
        except PlacementUnavailable as error:
            return PLACEMENT_AWAY, str(error).rstrip(".")
        except PlacementError as error:
            return f"placement refuses this scheduler: {error}", ""
        return PLACEMENT_ANSWERS, ""

    def _journal_now(self) -> str:
        try:
            self._service.endpoint.parts.journal.check()
        except JournalUnusable as error:
            return f"; {str(error).rstrip('.')}"
        return ""

    def _watchdog(self) -> None:
        watchdog_seconds = self._manager.watchdog_seconds
        if watchdog_seconds is None:
            return
        while not self._stopping.wait(watchdog_seconds / 3.0):
            if self._calls.move_on():
                self._manager.watchdog()

    # -- what is asked for by signals ------------------------------------------------------------

    def _reload(self) -> None:
        # the end of a reload would be taken for that of the start
        self._is_ready.wait()
        self._manager.reloading()
        endpoint = self._service.endpoint
        endpoint.reload_trouble = trouble = reload.reload(self._conf, endpoint.renew)
        if trouble is None:
            LOG.info("Reloaded configuration and aggregates.")
        self._calls.on_reload(succeeded=trouble is None)
        self._manager.ready(self._status())

    def _dump_state(self) -> None:
        state_dump.write("compute-scheduler", self._document(), {}, self._conf)

    def _document(self) -> dict[str, Any]:
        ages = self._announcement_ages(only_existing=False)
        trouble = self._service.endpoint.reload_trouble
        return {
            "host": self._conf.DEFAULT.host,
            "serving": self._serving.is_set(),
            "bus_up": self._bus_up,
            "placement": self._placement_state,
            "causes": self._causes(),
            "reload": trouble and dated(trouble),
            "calls": self._calls.in_progress(),
            "announcements": {"hosts": len(ages), "oldest_seconds": round(max(ages, default=0.0))},
            "journal": self._service.endpoint.parts.journal.entries(),
        }

    def _asked_to_stop(self) -> None:
        if self._stopping.is_set():
            LOG.warning("Asked to stop a second time: calls in progress are abandoned")
            signals.exit_at_once(0)
        self.stop()

    def _stop_serving(self) -> None:
        if not self._serving.is_set():
            # the library waits for the broker in a thread that only the end of the process ends
            LOG.info("Stopping; the message bus was never reached")
            return
        LOG.info("Stopping: requests that are being answered are finished first")
        if not self._service.stop():
            # no answer arrives any more, but what was begun is finished
            while self._calls.in_progress():
                time.sleep(IDLE_POLL_SECONDS)

    def _abandon(self) -> None:
        LOG.warning(
            "Calls in progress did not end within %.0f s and are abandoned; what they began is "
            "finished or undone from the journal",
            STOP_SECONDS,
        )
        signals.exit_at_once(0)

    def _status(self) -> str:
        if not self._serving.is_set():
            bus = "waiting for the message bus"
        elif not self._bus_up:
            bus = "the message bus cannot be reached"
        else:
            bus = f"serving topic {TOPIC}"
        status = f"{bus}; {self._placement_state}{self._journal_trouble}"
        if trouble := self._service.endpoint.reload_trouble:
            status += f"; not reloaded at {moment_text(trouble.since)}"
        return status


def check_placement(conf: cfg.ConfigOpts, placement: Transport) -> bool:
    """Find out before anything is served whether it can be; return whether placement answers.

    :raises InvalidConfiguration: an option cannot be used.
    :raises PlacementError: placement refuses this scheduler.
    """
    try:
        assembly.parts_of(conf, placement).client.connect()
    except PlacementUnavailable as error:
        LOG.warning(
            "Placement cannot be reached; requests are refused until it can: %s", str(error)
        )
        return False
    return True
