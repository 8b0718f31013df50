"""What GET /allocation_candidates has to answer, by brute force and from the definitions alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from placement_server.candidates.query import CandidateQuery, RequestGroup
from tests.unit.candidates.forest import SHARING, Provider, Result

Amounts = dict[tuple[str, str], int]
Solution = tuple[Amounts, frozenset[str]]


class World:
    def __init__(self, providers: Sequence[Provider]) -> None:
        self.providers = {provider.name: provider for provider in providers}
        self.stock = {provider.name: provider.stock() for provider in providers}
        self.traits = {provider.name: set(provider.traits) for provider in providers}
        self.aggregates = {provider.name: set(provider.aggregates) for provider in providers}

    def ancestors(self, name: str | None) -> list[str]:
        """A provider and all above it."""
        return [] if name is None else [name, *self.ancestors(self.providers[name].parent)]

    def root(self, name: str) -> str:
        return self.ancestors(name)[-1]

    def anchors(self, name: str) -> set[str]:
        shares = SHARING in self.traits[name]
        linked = [p for p in self.providers if shares and self.aggregates[p] & self.aggregates[name]]
        return {self.root(name), *map(self.root, linked)}

    def fits(self, name: str, resource_class: str, amount: int) -> bool:
        each = self.stock[name].get(resource_class)
        return (
            each is not None
            and each.min_unit <= amount <= each.max_unit
            and amount % each.step_size == 0
            and each.used + amount <= (each.total - each.reserved) * each.ratio
        )

    def is_member(self, name: str, terms: Iterable[frozenset[str]]) -> bool:
        return all(self.aggregates[name] & term for term in terms)


def traits_ok(traits: set[str], group: RequestGroup) -> bool:
    return all(traits & term for term in group.required) and not traits & group.forbidden


def roots(world: World, query: CandidateQuery) -> set[str]:
    """The anchors that the query allows."""
    return {
        name
        for name, provider in world.providers.items()
        if provider.parent is None
        and query.root_required <= world.traits[name]
        and not query.root_forbidden & world.traits[name]
        and world.is_member(name, query.root_member_of)
        and not query.root_forbidden_aggregates & world.aggregates[name]
    }


def suffixed(world: World, group: RequestGroup) -> list[tuple[str, Solution]]:
    """The solutions of a suffixed group with their anchors."""
    found: list[tuple[str, Solution]] = []
    for name in world.providers:
        if (
            all(world.fits(name, rc, amount) for rc, amount in group.resources)
            and traits_ok(world.traits[name], group)
            and world.is_member(name, group.member_of)
            and not world.aggregates[name] & group.forbidden_aggregates
            and (group.in_tree is None or world.root(name) == world.root(group.in_tree))
        ):
            allocation = {(name, rc): amount for rc, amount in group.resources}
            found += [(anchor, (allocation, frozenset([name]))) for anchor in world.anchors(name)]
    return found


def pairs(world: World, group: RequestGroup, rc: str, amount: int) -> set[tuple[str, str]]:
    """Who may provide one class of the unsuffixed group, and for which anchor."""
    found = set()
    for name in world.providers:
        if not world.fits(name, rc, amount):
            continue
        root = world.root(name)
        if group.in_tree is None or root == world.root(group.in_tree):
            found.add((name, root))
        shares = SHARING in world.traits[name] and group.in_tree is None
        if shares and (not group.member_of or world.is_member(name, group.member_of)):
            found |= {(name, anchor) for anchor in world.anchors(name)}
    return {
        (name, anchor)
        for name, anchor in found
        if (world.is_member(name, group.member_of) or world.is_member(anchor, group.member_of))
        and not world.aggregates[name] & group.forbidden_aggregates
        and not world.aggregates[anchor] & group.forbidden_aggregates
    }


def unsuffixed(world: World, group: RequestGroup) -> list[tuple[str, Solution]]:
    """The solutions of the unsuffixed group with their anchors."""
    by_class = [pairs(world, group, rc, amount) for rc, amount in group.resources]
    found: list[tuple[str, Solution]] = []
    for anchor in world.providers:
        providers = [[name for name, each in pairs if each == anchor] for pairs in by_class]
        for names in product(*providers):
            if traits_ok(set().union(*(world.traits[name] for name in names)), group):
                chosen = zip(names, group.resources, strict=True)
                allocation = {(name, rc): amount for name, (rc, amount) in chosen}
                found.append((anchor, (allocation, frozenset(names))))
    return found


def rules_ok(world: World, query: CandidateQuery, by_suffix: Mapping[str, frozenset[str]]) -> bool:
    """Check isolation and subtrees of a combination, given the providers of each group."""
    single = [next(iter(names)) for suffix, names in by_suffix.items() if suffix]
    if query.group_policy == "isolate" and len(set(single)) < len(single):
        return False
    for suffix in query.isolate:
        others = [names for other, names in by_suffix.items() if other != suffix]
        if by_suffix[suffix] & frozenset().union(*others):
            return False
    for subtree in query.same_subtree:
        together = frozenset().union(*(by_suffix[suffix] for suffix in subtree.together))
        tops = [q for q in together if all(q in world.ancestors(each) for each in together)]
        if not tops:
            return False
        apart = frozenset().union(*(by_suffix[suffix] for suffix in subtree.apart))
        if any(tops[0] in world.ancestors(each) for each in apart):
            return False
    return True


def sums_ok(world: World, sums: Amounts) -> bool:
    """Check capacity and max_unit on what all groups take together."""
    stock = [(world.stock[name][rc], amount) for (name, rc), amount in sums.items()]
    return all(
        i.used + n <= (i.total - i.reserved) * i.ratio and n <= i.max_unit for i, n in stock
    )


def answer(providers: Sequence[Provider], query: CandidateQuery, *, nested: bool) -> set[Result]:
    """All results; ``nested`` is False before microversion 1.29."""
    world = World(providers)
    if any(group.in_tree not in (None, *world.providers) for group in query.groups):
        return set()
    unaware = not nested and any(provider.parent for provider in providers)
    solutions = [(suffixed if g.suffix else unsuffixed)(world, g) for g in query.groups]
    found: set[Result] = set()
    for root in roots(world, query):
        for combination in product(*([s for a, s in each if a == root] for each in solutions)):
            sums: Amounts = {}
            for key, amount in (item for part, _names in combination for item in part.items()):
                sums[key] = sums.get(key, 0) + amount
            groups = zip(query.groups, combination, strict=True)
            by_suffix = {group.suffix: names for group, (_part, names) in groups}
            used = frozenset().union(*by_suffix.values())
            if unaware and len({world.root(name) for name in used}) < len(used):
                continue
            if sums_ok(world, sums) and rules_ok(world, query, by_suffix):
                amounts = frozenset((name, rc, n) for (name, rc), n in sums.items())
                found.add((amounts, frozenset(by_suffix.items())))
    return found
