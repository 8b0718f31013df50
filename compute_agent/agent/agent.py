"""The life of the agent: the start, the loop of passes, and a clean end.

The loop runs the first passes as it runs all others. The agent is ready, and on the message bus,
once there was one of every node. A fatal event, at the start or later, sets the exit status and
ends the process. It is one process without a launcher: those of oslo.service start a dead agent
again inside themselves, or end with status 0, and the service manager would never hear of it.
"""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from compute_agent import errors
from compute_agent.agent.availability import Availability
from compute_agent.agent.commands import AgentCommands
from compute_agent.agent.local_socket import Command, LocalServer
from compute_agent.agent.node_list import NODE_LIST, NodeList
from compute_agent.agent.own_report import OwnReport
from compute_agent.agent.pass_loop import PassLoop
from compute_agent.daemon import reload, signals
from compute_agent.daemon.message_bus import BusState
from compute_agent.daemon.trouble import Trouble
from compute_agent.drift.audit import Drift
from compute_agent.drift.repair import DriftHealing
from compute_agent.programs.systemd import ServiceManager
from compute_agent.tracker.decisions import EventKind, ExitCode
from compute_agent.tracker.pass_attempt import PassResult
from compute_agent.tracker.pass_schedule import PassSchedule
from compute_agent.tracker.resource_tracker import ResourceTracker

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.agent.assembly import AgentParts
    from compute_agent.agent.rpc import RpcServer
    from compute_agent.drift.healing.remedies import Remedies
    from compute_agent.programs.metrics_server import MetricsServer

LOG = logging.getLogger(__name__)

GRACE: Final = 60.0
"""Seconds that a running pass may take after the agent was asked to stop."""


class Agent:
    """One running agent.

    :param parts: what it is put together from.
    :param remedies: opens what heals the drift that audits find; None: it is reported only.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        parts: AgentParts,
        *,
        rng: random.Random | None = None,
        remedies: Callable[[], AbstractContextManager[Remedies]] | None = None,
    ) -> None:
        self._conf = conf
        self._parts = parts
        self._manager = ServiceManager()
        self._rng = rng or random.Random()
        self._stop = threading.Event()
        self._reload = threading.Event()
        self._exit_code = ExitCode.ASKED_TO_STOP
        self._ready = False
        self._is_asked_to_stop = False
        self._schedule = PassSchedule(time.monotonic)
        self.tracker: ResourceTracker = parts.tracker(wait=self._stop.wait)
        self._claims = parts.claims(self.tracker)
        self._availability = Availability(
            parts.ledger,
            parts.report,
            parts.board,
            default_enabled=lambda: conf.enable_new_services,
            roots=lambda: self.tracker.nodes().values(),
            threshold=lambda: conf.compute.consecutive_build_service_disable_threshold,
        )
        self._nodes = NodeList(
            parts,
            self.tracker,
            self._schedule,
            parts.departures(),
            self._rng,
            on_first=self._watch_hardware,
        )
        self._loop = PassLoop(
            self._schedule,
            self._run_pass,
            before_each=self._before_each,
            on_fatal=self._fatal,
            notify_watchdog=self._manager.watchdog,
            watchdog_seconds=self._manager.watchdog_seconds,
            workers=conf.compute.update_resources_max_workers,
        )
        self._auditor = parts.auditor(self._claims)
        if remedies is not None:
            healing = DriftHealing(remedies, parts.wanted_healing, self._auditor.record_healed)
            self._auditor.on_drift = healing.take_over
            self._nodes.departures.on_holders = lambda node, root, holders: healing.take_over(
                node, root, Drift(orphans=holders)
            )
        parts.board.on_answer = self._manager.watchdog
        connection = parts.report.placement.connection
        parts.board.hung_calls = lambda: (*parts.driver.hung_calls(), *connection.hanging())
        self._follower = parts.follower(self.tracker, self._placement_changed)
        self._rpc: RpcServer | None = None
        self.commands = AgentCommands(
            conf,
            parts,
            self.tracker,
            self._schedule,
            self._loop.wake,
            book=self._claims,
            availability=self._availability,
        )
        parts.report.placement.trees.own_report = OwnReport(
            parts.setup.place, parts.board, parts.options, self.commands.cores
        )

    # --- life ---------------------------------------------------------------------------------

    def run(self) -> int:
        """Report, serve until asked to stop, and return the exit status."""
        handlers = {
            signal.SIGTERM: self._asked_to_stop,
            signal.SIGINT: self._asked_to_stop,
            signal.SIGHUP: self.request_reload,
            signal.SIGUSR2: self.commands.dump_state,
        }
        with signals.handle(handlers), signals.bounded_stop(self._stop, GRACE, self._abandon):
            surfaces = self._surfaces()
            try:
                self._open_bus()
                self._schedule_start()
                for surface in surfaces:
                    surface.start()
                self._serve()
            except errors.InvalidConfiguration as error:
                LOG.critical("%s", error)
                self._exit_code = ExitCode.CONFIGURATION
            finally:
                self._manager.stopping()
                for surface in surfaces:
                    surface.stop()
                self._let_go()
        return int(self._exit_code)

    def _surfaces(self) -> list[LocalServer | MetricsServer]:
        surfaces: list[LocalServer | MetricsServer] = []
        if self._parts.socket_path is not None:
            questions: dict[str, Command] = {
                "status": self.commands.status,
                "report": self.commands.report_now,
                "claims": self.commands.claims,
                "history": self._parts.board.history_document,
                "fit": self.commands.fit,
            }
            changes: dict[str, Command] = {
                "drop_claim": self.commands.drop_claim,
                "instance_claim": self.commands.instance_claim,
                "set_host_enabled": self.commands.set_host_enabled,
                "clear_fault": self.commands.clear_fault,
            }
            surfaces.append(
                LocalServer(self._parts.socket_path, questions | changes, changes=changes.keys())
            )
        bind = self._conf.compute_agent.metrics_bind
        if bind:
            from compute_agent.agent import metrics
            from compute_agent.programs.metrics_server import MetricsServer

            registry = metrics.registry(self._parts.board)
            option = "[compute_agent]metrics_bind"
            surfaces.append(MetricsServer(option, bind, registry, errors.InvalidConfiguration))
        return surfaces

    def _open_bus(self) -> None:
        """Check that there can be a bus; it is served once a node has been reported."""
        if self._conf.transport_url:
            from compute_agent.agent.rpc import RpcServer

            self._rpc = RpcServer(
                self._conf,
                self.commands,
                self._parts.setup.place,
                self._bus_is,
                lambda: self._pass_now("another agent reports this node"),
            )
            self._parts.node_pass.check_alone = self._rpc.namesakes.check_alone

    def _schedule_start(self) -> None:
        """Have the nodes searched for after a random delay; their first passes follow at once."""
        delay = self._rng.uniform(0.0, self._conf.periodic_fuzzy_delay)
        self._schedule.set_nodes([NODE_LIST], first_due=time.monotonic() + delay)
        if delay >= 1.0:
            LOG.info("The first pass begins in %.0f s ([DEFAULT]periodic_fuzzy_delay).", delay)
            self._manager.status(f"the first pass begins in {delay:.0f} s")
            self._parts.board.search_trouble = Trouble(
                "the first pass has not begun",
                f"It begins {delay:.0f} s after the start ([DEFAULT]periodic_fuzzy_delay).",
                time.time(),
                1,
            )

    def _serve(self) -> None:
        """Run the loop of passes until asked to stop."""
        self._loop.start()
        self._stop.wait()
        self._stop_waiting()
        self._loop.join()
        if self._rpc is not None:
            self._rpc.stop()

    def _watch_hardware(self) -> None:
        try:
            self._parts.driver.watch(lambda what: self._pass_now(f"event: {what}"))
        except Exception as error:
            LOG.warning(
                "The driver cannot report changes of the hardware, so only periodic passes find "
                "them: %s",
                error,
                exc_info=True,
            )

    def _pass_now(self, reason: str, node: str | None = None) -> None:
        self._schedule.trigger(reason, node)
        self._loop.wake()

    def _bus_is(self, state: BusState, why: str) -> None:
        was_waiting = self._parts.board.bus.state is BusState.WAITING
        self._parts.board.bus_is(state, why)
        if was_waiting and state in (BusState.REFUSED, BusState.UNREACHABLE):
            # placement was told of a bus that is waited for, and schedulers hear nothing
            self._pass_now(f"the message bus is {state}")

    def _placement_changed(self, node: str) -> None:
        self._parts.report.written_elsewhere(self.tracker.nodes().get(node, ""))
        self._pass_now("a change in placement", node)

    def _asked_to_stop(self) -> None:
        if self._is_asked_to_stop:
            LOG.warning("Asked to stop a second time: the running pass is abandoned.")
            signals.exit_at_once(int(self._exit_code))
        self._is_asked_to_stop = True
        LOG.info("Asked to stop; a running pass is finished first.")
        self._begin_stop()

    def _begin_stop(self) -> None:
        self._manager.stopping()
        self._stop.set()
        if self._follower is not None:
            self._follower.stop()
        self._loop.stop()

    def _stop_waiting(self) -> None:
        try:
            self._parts.driver.stop_waiting()
        except Exception:
            LOG.exception(
                "The driver cannot give up calls that hang. A pass that waits for one is abandoned "
                "%.0f s after the agent was asked to stop.",
                GRACE,
            )

    def _let_go(self) -> None:
        try:
            self._parts.setup.release()
        except Exception:
            LOG.exception("The driver did not let go of the hypervisor; the agent ends anyway.")

    def _abandon(self) -> None:
        LOG.warning(
            "The running pass did not end within %.0f s and is abandoned; what was written stays, "
            "and the next start goes on from there.",
            GRACE,
        )
        signals.exit_at_once(int(self._exit_code))

    def _fatal(self, result: PassResult) -> None:
        """Stop with the exit status of a pass after which the process must end."""
        if result.exit_code is not None and not self._stop.is_set():
            self._exit_code = result.exit_code
            self._begin_stop()

    # --- passes -------------------------------------------------------------------------------

    def _run_pass(self, node: str, reasons: frozenset[str] = frozenset()) -> PassResult:
        if node == NODE_LIST:
            result = self._nodes.find()
        else:
            result = self.tracker.run_pass(
                node, asked_for=bool(reasons), on_first=self._end_first_pass
            )
        self._manager.watchdog()
        self._follow_hypervisor(node, result)
        for file in self._parts.board.state_files:
            file.try_again()
        # one that got another uuid meanwhile is not reported under that yet
        if result.completed and node in self.tracker.started_nodes():
            uuid = self.tracker.nodes()[node]
            self._auditor.after_pass(node, uuid)
            if self._parts.shared_disk is not None:
                self._parts.shared_disk.after_pass(node, uuid, result.facts)
            self._look_for_builds()
        self._manager.status(self._parts.board.summary())
        return result

    def _end_first_pass(self, node: str) -> None:
        """Check what instances were given, and record that the node was reported.

        :raises AssignedResourceNotFound: some of it is not there any more.
        """
        self._claims.check_assigned(node)
        uuid = self.tracker.nodes().get(node)
        if uuid is not None:
            self._parts.setup.record_first_pass(uuid, node)

    def _follow_hypervisor(self, node: str, result: PassResult) -> None:
        """Record whether the hypervisor is away.

        A search for nodes shows that it is back if the driver has several, else a pass does.
        """
        is_search, has_several = node == NODE_LIST, self._parts.driver.several_nodes
        if result.kind is EventKind.DRIVER_NOT_READY and (is_search or not has_several):
            self._availability.hypervisor_is_away(result.message)
        elif result.completed and is_search == has_several:
            self._availability.hypervisor_is_back()

    def _look_for_builds(self) -> None:
        """Record builds that succeeded, where some have failed before."""
        if not self._availability.waits_for_a_build():
            return
        try:
            # where the driver cannot list them, no build is seen to succeed: the operator enables
            running_guests = frozenset(self._parts.driver.list_instance_uuids() or ())
        except Exception as error:
            LOG.warning(
                "Cannot see whether builds succeed again; the next pass looks again: %s",
                error,
                exc_info=True,
            )
            return
        if self._availability.has_built(self._claims.claims(), running_guests):
            self._availability.build_succeeded()

    def _before_each(self) -> None:
        """Between passes: end the start, reload if asked to, and open the bus when it is time."""
        if not self._ready:
            if not self._schedule.all_have_run():
                return
            self._end_start()
        if self._reload.is_set():
            self._reload.clear()
            self._reload_now()
        # A node that is never ready must not keep the others from being asked; orders for it are
        # refused until its first pass has completed.
        if self._rpc is not None and self.tracker.started_nodes():
            self._rpc.start()

    def _end_start(self) -> None:
        """Go over to periods: there was a first pass of every node, though not all completed."""
        if waiting := self.tracker.in_startup():
            LOG.info("The first pass of node %s is tried again.", ", ".join(waiting))
        elif self.tracker.nodes():
            LOG.info("The start is complete: %s.", self._parts.board.start_summary())
        if self._follower is not None:
            self._follower.start()
        self._tell_ready()

    def _tell_ready(self) -> None:
        self._ready = True
        self._manager.ready(self._parts.board.summary())

    # --- what others ask for --------------------------------------------------------------------

    def request_reload(self) -> None:
        """Reload between two passes. A reload is not a start."""
        self._reload.set()
        self._loop.wake()

    def _reload_now(self) -> None:
        self._manager.reloading()
        trouble = reload.reload(self._conf, self._parts.reload)
        if trouble is None:
            LOG.info("Reloaded; every node gets a pass.")
        self._parts.board.reload_trouble = trouble
        self.tracker.options = self._parts.options()
        self._schedule.trigger("reload")
        self._tell_ready()
