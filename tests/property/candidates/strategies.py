"""Small forests and queries that fit them often enough to have answers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from placement_server.candidates.query import CandidateQuery, RequestGroup, SameSubtree
from tests.unit.candidates.forest import SHARING, Inventory, Provider

CLASSES = ("VCPU", "DISK_GB", "VGPU")
TRAITS = ("CUSTOM_A", "CUSTOM_B", "CUSTOM_C")
AGGREGATES = ("agg1", "agg2", "agg3")
SUFFIXES = ("_1", "_2", "_3")

_RARELY = st.sampled_from([False, False, False, True])
_INVENTORY = st.builds(
    Inventory,
    total=st.integers(1, 8),
    reserved=st.sampled_from([0, 0, 0, 1, 9]),
    min_unit=st.sampled_from([1, 1, 1, 2]),
    max_unit=st.sampled_from([8, 8, 8, 2, 1]),
    step_size=st.sampled_from([1, 1, 1, 2]),
    ratio=st.sampled_from([1.0, 1.0, 1.5, 0.3]),
    used=st.sampled_from([0, 0, 1, 3]),
)
_PLAIN = st.builds(Inventory, total=st.integers(1, 4))


def _some(values: tuple[str, ...], most: int) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), max_size=most, unique=True).map(tuple)


@st.composite
def worlds(draw: st.DrawFn) -> list[Provider]:
    """Up to nine providers in trees of up to four levels, some of them sharing."""
    world: list[Provider] = []
    depth: dict[str | None, int] = {None: 0}
    inventory = draw(st.sampled_from([_INVENTORY, _PLAIN, st.just(Inventory(1))]))
    for number in range(draw(st.integers(1, 9))):
        above: list[str | None] = [name for name, level in depth.items() if level < 4]
        parent = draw(st.sampled_from(above))
        name = f"p{number}"
        depth[name] = depth[parent] + 1
        traits = draw(_some(TRAITS, 2))
        if draw(_RARELY):
            traits += (SHARING,)
        stock = draw(st.dictionaries(st.sampled_from(CLASSES), inventory, max_size=3))
        world.append(Provider(name, parent, stock, traits, draw(_some(AGGREGATES, 2))))
    return world


def _terms(values: tuple[str, ...]) -> st.SearchStrategy[tuple[frozenset[str], ...]]:
    term = st.frozensets(st.sampled_from(values), min_size=1, max_size=2)
    return st.one_of(st.just(()), st.lists(term, max_size=2, unique=True).map(tuple))


def _forbidden(values: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    none: frozenset[str] = frozenset()
    return st.one_of(
        st.just(none), st.just(none), st.frozensets(st.sampled_from(values), max_size=1)
    )


@st.composite
def _group(draw: st.DrawFn, suffix: str, world: list[Provider], idle: bool) -> RequestGroup:
    amounts = st.dictionaries(
        st.sampled_from(CLASSES), st.integers(1, 3), min_size=1, max_size=2 if suffix else 3
    )
    names = [provider.name for provider in world]
    return RequestGroup(
        suffix=suffix,
        resources=() if idle else tuple(draw(amounts).items()),
        required=draw(_terms(TRAITS)),
        forbidden=draw(_forbidden(TRAITS)),
        member_of=draw(_terms(AGGREGATES)),
        forbidden_aggregates=draw(_forbidden(AGGREGATES)),
        in_tree=draw(st.sampled_from([None] * 6 + names)),
    )


@st.composite
def queries(draw: st.DrawFn, world: list[Provider]) -> CandidateQuery:
    """A query over all parameters, extensions among them."""
    suffixes = list(SUFFIXES[: draw(st.integers(0, 3))])
    with_unsuffixed = not suffixes or draw(st.booleans())
    subtrees: list[SameSubtree] = []
    if suffixes:
        subtrees = draw(st.lists(_subtree(suffixes), max_size=2))
    bound = {suffix for each in subtrees for suffix in each.together | each.apart}
    groups: list[RequestGroup] = []
    alike = draw(_RARELY)
    for suffix in suffixes:
        idle = suffix in bound and (with_unsuffixed or bool(groups)) and draw(_RARELY)
        group = draw(_group(suffix, world, idle))
        if alike and groups:
            first = {name: getattr(groups[0], name) for name in RequestGroup.__slots__}
            group = RequestGroup(**{**first, "suffix": suffix})
        groups.append(group)
    if with_unsuffixed:
        groups.insert(draw(st.integers(0, len(groups))), draw(_group("", world, False)))
    rules: dict[str, Any] = {}
    how = draw(st.sampled_from(["none", "isolate", "named"]))
    if how == "isolate":
        rules["group_policy"] = "isolate"
    elif how == "named" and suffixes:
        rules["isolate"] = draw(st.frozensets(st.sampled_from(suffixes), max_size=2))
    if draw(_RARELY):
        rules["root_required"] = frozenset(draw(_some(TRAITS, 1)))
        rules["root_forbidden"] = draw(_forbidden(TRAITS))
    if draw(_RARELY):
        rules["root_member_of"] = draw(_terms(AGGREGATES))
        rules["root_forbidden_aggregates"] = draw(_forbidden(AGGREGATES))
    return CandidateQuery(groups=tuple(groups), same_subtree=tuple(subtrees), **rules)


@st.composite
def _subtree(draw: st.DrawFn, suffixes: list[str]) -> SameSubtree:
    together = draw(st.frozensets(st.sampled_from(suffixes), min_size=1))
    rest = [suffix for suffix in suffixes if suffix not in together]
    apart = draw(st.frozensets(st.sampled_from(rest))) if rest and draw(_RARELY) else frozenset()
    return SameSubtree(together, apart)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Provider], CandidateQuery]:
    """A world and a query."""
    world = draw(worlds())
    return world, draw(queries(world))
