"""A question for room, and its answer from one state of the index and what consumers hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from placement_server.candidates.errors import CandidatesError
from placement_server.candidates.index.arrays import BoolArray
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits.heavy import SearchEffort
from placement_server.candidates.limits.memory import Account
from placement_server.candidates.make_room.holdings import HeldAmounts, Holdings
from placement_server.candidates.make_room.plan import Bounds, Plan
from placement_server.candidates.make_room.planner import Planner
from placement_server.candidates.query.query import CandidateQuery
from placement_server.store.allocations import holdings
from placement_server.store.transaction import ReadTransaction

DISABLED: Final = "COMPUTE_STATUS_DISABLED"
# What an allocation and a consumer take, in arrays and in the dict of consumers.
_ROW: Final = 12 * 8
_CONSUMER: Final = 400


class UnknownTree(CandidatesError):
    """A question names a tree that does not exist, or a provider that is not a root."""

    def __init__(self, message: str, pointer: str) -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer


@dataclass(frozen=True, slots=True)
class Question:
    """What there is to be room for, and what may move.

    :ivar query: None where trees are only to be emptied.
    :ivar emptied: the roots of these trees; nothing is placed there.
    :ivar avoided: roots of trees where the query has no place.
    :ivar trees: roots of trees whose consumers stay, and that take none.
    :ivar traits: the same of trees of which the root has one of some traits; no other place needs
        to have these.
    :ivar aggregates: the same of trees of which the root is in one of some aggregates.
    :ivar consumers: consumers that stay, as do those of `projects` and `types`.
    :ivar requests: by consumer, what to ask for instead of what it holds.
    """

    query: CandidateQuery | None
    bounds: Bounds
    emptied: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()
    traits: frozenset[str] = frozenset({DISABLED})
    aggregates: frozenset[str] = frozenset()
    consumers: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    requests: Mapping[str, CandidateQuery] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Room:
    """Plans that answer a question.

    :ivar plans: the best first.
    :ivar is_proved: whether there is none that moves fewer, or as many with less memory.
    :ivar stays: who is left in trees that were to be emptied, as the question leaves them alone.
    """

    holdings: Holdings
    plans: list[Plan]
    is_proved: bool
    stays: list[int]


def read_held(
    tx: ReadTransaction, question: Question, account: Account, tick: Callable[[], None]
) -> tuple[HeldAmounts, set[str]]:
    """Read all allocations, and the consumers that stay by their project or type.

    :param tick: called between pages; may raise.
    :raises SearchGaveUp: there are more than one search may hold.
    """
    numbers: dict[str, int] = {}
    pages = [np.empty((4, 0), np.int64)]
    for rows in holdings.pages(tx):
        tick()
        _ids, consumers, *columns = zip(*rows, strict=True)
        count = len(numbers)
        of_consumers = [numbers.setdefault(uuid, len(numbers)) for uuid in consumers]
        account.take(len(rows) * _ROW + (len(numbers) - count) * _CONSUMER)
        pages.append(np.array([of_consumers, *columns], dtype=np.int64))
    held = HeldAmounts(tuple(numbers), *np.concatenate(pages, axis=1))
    return held, holdings.consumers_of(tx, question.projects, question.types)


def find_room(
    index: Index,
    question: Question,
    held: HeldAmounts,
    stays: Collection[str],
    account: Account,
    effort: SearchEffort,
    clock: Callable[[], float] = time.monotonic,
) -> Room:
    """Answer a question.

    :param stays: consumers that stay beside those that the question names.
    :raises UnknownTree: the question names a tree that does not exist.
    :raises SearchGaveUp: out of memory, or no place for one more heavy search.
    """
    emptied_roots = [
        _root(index, uuid, f"/empty/{number}") for number, uuid in enumerate(question.emptied)
    ]
    takes_request = np.ones(index.size, bool)
    takes_request[emptied_roots] = False
    is_left_alone = _left_alone(index, question)
    takes_moves = takes_request & ~is_left_alone
    for number, uuid in enumerate(question.avoided):
        takes_request[_root(index, uuid, f"/avoid/{number}")] = False
    is_left_alone[emptied_roots] = False
    holdings_ = Holdings(
        index,
        held,
        is_left_alone,
        question.consumers.union(stays),
        question.traits | {DISABLED},
        question.requests,
    )
    planner = Planner(
        index,
        holdings_,
        question.query,
        emptied_roots,
        takes_request,
        takes_moves,
        question.bounds,
        account,
        effort,
        clock,
    )
    answer = planner.run()
    return Room(holdings_, answer.plans, answer.is_proved, holdings_.on_trees(emptied_roots)[1])


def _left_alone(index: Index, question: Question) -> BoolArray:
    """Return over all slots the roots of the trees that are left alone."""
    ids = index.names.trait_ids
    is_left_alone = np.zeros(index.size, bool)
    traits = [ids[trait] for trait in question.traits if trait in ids]
    if traits:
        sets = index.passing_trait_sets([traits], [])
        is_left_alone |= sets[index.trait_set]
    if question.aggregates:
        sets = index.passing_aggregate_sets([question.aggregates], frozenset())
        is_left_alone |= sets[index.aggregate_set]
    for number, uuid in enumerate(question.trees):
        is_left_alone[_root(index, uuid, f"/leave_alone/trees/{number}")] = True
    return is_left_alone


def _root(index: Index, uuid: str, pointer: str) -> int:
    slot = index.slot_of(uuid)
    if slot is None:
        raise UnknownTree(f"There is no resource provider {uuid}.", pointer)
    root = int(index.root[slot])
    if root != slot:
        raise UnknownTree(
            f"Resource provider {uuid} is not the root of its tree, which is "
            f"{index.columns.uuid[root]}.",
            pointer,
        )
    return root
