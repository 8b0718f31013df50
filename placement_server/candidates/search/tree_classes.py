"""Classes of trees that are alike for a query, found by comparing bytes.

For a chunk of roots, a few gathers write down for every provider which items it can serve, which
required terms it meets and how much of each contested class it can give, as one row of words per
tree. Trees with equal shapes and equal rows have the same placements, so each distinct row is
solved once, however many hosts there are.

    word 0   bit 0..i-1: serves item i; then: meets term j; then: may serve without this tree
    word 1.. per contested class: how much it can give, rounded down to what items can come to
"""

from collections.abc import Callable
from functools import cached_property, partial
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from placement_server.candidates import sizes
from placement_server.candidates.index.arrays import BoolArray, IntArray, has_any
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.tree_shape import TreeShape
from placement_server.candidates.limits import Account
from placement_server.candidates.query.query import ContestedClass, Plan
from placement_server.candidates.search.eligible import EligibleProviders
from placement_server.candidates.search.problem import Problem

Words = npt.NDArray[np.uint64]
_WORD_BITS = 64
_FULL_WORD = (1 << _WORD_BITS) - 1
_NO_TREE = TreeShape(())


class TreeView(NamedTuple):
    """A tree as one search sees it: its root and the sharing providers it may use."""

    root: int
    size: int
    shares: tuple[int, ...]

    def slot(self, position: int) -> int:
        """Return the slot at a position of the problem."""
        return self.root + position if position < self.size else self.shares[position - self.size]


# An answer of a thousand hosts consists of such calls; calling the class costs twice this.
_view: Callable[[tuple[int, int, tuple[int, ...]]], TreeView] = partial(tuple.__new__, TreeView)


class Relations(Struct, frozen=True):
    """How some sharing providers are related: positions among them, as bits."""

    ancestors: tuple[int, ...]
    descendants: tuple[int, ...]
    trees: tuple[int, ...]


class TreeClasses:
    """The eligible roots of one search, sorted into classes of trees that are alike for it.

    :param alone_slots: the sharing providers that serve everything without a tree; no class has
        these placements then, as another search finds them (`without_tree`).
    :param account: counts what is kept, and the rows of a chunk while it is sorted.
    :ivar problems: the problem of each class, by its number.
    """

    def __init__(
        self,
        index: Index,
        plan: Plan,
        eligible: EligibleProviders,
        alone_slots: IntArray | None,
        account: Account,
    ) -> None:
        self.index = index
        self.plan = plan
        self.eligible = eligible
        self._account = account
        self._alone: BoolArray | None = None
        if alone_slots is not None:
            self._alone = np.zeros(index.size, dtype=bool)
            self._alone[alone_slots] = True
        self._flags = len(plan.items) + len(eligible.terms) + 1
        self._flag_words = -(-self._flags // _WORD_BITS)
        self._relations: dict[tuple[int, ...], Relations] = {}
        self._numbers: dict[tuple[int, object, bytes], int] = {}
        self._share_place = _disorder(index, eligible.links.share)
        self._ordered_shares: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.problems: list[Problem] = []

    def classify(self, roots: IntArray) -> tuple[list[TreeView], list[int]]:
        """Return for each root, in order, its view and the number of its class."""
        shapes = self.index.shape[roots]
        shares = self._shares(roots)
        if not has_any(shapes != shapes[0]) and len(set(map(len, shares))) == 1:
            return self._alike(roots, int(shapes[0]), shares)
        groups: dict[tuple[int, int], list[int]] = {}
        for at, (shape, shared_slots) in enumerate(zip(shapes.tolist(), shares, strict=True)):
            groups.setdefault((shape, len(shared_slots)), []).append(at)
        by_place: dict[int, tuple[TreeView, int]] = {}
        for (shape, _count), members in groups.items():
            alike = self._alike(roots[members], shape, [shares[at] for at in members])
            by_place.update(zip(members, zip(*alike, strict=True), strict=True))
        in_order = [by_place[at] for at in range(len(roots))]
        return [view for view, _number in in_order], [number for _view, number in in_order]

    def _alike(
        self, roots: IntArray, shape: int, shares: list[tuple[int, ...]]
    ) -> tuple[list[TreeView], list[int]]:
        """Return what `classify` does for trees of one shape with equally many shares."""
        size = self.index.columns.shapes[shape].size
        positions = len(roots) * (size + len(shares[0]))
        # Slots, words in two arrays and words as texts.
        for_rows = positions * 8 * (1 + 3 * (self._flag_words + len(self.plan.contested_classes)))
        self._account.take(for_rows)
        views, numbers = self._sort(roots, shape, size, shares)
        self._account.give(for_rows)
        return views, numbers

    def _sort(
        self, roots: IntArray, shape: int, size: int, shares: list[tuple[int, ...]]
    ) -> tuple[list[TreeView], list[int]]:
        views = list(map(_view, zip(roots.tolist(), repeat(size), shares, strict=False)))
        if size == 1 and not (shares[0] or self.plan.contested_classes or self._alone is not None):
            return views, [self._of_one_provider] * len(views)
        words = self._words(roots[:, None] + np.arange(size), foreign=False)
        if shares[0]:
            linked_words = self._words(np.array(shares, dtype=np.int64), foreign=True)
            words = np.ascontiguousarray(np.concatenate((words, linked_words), axis=1))
        flat = words.reshape(len(roots), -1)
        if shares.count(shares[0]) == len(shares) and (flat == flat[0]).all():
            return views, [self._number(shape, views[0], words[0])] * len(views)
        rows = flat.view(f"V{words[0].nbytes}").ravel().tolist()
        by_row: dict[tuple[object, bytes], int] = {}
        numbers = []
        for at, (view, row) in enumerate(zip(views, rows, strict=True)):
            number = by_row.get((view.shares, row))
            if number is None:
                number = by_row[view.shares, row] = self._number(shape, view, words[at])
            numbers.append(number)
        return views, numbers

    @cached_property
    def _of_one_provider(self) -> int:
        """The class of trees of one provider: it serves everything, or none of them were left."""
        self.problems.append(Problem.of_one_provider(len(self.plan.items)))
        return len(self.problems) - 1

    def _number(self, shape: int, view: TreeView, row: Words) -> int:
        key = (shape, self.relations(view.shares) if view.shares else None, row.tobytes())
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.problems)
            self.problems.append(self._problem(self.index.columns.shapes[shape], view.shares, row))
        return number

    def _shares(self, roots: IntArray) -> list[tuple[int, ...]]:
        links = self.eligible.links
        if not len(links.share):
            return [()] * len(roots)
        starts = np.searchsorted(links.anchor, roots, side="left")
        stops = np.searchsorted(links.anchor, roots, side="right")
        first = int(starts.min())
        slots = links.share[first : int(stops.max())].tolist()
        by_root = [
            tuple(slots[start:stop])
            for start, stop in zip((starts - first).tolist(), (stops - first).tolist(), strict=True)
        ]
        return by_root if self._share_place is None else list(map(self._in_order, by_root))

    def _in_order(self, shares: tuple[int, ...]) -> tuple[int, ...]:
        """Put sharing providers in canonical order: slots follow it until a tree changes."""
        ordered_shares = self._ordered_shares.get(shares)
        if ordered_shares is None:
            assert self._share_place is not None
            place = self._share_place
            self._account.take(sizes.ENTRY + 2 * sizes.visits(0, len(shares)))
            ordered_shares = tuple(sorted(shares, key=lambda slot: (int(place[slot]), slot)))
            self._ordered_shares[shares] = ordered_shares
        return ordered_shares

    def _words(self, slots: IntArray, *, foreign: bool) -> Words:
        rows, size = slots.shape
        words = np.zeros(
            (rows, size, self._flag_words + len(self.plan.contested_classes)), np.uint64
        )
        masks = self.eligible.foreign if foreign else self.eligible.own
        # Groups that ask for the same have one mask: their flags are set together.
        flags: dict[int, tuple[BoolArray, list[int]]] = {}
        for flag, mask in enumerate([*masks, *self.eligible.terms]):
            flags.setdefault(id(mask), (mask, []))[1].append(flag)
        for mask, numbers in flags.values():
            self._set_flags(words, numbers, mask[slots])
        if self._alone is not None:
            self._set_flags(words, [self._flags - 1], self._alone[slots])
        for number, contest in enumerate(self.plan.contested_classes):
            words[:, :, self._flag_words + number] = self._caps(contest, slots)
        return words

    def _set_flags(self, words: Words, flags: list[int], values: BoolArray) -> None:
        bits = sum(1 << flag for flag in flags)
        for word in range(self._flag_words):
            some = bits >> (word * _WORD_BITS) & _FULL_WORD
            if some:
                words[:, :, word] |= values * np.uint64(some)

    def _caps(self, contest: ContestedClass, slots: IntArray) -> Words:
        view = self.index.classes[contest.class_id]
        at = np.minimum(np.searchsorted(view.slot, slots), len(view.slot) - 1)
        caps = np.where(view.slot[at] == slots, view.fit[at], 0).astype(np.int64)
        caps = np.clip(caps, 0, contest.total)
        if contest.sums:
            sums = np.array(contest.sums)
            caps = sums[np.searchsorted(sums, caps, side="right") - 1]
        return caps.astype(np.uint64)

    def relations(self, shares: tuple[int, ...]) -> Relations:
        """Return which of some sharing providers share a tree or a line of descent."""
        relations = self._relations.get(shares)
        if relations is None:
            self._account.take(sizes.relations(len(shares)))
            relations = self._relations[shares] = self._relate(shares)
        return relations

    def _relate(self, shares: tuple[int, ...]) -> Relations:
        # Only providers of one tree are related, and few sharing providers are in one.
        end = self.index.end
        trees: dict[int, list[int]] = {}
        for at, root in enumerate(self.index.root[list(shares)].tolist()):
            trees.setdefault(root, []).append(at)
        above, below = [0] * len(shares), [0] * len(shares)
        for members in trees.values():
            for at in members:
                slot, stop = shares[at], int(end[shares[at]])
                for other in members:
                    if slot <= shares[other] < stop:
                        below[at] |= 1 << other
                        above[other] |= 1 << at
        sets = tuple([sum(1 << at for at in members) for members in trees.values()])
        return Relations(tuple(above), tuple(below), sets)

    def without_tree(
        self, shares: tuple[int, ...], linked_sets: tuple[tuple[int, ...], ...]
    ) -> Problem:
        """Build the problem of sharing providers that serve everything without a tree.

        :param shares: their slots.
        :param linked_sets: by item and then as `shares`, the sets of links by which it can serve.
        """
        row = self._words(np.array([shares], dtype=np.int64), foreign=True)[0]
        problem = self._problem(_NO_TREE, shares, row)
        eligible = tuple([sum(1 << at for at, sets in enumerate(by) if sets) for by in linked_sets])
        return replace(problem, eligible=eligible, linked_sets=linked_sets, needed_mask=0)

    def _problem(self, shape: TreeShape, shares: tuple[int, ...], row: Words) -> Problem:
        """Build the problem of one class from the row of any of its trees."""
        relations = self.relations(shares)
        size, plan = shape.size, self.plan
        flags = [0] * len(row)
        for word in range(self._flag_words):
            for position, value in enumerate(row[:, word].tolist()):
                flags[position] |= value << (word * _WORD_BITS)
        items, terms = len(plan.items), len(self.eligible.terms)
        columns = _transpose(flags, self._flags)
        every = (1 << len(row)) - 1
        caps = tuple(
            tuple(row[:, self._flag_words + number].tolist())
            for number in range(len(plan.contested_classes))
        )
        return Problem(
            parents=shape.parents,
            ancestors=(*shape.ancestors, *(mask << size for mask in relations.ancestors)),
            descendants=(*shape.descendants, *(mask << size for mask in relations.descendants)),
            eligible=tuple(columns[:items]),
            covers=tuple(value >> items & ((1 << terms) - 1) for value in flags),
            terms=(1 << terms) - 1,
            caps=caps,
            trees=((1 << size) - 1, *(mask << size for mask in relations.trees)),
            own=size,
            needed_mask=0 if self._alone is None else every & ~columns[-1],
        )


def canonical_places(index: Index) -> IntArray:
    """Return for the slot of each living root its place in the canonical order."""
    places = np.zeros(index.size, dtype=np.int64)
    places[index.roots] = np.arange(len(index.roots))
    return places


def _disorder(index: Index, shares: IntArray) -> IntArray | None:
    """Return the place of the tree of each sharing provider; None if slots are in that order."""
    if not len(shares):
        return None
    sharing = np.zeros(index.size, dtype=bool)
    sharing[shares] = True
    slots = np.flatnonzero(sharing)
    places = canonical_places(index)[index.root]
    return None if (np.diff(places[slots]) >= 0).all() else places


def _transpose(rows: list[int], width: int) -> list[int]:
    """Turn rows of bits into columns of bits."""
    columns = [0] * width
    # Many rows are alike: every distinct one is taken apart once.
    places: dict[int, int] = {}
    for position, row in enumerate(rows):
        places[row] = places.get(row, 0) | 1 << position
    for row, positions in places.items():
        while row:
            lowest = row & -row
            columns[lowest.bit_length() - 1] |= positions
            row ^= lowest
    return columns
