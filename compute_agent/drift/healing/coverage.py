"""Coverage of an instance's need by its allocations, and what its host has left beyond. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.placement.allocations.amounts import (
    Amounts,
    MutableAmounts,
    add,
    copy_of,
    subtract,
    without_zeros,
)
from compute_agent.provider_tree.trait_names import STORAGE_PREFIX
from compute_agent.request.candidate_request import UNSUFFIXED, CandidateRequest, RequestGroup


class Coverage(Struct, frozen=True):
    """An instance's need beside what it holds.

    :ivar kept_amounts: what of its allocations the need accounts for.
    :ivar surplus: what of them it does not.
    :ivar mappings: suffix of a group to the provider that gives it.
    :ivar missing_request: what is covered by nothing; None where everything is covered.
    :ivar partly: whether some of the unsuffixed group is there.
    """

    kept_amounts: Amounts
    surplus: Amounts
    mappings: Mapping[str, str]
    missing_request: CandidateRequest | None
    partly: bool


def cover(
    need: CandidateRequest,
    held_amounts: Amounts,
    *,
    fixed_providers: Mapping[str, str] | None = None,
    may_serve: Callable[[str, RequestGroup], bool] = lambda _provider, _group: True,
) -> Coverage:
    """Set what is held against what is needed.

    :param held_amounts: on the tree where the instance runs, and on providers that several
        hosts share.
    :param fixed_providers: suffix of a group to the only provider that may serve it.
    :param may_serve: whether a provider has the traits that a group asks for; of several that
        could give it, one that has them is taken.
    """
    remaining_amounts = copy_of(held_amounts)
    mappings: dict[str, str] = {}
    suffixes = list(_hardest_first(need))
    # what nothing else asks for is a group's even where the provider has lost a trait since
    for suffix, strict in [(name, True) for name in suffixes] + [
        (name, False) for name in suffixes
    ]:
        group, only = need.groups[suffix], (fixed_providers or {}).get(suffix)
        if suffix in mappings:
            continue
        fitting_providers = [
            provider
            for provider in ([only] if only else sorted(remaining_amounts))
            if _has(remaining_amounts.get(provider, {}), group.resources)
            and (not strict or may_serve(provider, group))
        ]
        if fitting_providers:
            mappings[suffix] = min(
                fitting_providers, key=lambda uuid: sum(remaining_amounts[uuid].values())
            )
            _take(mappings[suffix], group.resources, remaining_amounts)
    lacking_amounts = _cover_unsuffixed(need.group(UNSUFFIXED).resources, remaining_amounts)
    partly = lacking_amounts != dict(need.group(UNSUFFIXED).resources)
    return Coverage(
        kept_amounts=subtract(held_amounts, remaining_amounts),
        surplus=without_zeros(remaining_amounts),
        mappings=mappings,
        missing_request=_missing_request(need, mappings, lacking_amounts, partly=partly),
        partly=partly,
    )


def _hardest_first(need: CandidateRequest) -> Iterable[str]:
    suffixes = [name for name, group in need.groups.items() if name and group.resources]
    return sorted(
        suffixes,
        key=lambda name: (
            -len(need.groups[name].resources),
            -len(need.groups[name].required),
            -sum(need.groups[name].resources.values()),
            name,
        ),
    )


def _has(amounts: Mapping[str, int], needed_amounts: Mapping[str, int]) -> bool:
    return all(amounts.get(name, 0) >= amount for name, amount in needed_amounts.items())


def _take(provider: str, amounts: Mapping[str, int], remaining_amounts: MutableAmounts) -> None:
    for name, amount in amounts.items():
        remaining_amounts[provider][name] -= amount


def _cover_unsuffixed(
    amounts: Mapping[str, int], remaining_amounts: MutableAmounts
) -> dict[str, int]:
    """Take what there is of each class, from several providers if need be; what is lacking."""
    lacking_amounts = {}
    for name, amount in amounts.items():
        short = amount
        for provider in sorted(
            remaining_amounts, key=lambda uuid: (-remaining_amounts[uuid].get(name, 0), uuid)
        ):
            part = min(short, remaining_amounts[provider].get(name, 0))
            if part:
                _take(provider, {name: part}, remaining_amounts)
                short -= part
        if short:
            lacking_amounts[name] = short
    return lacking_amounts


def _missing_request(
    need: CandidateRequest,
    mappings: Mapping[str, str],
    lacking_amounts: dict[str, int],
    *,
    partly: bool,
) -> CandidateRequest | None:
    groups = {
        suffix: group
        for suffix, group in need.groups.items()
        if suffix != UNSUFFIXED and suffix not in mappings and group.resources
    }
    if lacking_amounts:
        group = need.group(UNSUFFIXED).with_resources(lacking_amounts)
        # the part that is there has met the traits; what is added may be on another provider
        if partly:
            storage = {
                alternatives
                for alternatives in group.required
                if all(name.startswith(STORAGE_PREFIX) for name in alternatives)
            }
            group = replace(group, required=frozenset(storage), forbidden=frozenset())
        groups[UNSUFFIXED] = group
    if not groups:
        return None
    # a group without resources restricts those in one subtree with it
    subtrees = {suffixes for suffixes in need.same_subtree if suffixes & set(groups)}
    bare = {name for name, group in need.groups.items() if name and not group.resources}
    bare_suffixes = set().union(*subtrees) & bare
    groups |= {name: need.groups[name] for name in bare_suffixes}
    remaining_subtrees = {suffixes & set(groups) for suffixes in subtrees}
    return replace(
        need,
        groups=groups,
        same_subtree=frozenset(suffixes for suffixes in remaining_subtrees if len(suffixes) > 1),
    )


class HostProvider(Struct, frozen=True):
    """A provider that a host can use: of its tree, or shared with it."""

    uuid: str
    name: str
    traits: frozenset[str] = frozenset()
    capacity: Mapping[str, int] = {}
    used: Mapping[str, int] = {}

    def free(self, resource_class: str) -> int:
        """Return what is left of a class; below 0 where more is used than there is."""
        return self.capacity.get(resource_class, 0) - self.used.get(resource_class, 0)


class RoomiestProviders(Struct, frozen=True):
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


class _ProviderSearch(Struct, eq=False):
    providers: list[HostProvider]
    amounts: Amounts = {}
    mappings: dict[str, str] = {}
    obstacles: list[str] = []
    complete: bool = True

    def place(self, suffix: str, group: RequestGroup, amounts: dict[str, int]) -> None:
        having = [
            provider
            for provider in self.providers
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
