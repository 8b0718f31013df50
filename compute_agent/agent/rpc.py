"""The agent on the message bus: topic `compute-agent`, server = the name of the service.

    ping(), status(node), plan(node), report_now(node, wait), set_host_enabled(enabled, reason),
    list_instances(node), instance_claim(spec, allocations, mappings),
    drop_claim(instance, error, image), clear_fault(provider)

and, every `report_interval` seconds, a cast to all that listen on topic `compute-state`, and one to
the agents of its own name, on a topic of that name: a cloned image, or a name given twice, which
report the same node. So a fleet exchanges no more messages for that than it has agents.

Reporting to placement works without the bus, so an absent broker is logged once and waited for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import asdict

from compute_agent import errors
from compute_agent.daemon import message_bus
from compute_agent.daemon.bus_server import (
    BROKER_SECONDS,
    BusServer,
    check_broker,
    stop_together,
)
from compute_agent.daemon.message_bus import BusState, fault_of
from compute_agent.tracker.place import SHOWN_LENGTH, Place

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.agent.commands import AgentCommands

LOG = logging.getLogger(__name__)

TOPIC = "compute-agent"
VERSION = "1.0"
STATE_TOPIC = "compute-state"
STATE_VERSION = "1.0"
PERIODS: Final = 3.0
"""Periods of announcement after which another agent of this name that was not heard is gone."""
SEND_RETRIES = 2
"""Tries to send an announcement: without a bound a send waits for a broker for ever."""

COMMANDS: Final = (
    *("status", "plan", "list_instances", "instance_devices"),
    *("instance_claim", "drop_claim", "clear_fault"),
)


class AgentEndpoint:
    """What the bus can call: commands by their names; see `AgentCommands`."""

    def __init__(self, commands: AgentCommands) -> None:
        import oslo_messaging

        self.target = oslo_messaging.Target(version=VERSION)
        self._expected_exception = oslo_messaging.ExpectedException
        self._commands = commands
        self._own: dict[str, Callable[..., Any]] = {
            "ping": lambda: "pong",
            "report_now": self._report_now,
            "set_host_enabled": self._enable,
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in COMMANDS:
            return partial(self._answer, getattr(self._commands, name))
        if name.startswith("_") or name not in self._own:
            raise AttributeError(name)
        return partial(self._answer, self._own[name])

    def _answer(self, call: Callable[..., Any], _ctxt: Mapping[str, Any], **arguments: Any) -> Any:
        try:
            try:
                signature(call).bind(**arguments)
            except TypeError as error:
                raise errors.InvalidInput(
                    f"The arguments of the call do not fit: {error}"
                ) from None
            return call(**arguments)
        except errors.ComputeAgentError as error:
            # the caller gets it as it is; without this the bus would log it as a defect
            raise self._expected_exception() from error

    def _report_now(self, node: str | None = None, wait: bool = False) -> dict[str, Any]:
        return self._commands.report_now(node, wait)

    def _enable(self, enabled: Any, reason: str = "") -> dict[str, Any]:
        self._commands.set_host_enabled(enabled, reason)
        return self._commands.status()


class Namesakes(Struct, eq=False):
    """Others that report nodes of this agent. Safe for threads.

    :ivar patience: seconds after which one that was not heard again is gone.
    :ivar on_first: called when one is heard that was not there before.
    """

    own: Place
    patience: float
    on_first: Callable[[], object]
    clock: Callable[[], float] = time.monotonic
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _by_root: dict[str, tuple[float, Place]] = {}

    def message(self, roots: list[str]) -> dict[str, Any]:
        """Return what this agent announces to its namesakes."""
        return {**asdict(self.own), "roots": roots}

    def hear(self, message: Mapping[str, Any]) -> None:
        """Take in what an agent of this name announces, this one among them.

        :raises ValueError: it is not of that form.
        """
        try:
            place = Place.of(message)
            roots = [str(root) for root in message["roots"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {str(error)[:SHOWN_LENGTH]}") from error
        if place.is_same(self.own):
            return
        now = self.clock()
        with self._mutex:
            is_first = any(self._other(root, now) is None for root in roots)
            self._by_root.update(dict.fromkeys(roots, (now, place)))
        if is_first:
            self.on_first()

    def check_alone(self, root: str) -> None:
        """Check that no other agent reports a node.

        :raises InvalidNodeConfiguration: one does; both are named.
        """
        with self._mutex:
            other = self._other(root, self.clock())
        if other is not None:
            raise errors.InvalidNodeConfiguration(
                f"Two agents report the resource provider {root}: this one, at {self.own}, and one "
                f"at {other}. Stop the one that is not this host; on a cloned machine delete "
                "compute_id and the state directory, and give it a name of its own ([DEFAULT]host)."
            )

    def _other(self, root: str, now: float) -> Place | None:
        heard_at, place = self._by_root.get(root, (0.0, None))
        return place if place is not None and now - heard_at < self.patience else None


class NamesakeEndpoint:
    """Where agents of one name announce themselves to each other."""

    def __init__(self, namesakes: Namesakes, target: Any) -> None:
        self.target = target
        self._hear: Callable[[Mapping[str, Any]], None] = namesakes.hear

    def agent_runs(self, _ctxt: Mapping[str, Any], agent: Mapping[str, Any]) -> None:
        """Take in one announcement."""
        try:
            self._hear(agent)
        except ValueError as error:
            LOG.warning("A message of another agent of this name is ignored: %s", error)


class RpcServer:
    """Answers calls and announces the agent, in threads of its own.

    :param place: where the agent runs.
    :param on_state: called with the state of the bus and what is wrong with it, also repeatedly.
    :param on_namesake: called when another agent turns up that reports a node of this one.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        commands: AgentCommands,
        place: Place,
        on_state: Callable[[BusState, str], None],
        on_namesake: Callable[[], object],
    ) -> None:
        self._transport = message_bus.open_transport(conf)
        import oslo_messaging

        self._foreseen = (oslo_messaging.MessagingException, errors.ComputeAgentError)
        self._commands = commands
        self._on_state = on_state
        self._interval = float(conf.report_interval)
        self._host = conf.DEFAULT.host
        self._servers: list[BusServer] = []
        self.namesakes = Namesakes(place, PERIODS * self._interval, on_namesake)
        self._namesake_topic = f"{TOPIC}-named-{self._host}"
        self._namesake_client = oslo_messaging.get_rpc_client(
            self._transport,
            oslo_messaging.Target(topic=self._namesake_topic, version=VERSION, fanout=True),
            retry=SEND_RETRIES,
        )
        self._namesake_endpoint = NamesakeEndpoint(
            self.namesakes, oslo_messaging.Target(version=VERSION)
        )
        self._client = oslo_messaging.get_rpc_client(
            self._transport,
            oslo_messaging.Target(topic=STATE_TOPIC, version=STATE_VERSION, fanout=True),
            retry=SEND_RETRIES,
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bus", daemon=True)
        self._sequence = 0
        self._unheard = False
        on_state(BusState.WAITING, "")

    def start(self) -> None:
        """Begin, once; a broker that is away is waited for in a thread."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Finish what is being answered, and leave the bus; one whose broker is gone as it is."""
        self._stopping.set()
        if self._thread.ident is None:
            return
        # where it never was on the bus, it waits for the broker, and there is nothing to leave
        is_away = self._unheard or not self._servers
        self._thread.join(0.0 if is_away else BROKER_SECONDS)
        if not self._thread.is_alive() and stop_together(self._servers):
            self._transport.cleanup()

    def _run(self) -> None:
        self._servers = self._start_servers()
        while not self._stopping.is_set():
            self._announce()
            self._stopping.wait(self._interval)

    def _start_servers(self) -> list[BusServer]:
        """Begin to answer, as soon as the broker lets it; none where that is the end first."""
        logged_state = None
        while not self._stopping.is_set():
            servers = [
                BusServer(self._transport, topic, self._host, [endpoint])
                for topic, endpoint in (
                    (TOPIC, AgentEndpoint(self._commands)),
                    (self._namesake_topic, self._namesake_endpoint),
                )
            ]
            started_servers: list[BusServer] = []
            try:
                # a server waits for a broker that is away without an end and without a word
                check_broker(self._transport, TOPIC)
                for server in servers:
                    server.start()
                    started_servers.append(server)
            except Exception as error:  # noqa: BLE001 - also those of the libraries below
                stop_together(started_servers)
                state, why = fault_of(error)
                self._on_state(state, why)
                if state is not logged_state:
                    LOG.error(
                        "The message bus %s: %s. The agent goes on reporting and tries again every "
                        "%.0f s.",
                        "refuses the agent" if state is BusState.REFUSED else "cannot be reached",
                        why,
                        self._interval,
                    )
                logged_state = state
                self._stopping.wait(self._interval)
            else:
                LOG.info("Serving topic %s on the message bus.", TOPIC)
                self._on_state(BusState.UP, "")
                return servers
        return []

    def _announce(self) -> None:
        self._sequence += 1
        state = None
        try:
            state = self._commands.announcement(self._sequence)
            roots = [node["uuid"] for node in state["nodes"]]
            self._namesake_client.cast({}, "agent_runs", agent=self.namesakes.message(roots))
            self._client.cast({}, "compute_state", state=state)
        except Exception as error:
            if message_bus.is_without_listener(str(error)):
                self._heard_again()
                return
            # whatever it is, the hypervisor being away as well as the broker: the thread goes on
            if state is not None:
                self._on_state(*fault_of(error))
            if not self._unheard:
                LOG.warning(
                    "The agent cannot announce itself (%s); it goes on reporting and tries again "
                    "every %.0f s.",
                    error,
                    self._interval,
                    exc_info=not isinstance(error, self._foreseen),
                )
            self._unheard = True
        else:
            self._heard_again()

    def _heard_again(self) -> None:
        if self._unheard:
            LOG.info("The agent announces itself again.")
        self._unheard = False
        self._on_state(BusState.UP, "")
