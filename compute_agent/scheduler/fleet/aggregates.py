"""Host aggregates: their hosts and their metadata, as the aggregate source reports them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compute_agent.errors import InvalidConfiguration
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.extra_specs import uuid_text
from compute_agent.state.documents import FileUnusable
from compute_agent.state.yaml_document import read_yaml


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate; ``uuid`` is the one under which it is mirrored in placement."""

    uuid: str
    name: str = ""
    hosts: frozenset[str] = frozenset()
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Aggregates:
    """All aggregates."""

    all: tuple[Aggregate, ...] = ()

    def of_host(self, name: str) -> tuple[Aggregate, ...]:
        """Return the aggregates that a host is in."""
        return tuple(aggregate for aggregate in self.all if name in aggregate.hosts)

    def where(self, key: str, value: str) -> frozenset[str]:
        """Return the uuids of the aggregates whose metadata `key` is `value`."""
        return frozenset(
            aggregate.uuid for aggregate in self.all if aggregate.metadata.get(key) == value
        )

    def of_tenant(self, project_id: str) -> frozenset[str]:
        """Return the uuids of the aggregates that some ``filter_tenant_id*`` gives to a project."""
        return frozenset(
            aggregate.uuid
            for aggregate in self.all
            if any(
                key.startswith("filter_tenant_id") and value == project_id
                for key, value in aggregate.metadata.items()
            )
        )

    def requiring_traits_beyond(self, traits: Iterable[str]) -> frozenset[str]:
        """Return the uuids of the aggregates that ask for a trait that is not among `traits`."""
        asked_traits = set(traits)
        return frozenset(
            aggregate.uuid
            for aggregate in self.all
            if any(
                key.startswith("trait:")
                and value == "required"
                and key.removeprefix("trait:") not in asked_traits
                for key, value in aggregate.metadata.items()
            )
        )


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
            yield Aggregate(
                uuid=uuid_text("uuid", str(entry["uuid"])),
                name=str(entry.get("name", "")),
                hosts=frozenset(map(str, entry.get("hosts", ()))),
                metadata={str(k): str(v) for k, v in entry.get("metadata", {}).items()},
            )
        except (KeyError, TypeError, AttributeError, InvalidRequest) as error:
            raise InvalidConfiguration(
                f"{path} (option [compute_scheduler]aggregate_source), aggregate {index}: {error}. "
                "Expected uuid, and optionally name, hosts (a list) and metadata (keys and values)."
            ) from error
