"""Shortage of a host: why it cannot give what an instance needs, and where most of it is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from compute_agent.placement.allocations.amounts import Amounts, add
from compute_agent.request.candidate_request import CandidateRequest, RequestGroup


@dataclass(frozen=True, slots=True)
class HostProvider:
    """A provider that a host can use: of its tree, or shared with it."""

    uuid: str
    name: str
    traits: frozenset[str] = frozenset()
    capacity: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)

    def free(self, resource_class: str) -> int:
        """Return what is left of a class; below 0 where more is used than there is."""
        return self.capacity.get(resource_class, 0) - self.used.get(resource_class, 0)


@dataclass(frozen=True, slots=True)
class RoomiestProviders:
    """The providers with the most left for each group, whether or not that is enough.

    :ivar mappings: suffix of a group with resources, but the unsuffixed one, to its provider.
    :ivar obstacles: what is in the way, one sentence each; empty where nothing of it is.
    :ivar complete: every class has a provider.
    """

    amounts: Amounts
    mappings: Mapping[str, str]
    obstacles: tuple[str, ...]
    complete: bool


def roomiest(request: CandidateRequest, providers: list[HostProvider]) -> RoomiestProviders:
    """Find the best provider for each group, and report what each lacks."""
    search = _ProviderSearch(providers)
    for suffix, group in sorted(request.groups.items()):
        if suffix and group.resources:
            search.place(suffix, group, dict(group.resources))
        for name, amount in group.resources.items() if not suffix else ():
            search.place("", group, {name: amount})
    return RoomiestProviders(
        search.amounts, search.mappings, tuple(search.obstacles), search.complete
    )


class _ProviderSearch:
    def __init__(self, providers: list[HostProvider]) -> None:
        self._providers = providers
        self.amounts: Amounts = {}
        self.mappings: dict[str, str] = {}
        self.obstacles: list[str] = []
        self.complete = True

    def place(self, suffix: str, group: RequestGroup, amounts: dict[str, int]) -> None:
        having = [
            provider
            for provider in self._providers
            if all(name in provider.capacity for name in amounts)
        ]
        classes = " and ".join(sorted(amounts))
        if not having:
            self.complete = False
            self.obstacles.append(f"no provider of the host has {classes}")
            return
        # the unsuffixed group's traits may be on any provider that serves it
        able = [
            provider for provider in having if not suffix or group.accepts(provider.traits)
        ] or having
        if suffix and not any(group.accepts(provider.traits) for provider in able):
            traits = ", ".join(
                sorted(" or ".join(sorted(alternatives)) for alternatives in group.required)
            )
            self.obstacles.append(f"no provider that has {classes} has the traits {traits}")
        roomiest_provider = max(
            able, key=lambda provider: (min(self._room(provider, amounts)), provider.uuid)
        )
        self.obstacles.extend(self._lacks(roomiest_provider, amounts))
        self.amounts = add(self.amounts, {roomiest_provider.uuid: amounts})
        if suffix:
            self.mappings[suffix] = roomiest_provider.uuid

    def _room(self, provider: HostProvider, amounts: Mapping[str, int]) -> Iterator[int]:
        taken_amounts = self.amounts.get(provider.uuid, {})
        for name, amount in amounts.items():
            yield provider.free(name) - taken_amounts.get(name, 0) - amount

    def _lacks(self, provider: HostProvider, amounts: Mapping[str, int]) -> Iterator[str]:
        for (name, amount), room in zip(
            amounts.items(), self._room(provider, amounts), strict=True
        ):
            if room < 0:
                yield (
                    f"provider {provider.name} ({provider.uuid}) has {max(room + amount, 0)} of "
                    f"{provider.capacity[name]} {name} left, and {amount} are needed"
                )
