"""The report of the agent of itself, beside its tree: placement hears from it with each pass.

So the fleet knows agents that are dead, or whose message bus is away, without a message bus.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from compute_agent.programs.printable import shortened
from compute_agent.tracker.pass_schedule import NEVER

if TYPE_CHECKING:
    from compute_agent.daemon.trouble import Trouble
    from compute_agent.tracker.place import Place
    from compute_agent.tracker.resource_tracker import TrackerOptions
    from compute_agent.tracker.status import StatusBoard

_SHOWN_LENGTH: Final = 200
_SENTENCE_LENGTH: Final = 500
_MOST_CHARACTERS: Final = 4096
"""Of a header that placement reads."""
_DIGITS: Final = 8
"""Of the uuid of a guest: enough to find it among those of one host."""


class OwnReport(Struct, eq=False):
    """The report of this agent, for the header of the read of a tree.

    :ivar place: where the agent runs.
    :ivar options: returns what is configured for passes now.
    :ivar cells: returns the cores of a node with their guests, by the name of the node.
    """

    place: Place
    board: StatusBoard
    options: Callable[[], TrackerOptions]
    cells: Callable[[str], list[dict[str, Any]]]

    def __call__(self, root_uuid: str) -> str | None:
        """Return the report; None where the tree is not that of a node of this agent."""
        node = next((node for node in self.board.nodes() if node.uuid == root_uuid), None)
        if node is None:
            return None
        period, board, bus = self.options().period, self.board, self.board.bus
        host_trouble = board.search_trouble or board.state_trouble or board.reload_trouble
        since = None if bus.since is None else datetime.fromtimestamp(bus.since, UTC).isoformat()
        report = {
            "period": None if period == NEVER else period,
            "bus": {"state": bus.state, "since": since, "why": shortened(bus.why, _SHOWN_LENGTH)},
            "disabled_reason": ""
            if node.enabled
            else shortened(node.disabled_reason, _SHOWN_LENGTH),
            "trouble": _text(node.trouble or host_trouble),
            "place": asdict(self.place),
        }
        return with_cores(report, self.cells(node.name))


def with_cores(report: Mapping[str, Any], cells: Iterable[Mapping[str, Any]]) -> str:
    """Return a report with cores and their guests, as far as the header has room for them all."""
    shown_cells = [
        {
            "id": cell["id"],
            "cores": [
                [(cpu, guest and guest[:_DIGITS]) for cpu, guest in c] for c in cell["cores"]
            ],
        }
        for cell in cells
    ]
    text = json.dumps(dict(report) | {"cells": shown_cells}, separators=(",", ":"))
    is_short = shown_cells and len(text) <= _MOST_CHARACTERS
    return text if is_short else json.dumps(report)


def _text(trouble: Trouble | None) -> str:
    text = "" if trouble is None else f"{trouble.what}: {trouble.message}"
    return shortened(text, _SENTENCE_LENGTH)
