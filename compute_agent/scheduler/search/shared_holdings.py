"""Holdings on shared providers that a moving instance takes along: they are not needed twice.

A pool may have room for an instance's disk just once. Its new host needs no second room there, so
where no candidate is found hosts are asked for without what the instance holds on the pool already,
and that is put back into the candidates.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.placement.allocations.amounts import Amounts, copy_of
from compute_agent.placement.candidate_answers import ClassCount
from compute_agent.provider_tree.trait_names import MISC_SHARES_VIA_AGGREGATE
from compute_agent.request.candidate_request import UNSUFFIXED, CandidateRequest
from compute_agent.scheduler.placement.candidates import (
    AllocationCandidates,
    Candidate,
    ProviderSummary,
)
from compute_agent.scheduler.placement.client import PlacementClient


class SharedHoldings(Struct, frozen=True):
    """What an instance holds on shared providers.

    :param amounts: provider to class to amount.
    :param aggregates: provider to the aggregates that it shares with.
    """

    amounts: Amounts = {}
    aggregates: Mapping[str, frozenset[str]] = {}

    @classmethod
    def of(cls, placement: PlacementClient, amounts: Amounts) -> SharedHoldings:
        """Return what of these amounts is on shared providers."""
        pools = placement.sharing(tuple(amounts))
        return cls(
            {pool: amounts[pool] for pool in pools},
            {pool: placement.aggregates(pool) for pool in pools},
        )

    def reduce(self, request: CandidateRequest) -> CandidateRequest | None:
        """Return the request for what is needed beyond what is held; None if that is all of it.

        Where nothing more is needed of a pool, the host must be one that the pool shares with.
        """
        group = request.group(UNSUFFIXED)
        remaining_amounts, member_of = dict(group.resources), set(request.root_member_of)
        for pool, amounts in self.amounts.items():
            for name in amounts.keys() & remaining_amounts.keys():
                more = remaining_amounts.pop(name) - amounts[name]
                if more > 0:
                    remaining_amounts[name] = more
                else:
                    member_of.add(self.aggregates.get(pool, frozenset()))
        if remaining_amounts == dict(group.resources) or frozenset() in member_of:
            return None
        reduced_request = request.with_group(UNSUFFIXED, group.with_resources(remaining_amounts))
        return replace(reduced_request, root_member_of=frozenset(member_of))

    def complete(
        self, answer: AllocationCandidates, request: CandidateRequest
    ) -> AllocationCandidates:
        """Return the answer to the reduced request with all that `request` asks for."""
        wanted_amounts = request.group(UNSUFFIXED).resources
        completed_candidates = [
            self._complete(candidate, wanted_amounts) for candidate in answer.candidates
        ]
        pools = {
            pool: ProviderSummary(
                pool,
                pool,
                counts={name: ClassCount(wanted_amounts.get(name, 0), 0) for name in amounts},
                traits=frozenset({MISC_SHARES_VIA_AGGREGATE}),
            )
            for pool, amounts in self.amounts.items()
        }
        return AllocationCandidates(
            [candidate for candidate in completed_candidates if candidate is not None],
            {**pools, **answer.providers},
            answer.returned_count,
        )

    def _complete(
        self, candidate: Candidate, wanted_amounts: Mapping[str, int]
    ) -> Candidate | None:
        allocations = copy_of(candidate.allocations)
        serving_providers = list(candidate.mappings.get(UNSUFFIXED, ()))
        for pool, amounts in self.amounts.items():
            for name in amounts.keys() & wanted_amounts.keys():
                if wanted_amounts[name] > amounts[name] and name not in allocations.get(pool, {}):
                    # the rest was found elsewhere, and a disk is in one piece
                    return None
                allocations.setdefault(pool, {})[name] = wanted_amounts[name]
                serving_providers += [pool] if pool not in serving_providers else []
        mappings = {**candidate.mappings, UNSUFFIXED: tuple(serving_providers)}
        return candidate._replace(allocations=allocations, mappings=mappings)
