"""Sources of host aggregates: a file, or the Compute API."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from compute_agent.openstack.service import Service, ServiceUnusable
from compute_agent.programs.kept_values import KeptValues
from compute_agent.scheduler.fleet import aggregates
from compute_agent.scheduler.fleet.aggregates import Aggregate, Aggregates

if TYPE_CHECKING:
    from oslo_config import cfg

LOG = logging.getLogger(__name__)

NOVA = "nova"
KEPT_SECONDS = 60.0
_SHOWS_UUID = "2.41"
"""The first microversion in which the Compute API shows the uuid of an aggregate."""


class AggregateSource(Protocol):
    """What knows the aggregates."""

    def current(self) -> Aggregates:
        """Return the aggregates as they are now.

        :raises ServiceUnusable: they cannot be read.
        """


class FixedAggregates:
    """Aggregates that change only when they are read again at a start or a reload."""

    def __init__(self, known_aggregates: Aggregates | None = None) -> None:
        self._aggregates = known_aggregates or Aggregates()

    def current(self) -> Aggregates:
        """See `AggregateSource`."""
        return self._aggregates


class NovaAggregates:
    """The aggregates of the Compute API, kept for a minute.

    :param service: the Compute API, at its version 2.1.
    :param clock: seconds that only grow.
    """

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._service.headers["OpenStack-API-Version"] = f"compute {_SHOWS_UUID}"
        self._service.headers["X-OpenStack-Nova-API-Version"] = _SHOWS_UUID
        self._lock = threading.Lock()
        self._aggregates: KeptValues[None, Aggregates] = KeptValues(KEPT_SECONDS, clock)

    def current(self) -> Aggregates:
        """See `AggregateSource`; what was read before stays in force while they cannot be read."""
        with self._lock:
            aggregates = self._aggregates.get(None)
            if aggregates is not None:
                return aggregates
            try:
                aggregates = self._read()
            except ServiceUnusable as error:
                aggregates = self._aggregates.old(None)
                if aggregates is None:
                    raise
                LOG.warning(
                    "The aggregates could not be read again; those read before stay in force: %s",
                    error,
                )
            return self._aggregates.keep(None, aggregates)

    def _read(self) -> Aggregates:
        doing = "Listing the host aggregates"
        entries = self._service.get("/os-aggregates", doing).get("aggregates")
        try:
            return Aggregates(tuple(map(_aggregate, entries or ())))
        except (KeyError, TypeError, AttributeError) as error:
            raise ServiceUnusable(
                f"{doing} failed: an entry of Nova's answer is not understood "
                f"({type(error).__name__}: {error}). The endpoint of group [nova] must be that of "
                f"the Compute API v2.1, which shows aggregates' uuids from {_SHOWS_UUID} on."
            ) from error


def source_of(conf: cfg.ConfigOpts) -> AggregateSource:
    """Return the source that option ``[compute_scheduler]aggregate_source`` names.

    :raises InvalidConfiguration: a file that cannot be used.
    """
    source_name = conf.compute_scheduler.aggregate_source
    if not source_name:
        return FixedAggregates()
    if source_name == NOVA:
        return NovaAggregates(Service(conf, "nova", "Nova"))
    return FixedAggregates(aggregates.load(source_name))


def _aggregate(body: Mapping[str, Any]) -> Aggregate:
    metadata = {str(key): str(value) for key, value in body.get("metadata", {}).items()}
    if body.get("availability_zone"):
        metadata.setdefault("availability_zone", str(body["availability_zone"]))
    return Aggregate(
        uuid=str(body["uuid"]),
        name=str(body.get("name", "")),
        hosts=frozenset(map(str, body.get("hosts", ()))),
        metadata=metadata,
    )
