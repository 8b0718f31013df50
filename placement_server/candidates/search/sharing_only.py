"""Candidates that sharing providers serve alone, with nothing of the tree they are reached from.

Many trees may reach the same sharing providers, and each of them would give the same such
candidates. So no tree gives them: they are looked for once, over all sharing providers, and a
combination counts when one tree reaches all of it. Nothing distinguishes trees that reach the same,
so what is kept is a bit for each *set of links*, whatever the number of trees; a combination is
reached by the sets whose bits all its providers have::

    trees        reach           sets of links      pool1  0b01
    a, b, c      pool1, pool2    bit 0              pool2  0b11      pool1 + pool2  0b01  reached
    d, pool3     pool2, pool3    bit 1              pool3  0b10      pool1 + pool3  0b00  by none
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits import sizes
from placement_server.candidates.limits.memory import Account
from placement_server.candidates.search.eligible import EligibleProviders

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class StandaloneSharing:
    """The sharing providers that may serve everything without the tree that they are linked to.

    :param slots: the slots of all sharing providers that a tree has a useful link to, ascending.
    :param linked_sets: by item and then as `slots`: the sets of links by which it can serve the
        item, one bit each; 0 where it cannot.
    :param sets: all sets of links that have a provider for each item.
    """

    slots: IntArray
    linked_sets: tuple[tuple[int, ...], ...]
    sets: int


def find_alone(
    index: Index, eligible: EligibleProviders, account: Account
) -> StandaloneSharing | None:
    """Find the sharing providers that may serve everything; None when there are none.

    Costs array operations over links and roots, and a step for each distinct set of links.
    """
    if not len(eligible.links.share):
        return None
    linked_to = np.zeros(index.size, dtype=bool)
    linked_to[eligible.links.share] = True
    slots = np.flatnonzero(linked_to)
    own = [mask[slots] for mask in eligible.own]
    foreign = [mask[slots] for mask in eligible.foreign]
    if not all((mine | theirs).any() for mine, theirs in zip(own, foreign, strict=True)):
        return None
    # Where it makes no difference, a provider in its own tree is one that is linked to it.
    same = np.logical_and.reduce(
        [mine == theirs for mine, theirs in zip(own, foreign, strict=True)]
    )
    at_home = np.arange(len(slots)) + np.where(same, 0, len(slots))
    width = len(slots) if same.all() else 2 * len(slots)
    # Rows as an array, as texts and, where they differ, as an array again.
    for_rows = len(eligible.roots) * (3 * -(-width // 8) + sizes.ENTRY)
    account.take(for_rows)
    rows = _distinct_rows(_reachable_columns(index, eligible, slots, at_home, width))
    sets = _sets_with(rows, width)
    account.take(sizes.links(len(own), len(slots), len(rows)))
    linked_sets = _links_by_set(sets, at_home.tolist(), own, foreign)
    account.give(for_rows)
    live = -1
    for by_slot in linked_sets:
        some = 0
        for sets_of_slot in by_slot:
            some |= sets_of_slot
        live &= some
    if not live:
        return None
    return StandaloneSharing(
        slots, tuple([tuple([links & live for links in by]) for by in linked_sets]), live
    )


def _reachable_columns(
    index: Index, eligible: EligibleProviders, slots: IntArray, at_home: IntArray, width: int
) -> Bytes:
    """Write down for each root, as bits, the columns of the sharing providers that it reaches."""
    roots, links = eligible.roots, eligible.links
    size = -(-width // 8)
    # There may be a million links: they are looked at in few steps.
    row = np.full(index.size, -1, dtype=np.int64)
    row[roots] = np.arange(len(roots)) * size
    byte = np.zeros(index.size, dtype=np.int32)
    byte[slots] = np.arange(len(slots)) >> 3
    bit = np.zeros(index.size, dtype=np.uint8)
    bit[slots] = 1 << (np.arange(len(slots)) & 7)
    reached_cells = np.zeros(len(roots) * size, dtype=np.uint8)
    cell = row[links.anchor] + byte[links.share]
    # In order of anchor and share the links of one byte are side by side.
    starts = np.flatnonzero(np.concatenate(((True,), cell[1:] != cell[:-1])))
    reached_cells[cell[starts]] = np.bitwise_or.reduceat(bit[links.share], starts)
    home = row[index.root[slots]]
    own = at_home[home >= 0]
    bits = (1 << (own & 7)).astype(np.uint8)
    np.bitwise_or.at(reached_cells, home[home >= 0] + (own >> 3), bits)
    return reached_cells.reshape(len(roots), size)


def _distinct_rows(rows: Bytes) -> Bytes:
    if (rows == rows[0]).all():
        return rows[:1]
    texts = dict.fromkeys(rows.view(f"V{rows.shape[1]}").ravel().tolist())
    return np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(len(texts), rows.shape[1])


def _sets_with(rows: Bytes, width: int) -> list[int]:
    """Return for each column the rows that have it, as bits."""
    return [
        int.from_bytes(
            np.packbits(rows[:, column >> 3] >> (column & 7) & 1, bitorder="little").tobytes(),
            "little",
        )
        for column in range(width)
    ]


def _links_by_set(
    sets: list[int], at_home: list[int], own: Sequence[BoolArray], foreign: Sequence[BoolArray]
) -> list[list[int]]:
    return [
        [
            (sets[column] if theirs[column] else 0) | (sets[home] if mine[column] else 0)
            for column, home in enumerate(at_home)
        ]
        for mine, theirs in zip(own, foreign, strict=True)
    ]
