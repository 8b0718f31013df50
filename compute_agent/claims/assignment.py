"""Assignment of this host to instances: its checks and the choice of units, under the node's lock.

The scheduler has allocated in placement before the host is told. Here it is verified that placement
holds that, that every provider named exists on the node, and that as many named units are free as
were allocated. Certain units are chosen, and a NUMA cell for each node of the guest; both are
remembered in the book of claims. Nothing is written to placement.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.claims import guests as running_guests
from compute_agent.claims import legacy_allocation
from compute_agent.claims.checks import (
    ClaimRequest,
    check_apart,
    check_groups,
    on_node,
    told_of_waiting,
)
from compute_agent.claims.host_cells import cells_of, device_places
from compute_agent.claims.host_view import CellPolicy, NodeSituation, host_of, occupied
from compute_agent.claims.legacy_allocation import InstanceHolding
from compute_agent.claims.units import units_of
from compute_agent.fitting.announced import document
from compute_agent.placement.allocations.amounts import Amounts, of_record
from compute_agent.state.claim import Claim

if TYPE_CHECKING:
    from compute_agent.claims.book import ClaimBook
    from compute_agent.fitting.host import Host
    from compute_agent.fitting.plan import Plan, Refusal
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.virt.driver import InstanceDevices

LOG = logging.getLogger(__name__)


class Assigner(Struct, eq=False):
    """Gives what the nodes of a book have to instances. Safe for several threads.

    :ivar self_claim: allocate where no scheduler did; otherwise such an instance is refused.
    :ivar policy: how cells are chosen, and the networks they are near.
    :ivar on_undecided: called when a claim is refused since its fit was not decided.
    """

    book: ClaimBook
    self_claim: bool = False
    policy: CellPolicy = field(default_factory=CellPolicy)
    on_undecided: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.time

    def try_out(self, spec: Mapping[str, Any], node: str) -> tuple[Host, Plan | Refusal]:
        """Return what is free of a node, and what a request would get of it; nothing is given.

        :raises ComputeHostNotFound: the node is not managed here any more.
        :raises ComputeResourcesUnavailable: it has not been reported yet.
        :raises InvalidInput: the flavor cannot be read.
        """
        tree, root = self.book.tracker.reported_tree(node)
        # loaded with the first claim: to announce what is free, it is not needed
        from compute_agent.claims.planning import try_out

        return try_out(self._situation(node, tree, root), spec, self.policy)

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
            self.book.running.one(request.instance, f"waits for the pass of node {node}") as stage,
            self.book.tracker.hold(node),
            self.book.report.tracing(),
        ):
            stage("asks placement what it holds")
            tree, root = self.book.tracker.reported_tree(node)
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
                    legacy_allocation.take_back(self.book.report, request.instance)
                raise

    def _node_of(self, request: ClaimRequest) -> str:
        nodes = self.book.tracker.nodes()
        if request.node:
            if request.node not in nodes:
                raise errors.ComputeHostNotFound(
                    f"Node {request.node} is not managed by this agent; it manages: "
                    f"{', '.join(nodes) or 'none yet'}."
                )
            return request.node
        if not request.amounts and len(nodes) == 1:
            return next(iter(nodes))
        for name in self.book.tracker.started_nodes():
            tree, root = self.book.tracker.reported_tree(name)
            if request.amounts.keys() & set(tree.get_provider_uuids(root)):
                return name
        raise errors.ComputeHostNotFound(
            f"No node of this agent has one of the providers {', '.join(sorted(request.amounts))} "
            f"that were allocated for {request.instance}; name the node or the allocations."
            f"{told_of_waiting(self.book.tracker.in_startup())}"
        )

    def _ensure_allocated(
        self, request: ClaimRequest, tree: ProviderTree, root: str
    ) -> InstanceHolding:
        """Return what placement holds for an instance, after allocating it if need be."""
        consumer = request.instance
        record = self.book.report.placement.allocations.get_allocs_for_consumer(consumer)
        allocation = InstanceHolding(of_record(record))
        if not allocation.amounts and self.self_claim:
            allocation = legacy_allocation.allocate(self.book.report, request, tree, root)
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
        if not request.apart_from or request.instance in self.book.ledger.claims():
            return []
        claiming_instances = {
            claim.instance for claim in self.book.claims() if claim.consumer == claim.instance
        }
        present_consumers = claiming_instances.union(self.book.driver.list_instance_uuids() or ())
        held_by = self.book.report.placement.allocations.get_allocs_for_consumer
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
        known_claim = self.book.ledger.claims().get(request.instance)
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
        self.book.ledger.change_claims(add=[*source_claims, claim])
        return claim

    def _situation(self, node: str, tree: ProviderTree, root: str) -> NodeSituation:
        facts = self.book.tracker.facts(node)
        units, cells = units_of(tree, root), cells_of(facts)
        return NodeSituation(
            node,
            tree,
            root,
            units,
            cells,
            device_places(facts),
            self.book.claims(),
            self._guests() if units or cells else {},
            self.policy.networks,
        )

    def free(self, node: str) -> dict[str, Any]:
        """Return what is free of the cells and devices of a node, as it is announced.

        Empty where the driver knows of no cells.

        :raises ComputeHostNotFound: the node is not managed here any more.
        :raises ComputeResourcesUnavailable: it has not been reported yet.
        """
        tree, root = self.book.tracker.reported_tree(node)
        situation = self._situation(node, tree, root)
        return document(host_of(situation, occupied(situation, "", moving=False)))

    def _guests(self) -> dict[str, InstanceDevices]:
        guests = running_guests.guests(self.book.driver, self.book.claims())
        return {uuid: devices for uuid, devices in guests.items() if devices is not None}
