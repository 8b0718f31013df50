"""Changes that placement itself names as the closest, in terms of the request before its shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from compute_agent.request.candidate_request import GUEST_CELL_SUFFIX, UNSUFFIXED
from compute_agent.scheduler.explanation.changes import ChangeKind, RequestChange
from compute_agent.scheduler.placement_client import PlacementClient


def named_changes(
    placement: PlacementClient, query: str, singles: Sequence[RequestChange]
) -> Iterator[tuple[RequestChange, ...]]:
    """Yield the sets of changes that placement names for a query, if it names any.

    A set is left out when one of its changes is about what the shape of the query added, such as
    the trait of NUMA cells.

    :param singles: the changes that there are of the request.
    :raises PlacementError: placement cannot be asked.
    """
    explanation = placement.explanation(parse_qsl(query))
    for closest in (explanation.closest if explanation else None) or ():
        changes = [_change_of(named_change, singles) for named_change in closest["changes"]]
        known_changes = tuple(change for change in changes if change is not None)
        if len(known_changes) == len(changes):
            yield known_changes


def _change_of(entry: Mapping[str, Any], singles: Sequence[RequestChange]) -> RequestChange | None:
    group = entry.get("group")
    if group is not None and GUEST_CELL_SUFFIX.fullmatch(group):
        group = UNSUFFIXED
    for change in singles:
        if str(change.kind) not in entry or change.group not in (group, None):
            continue
        if entry[str(change.kind)] != change.name:
            continue
        if change.kind is not ChangeKind.AMOUNT:
            return change
        if entry.get("from") == change.before:
            return change.to(int(entry["to"]))
    return None
