"""The right answers to GET /allocation_candidates, by brute force from the definitions alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from tests.unit.candidates.forest import SHARING, Provider, Result

Solution = tuple[dict[tuple[str, str], int], frozenset[str]]


class World:
    def __init__(self, providers: Sequence[Provider]) -> None:
        self.providers = {provider.name: provider for provider in providers}
        self.stock = {provider.name: provider.stock() for provider in providers}
        self.traits = {provider.name: set(provider.traits) for provider in providers}
        self.aggregates = {provider.name: set(provider.aggregates) for provider in providers}

    def ancestors(self, name: str | None) -> list[str]:
        return [] if name is None else [name, *self.ancestors(self.providers[name].parent)]

    def root(self, name: str) -> str:
        return self.ancestors(name)[-1]

    def anchors(self, name: str) -> set[str]:
        shares = SHARING in self.traits[name]
        linked = [
            p for p in self.providers if shares and self.aggregates[p] & self.aggregates[name]
        ]
        return {self.root(name), *map(self.root, linked)}

    def room(self, name: str, rc: str, amount: int) -> bool:
        i = self.stock[name][rc]
        return i.used + amount <= (i.total - i.reserved) * i.ratio and amount <= i.max_unit

    def fits(self, name: str, rc: str, amount: int) -> bool:
        i = self.stock[name].get(rc)
        usual = i is not None and i.min_unit <= amount and amount % i.step_size == 0
        return usual and self.room(name, rc, amount)

    def is_member(self, name: str, terms: Iterable[frozenset[str]]) -> bool:
        return all(self.aggregates[name] & term for term in terms)

    def serves(self, name: str, group: RequestGroup) -> bool:
        return (
            all(self.fits(name, rc, amount) for rc, amount in group.resources)
            and traits_ok(self.traits[name], group)
            and self.is_member(name, group.member_of)
            and not self.aggregates[name] & group.forbidden_aggregates
            and (group.in_tree is None or self.root(name) == self.root(group.in_tree))
        )


def union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def traits_ok(traits: set[str], group: RequestGroup) -> bool:
    return all(traits & term for term in group.required) and not traits & group.forbidden


def roots(world: World, query: CandidateQuery) -> set[str]:
    required = tuple(frozenset([trait]) for trait in query.root_required)
    forbidden, clean = query.root_forbidden, query.root_forbidden_aggregates
    wanted = RequestGroup("", (), required, forbidden, query.root_member_of, clean)
    return {
        name for name in world.providers if world.serves(name, wanted) and world.root(name) == name
    }


def suffixed(world: World, group: RequestGroup) -> list[tuple[str, Solution]]:
    return [
        (anchor, ({(name, rc): amount for rc, amount in group.resources}, frozenset([name])))
        for name in world.providers
        if world.serves(name, group)
        for anchor in world.anchors(name)
    ]


def pairs(world: World, group: RequestGroup, rc: str, amount: int) -> list[tuple[str, str]]:
    """Who may provide one class of the unsuffixed group, and for which anchor."""
    return [
        (name, anchor)
        for name in world.providers
        for anchor in world.anchors(name)
        if world.fits(name, rc, amount)
        and (world.root(name) == anchor or world.is_member(name, group.member_of))
        and (world.is_member(name, group.member_of) or world.is_member(anchor, group.member_of))
        and not (world.aggregates[name] | world.aggregates[anchor]) & group.forbidden_aggregates
        and (group.in_tree is None or {anchor, world.root(name)} == {world.root(group.in_tree)})
    ]


def unsuffixed(world: World, group: RequestGroup) -> list[tuple[str, Solution]]:
    by_class = [pairs(world, group, rc, amount) for rc, amount in group.resources]
    found: list[tuple[str, Solution]] = []
    for anchor in world.providers:
        providers = [[name for name, amount in pairs if amount == anchor] for pairs in by_class]
        for names in product(*providers):
            if traits_ok(set().union(*(world.traits[name] for name in names)), group):
                chosen = zip(names, group.resources, strict=True)
                allocation = {(name, rc): amount for name, (rc, amount) in chosen}
                found.append((anchor, (allocation, frozenset(names))))
    return found


def rules_ok(world: World, query: CandidateQuery, by_suffix: Mapping[str, frozenset[str]]) -> bool:
    single = [names for suffix, names in by_suffix.items() if suffix]
    if query.group_policy == "isolate" and len(set(single)) < len(single):
        return False
    for suffix in query.isolate:
        others = [names for other, names in by_suffix.items() if other != suffix]
        if by_suffix[suffix] & union(others):
            return False
    for subtree in query.same_subtree:
        together = union(by_suffix[suffix] for suffix in subtree.together)
        tops = [q for q in together if all(q in world.ancestors(member) for member in together)]
        apart = union(by_suffix[suffix] for suffix in subtree.apart)
        if not tops or any(tops[0] in world.ancestors(member) for member in apart):
            return False
    return True


def answer(providers: Sequence[Provider], query: CandidateQuery, *, nested: bool) -> set[Result]:
    """All results; `nested` is False before microversion 1.29."""
    return {result for _root, result in results_by_root(providers, query, nested=nested)}


def results_by_root(
    providers: Sequence[Provider], query: CandidateQuery, *, nested: bool
) -> Iterator[tuple[str, Result]]:
    """Every result with each root of a tree that has it."""
    world = World(providers)
    if any(group.in_tree not in (None, *world.providers) for group in query.groups):
        return
    unaware = not nested and any(provider.parent for provider in providers)
    solutions = [(suffixed if g.suffix else unsuffixed)(world, g) for g in query.groups]
    for root in roots(world, query):
        for combination in product(
            *([s for a, s in solution if a == root] for solution in solutions)
        ):
            sums: Counter[tuple[str, str]] = Counter()
            for part, _names in combination:
                sums.update(part)
            groups = zip(query.groups, combination, strict=True)
            by_suffix = {group.suffix: names for group, (_part, names) in groups}
            used = union(by_suffix.values())
            if unaware and len({world.root(name) for name in used}) < len(used):
                continue
            fitting = all(world.room(name, rc, n) for (name, rc), n in sums.items())
            if fitting and rules_ok(world, query, by_suffix):
                amounts = frozenset((name, rc, n) for (name, rc), n in sums.items())
                yield root, (amounts, frozenset(by_suffix.items()))
