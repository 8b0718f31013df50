"""Fragmentation: what is free, what of it lies together, and what no shape can use any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from placement_server.candidates.index.arrays import BoolArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits import Account
from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from placement_server.candidates.search.eligible import find_eligible
from placement_server.candidates.search.known_query import known_query

Amounts = Mapping[str, int]


class ClassFragmentation(Struct, frozen=True):
    """The use of one resource class.

    :ivar free: in sum over providers; one that is used beyond its capacity has nothing free.
    :ivar largest_free: on one provider.
    :ivar stranded: what is free where none of the shapes that ask for the class can have it,
        because another class of the shape has run out there.
    """

    capacity: int
    used: int
    free: int
    largest_free: int
    stranded: int


def fragmentation(
    shapes: Sequence[Amounts], members: RequestGroup, index: Index, account: Account
) -> dict[str, ClassFragmentation]:
    """Return the use of each class by the providers that requests with some filters may take from.

    :param shapes: amounts by class, to be taken as an unsuffixed group takes them.
    :param members: an unsuffixed group with the filters on aggregates.
    :param account: counts what is held meanwhile.
    :raises placement_server.candidates.errors.SearchGaveUp: there is not enough memory.
    :raises placement_server.candidates.errors.QueryError: a class does not exist.
    """
    account.take((16 + 3 * len({name for amounts in shapes for name in amounts})) * index.size)
    usable, classes = _usable(shapes, members, index), {}
    for name, view in sorted(index.classes_by_name().items()):
        inside = _serving(members, index, name)[1][view.slot]
        if inside.any():
            capacities, used = np.maximum(view.capacity[inside], 0), view.used[inside]
            free = np.maximum(capacities - used, 0)
            stranded = free[~usable[name][view.slot[inside]]].sum() if name in usable else 0
            sums = map(int, (capacities.sum(), used.sum(), free.sum(), free.max(), stranded))
            classes[name] = ClassFragmentation(*sums)
    return classes


def _usable(shapes: Sequence[Amounts], members: RequestGroup, index: Index) -> dict[str, BoolArray]:
    """Return for each class of a shape where some shape can have all its other classes."""
    usable: dict[str, BoolArray] = {}
    for amounts in shapes:
        having = {name: _serving(members, index, name, n)[0] for name, n in amounts.items()}
        # How many classes a tree lacks: with many classes faster than to compare all of them.
        lacking_classes = np.sum([~trees for trees in having.values()], axis=0)
        for name, trees in having.items():
            with_others = lacking_classes == ~trees
            reached = with_others[index.root]
            reached[index.links.share[with_others[index.links.anchor]]] = True
            usable[name] = usable.get(name, False) | reached
    return usable


def _serving(
    members: RequestGroup, index: Index, name: str, amount: int | None = None
) -> tuple[BoolArray, BoolArray]:
    """Return the roots of the trees that a class may be taken in, and the providers, by slot.

    :param amount: as much must be free on one provider; an inventory is enough when None.
    """
    query = CandidateQuery((replace(members, resources=((name, amount or 1),)),))
    known = known_query(query, index.names)
    eligible = find_eligible(query, known, index, Account(), whatever_amounts=amount is None)
    trees = np.zeros(index.size, dtype=bool)
    trees[eligible.roots] = True
    providers = trees[index.root] & (eligible.own[0] if eligible.own else False)
    providers[eligible.links.share] = True
    return trees, providers
