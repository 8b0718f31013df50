"""Estimates of what the parts of a search hold, in bytes, by how CPython lays objects out.

Each is at least what `tracemalloc` sees, and not much more: a test compares.
"""

from typing import Final

from placement_server.candidates.query.query import Plan

POINTER: Final = 8
NUMBER: Final = 32
ENTRY: Final = 104
"""An entry of a dict or set that is two thirds full at most, and seldom half empty."""

TEXT: Final = 64
"""An ASCII text, beside its characters, and its place in a list."""

PIECES: Final = 48
"""A dict of texts with attributes of its own, in words of a pointer."""

_TUPLE: Final = 40
_OBJECT: Final = 48
# The view of a tree with its numbers, and the pairs and lists in which a search goes on with it.
_VISIT: Final = 80 + 2 * NUMBER + 3 * (_TUPLE + 2 * POINTER + 2 * POINTER)
_LIST: Final = 64
# A problem, a solver, its generators and two series, when there is nothing in any of them.
_CLASS: Final = 4608
_FRAME: Final = 144


def placement(items: int) -> int:
    """Return what a placement takes in its series."""
    return _TUPLE + 2 * POINTER + items * POINTER


def text(length: int) -> int:
    """Return what an ASCII text takes."""
    return TEXT + length


def key(numbers: int) -> int:
    """Return what a tuple of numbers takes as a key; most of these numbers are kept elsewhere."""
    return _TUPLE + numbers * POINTER + NUMBER


def template(length: int, places: int, contributing: int) -> int:
    """Return what a candidate with its uuids left open takes."""
    return _OBJECT + 2 * _TUPLE + text(length) + (places + contributing) * (POINTER + NUMBER)


def visits(trees: int, shares: int) -> int:
    """Return what a search keeps of trees that it has visited.

    :param shares: how many sharing providers these trees are linked to, one by one.
    """
    return trees * _VISIT + shares * (NUMBER + POINTER)


def candidate() -> int:
    """Return what a candidate takes beside its placement and its tree, kept in a list."""
    return _TUPLE + 3 * POINTER


def seen_amounts(classes: int, numbers: int) -> int:
    """Return what is kept of the amounts of one placement.

    :param numbers: how many positions and amounts there are, of all classes.
    """
    return ENTRY + _TUPLE + classes * (_TUPLE + 2 * POINTER) + numbers * (POINTER + NUMBER // 2)


def failed_positions(keys: int) -> int:
    """Return what is kept of positions that failed, by the number of their names."""
    return keys * (64 + _TUPLE + 3 * POINTER)


def links(items: int, shares: int, sets: int) -> int:
    """Return what the sets of links take by which sharing providers serve items, in three forms."""
    return 3 * items * shares * (POINTER + NUMBER + sets // 7)


def index_copy(slots: int, inventories: int) -> int:
    """Return what a copy of the index takes that something is appended to: all its arrays, twice.

    What does not grow is not copied, so this is the most.
    """
    return 2 * (slots * (7 * POINTER) + inventories * (7 * POINTER))


def provider_rows(providers: int, inventories: int) -> int:
    """Return what rows of providers take, with the arrays that they become."""
    return providers * (1024 + 2 * ENTRY) + inventories * 512


def filter_mask(names: int, terms: int, slots: int) -> int:
    """Return what the mask of a filter takes with the sets of names, but not with the names."""
    return slots + (names + 2 * terms + 5) * ENTRY


def relations(shares: int) -> int:
    """Return what is kept of the relations of sharing providers."""
    return 512 + shares * (4 * POINTER + 3 * (NUMBER + shares // 8))


def tree_class(plan: Plan, positions: int) -> int:
    """Return what a tree class takes, with its solver at the deepest of its search."""
    items = len(plan.items)
    number = NUMBER + positions // 8
    by_position = 3 * number + 4 * POINTER
    by_position += len(plan.contested_classes) * 4 * POINTER
    by_item = 6 * number + 3 * _LIST + len(plan.subtrees) * (_LIST + 2 * number)
    frames = _FRAME + 5 * number + _LIST + positions * POINTER
    return _CLASS + positions * by_position + items * (by_item + frames)
