"""Fragmentation: what is free, what of it lies together, and what no shape can use any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement_server.candidates.bounds.heavy import SearchEffort
from placement_server.candidates.bounds.memory import Account
from placement_server.candidates.capacity.capacity import capacity
from placement_server.candidates.index.arrays import BoolArray
from placement_server.candidates.index.class_columns import ClassView
from placement_server.candidates.index.index import Index
from placement_server.candidates.query.query import CandidateQuery, RequestGroup

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ClassFragmentation:
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


@dataclass(frozen=True, slots=True)
class ShapeFit:
    """How many claims of one shape fit.

    :ivar at_least: whatever candidates are chosen.
    :ivar at_most: with the best choices.
    :ivar together: if what is free of each class lay together.
    """

    amounts: Amounts
    at_least: int
    at_most: int
    together: int

    @property
    def ratio(self) -> float | None:
        """The share of ``together`` that fits whatever is chosen; None where nothing would."""
        return self.at_least / self.together if self.together else None


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """What is free, by name of the class, and how many claims of each shape fit."""

    classes: dict[str, ClassFragmentation]
    shapes: list[ShapeFit]


def fragmentation(
    shapes: Sequence[Amounts],
    members: RequestGroup,
    index: Index,
    *,
    seconds: float = float("inf"),
    account: Account | None = None,
    effort: SearchEffort | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Fragmentation:
    """Report on the providers that are, or the root of whose tree is, a member of aggregates.

    :param shapes: amounts by class, to be taken as an unsuffixed group takes them.
    :param members: an unsuffixed group with the filters on aggregates.
    :raises placement_server.candidates.errors.SearchGaveUp: out of time or memory.
    :raises placement_server.candidates.errors.QueryError: a class does not exist.
    """
    account = account or Account()
    ends_at = clock() + seconds
    fits = []
    for amounts in shapes:
        query = CandidateQuery((replace(members, resources=tuple(amounts.items())),))
        # What one count held has been dropped when the next begins.
        held_bytes = account.held_bytes
        seconds_left = ends_at - clock()
        fits.append(
            capacity(
                query, index, seconds=seconds_left, account=account, effort=effort, clock=clock
            )
        )
        account.give(account.held_bytes - held_bytes)
    part = _ReportedPart(index, members)
    account.take(part.nbytes(len({name for amounts in shapes for name in amounts})))
    classes = part.classes(shapes)
    return Fragmentation(
        classes,
        [
            ShapeFit(amounts, fit.at_least, fit.at_most, _together(amounts, classes))
            for amounts, fit in zip(shapes, fits, strict=True)
        ],
    )


def _together(amounts: Amounts, classes: Mapping[str, ClassFragmentation]) -> int:
    return min(
        classes[name].free // amount if name in classes else 0 for name, amount in amounts.items()
    )


class _ReportedPart:
    """The part of the fleet that is reported on."""

    def __init__(self, index: Index, members: RequestGroup) -> None:
        self.index = index
        alive = np.zeros(index.size, dtype=bool)
        alive[index.roots] = True
        member = index.passing_aggregate_sets(members.member_of, frozenset())[index.aggregate_set]
        forbidden_aggregates = members.forbidden_aggregates
        clean = index.passing_aggregate_sets((), forbidden_aggregates)[index.aggregate_set]
        #: Sharing providers serve other trees only as members themselves.
        self.is_shared: BoolArray = alive[index.root] & member & clean
        self.inside: BoolArray = (
            alive[index.root] & (member | member[index.root]) & clean & clean[index.root]
        )

    def nbytes(self, classes: int) -> int:
        """Return what this and the arrays made of it hold at a time.

        :param classes: of how many classes the shapes are.
        """
        return (16 + 3 * classes) * self.index.size

    def _view(self, name: str) -> ClassView | None:
        return self.index.classes.get(self.index.names.class_ids[name])

    def classes(self, shapes: Sequence[Amounts]) -> dict[str, ClassFragmentation]:
        """Return the use of each class of which there is an inventory."""
        usable = self._usable(shapes)
        classes = {}
        for name, view in sorted(self.index.classes_by_name().items()):
            inside = (self.inside | self.is_shared)[view.slot]
            if not inside.any():
                continue
            slots = view.slot[inside]
            whole, used = np.maximum(view.capacity[inside], 0), view.used[inside]
            free = np.maximum(whole - used, 0)
            stranded = int(free[~usable[name][slots]].sum()) if name in usable else 0
            classes[name] = ClassFragmentation(
                int(whole.sum()), int(used.sum()), int(free.sum()), int(free.max()), stranded
            )
        return classes

    def _usable(self, shapes: Sequence[Amounts]) -> dict[str, BoolArray]:
        """Return for each class of a shape where some shape has all its other classes."""
        usable: dict[str, BoolArray] = {}
        for amounts in shapes:
            having = {name: self._trees_having(name, amount) for name, amount in amounts.items()}
            # How many classes a tree lacks: with many classes faster than to compare all of them.
            lacking_classes = np.sum([~trees for trees in having.values()], axis=0)
            for name, trees in having.items():
                is_reached = self._reached_from(lacking_classes == ~trees)
                usable[name] = usable[name] | is_reached if name in usable else is_reached
        return usable

    def _trees_having(self, name: str, amount: int) -> BoolArray:
        """Return by slot of the root which trees have a provider with room for an amount."""
        index = self.index
        trees = np.zeros(index.size, dtype=bool)
        view = self._view(name)
        if view is None:
            return trees
        fitting = view.slots_fitting(amount)
        trees[index.root[fitting[self.inside[fitting]]]] = True
        shares = np.zeros(index.size, dtype=bool)
        shares[fitting[self.is_shared[fitting]]] = True
        trees[index.links.anchor[shares[index.links.share]]] = True
        return trees

    def _reached_from(self, trees: BoolArray) -> BoolArray:
        """Return by slot which providers are in some of the trees or share with one."""
        index = self.index
        is_reached: BoolArray = trees[index.root]
        is_reached[index.links.share[trees[index.links.anchor]]] = True
        return is_reached
