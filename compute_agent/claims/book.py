"""Claims on this host: a check and an assignment of named units, under the lock of the node.

The scheduler has allocated in placement before the host is told. Here it is verified that placement
holds that, that every provider named exists on the node, and that as many named units are free as
were allocated. Certain units are chosen, and a NUMA cell for each node of the guest; both are
remembered. Nothing is written to placement.

    no claim --claim--> held --drop--> no claim
                         |  claim with a migration: what was held before is kept under the migration
                         v
               held (new) + held (old, consumer = the migration)
                         |--drop(migration)--> the new one stays: the move was confirmed
                         `--drop(instance)---> the old one is the instance's again: it was reverted
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.claims import comparison, legacy_allocation
from compute_agent.claims import guests as running_guests
from compute_agent.claims.checks import (
    ClaimRequest,
    check_apart,
    check_groups,
    has_moved,
    on_node,
    stale,
    told_of_waiting,
)
from compute_agent.claims.host_cells import cells_of, device_places
from compute_agent.claims.host_view import CellPolicy, NodeSituation, host_of, occupied
from compute_agent.claims.legacy_allocation import InstanceHolding
from compute_agent.claims.running import RunningClaims
from compute_agent.claims.units import units_of
from compute_agent.fitting.announced import document
from compute_agent.placement.allocations.amounts import Amounts, of_record
from compute_agent.state.claim import Claim

if TYPE_CHECKING:
    from compute_agent.claims.comparison import Holders
    from compute_agent.fitting.host import Host
    from compute_agent.fitting.plan import Plan, Refusal
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.report.client import ReportClient
    from compute_agent.state.ledger import Ledger
    from compute_agent.tracker.resource_tracker import ResourceTracker
    from compute_agent.virt.driver import ComputeDriver, InstanceDevices

LOG = logging.getLogger(__name__)


class ClaimBook(Struct, eq=False):
    """The claims on all nodes of this agent. Safe for several threads.

    :ivar self_claim: allocate where no scheduler did; otherwise such an instance is refused.
    :ivar policy: how cells are chosen, and the networks they are near.
    :ivar on_undecided: called when a claim is refused since its fit was not decided.
    """

    tracker: ResourceTracker
    report: ReportClient
    driver: ComputeDriver
    ledger: Ledger
    self_claim: bool = False
    policy: CellPolicy = field(default_factory=CellPolicy)
    on_undecided: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.time
    running: RunningClaims = field(default_factory=RunningClaims)

    def try_out(self, spec: Mapping[str, Any], node: str) -> tuple[Host, Plan | Refusal]:
        """Return what is free of a node, and what a request would get of it; nothing is given.

        :raises ComputeHostNotFound: the node is not managed here any more.
        :raises ComputeResourcesUnavailable: it has not been reported yet.
        :raises InvalidInput: the flavor cannot be read.
        """
        tree, root = self.tracker.reported_tree(node)
        # loaded with the first claim: an agent without claims does without the planner
        from compute_agent.claims.planning import try_out

        return try_out(self._situation(node, tree, root), spec, self.policy)

    def claims(self) -> list[Claim]:
        """Return what is held now, by consumer."""
        return [claim for _consumer, claim in sorted(self.ledger.claims().items())]

    def moving(self) -> list[str]:
        """Return the migrations that hold something here for an instance on the move."""
        return [claim.consumer for claim in self.claims() if claim.consumer != claim.instance]

    def claim(self, request: ClaimRequest) -> Claim:
        """Give an instance what was allocated for it. Asking again gives the same again.

        :raises ComputeHostNotFound: the node named, or the providers, are not of this agent.
        :raises ComputeResourcesUnavailable: placement does not hold it, named units are taken, or
            others of its anti-affinity group were here first.
        :raises FitUndecided: to decide whether it fits would take too many steps.
        :raises AssignedResourceNotFound: a provider that was allocated is not on this host now.
        :raises ComputeNodeBusy: a pass of the node does not end; ask again later.
        :raises PlacementError: placement could not be asked.
        """
        node = self._node_of(request)
        with (
            self.running.one(request.instance, f"waits for the pass of node {node}") as stage,
            self.tracker.hold(node),
            self.report.tracing(),
        ):
            stage("asks placement what it holds")
            tree, root = self.tracker.reported_tree(node)
            allocation = self._ensure_allocated(request, tree, root)
            try:
                amounts = on_node(request, allocation.amounts, tree, root)
                check_groups(request, allocation.amounts, tree)
                check_apart(request, self._staying(request, tree.get_provider_uuids(root)), node)
                stage("is planned")
                return self._assign(request, node, amounts, tree, root)
            except Exception as error:
                if isinstance(error, errors.FitUndecided):
                    LOG.warning("%s", error)
                    self.on_undecided()
                if allocation.by_host:
                    legacy_allocation.take_back(self.report, request.instance)
                raise

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

    def _node_of(self, request: ClaimRequest) -> str:
        nodes = self.tracker.nodes()
        if request.node:
            if request.node not in nodes:
                raise errors.ComputeHostNotFound(
                    f"Node {request.node} is not managed by this agent; it manages: "
                    f"{', '.join(nodes) or 'none yet'}."
                )
            return request.node
        if not request.amounts and len(nodes) == 1:
            return next(iter(nodes))
        for name in self.tracker.started_nodes():
            tree, root = self.tracker.reported_tree(name)
            if request.amounts.keys() & set(tree.get_provider_uuids(root)):
                return name
        raise errors.ComputeHostNotFound(
            f"No node of this agent has one of the providers {', '.join(sorted(request.amounts))} "
            f"that were allocated for {request.instance}; name the node or the allocations."
            f"{told_of_waiting(self.tracker.in_startup())}"
        )

    def _ensure_allocated(
        self, request: ClaimRequest, tree: ProviderTree, root: str
    ) -> InstanceHolding:
        """Return what placement holds for an instance, after allocating it if need be."""
        consumer = request.instance
        record = self.report.placement.allocations.get_allocs_for_consumer(consumer)
        allocation = InstanceHolding(of_record(record))
        if not allocation.amounts and self.self_claim:
            allocation = legacy_allocation.allocate(self.report, request, tree, root)
        if not allocation.amounts:
            raise errors.ComputeResourcesUnavailable(
                f"Placement holds no allocation for {consumer}: the scheduler claims before the "
                "host is told. Schedule the instance again."
            )
        if not allocation.amounts.keys() & set(tree.get_provider_uuids(root)):
            raise errors.ComputeResourcesUnavailable(
                f"{consumer} holds nothing of node {tree.data(root).name} in placement, only "
                f"resources of other hosts: {', '.join(sorted(allocation.amounts))}. Schedule the "
                "instance again."
            )
        return allocation

    def _staying(self, request: ClaimRequest, own: Collection[str]) -> list[str]:
        """Return the instances of this host that the claiming one must be kept apart from.

        Only those that this host knows count, under the lock of the node: placement also has those
        that are on their way, of which each would give way to the other.

        :param own: the providers of the node.
        """
        if not request.apart_from or request.instance in self.ledger.claims():
            return []
        claiming_instances = {
            claim.instance for claim in self.claims() if claim.consumer == claim.instance
        }
        present_consumers = claiming_instances.union(self.driver.list_instance_uuids() or ())
        held_by = self.report.placement.allocations.get_allocs_for_consumer
        # one that has moved away, or is deleted, is only still to be cleared up
        return [
            member
            for member in sorted(present_consumers & request.apart_from - {request.instance})
            if not of_record(held_by(member)).keys().isdisjoint(own)
        ]

    def _assign(
        self,
        request: ClaimRequest,
        node: str,
        amounts: Amounts,
        tree: ProviderTree,
        root: str,
    ) -> Claim:
        known_claim = self.ledger.claims().get(request.instance)
        moving = bool(request.migration)
        if known_claim is not None and moving and known_claim.migration == request.migration:
            moving = False  # asked again: the answer was lost
        left_claim, renewed_claim = (known_claim, None) if moving else (None, known_claim)
        situation = self._situation(node, tree, root)
        from compute_agent.claims.planning import plan_claim

        units, places = plan_claim(
            request, amounts, situation, self.policy, renewed_claim, moving=moving
        )
        claim = Claim(
            consumer=request.instance,
            node=node,
            amounts=amounts,
            instance=request.instance,
            claimed_at=renewed_claim.claimed_at if renewed_claim is not None else self.clock(),
            units=units,
            providers_of={group: tuple(uuids) for group, uuids in request.providers_of.items()},
            migration=request.migration or (known_claim.migration if known_claim else ""),
            cells=places,
        )
        source_claims = (
            [replace(left_claim, consumer=request.migration, migration="")]
            if left_claim is not None
            else []
        )
        self.ledger.change_claims(add=[*source_claims, claim])
        return claim

    def _situation(self, node: str, tree: ProviderTree, root: str) -> NodeSituation:
        facts = self.tracker.facts(node)
        units, cells = units_of(tree, root), cells_of(facts)
        return NodeSituation(
            node,
            tree,
            root,
            units,
            cells,
            device_places(facts),
            self.claims(),
            self._guests() if units or cells else {},
            self.policy.networks,
        )

    def free(self, node: str) -> dict[str, Any]:
        """Return what is free of the cells and devices of a node, as it is announced.

        Empty where the driver knows of no cells.

        :raises ComputeHostNotFound: the node is not managed here any more.
        :raises ComputeResourcesUnavailable: it has not been reported yet.
        """
        tree, root = self.tracker.reported_tree(node)
        situation = self._situation(node, tree, root)
        return document(host_of(situation, occupied(situation, "", moving=False)))

    def _guests(self) -> dict[str, InstanceDevices]:
        guests = running_guests.guests(self.driver, self.claims())
        return {uuid: devices for uuid, devices in guests.items() if devices is not None}
