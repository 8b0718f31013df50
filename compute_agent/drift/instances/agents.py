"""All agents over the message bus: who is there, and what runs where."""

from __future__ import annotations

import logging
import reprlib
import threading
import time
import uuid as uuidlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from compute_agent import errors
from compute_agent.daemon import message_bus
from compute_agent.daemon.bus_server import BusServer, check_broker
from compute_agent.daemon.message_bus import fault_of
from compute_agent.drift.instances.instance import Listing
from compute_agent.programs.exit_status import Exit

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.placement.provider_directory import ProviderDirectory

LOG = logging.getLogger(__name__)

TOPIC = "compute-agent"
STATE_TOPIC = "compute-state"
VERSION = "1.0"
SEND_RETRIES = 2
CALL_TIMEOUT = 30.0
"""Seconds for the answer of one agent."""
CALLS_AT_ONCE = 16
ANNOUNCEMENTS_WAITED_FOR = 3.0
"""Periods of announcement after which an agent that was not heard is silent."""
SCHEDULERS_ANSWER_IN = 2.0
"""Seconds; one that answers later than this counts as one that does not run."""
LATENESS = 1.2
"""Periods of announcement after which the next one should have come."""


Nodes = Mapping[str, Mapping[str, Any]]
"""The announcements of a host's nodes, by the uuid of their root providers."""


class AgentRefused(errors.ComputeAgentError):
    """An agent that was asked over the bus said no, or nothing."""

    exit_status = Exit.REFUSED


class BusUnavailable(errors.InvalidConfiguration):
    """The broker of the configured bus cannot be used now."""


class AgentsOnBus:
    """Listens to announcements and calls agents; a source of instances. To be closed.

    :param say: receives what is done.
    :ivar patience: seconds after which an agent that was not heard is silent.
    :ivar one_period: seconds in which every agent that runs is heard once, if no message is lost.
    :raises InvalidConfiguration: there is no bus, or its options are wrong.
    :raises BusUnavailable: its broker does not answer, or refuses the user.
    """

    name = "agents"

    def __init__(
        self, conf: cfg.ConfigOpts, say: Callable[[str], None] = lambda _text: None
    ) -> None:
        self.say = say
        self._transport = message_bus.open_transport(conf)
        import oslo_messaging

        self._messaging = oslo_messaging
        self.patience = ANNOUNCEMENTS_WAITED_FOR * float(conf.report_interval)
        self.one_period = LATENESS * float(conf.report_interval)
        self._collector = _AnnouncementCollector()
        self._check_bus()
        self._name = f"compute-manage-{uuidlib.uuid4()}"
        self._server = BusServer(
            self._transport,
            STATE_TOPIC,
            self._name,
            [_AnnouncementEndpoint(self._collector, oslo_messaging.Target(version=VERSION))],
        )
        self._server.start()
        self._client = oslo_messaging.get_rpc_client(
            self._transport,
            oslo_messaging.Target(topic=TOPIC, version=VERSION),
            timeout=CALL_TIMEOUT,
            retry=SEND_RETRIES,
            version_cap=message_bus.version_cap(conf, "compute"),
        )

    def hosts(self, roots: Collection[str]) -> Mapping[str, frozenset[str]]:
        """Host to its root providers, of all that announce themselves from now on.

        Ends as soon as every one of `roots` was announced.
        """
        return {host: frozenset(nodes) for host, nodes in self._reporting(roots).items()}

    def announced_hosts(self, hosts: Collection[str]) -> Mapping[str, frozenset[str]]:
        """As `hosts`; ends as soon as every one of these hosts announced itself."""
        heard_nodes = self._collector.collect(
            lambda heard_nodes: set(hosts).issubset(heard_nodes), self.patience
        )
        return {host: frozenset(nodes) for host, nodes in heard_nodes.items()}

    def nodes(
        self, roots: Collection[str], patience: float | None = None
    ) -> dict[str, Mapping[str, Any]]:
        """Root provider to what is announced of its node and, as `service`, by which host.

        Ends as soon as every root of `roots` was announced, or after `patience` seconds.
        """
        return {
            root: {**node, "service": host}
            for host, nodes in self._reporting(roots, patience).items()
            for root, node in nodes.items()
        }

    def last(self) -> dict[str, tuple[float, Mapping[str, Any]]]:
        """Return the last announcement of every node heard so far, by its root provider.

        As `nodes` returns them, each with the monotonic time when it arrived. Does not wait.
        """
        return {
            root: (at, {**node, "service": host})
            for host, (at, nodes) in self._collector.last().items()
            for root, node in nodes.items()
        }

    def is_bus_away(self) -> bool:
        """Return whether the broker takes no message at the moment."""
        return not self._server.reaches_itself()

    def _reporting(self, roots: Collection[str], patience: float | None = None) -> dict[str, Nodes]:
        """Listen until every one of these root providers was announced, or patience is over."""
        return self._collector.collect(
            lambda heard_nodes: frozenset(roots).issubset(frozenset().union(*heard_nodes.values())),
            self.patience if patience is None else patience,
        )

    def ask(self, host: str, method: str, **arguments: object) -> Any:
        """Call a method of the agent of a host, and return its answer.

        :raises AgentRefused: the agent said no, or did not answer; the text says which.
        """
        try:
            return self._client.prepare(server=host).call({}, method, **arguments)
        except self._messaging.MessagingTimeout as error:
            raise AgentRefused(f"The agent of host {host} did not answer in time.") from error
        except Exception as error:
            why = getattr(error, "value", error)
            raise AgentRefused(f"The agent of host {host} refused: {why}") from error

    def look(self, directory: ProviderDirectory) -> Listing:
        """List what all hosts do, and what schedulers claimed for lately: it may be on its way.

        Nothing is known of migrations, and nothing of hosts that are silent.
        """
        self._collector.claimed_consumers.clear()
        target = self._messaging.Target(topic=STATE_TOPIC, version=VERSION, fanout=True)
        client = self._messaging.get_rpc_client(self._transport, target, retry=SEND_RETRIES)
        client.cast({}, "report_claims", server=self._name)
        asked_at = time.monotonic()
        self.say("waiting for the agents to announce themselves")
        roots_of_host = self.hosts(directory.hosts)
        self.say(f"asking {len(roots_of_host)} agents for their instances")
        hosts = sorted(roots_of_host)
        with ThreadPoolExecutor(CALLS_AT_ONCE, "agents") as pool:
            answers = dict(zip(hosts, pool.map(self._instances_of, hosts), strict=True))
        by_host = {host: uuids for host, uuids in answers.items() if isinstance(uuids, frozenset)}
        answered_hosts = {host: roots_of_host[host] for host in by_host}
        heard_roots = frozenset().union(*answered_hosts.values())
        roots = {root.uuid for root in directory.roots if not directory.is_shared(root.uuid)}
        # each scheduler has the time to answer
        time.sleep(max(0.0, asked_at + SCHEDULERS_ANSWER_IN - time.monotonic()))
        return Listing(
            known_consumers=frozenset(self._collector.claimed_consumers).union(*by_host.values()),
            by_host=by_host,
            roots=answered_hosts,
            silent=frozenset(roots - heard_roots),
            untold={
                root: why
                for host, why in answers.items()
                if isinstance(why, str)
                for root in roots_of_host[host] - heard_roots
            },
        )

    def is_gone(self, uuid: str) -> bool:  # noqa: ARG002 - as the protocol has it
        """Every agent lists all it runs."""
        return True

    def devices(self, host: str, instance: str) -> Mapping[str, Any] | None:
        """Return what of its host a guest really holds; None where no agent reports it."""
        try:
            answer = self._client.prepare(server=host).call(
                {}, "instance_devices", instance=instance
            )
        except Exception as error:  # noqa: BLE001 - the bus raises what the agent raised
            LOG.warning(
                "The agent of host %s does not report what instance %s holds: %s",
                *(host, instance, error),
            )
            return None
        return None if answer is None else dict(answer)

    def close(self) -> None:
        """Leave the bus."""
        if self._server.stop():
            self._transport.cleanup()

    def _instances_of(self, host: str) -> frozenset[str] | str | None:
        """Text: why the agent does not list them. None: it did not answer, or not with a list."""
        try:
            answer = self._client.prepare(server=host).call({}, "list_instances")
            return frozenset(str(uuidlib.UUID(uuid)) for uuid in answer)
        except (self._messaging.RemoteError, errors.ComputeAgentError) as error:
            # what the agent raised, whose text has its traceback as well where it came by a broker
            why = str(getattr(error, "value", error))
            LOG.warning("The agent of host %s does not list its instances: %s", host, why)
            return why
        except Exception as error:  # noqa: BLE001 - the bus raises what the agent raised
            LOG.warning("The agent of host %s does not list its instances: %s", host, error)
            return None

    def _check_bus(self) -> None:
        """Find out in bounded time whether there is a broker: a server would wait for ever."""
        try:
            check_broker(self._transport, TOPIC)
        except Exception as error:
            # a broker that refuses is an error of the driver's own library
            self._transport.cleanup()
            state, why = fault_of(error)
            raise BusUnavailable(
                f"The message bus is {state}, so the agents cannot be asked: {why}. Check "
                "[DEFAULT]transport_url, and that its broker runs."
            ) from error


class _AnnouncementCollector:
    """Announcements as they arrive, from other threads."""

    def __init__(self) -> None:
        self._arrival = threading.Condition()
        self._nodes: dict[str, Nodes] = {}
        self._arrived_at: dict[str, float] = {}
        self.claimed_consumers: set[str] = set()

    def note(self, host: str, nodes: Nodes) -> None:
        with self._arrival:
            self._nodes[host] = nodes
            self._arrived_at[host] = time.monotonic()
            self._arrival.notify_all()

    def last(self) -> dict[str, tuple[float, Nodes]]:
        with self._arrival:
            return {host: (self._arrived_at[host], nodes) for host, nodes in self._nodes.items()}

    def collect(
        self, enough: Callable[[Mapping[str, Nodes]], bool], patience: float
    ) -> dict[str, Nodes]:
        """Forget what was heard, and listen until it is enough or `patience` is over."""
        with self._arrival:
            self._nodes.clear()
            self._arrival.wait_for(lambda: enough(self._nodes), patience)
            return dict(self._nodes)


class _AnnouncementEndpoint:
    """Where agents announce themselves."""

    def __init__(self, collector: _AnnouncementCollector, target: Any) -> None:
        self.target = target
        self._note: Callable[[str, Nodes], None] = collector.note
        self._claimed_consumers = collector.claimed_consumers

    def compute_state(self, _ctxt: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Take in one announcement."""
        try:
            nodes = {str(node["uuid"]): dict(node) for node in state.get("nodes", ())}
            self._note(str(state["host"]), nodes)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            LOG.warning(
                "An announcement is ignored, because it cannot be read (%r): %s",
                *(error, reprlib.repr(state)),
            )

    def report_claims(self, _ctxt: Mapping[str, Any], server: str) -> None:
        """Leave the question to the schedulers."""

    def recent_claims(self, _ctxt: Mapping[str, Any], consumers: Collection[str]) -> None:
        """Take in what one scheduler answered."""
        self._claimed_consumers.update(map(str, consumers))
