"""Moves of instances as values, and what the consumers hold while one is under way."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from compute_agent.placement.allocations.amounts import Amounts, MutableAmounts, add, copy_of
from compute_agent.request.errors import InvalidRequest
from compute_agent.state.shapes import AMOUNTS, TEXT, list_of, map_of, word_of


class MoveKind(StrEnum):
    """Kinds of moves, by what becomes of the allocations on the source.

    `cold` (cold migration and resize) and `live`: another consumer, named after the migration,
    holds them until the move is confirmed. `evacuate`: the instance holds both places until its
    dead source comes back.
    """

    COLD = "cold"
    LIVE = "live"
    EVACUATE = "evacuate"


class Move(Struct, frozen=True):
    """One move; the caller keeps it until the move is confirmed or reverted.

    :param migration: consumer that holds the source meanwhile; empty for an evacuation.
    :param source_root: root provider of the host that the instance leaves.
    :param source: all that the instance held when the move began.
    :param mappings: group to providers of that claim, as the caller knew it; a revert returns it.
    :param destination_root: root provider of the host that was claimed, empty until then.
    :param destination: all that the instance holds once that is claimed.
    :param left_amounts: all that the migration holds then.
    """

    kind: MoveKind
    instance: str
    migration: str
    source_root: str
    source: Amounts
    mappings: Mapping[str, tuple[str, ...]] = {}
    destination_root: str = ""
    destination: Amounts = {}
    left_amounts: Amounts = {}
    project_id: str = ""
    user_id: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types, which `move_of` reads."""
        return {
            "kind": str(self.kind),
            **{name: getattr(self, name) for name in _TEXTS},
            **{name: copy_of(getattr(self, field)) for name, field in _AMOUNTS.items()},
            "mappings": {suffix: list(uuids) for suffix, uuids in self.mappings.items()},
        }


_TEXTS = ("instance", "migration", "source_root", "destination_root", "project_id", "user_id")
_AMOUNTS = {"source": "source", "destination": "destination", "left": "left_amounts"}
"""Keys of amounts, and the fields that they are kept in."""

DOCUMENT = {
    "kind": word_of(*MoveKind),
    **dict.fromkeys(_TEXTS, TEXT),
    **dict.fromkeys(_AMOUNTS, map_of(AMOUNTS)),
    "mappings": map_of(list_of(TEXT)),
}
"""Shape of what `Move.as_dict` returns, by key."""


def move_kind(name: str) -> MoveKind:
    """Return the kind of this name.

    :raises InvalidRequest: there is none.
    """
    try:
        return MoveKind(name)
    except ValueError:
        raise InvalidRequest("kind", name, " or ".join(MoveKind)) from None


def move_of(body: Mapping[str, Any]) -> Move:
    """Return the move that `Move.as_dict` wrote down.

    :raises InvalidRequest: it is not such a document.
    """
    try:
        fields: dict[str, Any] = {name: str(body[name]) for name in _TEXTS}
        fields |= {field: _allocations(body[name]) for name, field in _AMOUNTS.items()}
        return Move(
            kind=MoveKind(body["kind"]),
            mappings={str(s): tuple(map(str, uuids)) for s, uuids in body["mappings"].items()},
            **fields,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRequest(
            "the move", body, f"what begin_move returned ({type(error).__name__}: {error})"
        ) from error


def _allocations(body: Mapping[str, Any]) -> MutableAmounts:
    return {
        str(uuid): {str(name): int(amount) for name, amount in resources.items()}
        for uuid, resources in body.items()
    }


def left_on_source(
    source: Amounts, destination: Amounts, sharing: Collection[str]
) -> MutableAmounts:
    """Return what the migration keeps once the instance holds `destination`.

    Everything, but on a provider that both places share: there instance and migration together
    hold the larger of the two amounts, since the disk exists once and either may be gone back to.
    """
    left_amounts: MutableAmounts = {}
    for uuid, resources in source.items():
        there = destination.get(uuid, {}) if uuid in sharing else {}
        remaining_amounts = {
            name: amount - there.get(name, 0) for name, amount in resources.items()
        }
        positive = {name: amount for name, amount in remaining_amounts.items() if amount > 0}
        if positive:
            left_amounts[uuid] = positive
    return left_amounts


def both_places(
    held_amounts: Amounts, destination: Amounts, sharing: Collection[str]
) -> MutableAmounts:
    """Return what an instance holds that is rebuilt at `destination` while its source is dead.

    The sum, but on a provider that both places share: there it holds what it needs now, so that
    nothing of the source is left on it when the source's own part is taken away.
    """
    total = add(held_amounts, destination)
    for uuid in destination.keys() & set(sharing):
        total[uuid].update(destination[uuid])
    return total
