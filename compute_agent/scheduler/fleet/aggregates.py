"""Host aggregates: their hosts and metadata, and the sources that report them: a file, or Nova."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from compute_agent.errors import InvalidConfiguration
from compute_agent.openstack.service import Service, ServiceUnusable
from compute_agent.programs.kept_values import KeptValues
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.extra_specs import uuid_text
from compute_agent.state.documents import FileUnusable, read_yaml

if TYPE_CHECKING:
    from oslo_config import cfg


class Aggregate(Struct, frozen=True):
    """One aggregate; `uuid` is the one under which it is mirrored in placement."""

    uuid: str
    name: str = ""
    hosts: frozenset[str] = frozenset()
    metadata: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Aggregates:
    """All aggregates."""

    all: tuple[Aggregate, ...] = ()
    _by_host: dict[str, tuple[Aggregate, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def of_host(self, name: str) -> tuple[Aggregate, ...]:
        """Return the aggregates that a host is in."""
        if self.all and not self._by_host:
            by_host: dict[str, tuple[Aggregate, ...]] = {}
            for aggregate in self.all:
                for host in aggregate.hosts:
                    by_host[host] = (*by_host.get(host, ()), aggregate)
            self._by_host.update(by_host)
        return self._by_host.get(name, ())

    @property
    def have_multipliers(self) -> bool:
        """Whether any has a multiplier of a weigher."""
        return any(key.endswith("_weight_multiplier") for a in self.all for key in a.metadata)

    def where(self, key: str, value: str) -> frozenset[str]:
        """Return the uuids of the aggregates whose metadata `key` is `value`."""
        return self._with(lambda metadata: metadata.get(key) == value)

    def with_key(self, key: str) -> frozenset[str]:
        """Return the uuids of the aggregates whose metadata has a key."""
        return self._with(lambda metadata: key in metadata)

    def of_tenant(self, project_id: str) -> frozenset[str]:
        """Return the uuids of the aggregates that some `filter_tenant_id*` gives to a project."""
        return self._with(
            lambda metadata: any(
                key.startswith("filter_tenant_id") and value == project_id
                for key, value in metadata.items()
            )
        )

    def requiring_traits_beyond(self, traits: Iterable[str]) -> frozenset[str]:
        """Return the uuids of the aggregates that ask for a trait that is not among `traits`."""
        asked_keys = {f"trait:{trait}" for trait in traits}
        return self._with(
            lambda metadata: any(
                key.startswith("trait:") and value == "required" and key not in asked_keys
                for key, value in metadata.items()
            )
        )

    def _with(self, is_wanted: Callable[[Mapping[str, str]], bool]) -> frozenset[str]:
        return frozenset(entry.uuid for entry in self.all if is_wanted(entry.metadata))


def load(path: str) -> Aggregates:
    """Read the aggregates of a YAML (or JSON) file.

    :raises InvalidConfiguration: the file cannot be read, or an entry is not what it must be.
    """
    try:
        content = read_yaml(Path(path))
    except (FileNotFoundError, FileUnusable) as error:
        reason = error if isinstance(error, FileUnusable) else "does not exist"
        raise InvalidConfiguration(
            f"Option [compute_scheduler]aggregate_source: {path} {reason}."
        ) from error
    return Aggregates(tuple(_entries(path, content)))


def _entries(path: str, content: Any) -> Iterator[Aggregate]:
    if not isinstance(content, list):
        raise InvalidConfiguration(
            f"{path} (option [compute_scheduler]aggregate_source) holds "
            f"{type(content).__name__}: expected a list of aggregates."
        )
    for index, entry in enumerate(content):
        try:
            yield _aggregate({**entry, "uuid": uuid_text("uuid", str(entry["uuid"]))})
        except (KeyError, TypeError, AttributeError, InvalidRequest) as error:
            raise InvalidConfiguration(
                f"{path} (option [compute_scheduler]aggregate_source), aggregate {index}: {error}. "
                "Expected uuid, and optionally name, hosts (a list) and metadata (keys and values)."
            ) from error


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
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._service.headers["OpenStack-API-Version"] = f"compute {_SHOWS_UUID}"
        self._service.headers["X-OpenStack-Nova-API-Version"] = _SHOWS_UUID
        self._lock = threading.Lock()
        self._aggregates: KeptValues[None, Aggregates] = KeptValues(KEPT_SECONDS, time.monotonic)

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
    """Return the source that option `[compute_scheduler]aggregate_source` names.

    :raises InvalidConfiguration: a file that cannot be used.
    """
    source_name = conf.compute_scheduler.aggregate_source
    if not source_name:
        return FixedAggregates()
    if source_name == NOVA:
        return NovaAggregates(Service(conf, "nova", "Nova"))
    return FixedAggregates(load(source_name))


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
