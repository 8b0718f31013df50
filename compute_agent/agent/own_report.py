"""The report of the agent of itself, beside its tree: placement hears from it with each pass.

So the fleet knows agents that are dead, or whose message bus is away, without a message bus.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from compute_agent.tracker.pass_schedule import NEVER
from compute_agent.tracker.place import own_place

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.tracker.resource_tracker import TrackerOptions
    from compute_agent.tracker.status import StatusBoard, Trouble

_SHOWN_LENGTH: Final = 200
_SENTENCE_LENGTH: Final = 500


class OwnReport:
    """The report of this agent, for the header of the read of a tree.

    :param options: returns what is configured for passes now.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, board: StatusBoard, options: Callable[[], TrackerOptions]
    ) -> None:
        self._place = own_place(conf)._asdict()
        self._board = board
        self._options = options

    def __call__(self, root_uuid: str) -> str | None:
        """Return the report; None where the tree is not that of a node of this agent."""
        node = next((node for node in self._board.nodes() if node.uuid == root_uuid), None)
        if node is None:
            return None
        period, bus = self._options().period, self._board.bus
        since = None if bus.since is None else datetime.fromtimestamp(bus.since, UTC).isoformat()
        return json.dumps(
            {
                "period": None if period == NEVER else period,
                "bus": {"state": bus.state, "since": since, "why": bus.why[:_SHOWN_LENGTH]},
                "disabled_reason": "" if node.enabled else node.disabled_reason[:_SHOWN_LENGTH],
                "trouble": _text(node.trouble),
                "place": self._place,
            }
        )


def _text(trouble: Trouble | None) -> str:
    return "" if trouble is None else f"{trouble.what}: {trouble.message}"[:_SENTENCE_LENGTH]
