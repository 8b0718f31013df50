"""Claims on this host, as long as they are held.

What an instance holds, and what changes that:

    no claim --claim--> held --drop--> no claim
                         |  claim with a migration: what was held before is kept under the migration
                         v
               held (new) + held (old, consumer = the migration)
                         |--drop(migration)--> the new one stays: the move was confirmed
                         `--drop(instance)---> the old one is the instance's again: it was reverted
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.claims import guests as running_guests
from compute_agent.claims.checks import has_moved, stale
from compute_agent.claims.running import RunningClaims
from compute_agent.claims.units import units_of
from compute_agent.state.claim import Claim

if TYPE_CHECKING:
    from compute_agent.claims.comparison import Holders
    from compute_agent.report.client import ReportClient
    from compute_agent.state.ledger import Ledger
    from compute_agent.tracker.resource_tracker import ResourceTracker
    from compute_agent.virt.driver import ComputeDriver

LOG = logging.getLogger(__name__)


class ClaimBook(Struct, eq=False):
    """The claims on all nodes of this agent. Safe for several threads."""

    tracker: ResourceTracker
    report: ReportClient
    driver: ComputeDriver
    ledger: Ledger
    running: RunningClaims = field(default_factory=RunningClaims)

    def claims(self) -> list[Claim]:
        """Return what is held now, by consumer."""
        return [claim for _consumer, claim in sorted(self.ledger.claims().items())]

    def moving(self) -> list[str]:
        """Return the migrations that hold something here for an instance on the move."""
        return [claim.consumer for claim in self.claims() if claim.consumer != claim.instance]

    def drop(self, consumer: str) -> bool:
        """Forget what an instance, or a migration, holds here.

        Dropping an instance whose old claim is kept for a migration gives it the old one back.

        :returns: False if there was nothing.
        """
        claims = self.ledger.claims()
        claim = claims.get(consumer)
        if claim is None:
            return False
        before = claims.get(claim.migration) if claim.migration else None
        if before is not None and before.instance == consumer:
            self.ledger.change_claims(
                drop=[before.consumer], add=[replace(before, consumer=consumer)]
            )
        else:
            self.ledger.change_claims(drop=[consumer])
        LOG.info("The claim of %s on node %s is dropped.", consumer, claim.node)
        return True

    def differences(self, node: str, holders: Holders) -> dict[str, str]:
        """Return what differs between host and placement, as a sentence, by instance.

        :param holders: what is held of the providers of the node.
        :raises ComputeHostNotFound: the node is not managed here any more.
        :raises ComputeResourcesUnavailable: it has not been reported yet.
        """
        tree, root = self.tracker.reported_tree(node)
        # read once, and before the guests: what is claimed meanwhile is not in `holders`
        claims = self.claims()
        here = [claim for claim in claims if claim.node == node]
        guests = running_guests.guests(self.driver, here)
        # loaded with the first audit
        from compute_agent.claims import comparison

        return comparison.differences(tree, root, holders, guests, claims)

    def check_assigned(self, node: str) -> None:
        """Check after the first pass of a node that what was given out is still there.

        :raises AssignedResourceNotFound: names instances and units.
        :raises PlacementError: it could not be asked about instances that do not run here.
        """
        self.forget_stale(node)
        tree, root = self.tracker.reported_tree(node)
        there = units_of(tree, root)
        lost_units = [
            f"{unit.resource_class} {unit.name} of {claim.instance}"
            for claim in self._claims_on(node)
            for unit in claim.units
            if unit not in there
        ]
        if lost_units:
            raise errors.AssignedResourceNotFound(
                f"Node {node} no longer has what was given to instances: {'; '.join(lost_units)}. "
                "Bring the devices or the options back; or, where the instance can do without, "
                "drop its claim with `compute-agent drop-claim INSTANCE`, and start again."
            )

    def forget_stale(self, node: str) -> list[str]:
        """Drop claims of a node whose instance neither runs here nor holds anything of it.

        Where the driver cannot list what runs here, only those of instances that have moved.

        :returns: the consumers.
        :raises PlacementError: placement could not be asked.
        """
        claims = self._claims_on(node)
        guest_uuids = self.driver.list_instance_uuids() if claims else []
        stale_claims = self._held_by_nobody(claims, guest_uuids)
        if stale_claims and guest_uuids is None:
            tree, root = self.tracker.reported_tree(node)
            own = tree.get_provider_uuids(root)
            records = [
                self.report.placement.allocations.get_allocs_for_consumer(claim.instance)
                for claim in stale_claims
            ]
            records_of_claims = zip(stale_claims, records, strict=True)
            stale_claims = [
                claim for claim, record in records_of_claims if has_moved(claim, record, own)
            ]
        # what was claimed again meanwhile is another claim, and stays
        current_claims = self.ledger.claims()
        stale_claims = [
            claim for claim in stale_claims if current_claims.get(claim.consumer) == claim
        ]
        self.ledger.change_claims(drop=[claim.consumer for claim in stale_claims])
        for claim in stale_claims:
            LOG.info(
                "Node %s: the claim of %s is dropped: it does not run here and holds nothing here.",
                node,
                claim.consumer,
            )
        return [claim.consumer for claim in stale_claims]

    def claims_without_guest(self, node: str) -> list[Claim]:
        """Return the claims of a node that nobody holds, of instances not known to run here.

        A move gives the allocations of an instance to a migration that the host does not hear of:
        a claim is also held while some consumer without a claim holds just what it has.

        :raises PlacementError: placement could not be asked.
        """
        claims = self._claims_on(node)
        return self._held_by_nobody(claims, self.driver.list_instance_uuids() if claims else [])

    def _claims_on(self, node: str) -> list[Claim]:
        return [claim for claim in self.claims() if claim.node == node]

    def _held_by_nobody(
        self, claims: Sequence[Claim], guest_uuids: Sequence[str] | None
    ) -> list[Claim]:
        """Return which of the claims are unfounded.

        :param guest_uuids: the instances that run here; None: the driver cannot tell.
        """
        running_guests = frozenset(guest_uuids or ())
        suspects = [claim for claim in claims if claim.instance not in running_guests]
        if not suspects:
            return []
        providers = {uuid for claim in suspects for uuid in claim.amounts}
        held_amounts = {
            uuid: self.report.get_allocations_for_provider(uuid) for uuid in sorted(providers)
        }
        return stale(suspects, held_amounts, others=running_guests | self.ledger.claims().keys())
