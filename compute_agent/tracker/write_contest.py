"""Another writer that undoes what this agent writes, pass after pass: two agents report one host.

    left by this agent    VCPU 8        VCPU 8
    found by this agent          VCPU 4        VCPU 4   the same again: a second agent, or a script
    written               VCPU 8        VCPU 8

Two agents whose passes fall together read the same, so that each finds every second time what it
left. So a pass without such a find does not end it yet.

On a message bus such agents hear each other (`agent.rpc`); without one, this tells.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import astuple, replace

from compute_agent import errors
from compute_agent.programs.printable import first_of
from compute_agent.provider_tree.inventory import equal_records
from compute_agent.report.diff import Rename, Reparent, diff
from compute_agent.report.steps import (
    CreateProvider,
    DeleteProvider,
    PutProvider,
    SetAggregates,
    SetInventories,
    SetInventory,
    SetTraits,
)
from compute_agent.tracker.place import Place

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.report.client import ReportClient
    from compute_agent.report.steps import Step

LOG = logging.getLogger(__name__)

MOST_UNDONE: Final = 3
"""Passes of which the same is undone, after which the agent no longer writes."""
_RESTS: Final = 2
"""Passes in a row of which nothing is undone, after which what was undone before is forgotten."""
_NAMED: Final = 3


class _Undone(Struct, frozen=True):
    names: frozenset[str] = frozenset()
    times: int = 0
    rests: int = 0


class WriteContest(Struct, eq=False):
    """What another writer undoes of each tree.

    :ivar place: where this agent runs.
    """

    report: ReportClient
    place: Place
    _undone: dict[str, _Undone] = {}

    def check(self, root_uuid: str) -> None:
        """Check that nobody undoes what this agent writes. It stays so until the agent ends.

        :raises InvalidNodeConfiguration: somebody does.
        """
        undone_writes = self._undone.get(root_uuid, _Undone())
        if undone_writes.times < MOST_UNDONE:
            return
        raise errors.InvalidNodeConfiguration(
            f"Another writer undid {undone_writes.times} times in a row what this agent, at "
            f"{self.place}, wrote of the resource provider {root_uuid}: "
            f"{first_of(sorted(undone_writes.names), _NAMED)}. "
            f"{self._other(root_uuid)} So nothing more is written. Stop the agent that is not this "
            "host's, and on a cloned machine delete compute_id and the state directory and give it "
            "a name of its own ([DEFAULT]host); then restart this agent."
        )

    def record(
        self,
        root_uuid: str,
        left: ProviderTree | None,
        found: ProviderTree,
        steps: Iterable[Step],
    ) -> None:
        """Record what a pass found and wrote.

        :param left: the tree as the pass before left it; None: there was none.
        """
        undone_names = frozenset() if left is None else undone(left, found, steps)
        if not undone_names:
            self.rest(root_uuid)
            return
        known = self._undone.get(root_uuid, _Undone())
        again_names = known.names & undone_names
        self._undone[root_uuid] = (
            _Undone(again_names, known.times + 1) if again_names else _Undone(undone_names, 1)
        )

    def rest(self, root_uuid: str) -> None:
        """Record a pass that found what the one before had left."""
        known = self._undone.pop(root_uuid, None)
        if known is not None and known.rests + 1 < _RESTS:
            self._undone[root_uuid] = replace(known, rests=known.rests + 1)

    def _other(self, root_uuid: str) -> str:
        """Return who reported the host last but this agent, as far as placement knows."""
        try:
            report = self.report.placement.trees.agent_reports([root_uuid]).get(root_uuid)
        except errors.PlacementError as error:
            LOG.debug("Who else reports %s is not known: %s", root_uuid, error)
            report = None
        other = None if report is None else Place.of(report.place)
        if other is None or self.place.is_same(other):
            return "It may be another agent of the same name or identity, or a script."
        return f"It is the agent at {other}."


def undone(left: ProviderTree, found: ProviderTree, steps: Iterable[Step]) -> frozenset[str]:
    """Return what was changed after a tree was left and is changed back now, in words.

    :param steps: what was written. Providers that are kept because of their consumers are none.
    """
    return frozenset(_names(chain(*astuple(diff(left, found))))) & frozenset(_names(steps))


def _names(changes: Iterable[object]) -> Iterator[str]:
    for change in changes:
        match change:
            case CreateProvider() | DeleteProvider():
                yield f"provider {change.name}"
            case PutProvider() | Rename() | Reparent():
                yield f"name or parent of {change.uuid}"
            case SetInventories():
                yield from _names(change.changes)
            case SetInventory():
                for name in change.before.keys() | change.after.keys():
                    before, after = change.before.get(name), change.after.get(name)
                    if before is None or after is None or not equal_records(before, after):
                        yield f"{name} of {change.name}"
            case SetTraits():
                yield from (f"{name} of {change.name}" for name in change.before ^ change.after)
            case SetAggregates():
                yield f"aggregates of {change.name}"
