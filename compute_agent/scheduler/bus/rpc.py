"""Scheduler on the message bus: topic `scheduler`, version 4.5.

    select_destinations(spec_obj, instance_uuids, return_objects, return_alternates)
        -> [[Selection, ...], ...]
    upgrade_status() -> {"minimum_service_version", "behaviours": [...], "host", "reload"}
    announced_hosts() -> {"hosts": [{"root", "age", "host", "enabled", ...}, ...]}
    update_aggregates, delete_aggregate                         the aggregates are read again
    update_instance_info, delete_instance_info, sync_instance_info   logged, no answer

The calls about the life cycle of instances are in `rpc_life_cycle`. Arguments are plain
dictionaries, or versioned objects as their serialiser writes them; the answer comes in the form of
the question. Agents announce themselves on topic `compute-state`.
"""

from __future__ import annotations

import logging
import reprlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compute_agent.daemon import message_bus, tracing
from compute_agent.daemon.bus_server import BusServer, stop_together
from compute_agent.daemon.trouble import Trouble, dated
from compute_agent.placement.transports.transport import Transport
from compute_agent.request import spec_reader
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler import assembly
from compute_agent.scheduler.assembly import SchedulerParts
from compute_agent.scheduler.bus.calls import (
    Context,
    answer_of,
    answering,
    is_versioned,
    spec_of,
)
from compute_agent.scheduler.bus.rpc_life_cycle import LifeCycleEndpoint
from compute_agent.scheduler.claiming.claims import RecentClaims
from compute_agent.scheduler.fleet.announcements import Announcements
from compute_agent.scheduler.moves.move import MoveKind
from compute_agent.scheduler.outcomes import Observer
from compute_agent.scheduler.search.targets import is_rebuild

# before the library is imported: it would settle on eventlet
message_bus.use_threads()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # eventlet warns that it is deprecated; it is not used
    import oslo_messaging

if TYPE_CHECKING:
    from oslo_config import cfg

LOG = logging.getLogger(__name__)

TOPIC = "scheduler"
VERSION = "4.5"
STATE_TOPIC = "compute-state"
STATE_VERSION = "1.0"
_CONSUMERS_OF_A_MESSAGE = 10_000


class SchedulerEndpoint:
    """What the bus can call.

    :param host: the name by which answers about this scheduler name it.
    :ivar reload_trouble: why the last reload failed; None: it did not.
    """

    target = oslo_messaging.Target(version=VERSION)

    def __init__(self, make: Callable[[], SchedulerParts], observer: Observer, host: str) -> None:
        self._make = make
        self._observer = observer
        self.host = host
        self.reload_trouble: Trouble | None = None
        self._parts = make()

    @property
    def parts(self) -> SchedulerParts:
        """What calls are answered with now."""
        return self._parts

    def renew(self) -> None:
        """Read again what is read at start, such as the aggregates, and forget what is kept.

        :raises InvalidConfiguration: it cannot be used; what was read before stays in force.
        """
        self._parts = self._make()

    def select_destinations(
        self,
        ctxt: Context,
        spec_obj: Any,
        instance_uuids: Sequence[str],
        return_objects: bool = True,  # noqa: ARG002 - part of the interface; the form follows spec_obj
        return_alternates: bool = False,
    ) -> list[list[dict[str, Any]]]:
        """Claim a host for each instance; see `Scheduler.select_destinations`."""
        versioned = is_versioned(spec_obj)
        with answering(
            self._observer, "select_destinations", "for", instance_uuids, is_versioned=versioned
        ):
            request_id = str(ctxt.get("global_request_id") or ctxt.get("request_id") or "")
            instances = spec_reader.instances_of({"instance_uuids": instance_uuids})
            self._parts.mover.recover()
            spec = spec_of(spec_obj)
            if versioned and self._is_evacuation(spec, instances):
                start = self._parts.mover.begin(
                    MoveKind.EVACUATE, spec, instances[0], alternates=return_alternates
                )
                selections = [list(start.selections)]
            else:
                selections = self._parts.scheduler.select_destinations(
                    spec, instances, alternates=return_alternates, request_id=request_id
                )
        return [
            [answer_of(selection, is_versioned=versioned) for selection in per]
            for per in selections
        ]

    def _is_evacuation(self, spec: RequestSpec, instances: Sequence[str]) -> bool:
        """Whether an instance leaves its host and still holds it, which a conductor does not say.

        In a migration or resize what it holds is the migration's by then.
        """
        if not spec.ignore_hosts or len(instances) != 1 or is_rebuild(spec):
            return False
        return bool(self._parts.client.holding(instances[0]).allocations)

    def upgrade_status(self, _ctxt: Context) -> dict[str, Any]:
        """Return what agents that are too old hold back, and whether the last reload failed.

        See `Fleet.status`.
        """
        with answering(self._observer, "upgrade_status"):
            trouble = self.reload_trouble
            return self._parts.fleet.status() | {
                "host": self.host,
                "reload": trouble and dated(trouble),
            }

    def announced_hosts(self, _ctxt: Context) -> dict[str, Any]:
        """Return what agents announced, with the age of each announcement in seconds."""
        with answering(self._observer, "announced_hosts"):
            announcements = self._parts.announcements
            return {"hosts": announcements.snapshot() if announcements is not None else []}

    def update_aggregates(self, _ctxt: Context, **changes: Any) -> None:
        """Read the aggregates again."""
        LOG.debug("Aggregates changed: %s", changes)
        self.renew()

    delete_aggregate = update_aggregates

    def update_instance_info(self, _ctxt: Context, **changes: Any) -> None:
        """Log a change of instances: placement knows its consumers, nothing is kept here."""
        LOG.debug("Instances changed: %s", changes)

    delete_instance_info = sync_instance_info = update_instance_info


class StateEndpoint:
    """Where agents announce themselves, and ask whose instances may be on their way to them.

    :param bus: that answers go to.
    """

    target = oslo_messaging.Target(version=STATE_VERSION)

    def __init__(
        self,
        announcements: Announcements,
        recent_claims: RecentClaims | None = None,
        bus: Any = None,
    ) -> None:
        self._announcements = announcements
        self._recent_claims = recent_claims or RecentClaims()
        self._bus = bus

    def compute_state(self, _ctxt: Context, state: Mapping[str, Any]) -> None:
        """Take in one announcement."""
        try:
            self._announcements.receive(state)
        except ValueError as error:
            LOG.warning(
                "An announcement is ignored, because it cannot be read (%s): %s",
                *(error, reprlib.repr(state)),
            )

    def recent_claims(self, _ctxt: Context, consumers: Sequence[str]) -> None:
        """Remember for whom a process claims that is not on the bus."""
        self._recent_claims.record([str(consumer) for consumer in consumers])

    def report_claims(self, _ctxt: Context, server: str) -> None:
        """Send the server of the same topic the consumers that were claimed for lately."""
        target = oslo_messaging.Target(topic=STATE_TOPIC, server=server, version=STATE_VERSION)
        client = oslo_messaging.get_rpc_client(self._bus, target, retry=0)
        consumers = self._recent_claims.consumers()
        for start in range(0, len(consumers), _CONSUMERS_OF_A_MESSAGE):
            part = consumers[start : start + _CONSUMERS_OF_A_MESSAGE]
            client.cast({}, "recent_claims", consumers=part)


class SchedulerService:
    """The scheduler's servers on one bus.

    :param observer: hears of the calls.
    :ivar endpoint: what has the parts that calls are answered with.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        bus: Any,
        placement: Transport,
        host: str,
        observer: Observer | None = None,
    ) -> None:
        self.announcements = announcements = Announcements()
        observer = observer or Observer()
        recent_claims = RecentClaims()
        self.endpoint = SchedulerEndpoint(
            lambda: assembly.parts_of(
                conf, placement, announcements, observer=observer, recent_claims=recent_claims
            ),
            observer,
            host,
        )
        life_cycle = LifeCycleEndpoint(
            lambda: self.endpoint.parts, observer, SchedulerEndpoint.target
        )
        self._servers = [
            BusServer(bus, topic, host, endpoints)
            for topic, endpoints in (
                (TOPIC, [self.endpoint, life_cycle]),
                (STATE_TOPIC, [StateEndpoint(announcements, recent_claims, bus)]),
            )
        ]

    def start(self) -> None:
        """Begin to answer."""
        for server in self._servers:
            server.start()

    def reaches_itself(self) -> bool:
        """Return whether the broker takes messages at the moment."""
        return self._servers[0].reaches_itself()

    def stop(self) -> bool:
        """Finish what is being answered, and end; return False when the broker is gone."""
        return stop_together(self._servers)


class SchedulerClient:
    """Calls a scheduler over the bus.

    :param version_cap: the newest version that calls may have, `None` for any.
    :param retry: how often a broker that cannot be reached is tried again, `None` for ever.
    """

    def __init__(
        self,
        bus: Any,
        timeout: float = 60.0,
        version_cap: str | None = None,
        retry: int | None = None,
    ) -> None:
        target = oslo_messaging.Target(topic=TOPIC, version=VERSION)
        self._client = oslo_messaging.get_rpc_client(
            bus, target, timeout=timeout, version_cap=version_cap, retry=retry
        )

    def select_destinations(
        self, spec: Mapping[str, Any], instances: Sequence[str]
    ) -> list[list[dict[str, Any]]]:
        """Return the selections for `spec`; raises what the bus makes of the scheduler's error."""
        selections: list[list[dict[str, Any]]] = self._client.call(
            tracing.context_to_send(),
            "select_destinations",
            spec_obj=dict(spec),
            instance_uuids=list(instances),
        )
        return selections

    def call(self, method: str, **arguments: Any) -> Any:
        """Return what any other method of the scheduler answers, as plain values."""
        return self._client.call(tracing.context_to_send(), method, **arguments)
