"""Claims of several instances in one request: all of them hold their host, or none does.

Each instance is given the best host that the ones before it leave, on paper; then placement writes
all of it in one transaction. So there is nothing to undo when the scheduler dies, or its host is
lost, and nobody needs to know what it had begun. Where others were faster, what was short is
counted as used and the plan is made again.

A host may have too many members of a server group after a claim; then one claim stays there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import filterfalse
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.errors import AllocationMoveFailed, AllocationUpdateFailed
from compute_agent.placement.responses import NoCapacity
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.claiming.claims import GiveBack, lost_claim, lost_to_the_group
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.host_state import Hosts, HostState, fits
from compute_agent.scheduler.outcomes import LostClaim, Observer, Outcome
from compute_agent.scheduler.placement.candidates import Candidate
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding, WantedHolding
from compute_agent.scheduler.search.search import HostSearch, SearchResult
from compute_agent.scheduler.search.targets import GroupMembers, with_group_host

PAUSES: Final = (0.02, 0.04, 0.08, 0.16)
"""Seconds before each further look: longer than it takes another scheduler to give way."""


class CrowdedHost(Struct, frozen=True):
    """A host with too many members of the group: these instances, and others."""

    host: HostState
    instances: frozenset[str]
    others: frozenset[str]


def crowded_hosts(
    members: GroupMembers,
    claimed_hosts: Mapping[str, HostState],
    wait: Callable[[float], object] = time.sleep,
) -> list[CrowdedHost]:
    """Return the hosts that are crowded now that the instances of a request have them.

    Who claims later sees the earlier claim, so one of two requests always gives way. Where each
    sees the other, both would. So the one with the smallest uuid on these hosts stays, and looks
    again until the others have given way, or a smaller one comes; one that does not give way has
    claimed before, and stays itself.

    :param claimed_hosts: by instance; their claims are carried out.
    """
    if not _looked_at(members, claimed_hosts):
        return []
    # One that claims between the looks at two hosts is not seen on the first of them.
    crowded_places = _looked_at(members, claimed_hosts)
    for pause in PAUSES:
        if not crowded_places or _comes_later(members, crowded_places):
            break
        wait(pause)
        crowded_places = _looked_at(members, claimed_hosts)
    return crowded_places


def _looked_at(members: GroupMembers, claimed_hosts: Mapping[str, HostState]) -> list[CrowdedHost]:
    crowded_places = []
    for uuid, host in {host.uuid: host for host in claimed_hosts.values()}.items():
        here = frozenset(
            i for i, claimed_host in claimed_hosts.items() if claimed_host.uuid == uuid
        )
        others = members.crowding_after_claim(host, here)
        if others:
            crowded_places.append(CrowdedHost(host, here, others))
    return crowded_places


def _comes_later(members: GroupMembers, crowded_places: Sequence[CrowdedHost]) -> bool:
    first = min(instance for place in crowded_places for instance in place.instances)
    rivals = (members.rivals(place.host, place.others) for place in crowded_places)
    return any(rival < first for rival in frozenset[str]().union(*rivals))


LOG = logging.getLogger(__name__)

UNNAMED_REFUSALS = 4
"""Refusals without a provider after which a request ends: the hosts are searched for again."""

ROUNDS = 100
"""Plans that are tried, at most: each costs a request and takes the filters again."""

Ordered = Callable[[RequestSpec, Sequence[HostState], str], Iterable[HostState]]


class PlacedInstance(Struct, frozen=True):
    """The host of one instance, and the way in which it is used there."""

    host: HostState
    candidate: Candidate


class InstancesTogether(Struct, frozen=True):
    """Places several instances of one request.

    :ivar order_hosts: returns hosts in the order in which an instance tries them.
    """

    placement: PlacementClient
    search: HostSearch
    order_hosts: Ordered
    give_back: GiveBack
    observer: Observer

    def place(
        self, spec: RequestSpec, instances: Sequence[str], found_hosts: SearchResult
    ) -> tuple[list[PlacedInstance], Hosts]:
        """Claim a host for each instance; return them, and all hosts as they are afterwards.

        :raises NoValidHost: one instance fits nowhere; nothing is claimed.
        :raises AllocationUpdateFailed: one of the instances holds something; nothing is claimed.
        :raises PlacementUnavailable: placement does not answer; nothing is claimed, or it is in the
            journal and given back as soon as placement answers.
        """
        hosts, lost_claims, unnamed_count = found_hosts.hosts, list[LostClaim](), 0
        for _ in range(ROUNDS):
            placed_instances, hosts_after = self._plan(
                spec, instances, hosts, found_hosts, lost_claims
            )
            placed_by_instance = dict(zip(instances, placed_instances, strict=True))
            refusal = self._claim(spec, placed_by_instance, bool(lost_claims))
            if refusal is None:
                crowded_places = self._crowded_hosts(found_hosts.members, placed_by_instance)
                if not crowded_places:
                    self._record_wins(placed_by_instance, bool(lost_claims))
                    return placed_instances, hosts_after
                lost_claims += self._take_back(
                    placed_by_instance, crowded_places, bool(lost_claims)
                )
                for place in crowded_places:
                    found_hosts.members.leave_to(place.host, place.others)
                continue
            lost_claims.append(_lost_claim(placed_instances, refusal))
            LOG.info(
                "A claim for %d instances was refused. %s",
                len(placed_instances),
                lost_claims[-1].sentence(),
            )
            if refusal.provider and refusal.resource_class:
                hosts = _without_shortage(hosts, placed_instances, refusal)
                continue
            unnamed_count += 1
            if unnamed_count == UNNAMED_REFUSALS:
                break
            found_hosts = self.search.find(spec)
            hosts = found_hosts.hosts
        causes = found_hosts.causes.with_claims_lost(tuple(lost_claims))
        raise NoValidHost(causes.sentence(), causes)

    def _plan(
        self,
        spec: RequestSpec,
        instances: Sequence[str],
        hosts: Hosts,
        found_hosts: SearchResult,
        lost_claims: Sequence[LostClaim],
    ) -> tuple[list[PlacedInstance], Hosts]:
        placed_instances: list[PlacedInstance] = []
        remaining_hosts, causes = hosts, found_hosts.causes
        for instance in instances:
            fitting_hosts = remaining_hosts
            if placed_instances:
                fitting_hosts, drops = self.search.run_filters_again(remaining_hosts, spec)
                causes = replace(found_hosts.causes, filters=causes.filters + tuple(drops))
            usable = fitting_hosts.offering
            ordered_hosts = self.order_hosts(spec, usable, instance)
            with_room = filterfalse(found_hosts.members.crowding, ordered_hosts)
            planned_hosts = map(found_hosts.best_first, with_room)
            host = next((planned for planned in planned_hosts if planned.candidates), None)
            if host is None:
                causes = causes.with_filter(found_hosts.members.cause(usable))
                refused = [h for h in usable if not found_hosts.best_first(h).candidates]
                causes = causes.with_filter(found_hosts.plan_cause(refused, len(usable)))
                causes = causes.with_claims_lost(tuple(lost_claims))
                raise NoValidHost(causes.sentence(), causes)
            candidate = host.candidates[0]
            placed_instances.append(PlacedInstance(host, candidate))
            spec = with_group_host(spec, host.name)
            remaining_hosts = remaining_hosts.after_claim(host, candidate)
        return placed_instances, remaining_hosts

    def _claim(
        self, spec: RequestSpec, placed_by_instance: dict[str, PlacedInstance], again: bool
    ) -> NoCapacity | None:
        nothing = Holding({}, {})
        wanted_holdings = {
            instance: WantedHolding(
                nothing,
                place.candidate.allocations,
                spec.consumer_type,
                spec.project_id,
                spec.user_id,
                place.candidate.mappings,
            )
            for instance, place in placed_by_instance.items()
        }
        try:
            refusal = self.placement.exchange(wanted_holdings)
        except AllocationMoveFailed as error:
            self.observer.on_claim("consumer", again=again)
            raise AllocationUpdateFailed(
                f"One of the consumers {', '.join(placed_by_instance)} holds allocations already, "
                f"or another writer claims for it: nothing was claimed. {error}"
            ) from error
        except BaseException:
            self.observer.on_claim("failed", again=again)
            # it may have been carried out, and the caller does not get it
            self._return(placed_by_instance)
            raise
        if refusal is not None:
            short = bool(refusal.resource_class)
            outcome: Outcome = "shortage" if short else "race"
            self.observer.on_claim(outcome, again=again)
        return refusal

    def _crowded_hosts(
        self, members: GroupMembers, placed_by_instance: dict[str, PlacedInstance]
    ) -> list[CrowdedHost]:
        try:
            return crowded_hosts(
                members, {i: place.host for i, place in placed_by_instance.items()}
            )
        except BaseException:
            self._return(placed_by_instance)
            raise

    def _take_back(
        self,
        placed_by_instance: dict[str, PlacedInstance],
        crowded_places: Sequence[CrowdedHost],
        again: bool,
    ) -> list[LostClaim]:
        self._return(placed_by_instance)
        self.observer.on_claim("group", again=again)
        lost_claims = [lost_to_the_group(place.host.name, place.others) for place in crowded_places]
        LOG.info(
            "A claim for %d instances was taken back. %s",
            len(placed_by_instance),
            lost_claims[0].sentence(),
        )
        return lost_claims

    def _return(self, placed_by_instance: dict[str, PlacedInstance]) -> None:
        self.give_back.all_of({i: place.candidate for i, place in placed_by_instance.items()})

    def _record_wins(self, placed_by_instance: dict[str, PlacedInstance], again: bool) -> None:
        for instance, place in placed_by_instance.items():
            self.observer.on_claim("won", again=again)
            LOG.info("Claimed host %s (%s) for %s", place.host.name, place.host.uuid, instance)


def _lost_claim(placed_instances: Sequence[PlacedInstance], refusal: NoCapacity) -> LostClaim:
    for place in placed_instances:
        if place.candidate.amount(refusal.provider, refusal.resource_class):
            return lost_claim(place.host.name, place.candidate, refusal)
    return lost_claim(placed_instances[0].host.name, placed_instances[0].candidate, refusal)


def _without_shortage(
    hosts: Sequence[HostState], placed_instances: Sequence[PlacedInstance], refusal: NoCapacity
) -> Hosts:
    """Return hosts on which the provider that was short has less than was asked of it."""
    uuid, name = refusal.provider, refusal.resource_class
    amount = sum(place.candidate.amount(uuid, name) for place in placed_instances)
    return Hosts(
        _with_less(host, uuid, name, amount - 1) if uuid in host.providers else host
        for host in hosts
    )


def _with_less(host: HostState, uuid: str, name: str, free: int) -> HostState:
    provider = host.providers[uuid]
    providers = {**host.providers, uuid: provider.using({name: provider.free(name) - max(free, 0)})}
    fitting_candidates = tuple(
        candidate for candidate in host.candidates if fits(candidate, providers)
    )
    return host._replace(providers=providers, candidates=fitting_candidates)
