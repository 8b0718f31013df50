"""A placement in memory for tests: it hands out what its providers have and not more.

It answers every question with the candidates it was given, so that what a scheduler does with them
can be looked at; claims are checked against the capacity for real.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from compute_agent.errors import AllocationMoveFailed, AllocationUpdateFailed, PlacementUnavailable
from compute_agent.placement.allocations.amounts import as_request
from compute_agent.provider_tree.trait_names import MISC_SHARES_VIA_AGGREGATE
from compute_agent.scheduler.placement import (
    ClaimAnswer,
    ClaimRefusal,
    Holding,
    Microversion,
    UnknownName,
    WantedHolding,
)
from tests.unit.scheduler.trees import body


class Bank:
    """Implements the scheduler's interface of placement.

    :cvar alternatives: whether it takes claims with alternatives.

    :param candidates: offered to every question, in this order.
    :param summaries: the providers.
    """

    alternatives = False

    def __init__(
        self, candidates: list[dict[str, Any]], summaries: dict[str, dict[str, Any]]
    ) -> None:
        self.candidates = candidates
        self.summaries = summaries
        self.held: dict[str, dict[str, dict[str, int]]] = {}
        self.claims: list[str] = []
        self.queries: list[dict[str, str]] = []
        self.names: dict[str, str] = {}
        self.down = False
        self.extended = False
        self.before_claim: Callable[[str], None] = lambda _consumer: None
        self.after_claim: Callable[[str], None] = lambda _consumer: None
        self.unknown_name = ""

    @contextmanager
    def errand(self, request_id: str = "") -> Iterator[str]:
        yield request_id or "req-new"

    def understands_extensions(self) -> bool:
        self._reached()
        return self.extended

    def allocation_candidates(
        self,
        parameters: Sequence[tuple[str, str]],
        minimum: Microversion,
        *,
        is_extended: bool = False,
    ) -> tuple[Mapping[str, Any], Microversion]:
        self._reached()
        self.queries.append(dict(parameters))
        if self.unknown_name:
            raise UnknownName(self.unknown_name)
        nested = any("NUMA0" in suffix for suffix, _ in parameters)
        offered = [
            candidate
            for candidate in self.candidates
            if ("_NUMA0" in candidate["mappings"]) == nested
        ]
        return body(offered, self._sums()), max(minimum, (1, 39))

    def _sums(self) -> dict[str, dict[str, Any]]:
        """The summaries, with what is held counted as used."""
        return {
            uuid: {
                **summary,
                "resources": {
                    name: {
                        "capacity": count["capacity"],
                        "used": count["capacity"] - self.left(uuid, name),
                    }
                    for name, count in summary["resources"].items()
                },
            }
            for uuid, summary in self.summaries.items()
        }

    def explanation(self, parameters: Sequence[tuple[str, str]]) -> None:
        self._reached()

    def matching_providers(self, parameters: Sequence[tuple[str, str]]) -> Mapping[str, str]:
        raise NotImplementedError("explanations are tested with a real placement")

    def claim(
        self,
        consumer: str,
        allocation_request: Mapping[str, Any],
        *,
        project_id: str,
        user_id: str,
        microversion: Microversion,
        consumer_type: str,
    ) -> ClaimRefusal | None:
        self._reached()
        self.before_claim(consumer)
        refusal = self.take(consumer, allocation_request)
        if refusal is None:
            self.after_claim(consumer)
            self._reached()
        return refusal

    def takes_alternatives(self) -> bool:
        self._reached()
        return self.alternatives

    def claim_first(
        self,
        consumer: str,
        allocation_requests: Sequence[Mapping[str, Any]],
        *,
        project_id: str,
        user_id: str,
        consumer_type: str,
    ) -> ClaimAnswer:
        self._reached()
        self.before_claim(consumer)
        refusals = {}
        for position, allocation_request in enumerate(allocation_requests):
            refusal = self.take(consumer, allocation_request)
            if refusal is None:
                self.after_claim(consumer)
                self._reached()
                return ClaimAnswer(position, refusals)
            refusals[position] = refusal
        return ClaimAnswer(None, refusals)

    def take(self, consumer: str, allocation_request: Mapping[str, Any]) -> ClaimRefusal | None:
        self._reached()
        if consumer in self.held:
            raise AllocationUpdateFailed(f"consumer {consumer} holds something")
        wanted = {u: dict(a["resources"]) for u, a in allocation_request["allocations"].items()}
        for provider, amounts in wanted.items():
            for name, amount in amounts.items():
                if self.left(provider, name) < amount:
                    self.claims.append(f"{consumer} {provider} refused")
                    return ClaimRefusal(provider, name)
        self.held[consumer] = wanted
        self.claims.append(f"{consumer} {' '.join(wanted)}")
        return None

    def left(self, provider: str, name: str) -> int:
        counted = self.summaries[provider]["resources"].get(name, {"capacity": 0, "used": 0})
        held = sum(holding.get(provider, {}).get(name, 0) for holding in self.held.values())
        return int(counted["capacity"] - counted["used"] - held)

    def holding(self, consumer: str) -> Holding:
        self._reached()
        return Holding(self.held.get(consumer, {}), {})

    def consumers_on(
        self, root: str, providers: Collection[str], consumers: Collection[str]
    ) -> frozenset[str]:
        self._reached()
        assert all(self.summaries[uuid]["root_provider_uuid"] == root for uuid in providers)
        return frozenset(
            consumer
            for consumer in consumers
            if root in self.provider_roots(tuple(self.held.get(consumer, {}))).values()
        )

    def release(self, consumer: str) -> bool:
        self._reached()
        return self.held.pop(consumer, None) is not None

    def release_exactly(self, consumer: str, holding: Holding) -> None:
        self._reached()
        assert self.held[consumer] == holding.allocations
        del self.held[consumer]

    def provider_names(self, uuids: Collection[str]) -> Mapping[str, str]:
        self._reached()
        return {uuid: self.names.get(uuid, f"host-{uuid}") for uuid in uuids}

    def provider_roots(self, uuids: Collection[str]) -> Mapping[str, str]:
        self._reached()
        return {uuid: self.summaries[uuid]["root_provider_uuid"] for uuid in uuids}

    def root_named(self, name: str) -> str | None:
        self._reached()
        return next((u for u in self.summaries if self.names.get(u, f"host-{u}") == name), None)

    def roots_by_layout(self) -> tuple[frozenset[str], frozenset[str]]:
        self._reached()
        roots = {summary["root_provider_uuid"]: summary for summary in self.summaries.values()}
        nested = {r for r, root in roots.items() if "HW_NUMA_ROOT" in root["traits"]}
        return frozenset(roots), frozenset(nested)

    def exchange(self, wanted: Mapping[str, WantedHolding]) -> ClaimRefusal | None:
        """Claims of consumers that hold nothing; moves are tested with a real placement."""
        assert all(not wish.holding.allocations for wish in wanted.values())
        self._reached()
        if not self.held.keys().isdisjoint(wanted):
            raise AllocationMoveFailed("one of the consumers holds something")
        for consumer in wanted:
            self.before_claim(consumer)
        self._reached()
        before = dict(self.held)
        for consumer, wish in wanted.items():
            refusal = self.take(consumer, {"allocations": as_request(wish.allocations)})
            if refusal is not None:
                self.held = before
                return refusal
        for consumer in wanted:
            self.after_claim(consumer)
        self._reached()
        return None

    def sharing(self, uuids: Collection[str]) -> frozenset[str]:
        self._reached()
        return frozenset(
            u for u in uuids if MISC_SHARES_VIA_AGGREGATE in self.summaries[u]["traits"]
        )

    def aggregates(self, uuid: str) -> frozenset[str]:
        self._reached()
        return frozenset(self.summaries[uuid].get("aggregates", ()))

    def tree(self, root: str) -> Mapping[str, frozenset[str]]:
        self._reached()
        return {
            uuid: frozenset(summary["traits"])
            for uuid, summary in self.summaries.items()
            if summary["root_provider_uuid"] == root
        }

    def traits_beginning(self, prefix: str) -> frozenset[str]:
        self._reached()
        return frozenset(
            name
            for summary in self.summaries.values()
            for name in summary["traits"]
            if name.startswith(prefix)
        )

    def _reached(self) -> None:
        if self.down:
            raise PlacementUnavailable("no answer from placement")
