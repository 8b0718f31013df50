"""Scheduler on the message bus: topic ``scheduler``, version 4.5.

    select_destinations(spec_obj, instance_uuids, return_objects, return_alternates)
        -> [[Selection, ...], ...]
    begin_move(kind, spec_obj, instance_uuid, migration_uuid, mappings, return_alternates)
        -> {"move": {...}, "selections": [Selection, ...]}
    finish_move(move), revert_move(move) -> mappings, source_returned(instance_uuid, source_root)
    attach_resources(spec_obj, instance_uuid) -> {"allocations", "mappings"}
    detach_resources(instance_uuid, allocations)
    upgrade_status() -> {"minimum_service_version", "behaviours": [...]}
    announced_hosts() -> {"hosts": [{"root", "age", "host", "enabled", ...}, ...]}
    update_aggregates, delete_aggregate                         the aggregates are read again
    update_instance_info, delete_instance_info, sync_instance_info   logged, no answer

Arguments are plain dictionaries, or versioned objects as their serialiser writes them; the answer
comes in the form of the question. Agents announce themselves on topic ``compute-state``.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compute_agent.daemon import message_bus
from compute_agent.errors import ComputeAgentError
from compute_agent.placement.transports.transport import Transport
from compute_agent.request import spec_reader
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.extra_specs import uuid_text
from compute_agent.request.fields import Fields
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler import assembly
from compute_agent.scheduler.assembly import SchedulerParts
from compute_agent.scheduler.fleet.announcements import Announcements
from compute_agent.scheduler.moves.move import move_kind, move_of
from compute_agent.scheduler.observer import Observer
from compute_agent.scheduler.selection import Selection

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
_OBJECT = "nova_object."


class SchedulerEndpoint:
    """What the bus can call."""

    target = oslo_messaging.Target(version=VERSION)

    def __init__(self, make: Callable[[], SchedulerParts], observer: Observer) -> None:
        self._make = make
        self._observer = observer
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
        ctxt: Mapping[str, Any],
        spec_obj: Any,
        instance_uuids: Sequence[str],
        return_objects: bool = True,  # noqa: ARG002 - part of the interface; the form follows spec_obj
        return_alternates: bool = False,
    ) -> list[list[dict[str, Any]]]:
        """Claim a host for each instance; see `Scheduler.select_destinations`."""
        with self._answering("select_destinations", f"for {', '.join(instance_uuids)}"):
            instances = spec_reader.instances_of({"instance_uuids": list(instance_uuids)})
            self._parts.mover.recover()
            selections = self._parts.scheduler.select_destinations(
                _spec_of(spec_obj),
                instances,
                alternates=return_alternates,
                request_id=_request_id(ctxt),
            )
        wrapped = _is_wrapped(spec_obj)
        return [[_answered(selection, wrapped=wrapped) for selection in per] for per in selections]

    def begin_move(
        self,
        _ctxt: Mapping[str, Any],
        kind: str,
        spec_obj: Any,
        instance_uuid: str,
        migration_uuid: str = "",
        mappings: Mapping[str, Sequence[str]] | None = None,
        return_alternates: bool = False,
    ) -> dict[str, Any]:
        """Claim the destination of a move; see `Mover.begin`."""
        with self._answering("begin_move", f"of {instance_uuid}"):
            begun = self._parts.mover.begin(
                move_kind(kind),
                _spec_of(spec_obj),
                uuid_text("instance_uuid", instance_uuid),
                uuid_text("migration_uuid", migration_uuid) if migration_uuid else "",
                mappings=mappings,
                alternates=return_alternates,
            )
        wrapped = _is_wrapped(spec_obj)
        return {
            "move": begun.move.as_dict(),
            "selections": [_answered(selection, wrapped=wrapped) for selection in begun.selections],
        }

    def finish_move(self, _ctxt: Mapping[str, Any], move: Mapping[str, Any]) -> None:
        """Confirm a move; see `Mover.finish`."""
        with self._answering("finish_move"):
            self._parts.mover.finish(move_of(move))

    def revert_move(self, _ctxt: Mapping[str, Any], move: Mapping[str, Any]) -> dict[str, Any]:
        """Undo a move and return the mappings of the source; see `Mover.revert`."""
        with self._answering("revert_move"):
            mappings = self._parts.mover.revert(move_of(move))
        return {suffix: list(uuids) for suffix, uuids in mappings.items()}

    def source_returned(
        self, _ctxt: Mapping[str, Any], instance_uuid: str, source_root: str
    ) -> None:
        """Take the source's part from an evacuated instance; see `Mover.source_returned`."""
        with self._answering("source_returned", f"for {instance_uuid}"):
            self._parts.mover.source_returned(
                uuid_text("instance_uuid", instance_uuid), uuid_text("source_root", source_root)
            )

    def attach_resources(
        self, _ctxt: Mapping[str, Any], spec_obj: Any, instance_uuid: str
    ) -> dict[str, Any]:
        """Add a port or accelerator to what an instance holds; see `Attachments.attach`."""
        with self._answering("attach_resources", f"to {instance_uuid}"):
            instance = uuid_text("instance_uuid", instance_uuid)
            return self._parts.attachments.attach(_spec_of(spec_obj), instance).as_dict()

    def detach_resources(
        self, _ctxt: Mapping[str, Any], instance_uuid: str, allocations: Mapping[str, Any]
    ) -> None:
        """Take what was attached from an instance; see `Attachments.detach`."""
        with self._answering("detach_resources", f"from {instance_uuid}"):
            fields = Fields(allocations, "allocations")
            self._parts.attachments.detach(
                uuid_text("instance_uuid", instance_uuid),
                {uuid: fields.resources(uuid) for uuid in allocations},
            )

    def upgrade_status(self, _ctxt: Mapping[str, Any]) -> dict[str, Any]:
        """Return what agents that are too old hold back; see `Fleet.status`."""
        with self._answering("upgrade_status"):
            return self._parts.fleet.status()

    def announced_hosts(self, _ctxt: Mapping[str, Any]) -> dict[str, Any]:
        """Return what agents announced, with the age of each announcement in seconds."""
        with self._answering("announced_hosts"):
            heard = self._parts.announcements
            return {"hosts": heard.snapshot() if heard is not None else []}

    def update_aggregates(self, _ctxt: Mapping[str, Any], aggregates: Any) -> None:
        """Read the aggregates again."""
        LOG.debug("Aggregates changed: %s", aggregates)
        self.renew()

    def delete_aggregate(self, _ctxt: Mapping[str, Any], aggregate: Any) -> None:
        """Read the aggregates again."""
        LOG.debug("Aggregate deleted: %s", aggregate)
        self.renew()

    def update_instance_info(
        self, _ctxt: Mapping[str, Any], host_name: str, instance_info: Any
    ) -> None:
        """Log a change of an instance: placement knows its consumers, nothing is kept here."""
        LOG.debug("Instances on %s changed: %s", host_name, instance_info)

    def delete_instance_info(
        self, _ctxt: Mapping[str, Any], host_name: str, instance_uuid: str
    ) -> None:
        """Log that an instance is gone."""
        LOG.debug("Instance %s on %s is gone", instance_uuid, host_name)

    def sync_instance_info(
        self, _ctxt: Mapping[str, Any], host_name: str, instance_uuids: Any
    ) -> None:
        """Log the instances of a host."""
        LOG.debug("Instances on %s: %s", host_name, instance_uuids)

    @contextmanager
    def _answering(self, method: str, about: str = "") -> Iterator[None]:
        """Return errors to the caller as they are; otherwise the bus would log them as defects."""
        try:
            with self._observer.answering(method):
                yield
        except ComputeAgentError as error:
            LOG.info("%s: %s", f"{method} {about}".rstrip(), error)
            raise oslo_messaging.ExpectedException() from error


class StateEndpoint:
    """Where agents announce themselves."""

    target = oslo_messaging.Target(version=STATE_VERSION)

    def __init__(self, announcements: Announcements) -> None:
        self._announcements = announcements

    def compute_state(self, _ctxt: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Take in one announcement."""
        try:
            self._announcements.receive(state)
        except (KeyError, TypeError, ValueError) as error:
            LOG.warning(
                "An announcement is ignored, because it cannot be read (%r): %s", error, state
            )


class SchedulerService:
    """The scheduler's servers on one bus.

    :param observer: hears of the calls.
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
        self._endpoint = SchedulerEndpoint(
            lambda: assembly.parts_of(conf, placement, announcements, observer=observer), observer
        )
        self._servers = [
            oslo_messaging.get_rpc_server(
                bus,
                oslo_messaging.Target(topic=topic, server=host),
                [endpoint],
            )
            for topic, endpoint in (
                (TOPIC, self._endpoint),
                (STATE_TOPIC, StateEndpoint(announcements)),
            )
        ]

    @property
    def parts(self) -> SchedulerParts:
        """See `SchedulerEndpoint.parts`."""
        return self._endpoint.parts

    def renew(self) -> None:
        """See `SchedulerEndpoint.renew`."""
        self._endpoint.renew()

    def start(self) -> None:
        """Begin to answer."""
        for server in self._servers:
            server.start()

    def stop(self) -> None:
        """Finish what is being answered, and end."""
        for server in self._servers:
            server.stop()
            server.wait()


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
            {}, "select_destinations", spec_obj=dict(spec), instance_uuids=list(instances)
        )
        return selections

    def call(self, method: str, **arguments: Any) -> Any:
        """Return what any other method of the scheduler answers, as plain values."""
        return self._client.call({}, method, **arguments)


def _request_id(ctxt: Mapping[str, Any]) -> str:
    return str(ctxt.get("global_request_id") or ctxt.get("request_id") or "")


def _is_wrapped(spec_obj: Any) -> bool:
    return isinstance(spec_obj, Mapping) and f"{_OBJECT}data" in spec_obj


def _spec_of(spec_obj: Any) -> RequestSpec:
    body = unwrapped(spec_obj)
    if not isinstance(body, Mapping):
        raise InvalidRequest("spec_obj", body, "an object with named fields")
    return spec_reader.read_spec(body)


def unwrapped(value: Any) -> Any:
    """Return plain values for versioned objects, at every depth."""
    if isinstance(value, Mapping):
        inner = value.get(f"{_OBJECT}data", value)
        return {key: unwrapped(item) for key, item in inner.items()}
    if isinstance(value, list | tuple):
        return [unwrapped(item) for item in value]
    return value


def _answered(selection: Selection, *, wrapped: bool) -> dict[str, Any]:
    plain = selection.as_dict()
    if not wrapped:
        return plain
    return {
        f"{_OBJECT}name": "Selection",
        f"{_OBJECT}namespace": "nova",
        f"{_OBJECT}version": "1.1",
        f"{_OBJECT}data": plain,
    }
