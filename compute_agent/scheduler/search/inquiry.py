"""Inquiry of placement: one request, asked in every layout that hosts may have, with the causes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct

from compute_agent.errors import PlacementTooOld
from compute_agent.fitting.host import DEFAULT_OPTIONS, Host, PlanOptions
from compute_agent.placement.transports.transport import Microversion
from compute_agent.provider_tree.trait_names import PAGE_SIZE_PREFIX
from compute_agent.request.candidate_request import UNSUFFIXED, CandidateRequest
from compute_agent.request.guest_numa import (
    GuestNuma,
    guest_numa,
    is_device,
    planned_guest,
    policies,
)
from compute_agent.request.pci_aliases import PciAlias
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler import host_state
from compute_agent.scheduler.errors import UnknownName
from compute_agent.scheduler.fleet.rolling_upgrade import Layouts
from compute_agent.scheduler.outcomes import QueryCause
from compute_agent.scheduler.placement import candidates as answers
from compute_agent.scheduler.placement.candidates import AllocationCandidates
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.search import layout_queries
from compute_agent.scheduler.search.host_plans import HostPlans
from compute_agent.scheduler.search.layout_queries import LayoutQuery


class CandidateQueries(Struct, eq=False):
    """The queries of one search, and what became of them.

    :param request: as placement understands it.
    :param policy_of: how near the device of a group must be, by its suffix.
    """

    placement: PlacementClient
    request: CandidateRequest
    numa: GuestNuma
    policy_of: Mapping[str, str]
    causes: list[QueryCause] = []
    notes: list[str] = []
    microversion: Microversion = (0, 0)

    def ask(self, shape: LayoutQuery) -> AllocationCandidates:
        request = shape.request
        is_extended = request.gains_by_extensions and self.placement.understands_extensions()
        query = request.query(is_extended=is_extended)
        try:
            given, self.microversion = self.placement.allocation_candidates(
                request.parameters(is_extended=is_extended),
                request.microversion,
                is_extended=is_extended,
            )
        except UnknownName as error:
            self._note(shape, query, returned_count=0)
            if str(error) not in self.notes:
                self.notes.append(str(error))
            return AllocationCandidates()
        answer = answers.read(given, shape.name)
        self._note(shape, query, returned_count=answer.returned_count)
        return shape.kept(answer)

    def _note(self, shape: LayoutQuery, query: str, *, returned_count: int) -> None:
        limit = shape.request.limit
        version = ".".join(map(str, self.microversion))
        is_limit_reached = limit is not None and returned_count >= limit
        self.causes.append(QueryCause(shape.name, query, version, returned_count, is_limit_reached))


LOG = logging.getLogger(__name__)


class Inquiry(Struct, frozen=True):
    """What placement is asked for a request; its answers are merged into one.

    :ivar layouts: which layouts there are; `None` when every request is asked for all of them.
    :ivar announced: returns what is announced of the host of a root provider.
    """

    placement: PlacementClient
    pci_aliases: Mapping[str, PciAlias]
    layouts: Layouts | None
    plan_options: PlanOptions = DEFAULT_OPTIONS
    announced: Callable[[str], Host | None] = lambda _root: None

    def ask(
        self, spec: RequestSpec, request: CandidateRequest
    ) -> tuple[AllocationCandidates, CandidateQueries]:
        """Return what the hosts offer for `request`, and what was asked.

        :param spec: for the NUMA nodes of the guest and its devices.
        :raises InvalidRequest: the request is wrong in itself.
        :raises PlacementUnavailable: placement cannot be asked.
        """
        try:
            return self._ask_once(spec, request)
        except PlacementTooOld as error:
            if self.placement.understands_extensions():
                raise
            LOG.info("Placement no longer offers extensions; the plain API is used. %s", error)
            return self._ask_once(spec, request)

    def _ask_once(
        self, spec: RequestSpec, request: CandidateRequest
    ) -> tuple[AllocationCandidates, CandidateQueries]:
        if not (request.gains_by_extensions and self.placement.understands_extensions()):
            request = request.plain()
        queries = self._queries(spec, request)
        shapes = layout_queries.shapes(request, queries.numa, queries.policy_of)
        found_answers = self._ask_layouts(queries, shapes)
        if not any(found_answers):
            probe = layout_queries.split_shape(request, queries.numa)
            if probe is not None:
                plans = self._plans(spec, queries)
                found_answers.append(plans.over_cells(queries.ask(probe), probe.request))
        return host_state.merge(found_answers), queries

    def _ask_layouts(
        self, queries: CandidateQueries, asked_shapes: Sequence[LayoutQuery]
    ) -> list[AllocationCandidates]:
        """Ask for the layouts that hosts have; for the others only when that finds nothing."""
        present = self.layouts.present() if self.layouts and len(asked_shapes) > 1 else None
        likely = [shape for shape in asked_shapes if present is None or shape.name in present]
        found_answers = [queries.ask(shape) for shape in likely]
        if not any(found_answers):
            # a host may have changed its layout since it was looked at
            found_answers += [queries.ask(shape) for shape in asked_shapes if shape not in likely]
        return found_answers

    def requests(self, spec: RequestSpec, request: CandidateRequest) -> list[CandidateRequest]:
        """Return a request in each of the shapes in which it is asked."""
        queries = self._queries(spec, request)
        shapes = layout_queries.shapes(request, queries.numa, queries.policy_of)
        return [shape.request for shape in shapes]

    def _queries(self, spec: RequestSpec, request: CandidateRequest) -> CandidateQueries:
        page_size_traits: Collection[str] = ()
        if spec.page_size == "large":
            page_size_traits = self.placement.traits_beginning(PAGE_SIZE_PREFIX)
        resources = request.group(UNSUFFIXED).resources
        numa = guest_numa(
            spec,
            resources.get("VCPU", 0),
            resources.get("PCPU", 0),
            resources.get("MEMORY_MB", 0),
            page_size_traits,
        )
        classes = {suffix: group.resources for suffix, group in request.groups.items()}
        policy_of = policies(spec, self.pci_aliases, classes)
        return CandidateQueries(self.placement, request, numa, policy_of)

    def plans(
        self, spec: RequestSpec, queries: CandidateQueries, answer: AllocationCandidates
    ) -> HostPlans | None:
        """Return the planner of what a guest gets on a host; None where there is no choice.

        :param queries: that were asked for the request.
        """
        has_devices = any(
            suffix and any(map(is_device, group.resources))
            for suffix, group in queries.request.groups.items()
        )
        has_choice = has_devices or answer.has_shape("nested")
        return self._plans(spec, queries) if has_choice else None

    def _plans(self, spec: RequestSpec, queries: CandidateQueries) -> HostPlans:
        return HostPlans(
            queries.request,
            queries.numa,
            queries.policy_of,
            planned_guest(spec, queries.numa),
            self.announced,
            self.plan_options,
        )
