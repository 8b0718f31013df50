"""Report of the closest changes: with names, and with what is free at the moment it is made.

The index knows neither the names of providers nor their consumers, so these are read from the
store, in one statement. What it shows may be newer than the index. A provider that has the room by
then, or is gone, is left out: what is reported was true at one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Final

from placement_server.candidates.closest.closest import ChangeSet, Closest
from placement_server.candidates.index.index import Index
from placement_server.store.allocations.room import Room, RoomOfProvider

#: Sets of changes that get a sentence: more are not read by a person.
_SENTENCES: Final = 10

ReadRoom = Callable[[Set[int], Set[int]], dict[str, RoomOfProvider]]


@dataclass(frozen=True, slots=True)
class Short:
    """A provider that is short of one class for one group.

    :param provider: its uuid.
    :param room: what it has of the class.
    """

    group: str
    provider: str
    name: str
    resource_class: str
    requested_amount: int
    room: Room

    def sentence(self) -> str:
        """Return the shortage for a reader."""
        room, what = self.room, self.resource_class
        request_part = f"{self.requested_amount} asked for" + (
            f" by group '{self.group}'" if self.group else ""
        )
        if room.free < self.requested_amount:
            holders = f"{room.consumers} consumer{'' if room.consumers == 1 else 's'}"
            verb = "holds" if room.consumers == 1 else "hold"
            holder_part = f", {holders} {verb} some" if room.consumers else ""
            return (
                f"{self.name} has {room.free} of {room.capacity} {what} free"
                f"{holder_part}; {request_part}."
            )
        unit = room.unit_against(self.requested_amount)
        gives = {
            "min_unit": f"at least {room.min_unit} {what} at a time (min_unit)",
            "max_unit": f"at most {room.max_unit} {what} at a time (max_unit)",
            "step_size": f"{what} in multiples of {room.step_size} (step_size)",
        }
        return f"{self.name} gives {gives[unit or 'max_unit']}; {request_part}."


@dataclass(frozen=True, slots=True)
class ReportedSet:
    """A set of changes.

    :param example: the uuid of the root of a tree that has candidates with these changes.
    :param name: its name, or the uuid where the name is not known.
    """

    change_set: ChangeSet
    example: str
    name: str

    def sentence(self) -> str:
        """Return the set for a reader."""
        trees = self.change_set.trees
        changes = " and ".join(change.words(to) for change, to in self.change_set.changes)
        if trees == 1:
            return f"1 tree would fit {changes}: {self.name}."
        return f"{trees} trees would fit {changes}, for example {self.name}."


@dataclass(frozen=True, slots=True)
class Report:
    """The closest changes of a query, and the providers that are short.

    :param complete: whether every change was tried.
    """

    sets: list[ReportedSet]
    short: list[Short]
    complete: bool

    def lines(self) -> Iterator[str]:
        """Yield the report as sentences."""
        if not self.sets and self.complete:
            yield "No tree would fit with one or two changes of the request."
        for reported_set in self.sets[:_SENTENCES]:
            yield reported_set.sentence()
        if not self.complete:
            yield (
                "Not every change was tried: the time of a search, its memory or the places of "
                "heavy searches were used up."
            )
        for short in self.short:
            yield short.sentence()


def report_of(closest: Closest, index: Index, read_room: ReadRoom) -> Report:
    """Return the report about what was found on an index.

    :param read_room: reads the room on providers by their ids, of classes by their ids.
    """
    uuids, ids = index.columns.uuid, index.columns.provider_id.view()
    class_ids = index.names.class_ids
    slots = {shortage.slot for shortage in closest.shortages}
    slots |= {change_set.example for change_set in closest.sets[:_SENTENCES]}
    wanted_classes = {class_ids[shortage.resource_class] for shortage in closest.shortages}
    rooms = read_room({int(ids[slot]) for slot in slots}, wanted_classes) if slots else {}
    return Report(
        sets=[
            ReportedSet(change_set, uuid, rooms[uuid].name if uuid in rooms else uuid)
            for change_set in closest.sets
            for uuid in [uuids[change_set.example]]
        ],
        short=list(_short(closest, index, rooms)),
        complete=closest.complete,
    )


def _short(closest: Closest, index: Index, rooms: dict[str, RoomOfProvider]) -> Iterator[Short]:
    for shortage in closest.shortages:
        uuid = index.columns.uuid[shortage.slot]
        of_provider = rooms.get(uuid)
        if of_provider is None:
            continue
        room = of_provider.by_class.get(index.names.class_ids[shortage.resource_class])
        if room is not None and not room.fits(shortage.requested_amount):
            yield Short(
                shortage.group,
                uuid,
                of_provider.name,
                shortage.resource_class,
                shortage.requested_amount,
                room,
            )
