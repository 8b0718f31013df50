"""From a specification to the hosts that can take it: ask, merge, filter."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compute_agent.scheduler import answer as answers
from compute_agent.scheduler import flavor, hosts, prefilters, shapes, split
from compute_agent.scheduler.aggregates import Aggregates
from compute_agent.scheduler.announcements import Announcement, Announcements
from compute_agent.scheduler.answer import Answer
from compute_agent.scheduler.causes import SHOWN_HOSTS, Causes, FilterCause, QueryCause
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.guest_numa import PAGE_SIZE_TRAIT_PREFIX, GuestNuma, guest_numa
from compute_agent.scheduler.hosts import HostState
from compute_agent.scheduler.placement_port import Microversion, Placement, UnknownName
from compute_agent.scheduler.request import UNSUFFIXED, CandidateRequest
from compute_agent.scheduler.shapes import Shape
from compute_agent.scheduler.spec import RequestSpec
from compute_agent.scheduler.weighers import candidates as candidate_order

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Everything a search goes by, besides the request."""

    request: flavor.RequestOptions = field(default_factory=flavor.RequestOptions)
    prefilters: prefilters.PrefilterContext = field(default_factory=prefilters.PrefilterContext)
    filters: tuple[HostFilter, ...] = ()
    service_down_time: float = 60.0


@dataclass(frozen=True, slots=True)
class Found:
    """Hosts that passed, with their candidates in order; and how the others dropped out."""

    hosts: tuple[HostState, ...]
    causes: Causes
    microversion: Microversion


class Search:
    """Searches for one specification at a time.

    :param announcements: None without a bus; then every host counts as alive.
    """

    def __init__(
        self,
        placement: Placement,
        options: SearchOptions,
        announcements: Announcements | None = None,
    ) -> None:
        self._placement = placement
        self._options = options
        self._announcements = announcements

    @property
    def aggregates(self) -> Aggregates:
        """The aggregates that hosts are in."""
        return self._options.prefilters.aggregates

    def find(self, spec: RequestSpec) -> Found:
        """Return the hosts that can take `spec`; there may be none.

        :raises InvalidRequest: the request is wrong in itself.
        :raises NoValidHost: a zone, tenant or host that does not exist.
        :raises PlacementUnavailable: placement cannot be asked.
        """
        request = flavor.request_of(spec, self._options.request)
        request = prefilters.apply(spec, request, self._options.prefilters)
        request = self._on_target(spec, request)
        answer, queries, version = self._ask(spec, request)
        found = self._host_states(spec, answer)
        found = self._without_excluded(spec, found)
        causes = Causes(queries=tuple(queries.causes), notes=tuple(queries.notes))
        if spec.force_hosts or spec.force_nodes:
            return Found(tuple(found), causes, version)
        passed, dropped = run_filters(self._options.filters, found, spec)
        return Found(tuple(passed), replace(causes, filters=tuple(dropped)), version)

    def on_host(self, spec: RequestSpec, request: CandidateRequest, root: str) -> Answer:
        """Return what the host of provider `root` offers for `request`.

        Neither prefilters nor filters are asked: it is for an instance that runs there already.

        :param spec: for the NUMA nodes of the guest.
        :raises InvalidRequest: the request is wrong in itself.
        :raises PlacementUnavailable: placement cannot be asked.
        """
        return self._ask(spec, shapes.on_target(request, root))[0]

    def run_filters_again(
        self, found: Sequence[HostState], spec: RequestSpec
    ) -> tuple[list[HostState], list[FilterCause]]:
        """Filter again for the next instance of the same request."""
        if spec.force_hosts or spec.force_nodes:
            return list(found), []
        again = [one for one in self._options.filters if not one.run_filter_once_per_request]
        return run_filters(again, found, spec)

    def _on_target(self, spec: RequestSpec, request: CandidateRequest) -> CandidateRequest:
        named = {spec.destination.node or spec.destination.host} - {""}
        named = named or set(spec.force_nodes or spec.force_hosts)
        if len(named) != 1:
            return request
        name = named.pop()
        root = self._placement.root_named(name)
        if root is None:
            reason = f"Placement knows no host {name}."
            raise NoValidHost(reason, Causes(notes=(reason,)))
        return shapes.on_target(request, root)

    def _ask(
        self, spec: RequestSpec, request: CandidateRequest
    ) -> tuple[Answer, _Questions, Microversion]:
        numa = self._guest_numa(spec, request)
        questions = _Questions(self._placement)
        found = [questions.ask(shape) for shape in shapes.shapes(request, numa)]
        if (
            not any(one.candidates for one in found)
            and not numa.asked
            and shapes.asks_for_cells(request)
        ):
            probe = shapes.split_shape(request, numa)
            probed = questions.ask(probe)
            composed = split.compose(probed, numa.nodes[0], probe.request.group(split.CELL_GROUP))
            found.append(replace(probed, candidates=composed))
        return hosts.merge(found), questions, questions.microversion

    def _guest_numa(self, spec: RequestSpec, request: CandidateRequest) -> GuestNuma:
        known: Collection[str] = ()
        if spec.setting("hw:mem_page_size") == "large":
            known = self._placement.traits_beginning(PAGE_SIZE_TRAIT_PREFIX)
        resources = request.group(UNSUFFIXED).resources
        return guest_numa(
            spec,
            resources.get("VCPU", 0),
            resources.get("PCPU", 0),
            resources.get("MEMORY_MB", 0),
            known,
        )

    def _host_states(self, spec: RequestSpec, answer: Answer) -> list[HostState]:
        by_root = hosts.by_root(answer)
        names = self._placement.provider_names(by_root)
        living = self._named_instances(spec)
        states = []
        for root, candidates in by_root.items():
            providers = {one.uuid: one for one in answer.tree(root)}
            for candidate in candidates:
                providers |= {uuid: answer.providers[uuid] for uuid in candidate.allocations}
            announced, alive = self._announcement(root)
            name = names.get(root, root)
            states.append(
                HostState(
                    uuid=root,
                    name=name,
                    providers=providers,
                    candidates=candidate_order.in_order(candidates, providers),
                    aggregates=self.aggregates.of_host(name),
                    instances=frozenset(i for i, roots in living.items() if root in roots),
                    announcement=announced,
                    alive=alive,
                )
            )
        return states

    def _announcement(self, root: str) -> tuple[Announcement | None, bool]:
        if self._announcements is None:
            return None, True
        announced = self._announcements.of(root)
        if announced is None:
            # not heard of yet, for instance right after this scheduler started: placement's own
            # mark of a disabled host still holds
            return None, True
        return announced, self._announcements.age(announced) < self._options.service_down_time

    def _named_instances(self, spec: RequestSpec) -> Mapping[str, frozenset[str]]:
        """Return where the instances live that hints or the server group name, by instance."""
        named = {*spec.hint("same_host"), *spec.hint("different_host")}
        if spec.instance_group is not None:
            named |= spec.instance_group.members
        living = {}
        for instance in sorted(named):
            held = self._placement.holding(instance).allocations
            roots = self._placement.provider_roots(tuple(held)) if held else {}
            living[instance] = frozenset(roots.values())
        return living

    def _without_excluded(self, spec: RequestSpec, found: list[HostState]) -> list[HostState]:
        dropped = spec.ignore_hosts | spec.retried_hosts
        forced = spec.force_hosts | spec.force_nodes
        return [
            one for one in found if one.name not in dropped and (not forced or one.name in forced)
        ]


class _Questions:
    """The questions of one search, and what became of them."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self.causes: list[QueryCause] = []
        self.notes: list[str] = []
        self.microversion: Microversion = (0, 0)

    def ask(self, shape: Shape) -> Answer:
        request = shape.request
        query = request.query()
        try:
            body, self.microversion = self._placement.allocation_candidates(
                request.parameters(), request.microversion
            )
        except UnknownName as error:
            self._note(shape, query, returned=0)
            if str(error) not in self.notes:
                self.notes.append(str(error))
            return Answer()
        answer = answers.read(body, shape.name)
        self._note(shape, query, returned=answer.returned)
        kept = tuple(one for one in answer.candidates if shape.keep(one, answer))
        return replace(answer, candidates=kept)

    def _note(self, shape: Shape, query: str, *, returned: int) -> None:
        limit = shape.request.limit
        version = ".".join(map(str, self.microversion))
        reached = limit is not None and returned >= limit
        self.causes.append(QueryCause(shape.name, query, version, returned, reached))


def run_filters(
    filters: Sequence[HostFilter], found: Sequence[HostState], spec: RequestSpec
) -> tuple[list[HostState], list[FilterCause]]:
    """Return the hosts that pass all filters, and what each filter left; stops at none left."""
    left, causes = list(found), []
    for one in filters:
        if not left:
            break
        before = len(left)
        left = list(one.filter_all(left, spec))
        names = tuple(host.name for host in left[:SHOWN_HOSTS])
        causes.append(FilterCause(one.name, before, len(left), names))
        LOG.debug("%s left %d of %d hosts", one.name, len(left), before)
    return left, causes
