"""Plans of moves carried out, one move after the other, by a command that moves a guest.

A file has the plan and how many of its moves are done. It is written before the first move, so a
plan that was cut off at any point goes on from there: whether a move was begun, or ended, follows
from what its consumers hold.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from compute_agent.scheduler.errors import MoveRefused
from compute_agent.scheduler.moves.move import Move, MoveKind
from compute_agent.scheduler.moves.mover import Mover
from compute_agent.scheduler.moves.repeated import begun_before
from compute_agent.scheduler.placement.candidates import Candidate
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.state import documents
from compute_agent.state.files import write_atomically
from compute_agent.state.shapes import AMOUNTS, TEXT, WHOLE, Shape, list_of, map_of, object_of

_TREE: Final = object_of({"root": TEXT})
_MOVE: Final = object_of(
    {
        "consumer": TEXT,
        "migration": TEXT,
        "from": _TREE,
        "to": _TREE,
        "allocations": map_of(object_of({"resources": AMOUNTS})),
        "mappings": map_of(list_of(TEXT)),
    }
)
_FILE: Final = Shape(
    "a plan that is carried out", object_of({"moves": list_of(_MOVE), "done": WHOLE})
)


class CarriedPlan:
    """A plan in a file.

    :raises FileUnusable: the file cannot be read, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._document = documents.parse(documents.read_file(path), _FILE)

    @classmethod
    def write(cls, path: Path, moves: list[Mapping[str, Any]]) -> CarriedPlan:
        """Write the file of a plan of which nothing is done."""
        named = [{**move, "migration": str(uuid.uuid4())} for move in moves]
        write_atomically(path, json.dumps({"moves": named, "done": 0}).encode(), 0o600)
        return cls(path)

    def carry_out(
        self,
        client: PlacementClient,
        mover: Mover,
        move_guest: Callable[[Mapping[str, Any]], int],
        say: Callable[[str], None],
    ) -> bool:
        """Make the moves that are not done; return whether all are done then.

        A guest that cannot be moved gets back what it held, and the plan ends there.

        :param move_guest: moves one and returns a status, 0 when it is moved. It is asked again for
            a move that was cut off.
        :param say: reports the progress.
        :raises AllocationMoveFailed: a step does not fit any more; nothing of it is written.
        :raises MoveRefused: the consumer holds something else than the plan knows.
        :raises PlacementError: what was not done can be gone on with.
        """
        moves = self._document["moves"]
        while self._document["done"] < len(moves):
            entry, number = moves[self._document["done"]], self._document["done"] + 1
            what = f"move {number} of {len(moves)}, {entry['consumer']}"
            begun_move = self._begun(client, mover, entry)
            if begun_move is not None:
                say(f"{what}: moving")
                status = move_guest(entry)
                if status:
                    mover.revert(begun_move)
                    say(f"{what}: failed with status {status}, and holds what it held")
                    return False
                mover.finish(begun_move)
            self._document["done"] = number
            write_atomically(self._path, json.dumps(self._document).encode(), 0o600)
            say(f"{what}: done")
        self._path.unlink()
        return True

    def _begun(
        self, client: PlacementClient, mover: Mover, entry: Mapping[str, Any]
    ) -> Move | None:
        """Return the move after its claim, be it an earlier one; None where it is over."""
        consumer, migration = entry["consumer"], entry["migration"]
        mover.recover()
        begun_move = begun_before(client, MoveKind.LIVE, consumer, migration)
        if begun_move is not None:
            return begun_move
        wanted = {uuid: part["resources"] for uuid, part in entry["allocations"].items()}
        held = client.holding(consumer).allocations
        if held == wanted:
            return None
        if not held:
            raise MoveRefused(f"Moving {consumer} was refused: it holds nothing any more.")
        mappings = {suffix: tuple(uuids) for suffix, uuids in entry["mappings"].items()}
        candidate = Candidate(entry["to"]["root"], wanted, mappings)
        return mover.begin_at(consumer, migration, candidate)
