"""Life cycle of instances, step by step: all that a caller without OpenStack needs.

Every step may be repeated, on any scheduler: what is done already is not done again, and the
answer is that of the first time. So a caller that got no answer asks again.

Each writes to placement in one atomic request. Whatever dies in between, an instance holds what it
held before the step or what it holds after it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from compute_agent.errors import AllocationUpdateFailed
from compute_agent.placement.allocations.allocations import INSTANCE
from compute_agent.placement.allocations.amounts import Amounts, of_record
from compute_agent.placement.responses import NoCapacity
from compute_agent.placement.transports.transport import Microversion
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.assembly import SchedulerParts
from compute_agent.scheduler.claiming.claims import Claims
from compute_agent.scheduler.errors import MoveRefused, NoValidHost
from compute_agent.scheduler.explanation import ExplainedRequest
from compute_agent.scheduler.manager import Selection
from compute_agent.scheduler.moves.attachments import Attachment
from compute_agent.scheduler.moves.move import Move, MoveKind
from compute_agent.scheduler.moves.mover import MoveStart
from compute_agent.scheduler.moves.repeated import begun_before
from compute_agent.scheduler.placement.candidates import Candidate
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding, WantedHolding
from compute_agent.scheduler.search.mappings import mappings_of
from compute_agent.scheduler.search.shared_holdings import SharedHoldings
from compute_agent.scheduler.search.targets import root_of


class Claim(Struct, frozen=True):
    """What an instance holds.

    :param host: name of the host's root provider.
    :param root: uuid of the host's root provider.
    :param mappings: group to the providers that serve it.
    :param alternates: hosts to try later; not claimed.
    :param is_claimed: False while the agents of the fleet claim themselves: then `allocations` is
        what the agent of the host is to claim.
    """

    instance: str
    host: str
    root: str
    allocations: Amounts
    mappings: Mapping[str, tuple[str, ...]]
    alternates: tuple[Selection, ...] = ()
    is_claimed: bool = field(default=True, name="claimed")


def claim_of(instance: str, selections: Sequence[Selection]) -> Claim:
    """Return the claim that the first of `selections` stands for, the others as alternates."""
    first, *others = selections
    request = json.loads(first.allocation_request)
    return Claim(
        instance=instance,
        host=first.nodename,
        root=first.compute_node_uuid,
        allocations=of_record(request),
        mappings={suffix: tuple(uuids) for suffix, uuids in request["mappings"].items()},
        alternates=tuple(others),
    )


class ReplacingClaims(Claims):
    """Claims for an instance that gives up what it holds, if it gets something else.

    They cannot be undone: what it held before is gone.

    :param holding: what it holds; nobody else may have changed it since.
    """

    def __init__(self, placement: PlacementClient, holding: Holding) -> None:
        self._placement = placement
        self._holding = holding
        self.shared_holdings = SharedHoldings.of(placement, holding.allocations)

    def claim(
        self,
        instance: str,
        candidate: Candidate,
        spec: RequestSpec,
        microversion: Microversion,  # noqa: ARG002 - part of the protocol; an exchange has its own
    ) -> NoCapacity | None:
        """See `Claims`."""
        wanted_holding = WantedHolding(
            self._holding,
            candidate.allocations,
            spec.consumer_type,
            spec.project_id,
            spec.user_id,
            candidate.mappings,
        )
        return self._placement.exchange({instance: wanted_holding})


LOG = logging.getLogger(__name__)


class LifeCycle:
    """Steps in the life of instances, from claim to delete.  Safe in several threads and processes.

    All of them raise `PlacementUnavailable` when placement does not answer: repeat them then.
    """

    def __init__(self, parts: SchedulerParts) -> None:
        self._parts = parts
        self._placement = parts.client

    # -- claim, reschedule, release ----------------------------------------------------------

    def explain(self, spec: RequestSpec) -> ExplainedRequest:
        """Return where a request fits, or why it does not; nothing is claimed."""
        return self._parts.explainer.explain(spec)

    def claim(self, spec: RequestSpec, instance: str, *, alternates: bool = False) -> Claim:
        """Claim a host for an instance.

        Repeated, it returns the claim of the first time, without alternates.

        :raises NoValidHost: it fits nowhere; `causes` of the error says why.
        :raises AllocationUpdateFailed: the instance holds something else already.
        :raises AllocationMoveFailed: a claim of the first time was given back just now: repeat it.
        """
        scheduler = self._parts.scheduler
        is_held_back = scheduler.may_leave_claims_to_agents()
        if is_held_back and (holding := self._placement.holding(instance)).allocations:
            return self._claimed_before(spec, instance, holding)
        try:
            [selections] = scheduler.select_destinations(spec, [instance], alternates=alternates)
        except (AllocationUpdateFailed, NoValidHost):
            # nearly every claim is the first: what the instance holds is read only where it is not
            holding = self._placement.holding(instance)
            if not holding.allocations:
                raise
            return self._claimed_before(spec, instance, holding)
        claim = claim_of(instance, selections)
        if is_held_back or scheduler.may_leave_claims_to_agents():
            # the last old agent may have gone meanwhile
            is_claimed = bool(self._placement.holding(instance).allocations)
            return replace(claim, is_claimed=is_claimed)
        return claim

    def reschedule(self, spec: RequestSpec, instance: str, failed_hosts: Sequence[str]) -> Claim:
        """Give an instance another host than those that failed to build it.

        The claim on the failed host is replaced in one request by one on the best of the others.
        Repeated, it returns the claim that the instance has by then.

        :param failed_hosts: names of all hosts that were tried for the instance.
        :raises NoValidHost: there is no other host; the instance holds nothing any more.
        :raises AllocationMoveFailed: another writer changed what it holds.
        """
        failed_names = frozenset(failed_hosts)
        if not failed_names:
            raise InvalidRequest("failed_hosts", failed_hosts, "at least one name")
        spec = replace(spec, ignore_hosts=spec.ignore_hosts | failed_names)
        holding = self._placement.holding(instance)
        if not holding.allocations:
            return self.claim(spec, instance)
        root = root_of(self._placement, instance, holding)
        if self._name(root) not in failed_names:
            return self._claimed_before(spec, instance, holding)
        claims = ReplacingClaims(self._placement, holding)
        try:
            [selections] = self._parts.scheduler.select_destinations(
                spec, [instance], claims=claims
            )
        except NoValidHost:
            self._placement.release_exactly(instance, holding)
            raise
        return claim_of(instance, selections)

    def release(self, *consumers: str) -> bool:
        """Release all that some consumers hold, all or none; return whether any held anything.

        :raises AllocationMoveFailed: another writer changed what one of them holds.
        """
        holdings = {consumer: self._placement.holding(consumer) for consumer in consumers}
        wanted_holdings = {
            consumer: WantedHolding(holding, {}, str(holding.record.get("consumer_type", INSTANCE)))
            for consumer, holding in holdings.items()
            if holding.allocations
        }
        if not wanted_holdings:
            return False
        doing = f"Releasing {', '.join(wanted_holdings)}"
        self._placement.write(doing, wanted_holdings, "Nothing was released; repeat it.")
        return True

    # -- delete ------------------------------------------------------------------------------

    def delete(self, instance: str, migrations: Sequence[str] = ()) -> bool:
        """Release what an instance held whose guest is gone, and the migrations of its moves.

        :returns: whether it held anything.
        :raises AllocationMoveFailed: another writer changed what it holds.
        """
        return self.release(instance, *migrations)

    def local_delete(self, instance: str, migrations: Sequence[str] = ()) -> bool:
        """Release what an instance holds whose host is away; its guest is left to the agent.

        :returns: whether it held anything.
        :raises MoveRefused: the agent of a host that it is on is alive: delete the guest there.
        :raises AllocationMoveFailed: another writer changed what it holds.
        """
        held_amounts = self._placement.holding(instance).allocations
        roots = (
            set(self._placement.provider_roots(tuple(held_amounts)).values())
            if held_amounts
            else set()
        )
        for root in sorted(roots):
            if self._parts.heard_lately(root):
                raise MoveRefused(
                    f"The local delete of {instance} was refused: the agent of host "
                    f"{self._name(root)} is alive. Delete the guest there, then use delete."
                )
        return self.release(instance, *migrations)

    # -- moves -------------------------------------------------------------------------------

    def begin_move(
        self,
        kind: MoveKind,
        spec: RequestSpec,
        instance: str,
        migration: str = "",
        *,
        source_root: str = "",
        mappings: Mapping[str, Sequence[str]] | None = None,
        alternates: bool = False,
    ) -> MoveStart:
        """Claim the destination of a move and keep the source; see `Mover.begin`.

        Repeated with the same migration, it returns the move that is under way, without selections.

        :param source_root: root of the host that an evacuated instance leaves; without it an
            evacuation cannot be repeated.
        """
        self._parts.mover.recover()
        move = begun_before(
            self._placement, kind, instance, migration, source_root=source_root, mappings=mappings
        )
        if move is not None:
            self._parts.mover.acknowledge(move)
            return MoveStart(move, ())
        return self._parts.mover.begin(
            kind, spec, instance, migration, mappings=mappings, alternates=alternates
        )

    def confirm_move(self, move: Move) -> None:
        """Release the source of a move; see `Mover.finish`."""
        self._parts.mover.finish(move)

    def revert_move(self, move: Move) -> Mapping[str, tuple[str, ...]]:
        """Give an instance back what it held when its move began; see `Mover.revert`."""
        return self._parts.mover.revert(move)

    def evacuate(self, spec: RequestSpec, instance: str, source_root: str = "") -> MoveStart:
        """Claim another host for an instance whose host is dead; see `begin_move`.

        It holds both hosts until `source_returned`.
        """
        return self.begin_move(MoveKind.EVACUATE, spec, instance, source_root=source_root)

    def source_returned(self, instance: str, source_root: str) -> None:
        """Release an evacuated instance's old host, which is back; see `Mover`."""
        self._parts.mover.source_returned(instance, source_root)

    # -- attach and detach -------------------------------------------------------------------

    def attach(self, spec: RequestSpec, instance: str, before: Amounts | None = None) -> Attachment:
        """Add a port or accelerator to what an instance holds; see `Attachments.attach`."""
        return self._parts.attachments.attach(spec, instance, before)

    def detach(self, instance: str, resources: Amounts, before: Amounts | None = None) -> None:
        """Take from an instance what was attached; see `Attachments.detach`."""
        self._parts.attachments.detach(instance, resources, before)

    # -- what is held ------------------------------------------------------------------------

    def _claimed_before(self, spec: RequestSpec, instance: str, holding: Holding) -> Claim:
        root = root_of(self._placement, instance, holding)
        traits: dict[str, Any] = dict(self._placement.tree(root))
        owner = holding.record.get("project_id")
        name = self._name(root)
        if owner == spec.project_id and name not in spec.ignore_hosts:
            for request in self._parts.search.requests(spec):
                mappings = mappings_of(request, holding.allocations, traits)
                if mappings is not None:
                    self._acknowledge(spec, instance, holding)
                    LOG.info(
                        "Instance %s already holds what is requested, on host %s", instance, name
                    )
                    return Claim(instance, name, root, holding.allocations, mappings)
        raise AllocationUpdateFailed(
            f"Consumer {instance} holds allocations already, on {name}, other than the request "
            "asks for: release it first, or claim for another consumer."
        )

    def _acknowledge(self, spec: RequestSpec, instance: str, holding: Holding) -> None:
        """Write a claim again, so that a scheduler that lost its answer does not give it back.

        :raises AllocationMoveFailed: it was given back just now, or changed.
        """
        consumer_type = str(holding.record.get("consumer_type", spec.consumer_type))
        wanted_holdings = {instance: WantedHolding(holding, holding.allocations, consumer_type)}
        doing = f"Continuing the claim of {instance}"
        self._placement.write(doing, wanted_holdings, "Repeat the claim.")

    def _name(self, root: str) -> str:
        return self._placement.provider_names([root]).get(root, root)
