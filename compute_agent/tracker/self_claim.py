"""Allocations that the host makes by itself, for the time of an upgrade from old schedulers.

A scheduler that does not claim leaves the instance without allocation. Then what the caller names
is allocated, or what the flavor says, on the root provider as hosts were before they had trees.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from compute_agent import errors
from compute_agent.report.allocations import AlreadyClaimed, NoCapacity
from compute_agent.report.connection import CONSUMER_TYPE

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.report.client import ReportClient
    from compute_agent.tracker.claims import Amounts, ClaimRequest

LOG = logging.getLogger(__name__)


class SelfClaim:
    """Allocates for instances that come without an allocation."""

    def __init__(self, report: ReportClient) -> None:
        self._report = report

    def allocate(self, request: ClaimRequest, tree: ProviderTree, root: str) -> Amounts:
        """Allocate for an instance and return what it holds now.

        :raises ComputeResourcesUnavailable: the request does not say what is needed, or there is
            not enough.
        :raises PlacementError: placement could not be asked, or refused.
        """
        wanted = request.amounts or _on_root(request.needs, tree, root)
        if not wanted:
            raise errors.ComputeResourcesUnavailable(
                f"Placement holds no allocation for {request.instance}, and the request names "
                "neither allocations nor a flavor that this host could give something of. Send "
                "one of them, or let the scheduler claim."
            )
        result = self._report.claim_resources(
            request.instance,
            {"allocations": {uuid: {"resources": dict(n)} for uuid, n in wanted.items()}},
            request.project,
            request.user,
            min(self._report.connect().maximum, CONSUMER_TYPE),
        )
        if isinstance(result, NoCapacity):
            raise errors.ComputeResourcesUnavailable(
                f"There is not enough for {request.instance}, which came without an allocation: "
                f"{result.detail}"
            )
        if isinstance(result, AlreadyClaimed):
            # the scheduler was late; what it claimed counts
            held = result.record["allocations"]
            return {uuid: dict(given["resources"]) for uuid, given in held.items()}
        LOG.info("Allocated %s for %s, which no scheduler did.", wanted, request.instance)
        return wanted


def _on_root(needs: Mapping[str, int], tree: ProviderTree, root: str) -> Amounts:
    """Return what of a flavor the root provider gives; a shared disk, say, is not its own."""
    there = tree.data(root).inventory
    own = {name: amount for name, amount in needs.items() if amount and name in there}
    return {root: own} if own else {}
