"""The answer to a question for room, from the store and its index."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from placement_server.candidates.errors import OutOfTime
from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.index.index import Index
from placement_server.candidates.limits.heavy import SearchEffort
from placement_server.candidates.limits.memory import Account, SearchMemory
from placement_server.candidates.make_room.places import Place
from placement_server.candidates.make_room.plan import Plan
from placement_server.candidates.make_room.question import Question, Room, find_room, read_held
from placement_server.store.providers import provider_rows
from placement_server.store.store import Store

Body = dict[str, Any]


def answer(
    store: Store,
    follower: IndexFollower,
    question: Question,
    seconds: float,
    memory: SearchMemory | None,
    effort: SearchEffort,
) -> Body:
    """Return the plans for a question; what consumers hold is read after the index.

    :param seconds: after these the search gives up.
    :raises placement_server.candidates.make_room.question.UnknownTree: a tree does not exist.
    :raises placement_server.candidates.errors.QueryError: a class or trait does not exist.
    :raises placement_server.candidates.errors.SearchGaveUp: out of memory, or of time before
        the search began.
    :raises placement_server.store.errors.StoreError: the database cannot be read.
    """
    ends_at = time.monotonic() + seconds
    index, account = follower.index(), Account(memory)

    def look() -> None:
        seconds_left = ends_at - time.monotonic()
        if seconds_left <= 0:
            raise OutOfTime(seconds, 0)
        effort.look(seconds_left)

    try:
        held, stays = store.read(read_held, question, account, look)
        bounds = question.bounds
        left = min(bounds.seconds, max(0.0, ends_at - time.monotonic()))
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
