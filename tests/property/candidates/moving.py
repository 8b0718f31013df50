"""Plans of moves by brute force: all of them up to a few moves, in every order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from msgspec.structs import replace

from placement_server.candidates.make_room.holdings import HeldAmounts
from placement_server.candidates.query.query import CandidateQuery, RequestGroup, SameSubtree
from tests.property.candidates.strategies import (
    AGGREGATES,
    TRAITS,
    Choices,
    fleet_problem_of,
    is_private,
    one,
    rarely,
)
from tests.property.oracle import World, results_by_root
from tests.unit.candidates.forest import SHARING, Inventory, Provider, names_of, root_of

Amounts = Mapping[tuple[str, str], int]
Resources = frozenset[tuple[str, str, int]]
"""Amounts by the names of provider and class."""
Target = tuple[str, Resources]
"""Where a consumer may go: the root of the tree, and what it takes."""
Assignment = frozenset[tuple[str, Target]]


@dataclass(frozen=True)
class Fleet:
    """Providers, and what consumers hold of them, by the names of provider and class."""

    providers: Sequence[Provider]
    consumers: Mapping[str, Amounts]

    @cached_property
    def used(self) -> Counter[tuple[str, str]]:
        used: Counter[tuple[str, str]] = Counter()
        for held in self.consumers.values():
            used.update(held)
        return used

    @cached_property
    def by_name(self) -> dict[str, Provider]:
        return {provider.name: provider for provider in self.providers}

    def world(self) -> list[Provider]:
        """The providers with what is used of them."""
        return [
            replace(
                provider,
                inventory={
                    rc: replace(entry, used=self.used[provider.name, rc])
                    for rc, entry in provider.stock().items()
                },
            )
            for provider in self.providers
        ]

    def held(self) -> HeldAmounts:
        names = names_of(self.providers)
        ids = {provider.name: number for number, provider in enumerate(self.providers, 1)}
        rows = [
            (at, ids[name], names.class_ids[rc], n)
            for at, held in enumerate(self.consumers.values())
            for (name, rc), n in held.items()
        ]
        columns = np.array(rows, dtype=np.int64).reshape(len(rows), 4).T
        return HeldAmounts(tuple(self.consumers), *columns)

    def tree(self, consumer: str) -> str | None:
        """The root of the tree that a consumer leaves; None where it is in several."""
        held = {name for name, _rc in self.consumers[consumer]}
        private = {name for name in held if is_private(self.by_name[name])} or held
        roots = {root_of(self.by_name, name) for name in private}
        return roots.pop() if len(roots) == 1 else None


class Targets:
    """What is asked for, and where it could be, were nothing used."""

    def __init__(self, fleet: Fleet) -> None:
        self._empty = [
            replace(p, inventory={rc: replace(i, used=0) for rc, i in p.stock().items()})
            for p in fleet.providers
        ]
        world = World(self._empty)
        self.capacity = {
            (name, rc): int((i.total - i.reserved) * i.ratio)
            for name, stock in world.stock.items()
            for rc, i in stock.items()
        }
        self._known: dict[CandidateQuery, list[Target]] = {}

    def of(self, query: CandidateQuery) -> list[Target]:
        if query not in self._known:
            found = results_by_root(self._empty, query, nested=True)
            self._known[query] = sorted(
                {(root, amounts) for root, (amounts, _mappings) in found},
                key=lambda target: (target[0], sorted(target[1])),
            )
        return self._known[query]

    def fits(self, amounts: Resources, used: Mapping[object, int]) -> bool:
        return all(used.get((p, rc), 0) + n <= self.capacity[p, rc] for p, rc, n in amounts)


class Plans:
    """All plans of a question.

    :param queries: what each consumer that may move asks for.
    :param left_alone: the roots of trees where no consumer moves.
    """

    def __init__(
        self,
        fleet: Fleet,
        request: CandidateQuery | None,
        queries: Mapping[str, CandidateQuery],
        emptied: frozenset[str] = frozenset(),
        left_alone: frozenset[str] = frozenset(),
        count: int = 1,
    ) -> None:
        self.fleet, self.request, self.queries = fleet, request, queries
        self.emptied, self.left_alone, self.count = emptied, left_alone, count
        self.targets = Targets(fleet)
        self.forced = {name for name in queries if fleet.tree(name) in emptied}

    def memory(self, consumers: Collection[str]) -> int:
        held = (self.fleet.consumers[consumer] for consumer in consumers)
        return sum(n for amounts in held for (_p, rc), n in amounts.items() if rc == "MEMORY_MB")

    def used(self, moved: Assignment) -> Counter[tuple[str, str]]:
        used = Counter(self.fleet.used)
        for consumer, (_root, amounts) in moved:
            used.subtract(self.fleet.consumers[consumer])
            used.update({(p, rc): n for p, rc, n in amounts})
        return used

    def choices(self, consumer: str) -> Iterator[Target]:
        for root, amounts in self.targets.of(self.queries[consumer]):
            if root not in {self.fleet.tree(consumer), *self.emptied, *self.left_alone}:
                yield root, amounts

    def _fits_request(self, used: Counter[tuple[str, str]], count: int) -> bool:
        if self.request is None or count == 0:
            return True
        for root, amounts in self.targets.of(self.request):
            if root not in self.emptied and self.targets.fits(amounts, used):
                more = {(p, rc): n for p, rc, n in amounts}
                if self._fits_request(used + Counter(more), count - 1):
                    return True
        return False

    def is_done(self, moved: Assignment) -> bool:
        return self.forced <= {consumer for consumer, _target in moved} and self._fits_request(
            self.used(moved), self.count
        )

    def holds(self, moved: Assignment) -> bool:
        """Whether every consumer has its place in the end."""
        used = self.used(moved)
        return all(
            used[provider, rc] <= self.targets.capacity[provider, rc]
            for _consumer, (_root, resources) in moved
            for provider, rc, _n in resources
        )

    def best(self, most: int) -> list[tuple[int, int]]:
        """Plans of the fewest moves: by who moves, how many, and their memory; the best first."""
        states: set[Assignment] = {frozenset()}
        for moves in range(most + len(self.forced) + 1):
            done = {self._movers(moved) for moved in states if self.is_done(moved)}
            if done:
                return sorted((moves, self.memory(consumers)) for consumers in done)
            states = set().union(*(self._next(moved, most) for moved in states))
        return []

    def _movers(self, moved: Assignment) -> frozenset[str]:
        return frozenset(consumer for consumer, _target in moved)

    def _next(self, moved: Assignment, most: int) -> set[Assignment]:
        used, gone = self.used(moved), {consumer for consumer, _target in moved}
        return {
            moved | {(consumer, target)}
            for consumer in self.queries.keys() - gone
            if consumer in self.forced or len(gone - self.forced) < most
            for target in self.choices(consumer)
            if self.targets.fits(target[1], used)
        }

    def best_at_once(self, most: int) -> list[tuple[int, int]]:
        """The same where only the end has to hold."""
        done = set[frozenset[str]]()
        consumers = list(self.queries)
        for picks in product(*([None, *self.choices(consumer)] for consumer in consumers)):
            moved = frozenset((c, t) for c, t in zip(consumers, picks, strict=True) if t)
            gone = self._movers(moved)
            if len(gone - self.forced) > most or not self.is_done(moved):
                continue
            if self.holds(moved):
                done.add(gone)
        fewest = min(map(len, done), default=0)
        return sorted((fewest, self.memory(gone)) for gone in done if len(gone) == fewest)


def _stock(choices: Choices, low: int, high: int) -> Inventory:
    """Some amount; now and then more is there than there is to be had, or not in any portion."""
    entry = Inventory(choices.integer(low, high))
    if not rarely(choices):
        return entry
    return one(
        choices,
        (
            replace(entry, total=entry.total + 2, reserved=2),
            replace(entry, total=2 * entry.total, ratio=0.5),
            replace(entry, total=entry.total - 1, ratio=1.5),
            replace(entry, min_unit=2),
            replace(entry, step_size=2),
            replace(entry, max_unit=2),
        ),
    )


def _host(choices: Choices, name: str, nested: bool, pool: bool) -> list[Provider]:
    aggregates = AGGREGATES[:1] if pool and choices.integer(0, 4) else ()
    disk = {"DISK_GB": _stock(choices, 3, 6)} if not aggregates else {}
    aggregates += AGGREGATES[1:2] if rarely(choices) else ()
    traits = TRAITS[:1] if rarely(choices) and rarely(choices) else ()
    if not nested:
        stock = {"VCPU": _stock(choices, 4, 7), **disk}
        return [Provider(name, None, stock, traits, aggregates)]
    providers = [Provider(name, None, disk, (), aggregates)]
    for cell in range(choices.integer(1, 2)):
        top = f"{name}cell{cell}"
        providers.append(Provider(top, name, {"VCPU": _stock(choices, 3, 5)}, traits))
        if choices.integer(0, 1):
            providers.append(Provider(f"{top}gpu", top, {"VGPU": Inventory(2)}))
    return providers


def _flavor(choices: Choices, nested: bool) -> CandidateQuery:
    vcpu = (("VCPU", one(choices, (1, 2, 3))),)
    disk = (("DISK_GB", one(choices, (1, 1, 2))),) if rarely(choices) else ()
    if not nested:
        return CandidateQuery((RequestGroup("", vcpu + disk),))
    groups = [RequestGroup("_c", vcpu)]
    if disk:
        groups.append(RequestGroup("", disk))
    if choices.integer(0, 1):
        groups.append(RequestGroup("_g", (("VGPU", one(choices, (1, 1, 2))),)))
        return CandidateQuery(tuple(groups), same_subtree=(SameSubtree(frozenset({"_c", "_g"})),))
    return CandidateQuery(tuple(groups))


def fleet_of(choices: Choices) -> tuple[Fleet, CandidateQuery]:
    """A small fleet, nearly full of guests, and a request."""
    nested, pool = choices.integer(0, 1) == 1, rarely(choices)
    if rarely(choices):
        drawn_providers, request = fleet_problem_of(choices)
        providers = [
            replace(p, inventory={rc: replace(i, used=0) for rc, i in p.stock().items()})
            for p in drawn_providers
        ]
        flavors = [request, *(fleet_problem_of(choices)[1] for _ in range(2))]
    else:
        providers = [
            provider
            for number in range(choices.integer(2, 4))
            for provider in _host(choices, f"host{number}", nested, pool)
        ]
        if pool:
            for name in ("pool", "pool2")[: 1 + rarely(choices)]:
                stock = {"DISK_GB": _stock(choices, 3, 9)}
                providers.append(Provider(name, None, stock, (SHARING,), AGGREGATES[:1]))
        flavors = [_flavor(choices, nested) for _ in range(choices.integer(1, 3))]
        request = _flavor(choices, nested)
    providers = [
        replace(p, inventory={**p.inventory, **({} if p.parent else {"MEMORY_MB": 99})})
        for p in providers
    ]
    providers.append(Provider("names", traits=TRAITS, inventory={}))
    consumers: dict[str, Amounts] = {}
    for number in range(choices.integer(4, 9)):
        found = results_by_root(
            Fleet(providers, consumers).world(), one(choices, flavors), nested=True
        )
        targets = sorted({amounts for _root, (amounts, _mappings) in found}, key=sorted)
        if targets:
            held = Counter({(p, rc): n for p, rc, n in one(choices, targets)})
            if rarely(choices) and rarely(choices):
                # as during a move
                more = {(p, rc): n for p, rc, n in one(choices, targets)}
                if not held.keys() & more.keys():
                    held.update(more)
            root = root_of({p.name: p for p in providers}, next(iter(held))[0])
            held[root, "MEMORY_MB"] += choices.integer(1, 9)
            consumers = {**consumers, f"c{number}": held}
    fleet = Fleet(providers, consumers)
    free = [
        entry.total - fleet.used[provider.name, "VCPU"]
        for provider in providers
        for rc, entry in provider.stock().items()
        if rc == "VCPU"
    ]
    if free and choices.integer(0, 4):
        # A little more than fits anywhere, so that guests are in the way.
        amount = max(0, *free) + one(choices, (1, 1, 2))
        groups = [
            replace(
                g, resources=tuple((rc, amount if rc == "VCPU" else n) for rc, n in g.resources)
            )
            for g in request.groups
        ]
        request = replace(request, groups=tuple(groups))
    if rarely(choices):
        groups = [
            replace(g, forbidden_aggregates=frozenset(AGGREGATES[1:2])) for g in request.groups
        ]
        request = replace(request, groups=tuple(groups))
    if rarely(choices) and len(request.groups) > 1:
        request = replace(request, group_policy="isolate")
    if rarely(choices):
        # more in use than there is now
        at = choices.integer(0, len(providers) - 2)
        stock = {
            rc: replace(i, total=max(1, i.total - 2)) for rc, i in providers[at].stock().items()
        }
        providers[at] = replace(providers[at], inventory=stock)
        fleet = Fleet(providers, consumers)
    return fleet, request
