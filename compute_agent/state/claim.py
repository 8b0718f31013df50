"""What an instance was given on this host: a value, and how it is written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class AssignedUnit:
    """One named unit behind a count: a CPU, a PCI function, a place for a mediated device."""

    provider_uuid: str
    resource_class: str
    name: str


@dataclass(frozen=True, slots=True)
class Claim:
    """What one consumer holds on a node of this agent.

    :param consumer: the instance, or the migration that holds what the instance had before.
    :param amounts: provider uuid to amounts by class, of providers of the node only.
    :param providers_of: request group to the providers that serve it.
    :param instance: the instance behind a migration; the consumer itself otherwise.
    :param migration: the move under way for which the instance was claimed anew; empty for none.
    :param claimed_at: seconds since the epoch.
    """

    consumer: str
    node: str
    amounts: Mapping[str, Mapping[str, int]]
    instance: str
    claimed_at: float
    units: tuple[AssignedUnit, ...] = ()
    providers_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    migration: str = ""

    def document(self) -> dict[str, Any]:
        """Return the claim as plain JSON types."""
        return {
            **asdict(self),
            "units": [asdict(unit) for unit in sorted(self.units)],
            "providers_of": {group: list(uuids) for group, uuids in self.providers_of.items()},
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Claim:
        """Return the claim that `document` was made from."""
        return cls(
            **{
                **document,
                "units": tuple(AssignedUnit(**unit) for unit in document["units"]),
                "providers_of": {
                    group: tuple(uuids) for group, uuids in document["providers_of"].items()
                },
            }
        )
