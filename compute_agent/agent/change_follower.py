"""The thread that follows what others change of this host in placement.

It asks placement's feed of changes for the trees of this host, waits there, and asks for a pass of
the node whose tree changed. The period goes on beside it and checks. While placement cannot be
asked nothing is lost: the next question begins where the last answer ended. Where that is not known
(at the start, or when placement has deleted changes since) every node gets a pass.

Claims are left out: they change nothing that a pass writes.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, field

from compute_agent import errors
from compute_agent.placement.changes import ChangeFeed
from compute_agent.tracker.status import UNFOLLOWED, FeedState, StatusBoard

LOG = logging.getLogger(__name__)

WAIT: Final = 50
"""Seconds that one question waits; proxies commonly give up after 60."""

NOT_OFFERED_PAUSE: Final = 300.0
"""Seconds until placement is asked again whether it has a feed now."""

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0

_JITTER: Final = 0.5


class ChangeFollower(Struct, eq=False):
    """Follows the trees of the nodes until it is stopped.

    :ivar nodes: returns the uuids of the roots, by node.
    :ivar on_change: called with a node whose tree changed, or may have.
    :ivar wait: seconds that one question waits.
    """

    feed: ChangeFeed
    nodes: Callable[[], Mapping[str, str]]
    on_change: Callable[[str], None]
    board: StatusBoard
    wait: int = WAIT
    rng: random.Random = field(default_factory=random.Random)
    clock: Callable[[], float] = time.monotonic
    _after: int | None = None
    _failures: int = 0
    _stopping: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin. The thread ends with the process: it may be in the middle of a question."""
        threading.Thread(target=self._run, name="changes", daemon=True).start()

    def stop(self) -> None:
        """Ask for no pass any more."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                pause = self.ask_once()
            except Exception as error:
                LOG.exception("Following changes in placement failed; again in %.0f s.", WAIT)
                self.board.feed_is(FeedState.FAILING, repr(error))
                pause = float(WAIT)
            self._stopping.wait(pause)

    def ask_once(self) -> float:
        """Ask once, act on the answer, and return the seconds until the next question."""
        asked_roots = set(self.nodes().values())
        if not asked_roots:
            return FIRST_PAUSE
        started_at = self.clock()
        try:
            changes = self.feed.structure(self._after, asked_roots, self.wait)
        except errors.ChangesPruned as error:
            LOG.info("Every node gets a pass: %s", error)
            self._after = None
            return 0.0
        except errors.ChangesNotOffered as error:
            return self._pause_without_feed(error)
        except errors.PlacementError as error:
            return self._pause_after_failure(error)
        if self.board.feed.state in UNFOLLOWED:
            LOG.info("Changes in placement are followed again.")
        self._failures = 0
        is_first, self._after = self._after is None, changes.last
        # what happened to one that came meanwhile was not asked
        changed_nodes = [
            node
            for node, root in self.nodes().items()
            if is_first or root in changes.roots or root not in asked_roots
        ]
        self.board.feed_is(FeedState.FOLLOWING, last=changes.last, changes=len(changes.roots))
        if not self._stopping.is_set():
            for node in changed_nodes:
                self.on_change(node)
        answered_early = not changed_nodes and self.clock() - started_at < FIRST_PAUSE
        return FIRST_PAUSE if answered_early else 0.0

    def _pause_without_feed(self, error: errors.PlacementError) -> float:
        if self.board.feed.state is not FeedState.NOT_OFFERED:
            LOG.warning(
                "Only periodic passes find changes in placement, [compute_agent]follow_changes has "
                "no effect: placement does not offer placement-ext 1.1, and is asked again every "
                "%.0f s. %s",
                NOT_OFFERED_PAUSE,
                error,
            )
        self._after = None
        self.board.feed_is(FeedState.NOT_OFFERED, str(error))
        return NOT_OFFERED_PAUSE

    def _pause_after_failure(self, error: errors.PlacementError) -> float:
        if not self._failures:
            LOG.warning("Only periodic passes find changes in placement for now: %s", error)
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._failures, 10))
        pause *= self.rng.uniform(1 - _JITTER, 1 + _JITTER)
        self._failures += 1
        self.board.feed_is(FeedState.FAILING, str(error))
        return max(pause, min(error.retry_after or 0.0, LONGEST_PAUSE))
