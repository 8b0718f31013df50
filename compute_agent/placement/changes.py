"""The feed of changes that this project's placement offers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct

from compute_agent import errors
from compute_agent.placement import responses
from compute_agent.placement.answers import ChangeList
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.transport import EXTENSIONS_VERSION, Request

MOST_LISTED: Final = 1000
"""Changes that one answer lists."""

_CONNECT_SECONDS: Final = 10.0
# The answer takes this much longer than the wait at most.
_MARGIN_SECONDS: Final = 30.0


class Changes(Struct, frozen=True):
    """Changes that were made.

    :ivar roots: the roots of the trees that changed.
    :ivar last: the id to ask on from.
    :ivar more: there may be more behind it right away.
    """

    roots: frozenset[str]
    last: int
    more: bool = False


class ChangeFeed:
    """Questions about changes over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def structure(self, after: int | None, roots: Collection[str], wait: int) -> Changes:
        """Return which trees changed otherwise than by claims; see `of_kinds`."""
        return self.of_kinds(("structure",), after, roots, wait)

    def of_kinds(
        self, kinds: Collection[str], after: int | None, roots: Collection[str], wait: int
    ) -> Changes:
        """Return which trees changed in these ways, once there are some.

        :param kinds: of `structure`, `usage` (claims) and `names`.
        :param after: the id behind which changes are asked for; None for none, but the present end.
        :param roots: the roots of the trees asked for; none: of all.
        :param wait: seconds to wait for the first change.
        :raises errors.ChangesPruned: changes have been deleted since.
        :raises errors.ChangesNotOffered: this placement has no feed.
        :raises errors.PlacementError: it cannot be read.
        """
        parameters = [("root", root) for root in sorted(roots)]
        parameters += [("kind", kind) for kind in kinds]
        parameters.append(("limit", str(MOST_LISTED)))
        if after is not None:
            parameters += [("after", str(after)), ("wait", str(wait))]
        request = Request(
            "GET",
            f"/changes?{urlencode(parameters)}",
            timeout=(_CONNECT_SECONDS, wait + _MARGIN_SECONDS),
            extensions=EXTENSIONS_VERSION,
            doing="Asking for changes",
            refusals={responses.CHANGES_PRUNED: errors.ChangesPruned},
            repeat=False,
        )
        try:
            answer = self._connection.read(request, ChangeList)
        except errors.PlacementTooOld as refusal:
            raise errors.ChangesNotOffered(str(refusal), status=refusal.status) from refusal
        changed_roots = {change.root_provider_uuid for change in answer.changes}
        return Changes(
            frozenset(root for root in changed_roots if root is not None),
            answer.last,
            more=len(answer.changes) >= MOST_LISTED,
        )
