"""A question for room, and its answer from one state of the index and what consumers hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from placement_server.candidates.errors import CandidatesError
from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits import Account, Deadline, SearchEffort, SearchMemory
from placement_server.candidates.make_room.holdings import HeldAmounts, Holdings
from placement_server.candidates.make_room.places import Place
from placement_server.candidates.make_room.plan import Bounds, Plan
from placement_server.candidates.make_room.planner import Planner
from placement_server.candidates.query.query import CandidateQuery
from placement_server.store.allocations import allocation_rows
from placement_server.store.providers import provider_rows
from placement_server.store.store import Store
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


class Question(Struct, frozen=True):
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
    requests: Mapping[str, CandidateQuery] = {}


class Room(Struct, frozen=True):
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
    for rows in allocation_rows.pages(tx):
        tick()
        _ids, consumers, *columns = zip(*rows, strict=True)
        count = len(numbers)
        of_consumers = [numbers.setdefault(uuid, len(numbers)) for uuid in consumers]
        account.take(len(rows) * _ROW + (len(numbers) - count) * _CONSUMER)
        pages.append(np.array([of_consumers, *columns], dtype=np.int64))
    held = HeldAmounts(tuple(numbers), *np.concatenate(pages, axis=1))
    return held, allocation_rows.consumers_of(tx, question.projects, question.types)


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
    is_left_alone = np.zeros(index.size, bool)
    ids = index.names.trait_ids
    # A term of none is met by none.
    traits = tuple([ids[trait] for trait in question.traits if trait in ids])
    is_left_alone |= index.with_traits((traits,))
    is_left_alone |= index.with_aggregates((frozenset(question.aggregates),))
    for number, uuid in enumerate(question.trees):
        is_left_alone[_root(index, uuid, f"/leave_alone/trees/{number}")] = True
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
    planner.run()
    return Room(holdings_, planner.plans, planner.is_proved, holdings_.on_trees(emptied_roots)[1])


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


Body = dict[str, Any]


def answer(
    store: Store,
    follower: IndexFollower,
    question: Question,
    deadline: Deadline,
    memory: SearchMemory | None,
    effort: SearchEffort,
) -> Body:
    """Return the plans for a question; what consumers hold is read after the index.

    :param deadline: when the search gives up.
    :raises placement_server.candidates.make_room.question.UnknownTree: a tree does not exist.
    :raises placement_server.candidates.errors.QueryError: a class or trait does not exist.
    :raises placement_server.candidates.errors.SearchGaveUp: out of memory, or of time before
        the search began.
    :raises placement_server.store.errors.StoreError: the database cannot be read.
    """
    index, account = follower.index(), Account(memory)

    def look() -> None:
        effort.look(deadline.require_left())

    try:
        held, stays = store.read(read_held, question, account, look)
        bounds = question.bounds
        left = min(bounds.seconds, max(0.0, deadline.left()))
        question = replace(question, bounds=replace(bounds, seconds=left))
        return _body_of(store, find_room(index, question, held, stays, account, effort))
    finally:
        account.close()


def _body_of(store: Store, room: Room) -> Body:
    holdings = room.holdings
    index, uuid = holdings.index, holdings.index.columns.uuid
    moves = [move for plan in room.plans for move in plan.moves]
    roots = {int(holdings.tree[move.consumer]) for move in moves}
    roots |= {move.place.root for move in moves}
    roots |= {place.root for plan in room.plans for place in plan.places}
    names = store.read(provider_rows.names, [uuid[root] for root in roots])

    def tree(root: int) -> Body:
        return {"root": uuid[root], "name": names.get(uuid[root])}

    def uuids(consumers: Iterable[int]) -> list[str]:
        return [holdings.uuids[consumer] for consumer in consumers]

    def body(plan: Plan) -> Body:
        return {
            "moves": [
                {
                    "consumer": holdings.uuids[move.consumer],
                    "from": tree(int(holdings.tree[move.consumer])),
                    "to": tree(move.place.root),
                    **_claim(index, move.place),
                }
                for move in plan.moves
            ],
            "places": [{"to": tree(p.root), **_claim(index, p)} for p in plan.places],
            "memory_mb": plan.memory,
            "whole": plan.is_whole,
            "stuck": uuids(plan.stuck),
        }

    return {
        "plans": list(map(body, room.plans)),
        "proved": room.is_proved,
        "stays": uuids(room.stays),
    }


def _claim(index: Index, place: Place) -> Body:
    """Return what is claimed with a place, in the form of an allocation request."""
    uuid, allocations = index.columns.uuid, dict[str, dict[str, dict[str, int]]]()
    for (slot, class_id), amount in place.amounts:
        resources = allocations.setdefault(uuid[slot], {"resources": {}})["resources"]
        resources[index.names.class_names[class_id]] = amount
    return {
        "allocations": allocations,
        "mappings": {
            suffix: [uuid[slot] for slot in slots] for suffix, slots in place.mappings().items()
        },
    }
