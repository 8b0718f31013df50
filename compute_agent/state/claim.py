"""The claim of an instance on this host: a value, and its form in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from compute_agent.state.shapes import (
    AMOUNTS,
    COUNT,
    NUMBER,
    TEXT,
    Check,
    is_not,
    list_of,
    map_of,
    object_of,
)


class AssignedUnit(NamedTuple):
    """One named unit behind a count: a CPU, a PCI function, a place for a mediated device."""

    provider_uuid: str
    resource_class: str
    name: str


class ClaimedCell(NamedTuple):
    """The share of one NUMA cell of the host that a guest has.

    :param cell: id of the cell.
    :param vcpus: CPUs of the guest that float over `shared_cpus` of the cell.
    :param pinned_cpus: CPUs of the host that are its own.
    :param page_size_kib: of the huge pages its memory is in; `None` for ordinary memory.
    """

    cell: int
    vcpus: int = 0
    shared_cpus: tuple[int, ...] = ()
    pinned_cpus: tuple[int, ...] = ()
    memory_mib: int = 0
    page_size_kib: int | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ClaimedCell:
        """Return the cell that `document` was made from."""
        lists = {key: tuple(document[key]) for key in ("shared_cpus", "pinned_cpus")}
        return cls(**{**document, **lists})


class Claim(NamedTuple):
    """The amounts, units and cells that one consumer holds on a node of this agent.

    :param consumer: the instance, or the migration that holds its resources from before the move.
    :param amounts: provider uuid to amounts by class, of providers of the node only.
    :param providers_of: request group to the providers that serve it.
    :param instance: the instance behind a migration; the consumer itself otherwise.
    :param migration: the move for which the instance was claimed again; empty for none.
    :param claimed_at: seconds since the epoch.
    :param cells: NUMA cells of the host, one for each NUMA node of the guest, in their order; empty
        for a guest that floats over the whole host.
    """

    consumer: str
    node: str
    amounts: Mapping[str, Mapping[str, int]]
    instance: str
    claimed_at: float
    units: tuple[AssignedUnit, ...] = ()
    providers_of: Mapping[str, tuple[str, ...]] = {}
    migration: str = ""
    cells: tuple[ClaimedCell, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the claim as plain JSON types."""
        return {
            **self._asdict(),
            "amounts": {uuid: dict(amounts) for uuid, amounts in self.amounts.items()},
            "units": [unit._asdict() for unit in sorted(self.units)],
            "cells": [cell._asdict() for cell in self.cells],
            "providers_of": {group: list(uuids) for group, uuids in self.providers_of.items()},
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Claim:
        """Return the claim that `document` was made from."""
        return cls(
            **{
                **document,
                "units": tuple(AssignedUnit(**unit) for unit in document["units"]),
                "cells": tuple(ClaimedCell.of(cell) for cell in document["cells"]),
                "providers_of": {
                    group: tuple(uuids) for group, uuids in document["providers_of"].items()
                },
            }
        )


def _count_or_null(value: Any) -> str | None:
    return None if value is None or COUNT(value) is None else is_not(value, "a number or null")


_UNIT: Final = object_of(
    dict.fromkeys(("provider_uuid", "resource_class", "name"), TEXT), is_closed=True
)
_CELL: Final = object_of(
    {
        **dict.fromkeys(("cell", "vcpus", "memory_mib"), COUNT),
        **dict.fromkeys(("shared_cpus", "pinned_cpus"), list_of(COUNT)),
        "page_size_kib": _count_or_null,
    },
    is_closed=True,
)
DOCUMENT: Final[Check] = object_of(
    {
        "consumer": TEXT,
        "node": TEXT,
        "amounts": map_of(AMOUNTS),
        "instance": TEXT,
        "claimed_at": NUMBER,
        "units": list_of(_UNIT),
        "providers_of": map_of(list_of(TEXT)),
        "migration": TEXT,
        "cells": list_of(_CELL),
    },
    is_closed=True,
)
"""The form that `Claim.document` writes and `Claim.of` reads."""


def claims_by_consumer(value: Any) -> str | None:
    """Check that each claim is kept under the consumer that holds it."""
    misfit = map_of(DOCUMENT)(value)
    if misfit is not None:
        return misfit
    for consumer, claim in value.items():
        if claim["consumer"] != consumer:
            return f".{consumer}.consumer{is_not(claim['consumer'], consumer)}"
    return None
