"""State of the hosts of one request, made from placement's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, compress
from typing import Any, NamedTuple, TypeVar, overload

from msgspec import Struct

from compute_agent.fitting.plan import Cost
from compute_agent.request.guest_numa import is_special
from compute_agent.request.spec import InstanceGroup, RequestSpec
from compute_agent.scheduler.fleet.aggregates import Aggregate
from compute_agent.scheduler.fleet.announcements import UNHEARD, Announcement
from compute_agent.scheduler.placement.candidates import (
    AllocationCandidates,
    Candidate,
    ProviderSummary,
    UnreadCandidates,
    ancestry,
)

T = TypeVar("T")

NO_CELL = "00000000-0000-0000-0000-000000000000"
"""The cell of a host of which none is known: a deployment of one cell need not name it."""


class HostState(NamedTuple):
    """One host: a tree of providers, and the candidates on it.

    :param uuid: of the root provider.
    :param name: of the root provider.
    :param providers: every provider of the tree, and the shared ones its candidates use.
    :param candidates: ways to serve the request here, the best first.
    :param aggregates: the aggregates it is in.
    :param instances: those of the instances that the request names which live here.
    :param announcement: the agent's last one, None without a bus.
    :param alive: whether the agent announced itself lately; True without a bus.
    :param claimed_here: instances of this request placed here so far.
    :param usual_cell: the cell of hosts that announce none.
    :param cost: of the plan of the guest here, None where none was made yet.
    """

    uuid: str
    name: str
    providers: Mapping[str, ProviderSummary]
    candidates: tuple[Candidate, ...]
    aggregates: tuple[Aggregate, ...] = ()
    instances: frozenset[str] = frozenset()
    announcement: Announcement | None = None
    alive: bool = True
    claimed_here: int = 0
    usual_cell: str = NO_CELL
    cost: Cost | None = None

    @property
    def known_as(self) -> frozenset[str]:
        """The names that a request may give it: the node's, and that of the service."""
        service = {self.announcement.host} if self.announcement else set()
        return frozenset({self.name} | service)

    @property
    def cell(self) -> str:
        """The cell that the host is in, as its agent announces it."""
        attributes = self.announcement.attributes if self.announcement else {}
        return str(attributes.get("cell_uuid") or self.usual_cell).lower()

    def ancestry(self, provider: str) -> tuple[str, ...]:
        """Return a provider and those above it, up to the root, as far as they are known."""
        return ancestry(provider, self.providers)

    @property
    def tree(self) -> tuple[ProviderSummary, ...]:
        """The providers of the host's own tree."""
        root = self.uuid
        return tuple([provider for provider in self.providers.values() if provider.root == root])

    def free(self, resource_class: str) -> int:
        """Return what is left of a class in the whole tree."""
        return sum(provider.free(resource_class) for provider in self.tree)

    def free_where_taken(self, classes: frozenset[str]) -> int:
        """Return what is left of classes on the providers of which the first candidate takes any.

        Where it takes none, the whole tree counts.
        """
        giving = [
            self.providers[uuid]
            for candidate in self.candidates[:1]
            for uuid, amounts in candidate.allocations.items()
            if not classes.isdisjoint(amounts)
        ]
        if self.candidates and not giving:
            return sum(map(self.free, classes))
        return sum(provider.free(name) for provider in giving for name in classes)

    def capacity(self, resource_class: str) -> int:
        """Return how much of a class the whole tree has."""
        return sum(provider.capacity(resource_class) for provider in self.tree)

    @property
    def traits(self) -> frozenset[str]:
        """Traits of any provider of the tree."""
        return frozenset().union(*(provider.traits for provider in self.tree))

    def metadata(self, key: str) -> frozenset[str]:
        """Return the values that the metadata `key` has in the host's aggregates."""
        return frozenset(
            aggregate.metadata[key] for aggregate in self.aggregates if key in aggregate.metadata
        )

    def member_count(self, group: InstanceGroup, spec: RequestSpec) -> int:
        """Return how many members of a group it has, as far as is known before it is claimed."""
        members = len(self.instances & group.members) + self.claimed_here
        return max(members, 1) if spec.names_group_host(self.name) else members

    def using(self, candidate: Candidate, *, claimed_count: int = 0) -> HostState:
        """Return this host with a candidate's amounts used, and the candidates that still fit."""
        if not claimed_count and self.providers.keys().isdisjoint(candidate.allocations):
            return self
        providers = dict(self.providers)
        for uuid, resources in candidate.allocations.items():
            if uuid in providers:
                providers[uuid] = providers[uuid].using(resources)
        return self._replace(
            providers=providers,
            candidates=tuple(
                candidate for candidate in self.candidates if fits(candidate, providers)
            ),
            claimed_here=self.claimed_here + claimed_count,
            cost=None,
        )


class Hosts(Sequence[HostState]):
    """The hosts of one request, with what filters and weighers look at of all of them.

    Each of these is found out once, and not at all where nothing looks at it.
    """

    def __init__(self, hosts: Iterable[HostState] = ()) -> None:
        self._hosts = tuple(hosts)

    @classmethod
    def of(cls, hosts: Iterable[HostState]) -> Hosts:
        """Return hosts as they are here."""
        return hosts if isinstance(hosts, Hosts) else cls(hosts)

    def __len__(self) -> int:
        """Count them."""
        return len(self._hosts)

    @overload
    def __getitem__(self, place: int) -> HostState: ...
    @overload
    def __getitem__(self, place: slice) -> list[HostState]: ...
    def __getitem__(self, place: int | slice) -> HostState | list[HostState]:
        """Return one of them, or some."""
        return list(self._hosts[place]) if isinstance(place, slice) else self._hosts[place]

    def where(self, conditions: Iterable[object]) -> Hosts:
        """Return those for which a condition holds, given in their order."""
        return Hosts(compress(self._hosts, conditions))

    @property
    def offering(self) -> Hosts:
        """Those that have a candidate."""
        return self.where([host.candidates for host in self._hosts])

    @cached_property
    def uuids(self) -> Sequence[str]:
        """The roots."""
        return [host.uuid for host in self._hosts]

    @cached_property
    def announcements(self) -> Sequence[Announcement]:
        """What their agents announce."""
        return [host.announcement or UNHEARD for host in self._hosts]

    @property
    def alive(self) -> Sequence[bool]:
        """Whether their agents are alive."""
        return [host.alive for host in self._hosts]

    def names(self, most: int) -> tuple[str, ...]:
        """Return the names of the first ones."""
        return tuple(host.name for host in self[:most])

    def free(self, classes: frozenset[str]) -> Sequence[int]:
        """Return what is free on the providers that the first candidate takes classes from.

        Where it takes none of them, the whole tree counts.
        """
        return [host.free_where_taken(classes) for host in self]

    def having(self, trait: str) -> list[bool]:
        """Return of which the root has a trait."""
        roots = [host.providers.get(host.uuid) for host in self]
        return [root is not None and trait in root.traits for root in roots]

    @cached_property
    def has_special_classes(self) -> bool:
        """Whether any provider has devices or the like."""
        providers = chain.from_iterable(host.providers.values() for host in self._hosts)
        return any(map(is_special, set[str]().union(*[provider.counts for provider in providers])))

    @property
    def is_planned(self) -> bool:
        """Whether a plan was made of any."""
        return any(host.cost for host in self._hosts)

    @property
    def has_aggregates(self) -> bool:
        """Whether any may be in an aggregate that weighers look at."""
        return any(host.aggregates for host in self._hosts)

    def after_claim(self, host: HostState, candidate: Candidate) -> Hosts:
        """Return the hosts with what a claim on one of them takes, and what still fits."""
        return Hosts(
            other.using(candidate, claimed_count=int(other.uuid == host.uuid)) for other in self
        )


class HostOffers(Struct, frozen=True):
    """What hosts are made of when they are looked at.

    :ivar roots: of the hosts, in placement's order.
    :ivar announcements: of each.
    :ivar silent_since: when the agents were heard last that count as silent.
    :ivar names: by root.
    :ivar make: makes the host at a place.
    :ivar has_aggregates: whether any may be in an aggregate that weighers look at.
    """

    answer: UnreadCandidates
    roots: Sequence[str]
    announcements: Sequence[Announcement | None]
    silent_since: float
    names: Mapping[str, str]
    make: Callable[[int], HostState]
    has_aggregates: bool


class OfferedHosts(Hosts):
    """Hosts of one provider each, each of which is made when it is looked at.

    :param places: of the hosts in what is offered.
    :param changed: by place, hosts that are used further by now.
    """

    def __init__(
        self, offers: HostOffers, places: Sequence[int], changed: Mapping[int, HostState]
    ) -> None:
        self._offers = offers
        self._places = places
        self._made = dict(changed)
        self._changed = changed

    def __len__(self) -> int:
        """Count them."""
        return len(self._places)

    def __getitem__(self, place: Any) -> Any:
        """Return one of them, or some."""
        if isinstance(place, slice):
            return list(map(self._host_at, self._places[place]))
        return self._host_at(self._places[place])

    def _host_at(self, place: int) -> HostState:
        host = self._made.get(place)
        if host is None:
            host = self._made[place] = self._offers.make(place)
        return host

    def where(self, conditions: Iterable[object]) -> Hosts:
        """See `Hosts`."""
        return OfferedHosts(self._offers, list(compress(self._places, conditions)), self._changed)

    @property
    def offering(self) -> Hosts:
        """See `Hosts`."""
        if not self._changed:
            return self
        has_any = {place: bool(host.candidates) for place, host in self._changed.items()}
        return self.where([has_any.get(place, True) for place in self._places])

    @cached_property
    def uuids(self) -> Sequence[str]:
        """See `Hosts`."""
        return self._of_mine(self._offers.roots)

    def names(self, most: int) -> tuple[str, ...]:
        """See `Hosts`."""
        return tuple(self._offers.names.get(root, root) for root in self.uuids[:most])

    @cached_property
    def announcements(self) -> Sequence[Announcement]:
        """See `Hosts`."""
        return [announced or UNHEARD for announced in self._of_mine(self._offers.announcements)]

    @property
    def alive(self) -> Sequence[bool]:
        """See `Hosts`."""
        silent_since = self._offers.silent_since
        return [announced.seen_at > silent_since for announced in self.announcements]

    def free(self, classes: frozenset[str]) -> Sequence[int]:
        """See `Hosts`."""
        if self._changed:
            return super().free(classes)
        free = self._offers.answer.free
        columns = [self._of_mine(free[name]) for name in classes & free.keys()]
        if len(columns) == 1:
            return columns[0]
        return list(map(sum, zip(*columns, strict=True))) if columns else [0] * len(self)

    def having(self, trait: str) -> list[bool]:
        """See `Hosts`."""
        return [trait in traits for traits in self._of_mine(self._offers.answer.traits)]

    def _of_mine(self, column: Sequence[T]) -> Sequence[T]:
        places = self._places
        return column if len(places) == len(column) else list(map(column.__getitem__, places))

    @cached_property
    def has_special_classes(self) -> bool:
        """See `Hosts`."""
        return any(map(is_special, self._offers.answer.free))

    @property
    def is_planned(self) -> bool:
        """See `Hosts`."""
        return False

    @property
    def has_aggregates(self) -> bool:
        """See `Hosts`."""
        return self._offers.has_aggregates

    def after_claim(self, host: HostState, candidate: Candidate) -> Hosts:
        """See `Hosts`: nothing is shared."""
        place = self._places[self.uuids.index(host.uuid)]
        used_host = self._host_at(place).using(candidate, claimed_count=1)
        return OfferedHosts(self._offers, self._places, {**self._changed, place: used_host})


def fits(candidate: Candidate, providers: Mapping[str, ProviderSummary]) -> bool:
    """Whether every provider has as much left as a candidate takes from it."""
    return all(
        providers[uuid].free(name) >= amount
        for uuid, resources in candidate.allocations.items()
        for name, amount in resources.items()
    )


def merge(answers: Iterable[AllocationCandidates]) -> AllocationCandidates:
    """Return several answers as one; a candidate that is in two of them is taken once."""
    answers = tuple(answers)
    offering = [answer for answer in answers if answer]
    if len(offering) == 1:
        offering[0].returned_count = sum(answer.returned_count for answer in answers)
        return offering[0]
    providers: dict[str, ProviderSummary] = {}
    candidates: dict[tuple[object, ...], Candidate] = {}
    returned_count = 0
    for answer in answers:
        providers.update(answer.providers)
        returned_count += answer.returned_count
        for candidate in answer.candidates:
            candidates.setdefault(_identity(candidate), candidate)
    return AllocationCandidates(tuple(candidates.values()), providers, returned_count)


def _identity(candidate: Candidate) -> tuple[object, ...]:
    allocations = tuple(
        sorted(
            (uuid, tuple(sorted(amounts.items())))
            for uuid, amounts in candidate.allocations.items()
        )
    )
    return allocations, tuple(sorted(candidate.mappings.items()))
