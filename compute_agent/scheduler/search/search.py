"""Search for the hosts that can take a specification: ask, merge, filter."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from compute_agent.fitting.announced import host_of
from compute_agent.fitting.host import DEFAULT_OPTIONS, Host, PlanOptions
from compute_agent.placement.transports.transport import Microversion
from compute_agent.provider_tree.trait_names import DEVICE_TYPE_PREFIX
from compute_agent.request import flavor
from compute_agent.request.candidate_request import CandidateRequest
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler import host_state
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.filters.affinity import ServerGroupAntiAffinityFilter
from compute_agent.scheduler.filters.host_filter import HostFilter, run_filters
from compute_agent.scheduler.fleet.aggregates import Aggregates, AggregateSource, FixedAggregates
from compute_agent.scheduler.fleet.announcements import Announcement, Announcements
from compute_agent.scheduler.fleet.rolling_upgrade import OWNERS, Fleet, Layouts
from compute_agent.scheduler.host_state import HostOffers, Hosts, HostState, OfferedHosts
from compute_agent.scheduler.outcomes import Causes, FilterCause, Observer
from compute_agent.scheduler.placement.candidates import (
    AllocationCandidates,
    ProviderSummary,
    UnreadCandidates,
)
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding
from compute_agent.scheduler.search import layout_queries, prefilters
from compute_agent.scheduler.search.host_plans import HostPlans
from compute_agent.scheduler.search.inquiry import Inquiry
from compute_agent.scheduler.search.shared_holdings import SharedHoldings
from compute_agent.scheduler.search.targets import (
    GroupMembers,
    Target,
    missing_traits,
    root_of,
    roots_of_named,
    run_exclusions,
    sees_all_hosts,
    target_of,
    with_hosts,
)
from compute_agent.scheduler.weighers.order import candidates_in_order

LOG = logging.getLogger(__name__)


class HostSearchOptions(Struct, frozen=True):
    """Everything that a search depends on, besides the request."""

    request: flavor.RequestOptions = field(default_factory=flavor.RequestOptions)
    prefilters: prefilters.PrefilterContext = field(default_factory=prefilters.PrefilterContext)
    filters: tuple[HostFilter, ...] = ()
    aggregates: AggregateSource = field(default_factory=FixedAggregates)
    service_down_time: float = 60.0
    track_instances: bool = True
    usual_cell: str = host_state.NO_CELL
    planning: PlanOptions = DEFAULT_OPTIONS


class SearchResult(Struct, frozen=True):
    """Hosts that passed, with their candidates in order; and how the others dropped out."""

    hosts: Hosts
    causes: Causes
    microversion: Microversion
    members: GroupMembers
    plans: HostPlans | None

    def best_first(self, host: HostState) -> HostState:
        """Return a host with the best that it can give as its first candidate, if it has a plan."""
        return host if self.plans is None else self.plans.best_first(host)

    def plan_cause(self, refused: Sequence[HostState], before: int) -> FilterCause | None:
        """Return why some of so many hosts have no plan; None if none was refused."""
        return None if self.plans is None else self.plans.cause(refused, before)


class TargetedRequest(Struct, frozen=True):
    """What a specification asks of placement.

    :param anywhere: the request without its target.
    :param aggregates: those in force.
    :param members: those of its server group.
    """

    request: CandidateRequest
    anywhere: CandidateRequest
    target: Target
    aggregates: Aggregates
    members: GroupMembers


class HostSearch:
    """Searches for one specification at a time.

    :param announcements: `None` without a bus; then every host counts as alive.
    :param fleet: what all agents can do; `None` when nothing is known of them.
    :param layouts: which layouts there are; `None` when every request is asked for all of them.
    :param observer: hears of candidates and of what filters left.
    """

    def __init__(
        self,
        placement: PlacementClient,
        options: HostSearchOptions,
        announcements: Announcements | None = None,
        fleet: Fleet | None = None,
        layouts: Layouts | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._observer = observer or Observer()
        self._placement = placement
        self._options = options
        self._announcements = announcements
        self._fleet = fleet or Fleet(None, placement.provider_names)
        aliases = options.request.pci_aliases or {}
        self._inquiry = Inquiry(placement, aliases, layouts, options.planning, self._announced_host)

    def find(
        self, spec: RequestSpec, shared_holdings: SharedHoldings | None = None
    ) -> SearchResult:
        """Return the hosts that can take `spec`; there may be none.

        :param shared_holdings: what the instance holds on shared providers and takes along.
        :raises InvalidRequest: the request is wrong in itself.
        :raises NoValidHost: a zone, tenant or host that does not exist.
        :raises PlacementUnavailable: placement cannot be asked.
        """
        request = self._targeted_request(spec)
        answer, queries = self._inquiry.ask(spec, request.request)
        if (
            shared_holdings
            and not answer
            and (reduced_request := shared_holdings.reduce(request.anywhere))
        ):
            targeted_request = _restrict_to_target(spec, reduced_request, request.target)
            answer, more_queries = self._inquiry.ask(spec, targeted_request)
            answer = shared_holdings.complete(answer, request.anywhere)
            queries.causes += more_queries.causes
            queries.microversion = more_queries.microversion
        plans = self._inquiry.plans(spec, queries, answer)
        version = queries.microversion
        self._observer.on_search(len(answer))
        admitted_hosts, exclusions = self._admit(spec, request, answer, plans)
        causes = Causes(tuple(queries.causes), tuple(exclusions), notes=tuple(queries.notes))
        if not answer:
            causes = self._with_disabled_target(causes, request.target)
        if _is_forced(spec):
            for warning in self.warnings(spec, admitted_hosts):
                LOG.warning(warning)
            return SearchResult(admitted_hosts, causes, version, request.members, plans)
        fitting_hosts, drops = run_filters(self._options.filters, admitted_hosts, spec)
        self._observer.on_filtering(drops)
        causes = replace(causes, filters=causes.filters + tuple(drops))
        return SearchResult(fitting_hosts, causes, version, request.members, plans)

    def _targeted_request(self, spec: RequestSpec) -> TargetedRequest:
        """Return what `spec` asks of placement, narrowed by prefilters and targets.

        :raises InvalidRequest: the request is wrong in itself.
        :raises NoValidHost: a zone, tenant or host that does not exist.
        """
        request = flavor.request_of(spec, self._options.request)
        aggregates = self._options.aggregates.current()
        context = replace(
            self._options.prefilters,
            aggregates=aggregates,
            owners=self._fleet.supports(OWNERS),
        )
        aliases = self._options.request.pci_aliases
        if aliases and flavor.device_aliases(spec):
            known_traits = frozenset(self._placement.traits_beginning(DEVICE_TYPE_PREFIX))
            context = replace(context, pci_aliases=aliases, device_type_traits=known_traits)
        request = prefilters.apply(spec, request, context)
        target = target_of(spec, self._placement, self._announcements)
        is_enforced = not _is_forced(spec) and any(
            isinstance(host_filter, ServerGroupAntiAffinityFilter)
            for host_filter in self._options.filters
        )
        members = GroupMembers(self._placement, spec, is_enforced=is_enforced)
        return TargetedRequest(
            _restrict_to_target(spec, request, target), request, target, aggregates, members
        )

    def _with_disabled_target(self, causes: Causes, target: Target) -> Causes:
        """Return causes that name the one host that a request is for, where it is disabled."""
        root = target.root
        if root is None or not self._placement.is_disabled(root):
            return causes
        [announcement] = self._announcements_of([root])
        reason = str(announcement.attributes.get("disabled_reason") or "") if announcement else ""
        name = self._placement.provider_names([root]).get(root, root)
        sentence = f"Host {name} is disabled{reason and f' ({reason})'}"
        note = f"{sentence}: enable it (compute-manage host enable), or name another."
        return replace(causes, notes=(*causes.notes, note))

    def requests(self, spec: RequestSpec) -> list[CandidateRequest]:
        """Return `spec` in each of the shapes in which it is asked, without its prefilters.

        :raises InvalidRequest: the request is wrong in itself.
        """
        request = flavor.request_of(spec, self._options.request)
        return [*self._inquiry.requests(spec, request), request]

    def _admit(
        self,
        spec: RequestSpec,
        request: TargetedRequest,
        answer: AllocationCandidates,
        plans: HostPlans | None,
    ) -> tuple[Hosts, list[FilterCause]]:
        hosts = self._host_states(spec, answer, request)
        admitted_hosts, exclusions = run_exclusions(spec, request.target, hosts)
        if plans is None or not plans.required:
            return admitted_hosts, exclusions
        planned_hosts = [plans.with_near_devices(host) for host in admitted_hosts]
        near_hosts = [host for host in planned_hosts if host.candidates]
        pairs = zip(planned_hosts, admitted_hosts, strict=True)
        refused = [before for planned, before in pairs if not planned.candidates]
        cause = plans.cause(refused, len(admitted_hosts))
        exclusions += [cause] if cause else []
        return Hosts(near_hosts), exclusions

    def host_of(self, spec: RequestSpec, instance: str) -> tuple[HostState, Holding]:
        """Return the host that an instance is on and what it holds, if it may be rebuilt there.

        :raises NoValidHost: its new image asks for what the host, or a provider in use, has not.
        :raises MoveRefused: it is on no host, or on several.
        """
        holding = self._placement.holding(instance)
        root = root_of(self._placement, instance, holding)
        traits = self._placement.tree(root)
        lacking_traits = missing_traits(spec, {root, *holding.allocations}, traits)
        if lacking_traits:
            reason = f"The providers in use lack the traits {', '.join(sorted(lacking_traits))}."
            raise NoValidHost(reason, Causes(notes=(reason,)))
        tree = {uuid: ProviderSummary(uuid, root, traits=has) for uuid, has in traits.items()}
        name = self._placement.provider_names([root]).get(root, root)
        [announcement] = self._announcements_of([root])
        is_alive = announcement is None or announcement.seen_at > self._silent_since()
        aggregates = self._options.aggregates.current().of_host(name)
        host = HostState(
            *(root, name, tree, (), aggregates, frozenset(), announcement, is_alive),
            usual_cell=self._options.usual_cell,
        )
        filters = [
            host_filter for host_filter in self._options.filters if host_filter.RUN_ON_REBUILD
        ]
        fitting_hosts, drops = run_filters(filters, [host], spec)
        self._observer.on_filtering(drops)
        if not fitting_hosts:
            causes = Causes(filters=tuple(drops))
            raise NoValidHost(f"{drops[-1].name} dropped the instance's host.", causes)
        return host, holding

    def on_host(
        self, spec: RequestSpec, request: CandidateRequest, root: str
    ) -> AllocationCandidates:
        """Return what the host of provider `root` offers for `request`.

        Neither prefilters nor filters are asked: it is for an instance that runs there already.

        :param spec: for the NUMA nodes of the guest.
        :raises InvalidRequest: the request is wrong in itself.
        :raises PlacementUnavailable: placement cannot be asked.
        """
        return self._inquiry.ask(spec, layout_queries.on_target(request, root))[0]

    def run_filters_again(
        self, found_hosts: Sequence[HostState], spec: RequestSpec
    ) -> tuple[Hosts, list[FilterCause]]:
        """Filter again for the next instance of the same request."""
        if _is_forced(spec):
            return Hosts.of(found_hosts), []
        again = [
            host_filter
            for host_filter in self._options.filters
            if not host_filter.run_filter_once_per_request
        ]
        fitting_hosts, drops = run_filters(again, found_hosts, spec)
        self._observer.on_filtering(drops)
        return fitting_hosts, drops

    def _host_states(
        self, spec: RequestSpec, answer: AllocationCandidates, request: TargetedRequest
    ) -> Hosts:
        roots = answer.roots
        names = self._placement.provider_names(roots)
        roots_by_instance = roots_of_named(self._placement, spec)
        announcements, silent_since = self._announcements_of(roots), self._silent_since()
        aggregates = request.aggregates

        def make(place: int) -> HostState:
            root, announcement = roots[place], announcements[place]
            providers, candidates = answer.of_host(root)
            name = names.get(root, root)
            return HostState(
                root,
                name,
                providers,
                candidates_in_order(candidates, providers),
                aggregates.of_host(name),
                frozenset(i for i, roots in roots_by_instance.items() if root in roots),
                announcement,
                announcement is None or announcement.seen_at > silent_since,
                usual_cell=self._options.usual_cell,
            )

        if not isinstance(answer, UnreadCandidates):
            return Hosts(map(make, range(len(roots))))
        offers = HostOffers(
            *(answer, roots, announcements, silent_since, names, make),
            has_aggregates=aggregates.have_multipliers,
        )
        return OfferedHosts(offers, range(len(roots)), {})

    def _announcements_of(self, roots: Collection[str]) -> Sequence[Announcement | None]:
        """Return the announcement of each host; none without a bus."""
        if self._announcements is None:
            return [None] * len(roots)
        announcements = self._announcements.of_hosts(roots)
        if self._options.track_instances:
            return announcements
        return [a and replace(a, instances=None) for a in announcements]

    def _silent_since(self) -> float:
        """Return when agents were heard last that count as silent.

        A host that was not heard of yet, for instance right after this scheduler started, counts as
        alive: placement's own mark of a disabled host still holds.
        """
        if self._announcements is None:
            return -math.inf
        return self._announcements.time() - self._options.service_down_time

    def _announced_host(self, root: str) -> Host | None:
        [announcement] = self._announcements_of([root])
        return None if announcement is None else host_of(announcement.attributes)

    def warnings(self, spec: RequestSpec, hosts: Sequence[HostState]) -> Iterator[str]:
        """Yield which forced hosts, which no filter looks at, are silent or disabled."""
        for host in hosts if _is_forced(spec) else ():
            announcement = host.announcement
            if announcement is None or self._announcements is None:
                continue
            if not host.alive:
                yield (
                    f"Host {host.name} is used because the request forces it, but its agent was "
                    f"last heard {self._announcements.age(announcement):.0f} s ago: check that "
                    "compute-agent runs there"
                )
            elif not announcement.enabled:
                yield (
                    f"Host {host.name} is used because the request forces it, but it is disabled: "
                    "enable it, or name another"
                )

    def with_group_hosts(self, spec: RequestSpec, instances: Collection[str] = ()) -> RequestSpec:
        """Return a specification whose group names a host where it shall gather; see there."""
        return spec if _is_forced(spec) else with_hosts(self._placement, spec, instances)


def _restrict_to_target(
    spec: RequestSpec, request: CandidateRequest, target: Target
) -> CandidateRequest:
    if target.root is not None:
        request = layout_queries.on_target(request, target.root)
    return replace(request, limit=None) if sees_all_hosts(spec, target) else request


def _is_forced(spec: RequestSpec) -> bool:
    return bool(spec.force_hosts or spec.force_nodes)
