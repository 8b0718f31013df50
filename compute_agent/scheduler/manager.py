"""Scheduler proper: it selects hosts, claims them, and returns the selections."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from compute_agent.errors import AllocationUpdateFailed
from compute_agent.placement.responses import NoCapacity
from compute_agent.placement.transports.transport import Microversion
from compute_agent.request.candidate_request import PLAIN_MICROVERSION
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.claiming.claims import (
    Claims,
    GiveBack,
    HostOrder,
    NewClaims,
    RecentClaims,
    lost_claim,
    lost_to_the_group,
)
from compute_agent.scheduler.claiming.together import (
    InstancesTogether,
    PlacedInstance,
    crowded_hosts,
)
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.explanation import Explainer
from compute_agent.scheduler.host_state import NO_CELL, Hosts, HostState
from compute_agent.scheduler.outcomes import LostClaim, Observer, Outcome
from compute_agent.scheduler.placement.candidates import Candidate
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.search.search import HostSearch, SearchResult
from compute_agent.scheduler.search.targets import GroupMembers, is_rebuild, with_group_host
from compute_agent.scheduler.weighers import order
from compute_agent.scheduler.weighers.host_weigher import HostWeigher


class Selection(Struct, frozen=True):
    """One host for one instance, with the allocation claimed or, for an alternate, to claim."""

    compute_node_uuid: str
    service_host: str
    nodename: str
    allocation_request: str
    allocation_request_version: str
    availability_zone: str | None = None
    cell_uuid: str = NO_CELL
    limits: dict[str, Any] = {}


def selection_of(host: HostState, candidate: Candidate, microversion: Microversion) -> Selection:
    """Return the selection of a candidate on its host."""
    zones = sorted(host.metadata("availability_zone"))
    announcement = host.announcement
    return Selection(
        compute_node_uuid=host.uuid,
        service_host=announcement.host if announcement else host.name,
        nodename=host.name,
        allocation_request=json.dumps(candidate.as_request(), sort_keys=True),
        allocation_request_version=f"{microversion[0]}.{microversion[1]}",
        availability_zone=zones[0] if zones else None,
        cell_uuid=host.cell,
        limits=_limits(host),
    )


def _limits(host: HostState) -> dict[str, Any]:
    """Return what the host may be filled up to, for agents that check it themselves."""
    limits = {"memory_mb": host.capacity("MEMORY_MB"), "disk_gb": host.capacity("DISK_GB")}
    return {name: amount for name, amount in limits.items() if amount}


LOG = logging.getLogger(__name__)


class SelectionOptions(Struct, frozen=True):
    """How hosts are ordered and how long is tried."""

    weighers: tuple[HostWeigher, ...] = ()
    weighing: order.WeighingOptions = field(default_factory=order.WeighingOptions)
    candidates_per_host: int = 8
    max_attempts: int = 3


class Scheduler:
    """Turns specifications into claims.

    Holds no state between requests but what it is given; several may work on the same placement,
    since placement decides who gets the last slot.

    :param claims: how claims are made for instances that hold nothing yet.
    :param observer: hears of each claim.
    :param explainer: explains requests that fit nowhere; `None` leaves it at what was seen.
    :param recent_claims: remembers who is claimed for, before anything is claimed.
    """

    def __init__(
        self,
        placement: PlacementClient,
        search: HostSearch,
        options: SelectionOptions,
        give_back: GiveBack,
        chance: random.Random | None = None,
        claims: Claims | None = None,
        observer: Observer | None = None,
        explainer: Explainer | None = None,
        recent_claims: RecentClaims | None = None,
    ) -> None:
        self._placement = placement
        self._recent_claims = recent_claims or RecentClaims()
        self._observer = observer or Observer()
        self._explainer = explainer
        self._search = search
        self._options = options
        self._give_back = give_back
        self._claims = claims or NewClaims(placement, give_back)
        self._chance = chance or random.Random()

    def select_destinations(
        self,
        spec: RequestSpec,
        instance_uuids: Sequence[str],
        *,
        alternates: bool = False,
        claims: Claims | None = None,
        request_id: str = "",
    ) -> list[list[Selection]]:
        """Claim a host for each instance; return one list per instance, in the same order.

        Element 0 is claimed. With `alternates`, hosts to try later follow, not claimed. A rebuild
        (hint `_nova_check_type`) is checked for where it is and claims nothing.

        :param claims: how claims are made and given back, where the instances hold something
            already; by default they must not.
        :param request_id: that placement is to log everything under; a new one if empty.
        :raises NoValidHost: one instance fits nowhere; nothing of this call stays claimed.
        :raises AllocationUpdateFailed: another caller claims one of the instances.
        :raises PlacementUnavailable: placement cannot be asked; nothing of this call stays
            claimed, or it is in the journal and given back as soon as placement answers.
        """
        self._recent_claims.record(instance_uuids)
        with self._placement.errand(request_id) as errand:
            try:
                return self._select(spec, instance_uuids, claims or self._claims, alternates)
            except NoValidHost as error:
                causes = replace(error.causes, request_id=errand)
                if self._explainer is not None:
                    causes = self._explainer.add_explanation(spec, causes)
                reason = " ".join([error.reason, *causes.closing()])
                LOG.info(
                    "[%s] No valid host for %s: %s %s",
                    errand,
                    ", ".join(instance_uuids),
                    reason,
                    to_builtins(causes),
                )
                raise NoValidHost(reason, causes) from error

    def may_leave_claims_to_agents(self) -> bool:
        """Whether an agent may be so old that it claims itself, so that nothing is claimed here."""
        return not self._claims.can_be_undone()

    def _select(
        self,
        spec: RequestSpec,
        instance_uuids: Sequence[str],
        claims: Claims,
        alternates: bool,
    ) -> list[list[Selection]]:
        self._give_back.process_journal()
        if is_rebuild(spec):
            return [[self._rebuilt(spec, instance)] for instance in instance_uuids]
        spec = self._search.with_group_hosts(spec, instance_uuids)
        found_hosts = self._search.find(spec, claims.shared_holdings)
        if len(instance_uuids) > 1 and claims.can_be_undone():
            chosen_hosts, remaining_hosts = self._place_together(spec, instance_uuids, found_hosts)
        else:
            chosen_hosts, remaining_hosts = self._place_each(
                spec, instance_uuids, found_hosts, claims, alternates
            )
        for place in chosen_hosts:
            spec = with_group_host(spec, place.host.name)
        spare = (
            self._alternates(
                spec, remaining_hosts, chosen_hosts, instance_uuids[0], found_hosts.members
            )
            if alternates
            else []
        )
        return [
            [selection_of(place.host, place.candidate, found_hosts.microversion)]
            + [
                selection_of(host, host.candidates[0], found_hosts.microversion)
                for host in map(
                    found_hosts.best_first,
                    self._of_cell(place.host.cell, spare, found_hosts.members),
                )
                if host.candidates
            ]
            for place in chosen_hosts
        ]

    def _place_together(
        self, spec: RequestSpec, instances: Sequence[str], found_hosts: SearchResult
    ) -> tuple[list[PlacedInstance], Hosts]:
        order_hosts = partial(self._order, members=found_hosts.members)
        together = InstancesTogether(
            self._placement, self._search, order_hosts, self._give_back, self._observer
        )
        return together.place(spec, instances, found_hosts)

    def _place_each(
        self,
        spec: RequestSpec,
        instances: Sequence[str],
        found_hosts: SearchResult,
        claims: Claims,
        alternates: bool,
    ) -> tuple[list[PlacedInstance], Hosts]:
        chosen_hosts: list[PlacedInstance] = []
        remaining_hosts, held_claims = found_hosts.hosts, dict[str, Candidate]()
        try:
            for instance in instances:
                place = self._place(
                    spec, instance, remaining_hosts, found_hosts, held_claims, claims
                )
                chosen_hosts.append(place)
                if alternates or len(chosen_hosts) < len(instances):
                    remaining_hosts = remaining_hosts.after_claim(place.host, place.candidate)
                spec = with_group_host(spec, place.host.name)
        except BaseException:
            claims.give_back(held_claims)
            raise
        return chosen_hosts, remaining_hosts

    def _rebuilt(self, spec: RequestSpec, instance: str) -> Selection:
        host, holding = self._search.host_of(spec, instance)
        unchanged_candidate = Candidate(host.uuid, holding.allocations, {})
        return selection_of(host, unchanged_candidate, PLAIN_MICROVERSION)

    def _place(
        self,
        spec: RequestSpec,
        instance: str,
        hosts: Hosts,
        found_hosts: SearchResult,
        held_claims: dict[str, Candidate],
        claims: Claims,
    ) -> PlacedInstance:
        """Claim a host for one instance and return it.

        `held_claims` gets what the instance holds, or may hold if the answer to its claim was lost.
        """
        causes, lost_claims = found_hosts.causes, list[LostClaim]()
        fitting_hosts = hosts
        if held_claims:
            fitting_hosts, drops = self._search.run_filters_again(hosts, spec)
            causes = replace(causes, filters=causes.filters + tuple(drops))
        usable = fitting_hosts.offering
        members, refused = found_hosts.members, list[HostState]()
        for ordered_host in self._order(spec, usable, instance, members):
            host = found_hosts.best_first(ordered_host)
            refused += [] if host.candidates else [ordered_host]
            order_of_host = HostOrder(host.candidates, self._options.candidates_per_host)
            while (candidate := order_of_host.next()) and not members.crowding(host, instance):
                held_claims[instance] = candidate
                refusal = self._claim(
                    spec, instance, candidate, found_hosts, lost_claims, held_claims, claims
                )
                if refusal is not None:
                    del held_claims[instance]
                    order_of_host.record_refusal(candidate, refusal)
                    outcome: Outcome = "shortage" if refusal.resource_class else "race"
                    loss = lost_claim(host.name, candidate, refusal)
                    self._record_lost_claim(outcome, loss, lost_claims)
                    continue
                others = self._take_back_if_crowded(members, instance, host, candidate, claims)
                if not others:
                    self._observer.on_claim("won", again=bool(lost_claims))
                    LOG.info("Claimed host %s (%s) for %s", host.name, host.uuid, instance)
                    return PlacedInstance(host, candidate)
                del held_claims[instance]
                loss = lost_to_the_group(host.name, others)
                self._record_lost_claim("group", loss, lost_claims)
                break
        causes = causes.with_filter(members.cause(usable)).with_claims_lost(tuple(lost_claims))
        causes = causes.with_filter(found_hosts.plan_cause(refused, len(usable)))
        raise NoValidHost(causes.sentence(), causes)

    def _claim(
        self,
        spec: RequestSpec,
        instance: str,
        candidate: Candidate,
        found_hosts: SearchResult,
        lost_claims: Sequence[LostClaim],
        held_claims: dict[str, Candidate],
        claims: Claims,
    ) -> NoCapacity | None:
        try:
            return claims.claim(instance, candidate, spec, found_hosts.microversion)
        except AllocationUpdateFailed:
            # what the instance holds is the claim of another caller, not ours to give back
            del held_claims[instance]
            self._observer.on_claim("consumer", again=bool(lost_claims))
            raise
        except BaseException:
            self._observer.on_claim("failed", again=bool(lost_claims))
            raise

    def _record_lost_claim(
        self, outcome: Outcome, lost_claim: LostClaim, lost_claims: list[LostClaim]
    ) -> None:
        self._observer.on_claim(outcome, again=bool(lost_claims))
        lost_claims.append(lost_claim)
        LOG.info("A claim on host %s was lost. %s", lost_claim.host, lost_claim.sentence())

    def _take_back_if_crowded(
        self,
        members: GroupMembers,
        instance: str,
        host: HostState,
        candidate: Candidate,
        claims: Claims,
    ) -> frozenset[str]:
        """Return the members of the server group for which a claim was taken back, if any."""
        if members.are_kept_apart and claims.can_be_undone():
            for place in crowded_hosts(members, {instance: host}):
                claims.give_back({instance: candidate})
                return place.others
        return frozenset()

    def _order(
        self,
        spec: RequestSpec,
        hosts: Sequence[HostState],
        instance: str,
        members: GroupMembers,
    ) -> Iterator[HostState]:
        def in_order(hosts: Sequence[HostState]) -> Iterator[HostState]:
            weighers, weighing = self._options.weighers, self._options.weighing
            return order.in_order(hosts, spec, weighers, weighing, self._chance, request=instance)

        ordered_hosts = in_order(hosts)
        looked_at = members.looked_at(ordered_hosts)
        return chain(in_order(looked_at), ordered_hosts)

    def _alternates(
        self,
        spec: RequestSpec,
        hosts: Sequence[HostState],
        chosen_hosts: Sequence[PlacedInstance],
        instance: str,
        members: GroupMembers,
    ) -> Iterable[HostState]:
        taken_hosts = {place.host.uuid for place in chosen_hosts}
        fitting_hosts, _ = self._search.run_filters_again(hosts, spec)
        spare = fitting_hosts.where([uuid not in taken_hosts for uuid in fitting_hosts.uuids])
        ordered_hosts = self._order(spec, spare.offering, instance, members)
        return list(ordered_hosts) if len(chosen_hosts) > 1 else ordered_hosts

    def _of_cell(
        self, cell: str, spare: Iterable[HostState], members: GroupMembers
    ) -> Iterator[HostState]:
        """Return as many alternates as may be tried; none can be tried from another cell."""
        usable = (host for host in spare if host.cell == cell and not members.crowding(host))
        return islice(usable, self._options.max_attempts - 1)
