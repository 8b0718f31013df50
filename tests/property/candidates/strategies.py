"""Small forests and queries that fit them often enough to have answers.

What is drawn is written down once, for two sources of choices: hypothesis, which shrinks what
fails, and a seeded generator, which makes tens of thousands of problems in the time that it takes
hypothesis to make a thousand.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace

from placement_server.candidates.query.query import CandidateQuery, RequestGroup, SameSubtree
from tests.unit.candidates.forest import SHARING, Inventory, Provider

CLASSES = ("VCPU", "DISK_GB", "VGPU")
TRAITS = ("CUSTOM_A", "CUSTOM_B", "CUSTOM_C")
AGGREGATES = ("agg1", "agg2", "agg3")
SUFFIXES = ("_1", "_2", "_3")
MANY_SUFFIXES = ("_1", "_2", "_3", "_4", "_5")

T = TypeVar("T")
Problem = tuple[list[Provider], CandidateQuery]


class Choices(Protocol):
    """Where decisions come from."""

    def integer(self, low: int, high: int) -> int: ...


class DrawnChoices:
    """Choices of hypothesis."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(_integers(low, high))


class SeededChoices:
    """Choices of a generator, the same for the same seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


@cache
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


def one(choices: Choices, values: Sequence[T]) -> T:
    return values[choices.integer(0, len(values) - 1)]


def some(choices: Choices, values: Sequence[T], most: int, least: int = 0) -> list[T]:
    left = list(values)
    count = choices.integer(least, min(most, len(left)))
    return [left.pop(choices.integer(0, len(left) - 1)) for _ in range(count)]


def rarely(choices: Choices) -> bool:
    return choices.integer(0, 3) == 3


def inventory(choices: Choices, sort: str) -> Inventory:
    if sort == "single":
        return Inventory(1)
    if sort == "plain":
        return Inventory(choices.integer(1, 4))
    return Inventory(
        total=choices.integer(1, 8),
        reserved=one(choices, (0, 0, 0, 1, 9)),
        min_unit=one(choices, (1, 1, 1, 2)),
        max_unit=one(choices, (8, 8, 8, 2, 1)),
        step_size=one(choices, (1, 1, 1, 2)),
        ratio=one(choices, (1.0, 1.0, 1.5, 0.3)),
        used=one(choices, (0, 0, 1, 3)),
    )


def world_of(choices: Choices) -> list[Provider]:
    """Up to nine providers in trees of up to four levels, some of them sharing."""
    world: list[Provider] = []
    depth: dict[str | None, int] = {None: 0}
    sort = one(choices, ("full", "plain", "single"))
    for number in range(choices.integer(1, 9)):
        parent = one(choices, [name for name, level in depth.items() if level < 4])
        name = f"p{number}"
        depth[name] = depth[parent] + 1
        traits = some(choices, TRAITS, 2) + ([SHARING] if rarely(choices) else [])
        classes = some(choices, CLASSES, 3, least=choices.integer(0, 2))
        stock = {resource_class: inventory(choices, sort) for resource_class in classes}
        aggregates = tuple(some(choices, AGGREGATES, 2))
        world.append(Provider(name, parent, stock, tuple(traits), aggregates))
    return world


def flat(world: list[Provider]) -> list[Provider]:
    """The same providers, each a tree by itself that shares with no other."""
    return [
        replace(provider, parent=None, traits=tuple(set(provider.traits) - {SHARING}))
        for provider in world
    ]


def _terms(choices: Choices, values: Sequence[str]) -> tuple[frozenset[str], ...]:
    count = one(choices, (0, 0, 0, 0, 0, 0, 1, 2))
    terms = [frozenset(some(choices, values, 2, least=1)) for _ in range(count)]
    return tuple(dict.fromkeys(terms))


def _forbidden(choices: Choices, values: Sequence[str]) -> frozenset[str]:
    return frozenset([one(choices, values)] if choices.integer(0, 7) == 7 else [])


def _group(choices: Choices, suffix: str, world: list[Provider], idle: bool) -> RequestGroup:
    classes = [] if idle else some(choices, CLASSES, 2 if suffix else 3, least=1)
    names = [provider.name for provider in world]
    return RequestGroup(
        suffix=suffix,
        resources=tuple((name, one(choices, (1, 1, 1, 2, 3))) for name in classes),
        required=_terms(choices, TRAITS),
        forbidden=_forbidden(choices, TRAITS),
        member_of=_terms(choices, AGGREGATES),
        forbidden_aggregates=_forbidden(choices, AGGREGATES),
        in_tree=one(choices, names) if choices.integer(0, 11) == 11 else None,
    )


def _subtree(choices: Choices, suffixes: Sequence[str]) -> SameSubtree:
    together = frozenset(some(choices, suffixes, len(suffixes), least=1))
    rest = [suffix for suffix in suffixes if suffix not in together]
    apart = some(choices, rest, len(rest)) if rest and rarely(choices) else []
    return SameSubtree(together, frozenset(apart))


def _groups(
    choices: Choices, world: list[Provider], suffixes: Sequence[str], bound: set[str]
) -> list[RequestGroup]:
    with_unsuffixed = not suffixes or choices.integer(0, 1) == 1
    groups: list[RequestGroup] = []
    alike = rarely(choices)
    for suffix in suffixes:
        idle = suffix in bound and (with_unsuffixed or bool(groups)) and rarely(choices)
        group = _group(choices, suffix, world, idle)
        if alike and groups:
            first = {name: getattr(groups[0], name) for name in RequestGroup.__slots__}
            group = RequestGroup(**{**first, "suffix": suffix})
        groups.append(group)
    if with_unsuffixed:
        groups.insert(choices.integer(0, len(groups)), _group(choices, "", world, False))
    return groups


def query_of(choices: Choices, world: list[Provider]) -> CandidateQuery:
    """A query over all parameters, extensions among them."""
    suffixes = SUFFIXES[: choices.integer(0, 3)]
    subtrees: list[SameSubtree] = []
    if suffixes:
        subtrees = [_subtree(choices, suffixes) for _ in range(one(choices, (0, 0, 1, 2)))]
    bound = {suffix for subtree in subtrees for suffix in subtree.together | subtree.apart}
    groups = _groups(choices, world, suffixes, bound)
    rules: dict[str, Any] = {}
    how = one(choices, ("none", "isolate", "named"))
    if how == "isolate":
        rules["group_policy"] = "isolate"
    elif how == "named" and suffixes:
        rules["isolate"] = frozenset(some(choices, suffixes, 2))
    if rarely(choices) and rarely(choices):
        rules["root_required"] = frozenset(some(choices, TRAITS, 1))
        rules["root_forbidden"] = _forbidden(choices, TRAITS)
    if rarely(choices) and rarely(choices):
        rules["root_member_of"] = _terms(choices, AGGREGATES)
        rules["root_forbidden_aggregates"] = _forbidden(choices, AGGREGATES)
    return CandidateQuery(groups=tuple(groups), same_subtree=tuple(subtrees), **rules)


def shared_world_of(choices: Choices) -> list[Provider]:
    """Several trees that reach the same pools, or overlapping sets of them, by their aggregates."""
    world: list[Provider] = []
    sort = one(choices, ("single", "plain", "plain", "full"))
    kinds = ["pool"] * choices.integer(1, 3) + ["host"] * choices.integer(2, 4)
    for number in range(len(kinds)):
        kind = kinds.pop(choices.integer(0, len(kinds) - 1))
        name = f"p{number}"
        inside = (
            [provider.name for provider in world if provider.parent is None]
            if rarely(choices)
            else []
        )
        parent = one(choices, inside) if inside else None
        traits = tuple(some(choices, TRAITS, 1)) if rarely(choices) else ()
        aggregates = tuple(some(choices, AGGREGATES[:2], 2, least=choices.integer(0, 1)))
        if kind == "pool":
            stock = {"DISK_GB": inventory(choices, sort)}
            traits = (SHARING, *traits)
        else:
            stock = {"VGPU": inventory(choices, sort)}
            if rarely(choices):
                stock["DISK_GB"] = inventory(choices, sort)
        if rarely(choices):
            stock["VCPU"] = inventory(choices, sort)
        world.append(Provider(name, parent, stock, traits, aggregates))
    return world


def alike_query_of(choices: Choices, world: list[Provider]) -> CandidateQuery:
    """Up to five groups that ask for the same, some of them for more, of what pools may have."""
    suffixes = MANY_SUFFIXES[: choices.integer(1, 5)]
    wanted = ((one(choices, ("DISK_GB", "DISK_GB", "DISK_GB", "VGPU")), 1),)
    groups = [RequestGroup(suffix, wanted) for suffix in suffixes]
    if rarely(choices):
        groups[-1] = _group(choices, suffixes[-1], world, idle=False)
    if rarely(choices):
        classes = some(choices, ("DISK_GB", "VCPU"), 2, least=1)
        terms = (_terms(choices, TRAITS), _forbidden(choices, TRAITS), _terms(choices, AGGREGATES))
        unsuffixed = RequestGroup("", tuple((name, 1) for name in classes), *terms)
        groups.insert(choices.integer(0, len(groups)), unsuffixed)
    rules: dict[str, Any] = {}
    how = one(choices, ("none", "isolate", "named"))
    if how == "isolate":
        rules["group_policy"] = "isolate"
    elif how == "named":
        rules["isolate"] = frozenset(some(choices, suffixes, 3))
    if rarely(choices):
        rules["root_forbidden"] = _forbidden(choices, TRAITS)
        rules["root_member_of"] = _terms(choices, AGGREGATES[:2])
    if rarely(choices):
        rules["same_subtree"] = (_subtree(choices, suffixes),)
    return CandidateQuery(groups=tuple(groups), **rules)


def problem_of(choices: Choices) -> Problem:
    """A world and a query."""
    if rarely(choices):
        world = shared_world_of(choices)
        return world, alike_query_of(choices, world)
    world = flat(world_of(choices)) if rarely(choices) else world_of(choices)
    return world, query_of(choices, world)


def _fleet_host(choices: Choices, world: list[Provider], nested: bool) -> None:
    name = f"host{len(world)}"
    aggregates = tuple(some(choices, AGGREGATES[:1], 1))
    stock = {rc: inventory(choices, "plain") for rc in some(choices, CLASSES, 3, least=2)}
    if not nested:
        world.append(Provider(name, None, stock, tuple(some(choices, TRAITS, 1)), aggregates))
        return
    disk = {"DISK_GB": inventory(choices, "plain")} if choices.integer(0, 1) else {}
    world.append(Provider(name, None, disk, (), aggregates))
    for cell in range(choices.integer(1, 2)):
        top = f"{name}cell{cell}"
        world.append(Provider(top, name, {"VCPU": inventory(choices, "full")}))
        for gpu in range(choices.integer(0, 2)):
            traits = tuple(some(choices, TRAITS[:1], 1))
            world.append(Provider(f"{top}gpu{gpu}", top, {"VGPU": Inventory(2)}, traits))


def _guest_of_two_cells(choices: Choices, groups: list[RequestGroup]) -> CandidateQuery:
    amounts = [one(choices, (1, 1, 2))] * 2 if choices.integer(0, 2) else [1, 2]
    pairs = (("_c", "_g"), ("_d", "_h"))
    for (cell, gpu), amount in zip(pairs, amounts, strict=True):
        groups.append(RequestGroup(cell, (("VCPU", amount),)))
        groups.append(RequestGroup(gpu, (("VGPU", 1),)))
    rules: dict[str, Any] = {"group_policy": one(choices, ("none", "isolate"))}
    if rarely(choices):
        rules = {"isolate": frozenset(("_c", "_d"))}
    subtrees = tuple(SameSubtree(frozenset(pair)) for pair in pairs)
    return CandidateQuery(tuple(groups), same_subtree=subtrees, **rules)


def fleet_problem_of(choices: Choices) -> Problem:
    """Hosts as fleets have them, flat ones or with cells and GPUs, and what is asked of such."""
    world: list[Provider] = []
    nested = choices.integer(0, 1) == 1
    for _ in range(choices.integer(1, 3)):
        _fleet_host(choices, world, nested)
    if rarely(choices):
        stock = {"DISK_GB": inventory(choices, "plain")}
        world.append(Provider("pool", None, stock, (SHARING,), AGGREGATES[:1]))
    if not nested or rarely(choices):
        classes = some(choices, CLASSES, 3, least=1)
        wanted = tuple((name, one(choices, (1, 1, 2))) for name in classes)
        required = (frozenset(TRAITS[:1]),) if rarely(choices) else ()
        return world, CandidateQuery((RequestGroup("", wanted, required),))
    groups = [RequestGroup("", (("DISK_GB", 1),))] if rarely(choices) else []
    if rarely(choices):
        return world, _guest_of_two_cells(choices, groups)
    groups += [
        RequestGroup(suffix, (("VCPU", one(choices, (1, 1, 2))),))
        for suffix in some(choices, ("_c", "_d"), 2, least=1)
    ]
    first = groups[-1].suffix
    groups += [RequestGroup(suffix, (("VGPU", 1),)) for suffix in some(choices, ("_g", "_h"), 2)]
    rules: dict[str, Any] = {"group_policy": one(choices, ("none", "isolate"))}
    gpus = [group.suffix for group in groups if group.suffix in ("_g", "_h")]
    if gpus and choices.integer(0, 1):
        rules["same_subtree"] = (SameSubtree(frozenset((first, *gpus))),)
    return world, CandidateQuery(tuple(groups), **rules)


@st.composite
def fleet_problems(draw: st.DrawFn) -> Problem:
    """A fleet and a query, drawn by hypothesis."""
    return fleet_problem_of(DrawnChoices(draw))


def hungry(choices: Choices, problem: Problem) -> Problem:
    """A problem in which more is asked for, so that it seldom has an answer."""
    world, query = problem
    groups = []
    for group in query.groups:
        amounts = [(name, n + one(choices, (0, 0, 0, 1, 1, 4))) for name, n in group.resources]
        groups.append(replace(group, resources=tuple(amounts)))
    return world, replace(query, groups=tuple(groups))


@st.composite
def hungry_problems(draw: st.DrawFn) -> Problem:
    """A world and a query that seldom fits, drawn by hypothesis."""
    choices = DrawnChoices(draw)
    return hungry(choices, problem_of(choices))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """A world and a query, drawn by hypothesis."""
    return problem_of(DrawnChoices(draw))


def known_names(problem: Problem) -> Problem:
    """Add a provider that has every trait, so that no name of a query is unknown."""
    world, query = problem
    return [*world, Provider("names", traits=TRAITS, inventory={})], query


def is_private(provider: Provider) -> bool:
    return "MISC_SHARES_VIA_AGGREGATE" not in provider.traits
