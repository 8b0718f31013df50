"""Other agents that report the same node: a cloned image, or a name given twice.

Every agent announces itself to those of its own name, on a topic of that name, so that a fleet
exchanges no more messages for it than it has agents.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from compute_agent import errors
from compute_agent.tracker.place import SHOWN_LENGTH, Place

LOG = logging.getLogger(__name__)

PERIODS: Final = 3.0
"""Periods of announcement after which one that was not heard again is gone."""


@dataclass(slots=True, eq=False)
class Namesakes:
    """Others that report nodes of this agent. Safe for threads.

    :ivar patience: seconds after which one that was not heard again is gone.
    :ivar on_first: called when one is heard that was not there before.
    """

    own: Place
    patience: float
    on_first: Callable[[], object]
    clock: Callable[[], float] = time.monotonic
    _mutex: threading.Lock = field(default_factory=threading.Lock, init=False)
    _by_root: dict[str, tuple[float, Place]] = field(default_factory=dict, init=False)

    def message(self, roots: list[str]) -> dict[str, Any]:
        """Return what this agent announces to its namesakes."""
        return {**self.own._asdict(), "roots": roots}

    def hear(self, message: Mapping[str, Any]) -> None:
        """Take in what an agent of this name announces, this one among them.

        :raises ValueError: it is not of that form.
        """
        try:
            place = Place.of(message)
            roots = [str(root) for root in message["roots"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {str(error)[:SHOWN_LENGTH]}") from error
        if place.is_same(self.own):
            return
        now = self.clock()
        with self._mutex:
            is_first = any(self._other(root, now) is None for root in roots)
            self._by_root.update(dict.fromkeys(roots, (now, place)))
        if is_first:
            self.on_first()

    def check_alone(self, root: str) -> None:
        """Check that no other agent reports a node.

        :raises InvalidNodeConfiguration: one does; both are named.
        """
        with self._mutex:
            other = self._other(root, self.clock())
        if other is not None:
            raise errors.InvalidNodeConfiguration(
                f"Two agents report the resource provider {root}: this one, at {self.own}, and one "
                f"at {other}. Stop the one that is not this host; on a cloned machine delete "
                "compute_id and the state directory, and give it a name of its own ([DEFAULT]host)."
            )

    def _other(self, root: str, now: float) -> Place | None:
        heard_at, place = self._by_root.get(root, (0.0, None))
        return place if place is not None and now - heard_at < self.patience else None


class NamesakeEndpoint:
    """Where agents of one name announce themselves to each other."""

    def __init__(self, namesakes: Namesakes, target: Any) -> None:
        self.target = target
        self._hear: Callable[[Mapping[str, Any]], None] = namesakes.hear

    def agent_runs(self, _ctxt: Mapping[str, Any], agent: Mapping[str, Any]) -> None:
        """Take in one announcement."""
        try:
            self._hear(agent)
        except ValueError as error:
            LOG.warning("A message of another agent of this name is ignored: %s", error)
