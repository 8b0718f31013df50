"""Output of `host drain`: the host, who is left on it, and where each would fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compute_agent.cmd.console import new_console, new_table
from compute_agent.drift.wording import count_of, resources

if TYPE_CHECKING:
    from rich.table import Table

    from compute_agent.manage.drain import ConsumerMove, Holder
    from compute_agent.manage.fleet import FleetHost


@dataclass(frozen=True, slots=True)
class DrainedHost:
    """A host that is drained.

    :ivar host: as it was before.
    :ivar by: by what it is disabled.
    :ivar was_disabled: by an operator, before this command.
    :ivar left_out: other hosts that take nothing, since their agents fell silent: uuid to name.
    :ivar together: whether each consumer is placed with what those before it have left.
    """

    host: FleetHost
    by: str
    was_disabled: bool
    left_out: Mapping[str, str]
    together: bool


def print_difference(
    before: Sequence[Holder], after: Sequence[Holder], line: Callable[[str], None]
) -> None:
    earlier_consumers, remaining_consumers = (
        {holder.consumer for holder in before},
        {holder.consumer for holder in after},
    )
    left_text = count_of(len(remaining_consumers), "consumer")
    for consumer in sorted(earlier_consumers - remaining_consumers):
        line(f"{consumer} has left; {left_text} left")
    for consumer in sorted(remaining_consumers - earlier_consumers):
        line(f"{consumer} has arrived, by a request from before the drain; {left_text} left")


def print_line(out: Any, text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=out, flush=True)


def as_document(
    drained_host: DrainedHost, moves: Sequence[ConsumerMove], *, is_dry_run: bool
) -> dict[str, object]:
    host = drained_host.host
    return {
        "dry_run": is_dry_run,
        "uuid": host.uuid,
        "name": host.name,
        "agent": host.agent,
        "was_disabled": drained_host.was_disabled,
        "by": drained_host.by,
        "empty": not moves,
        "together": drained_host.together,
        "left_out": sorted(drained_host.left_out.values()),
        "consumers": [move.as_dict() for move in moves],
    }


def print_host(
    drained_host: DrainedHost, moves: Sequence[ConsumerMove], *, is_dry_run: bool
) -> None:
    host = drained_host.host
    if drained_host.was_disabled:
        how = f"is disabled already{f' ({host.reason})' if host.reason else ''}"
    else:
        how = f"{'would be' if is_dry_run else 'is'} disabled {drained_host.by}"
    print(f"{host.name} ({host.uuid}) {how}; agent {host.agent}")
    if not moves:
        print(f"{host.name} is empty")
        return
    new_console().print(_table(moves))
    stuck_count = sum(move.is_stuck for move in moves)
    room_text = (
        f"of which {stuck_count} {'fits' if stuck_count == 1 else 'fit'} nowhere else"
        if stuck_count
        else "and there is room elsewhere"
    )
    print(f"{count_of(len(moves), 'consumer')} left, {room_text}. Move them with what runs them.")
    if host.agent == "silent":
        print("Its agent is silent: if the host is dead, they have to be evacuated.")
    if not drained_host.together:
        print("This placement has no what-if, so each was asked about as if it were the only one.")
    if drained_host.left_out:
        names = ", ".join(sorted(drained_host.left_out.values()))
        print(f"Left out as destinations, since their agents fell silent: {names}.")


def _table(moves: Sequence[ConsumerMove]) -> Table:
    table = new_table("consumer", "holds", "would fit on", "why not")
    for move in moves:
        to = move.to or ("nowhere" if move.is_stuck else "-")
        table.add_row(move.consumer, resources(move.resources), to, move.reason)
    return table
