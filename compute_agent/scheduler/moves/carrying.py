"""Plans of moves carried out, some moves at once, by a command that moves a guest.

Moves begin in the order of the plan. One that does not fit while others are running waits until one
of them has freed the place that it leaves. This ends: the plan has an order in which each move fits
once those before it are done.

Guests that take one another's places are moved together: what all of them hold is exchanged in one
request, and the keeper, a consumer of the plan, holds what nobody took until all are moved. So each
place is claimed before a guest leaves its own, and whether the command succeeds or fails, what they
hold is where they are.

    step     guests hold        the keeper holds                          then
    before   their sources      nothing
    claim    their places       what they left and none of them took      the command moves them all
    finish   their places       nothing
    revert   their sources      nothing

A file has the plan and which of its moves are done. It is written before the first move, so a plan
that was cut off at any point goes on from there: whether a move was begun, or ended, follows from
what its consumers hold.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from msgspec import Struct, json

from compute_agent.errors import AllocationMoveFailed
from compute_agent.placement.allocations.allocations import INSTANCE, MIGRATION
from compute_agent.placement.allocations.amounts import Amounts, MutableAmounts, add, of_record
from compute_agent.placement.candidate_answers import PlannedMove
from compute_agent.programs.decoding import Whole
from compute_agent.scheduler.errors import MoveRefused
from compute_agent.scheduler.moves.move import Move, MoveKind
from compute_agent.scheduler.moves.mover import Mover
from compute_agent.scheduler.moves.repeated import begun_before
from compute_agent.scheduler.placement.candidates import Candidate
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding, WantedHolding
from compute_agent.state import documents
from compute_agent.state.files import write_atomically


class Exchange(Struct, frozen=True):
    """The exchange of all moves of a plan.

    :param keeper: the consumer that holds what the guests left.
    :param sources: by guest, what it held before.
    """

    client: PlacementClient
    keeper: str
    moves: Sequence[Mapping[str, Any]]
    sources: Mapping[str, Amounts]

    def claim(self) -> None:
        """Let all guests hold their places, if they do not yet.

        :raises AllocationMoveFailed: they do not fit any more; nothing is written.
        :raises MoveRefused: a guest holds neither its source nor its place.
        """
        holdings = self._holdings()
        held_amounts = {guest: holding.allocations for guest, holding in holdings.items()}
        if held_amounts == self._places:
            return
        if held_amounts != self.sources:
            raise MoveRefused(
                "Exchanging the places of "
                + ", ".join(g for g, n in held_amounts.items() if n != self.sources[g])
                + " was refused: they do not hold what they held when the plan was made."
            )
        self._write(holdings, self._places, self._left)

    def revert(self) -> None:
        """Let all guests hold their sources again.

        :raises AllocationMoveFailed: others changed what they hold; nothing is written.
        """
        self._write(self._holdings(), self.sources, {})

    def _holdings(self) -> dict[str, Holding]:
        return {guest: self.client.holding(guest) for guest in self.sources}

    @property
    def _places(self) -> dict[str, Amounts]:
        return {move["consumer"]: of_record(move) for move in self.moves}

    @property
    def _left(self) -> MutableAmounts:
        taken = add(*self._places.values())
        left: MutableAmounts = {}
        for provider, resources in add(*self.sources.values()).items():
            for name, amount in resources.items():
                if (more := amount - taken.get(provider, {}).get(name, 0)) > 0:
                    left.setdefault(provider, {})[name] = more
        return left

    def _write(
        self, holdings: Mapping[str, Holding], amounts: Mapping[str, Amounts], left: Amounts
    ) -> None:
        owner = next(iter(holdings.values())).record
        mappings = {move["consumer"]: move["mappings"] for move in self.moves}
        wanted_holdings = {
            guest: WantedHolding(
                holding,
                amounts[guest],
                INSTANCE,
                mappings=mappings[guest] if amounts is not self.sources else None,
            )
            for guest, holding in holdings.items()
        }
        keeper = self.client.holding(self.keeper)
        if left or keeper.allocations:
            project, user = (str(owner.get(name, "")) for name in ("project_id", "user_id"))
            wanted_holdings[self.keeper] = WantedHolding(keeper, left, MIGRATION, project, user)
        doing = f"Exchanging the places of {', '.join(holdings)}"
        self.client.write(doing, wanted_holdings, "Nothing was changed.")


class _CarriedMove(PlannedMove):
    migration: str


class _Progress(Struct, omit_defaults=True):
    """What the file has: the plan, and which of its moves are done.

    :param sources: what each guest held, and `keeper` who holds what they left, of a plan whose
        moves are made together.
    """

    moves: list[_CarriedMove]
    done: list[Whole]
    keeper: str = ""
    sources: Mapping[str, Mapping[str, Mapping[str, Whole]]] = {}


class CarriedPlan:
    """A plan in a file.

    :raises FileUnusable: the file cannot be read, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._progress = documents.parse(documents.read_file(path), _Progress)

    @classmethod
    def write(
        cls, path: Path, moves: Sequence[PlannedMove], sources: Mapping[str, Amounts] | None
    ) -> CarriedPlan:
        """Write the file of a plan of which nothing is done.

        :param sources: what each guest holds, of a plan whose moves are made together.
        """
        progress = _Progress([{**move, "migration": str(uuid.uuid4())} for move in moves], [])
        if sources is not None:
            progress.keeper, progress.sources = str(uuid.uuid4()), sources
        write_atomically(path, json.encode(progress), 0o600)
        return cls(path)

    def carry_out(
        self,
        client: PlacementClient,
        mover: Mover,
        move_guests: Callable[[Sequence[Mapping[str, Any]]], int],
        say: Callable[[str], None],
        at_once: int = 1,
    ) -> bool:
        """Make the moves that are not done; return whether all are done then.

        A guest that cannot be moved gets back what it held, and the plan ends there, after the
        moves that are running.

        :param move_guests: moves one, or all where they are moved together, and returns a status, 0
            when that is done. It is asked again for a move that was cut off, and in as many threads
            as there are moves at once.
        :param say: reports the progress.
        :raises AllocationMoveFailed: a step does not fit any more; nothing of it is written.
        :raises MoveRefused: the consumer holds something else than the plan knows.
        :raises PlacementError: what was not done can be gone on with.
        """
        if self._progress.sources:
            return self._carry_out_together(client, move_guests, say)
        moves = self._progress.moves
        waiting = [at for at in range(len(moves)) if at not in self._progress.done]
        mover.recover()
        # those that were cut off hold two places until they end
        waiting.sort(key=lambda at: _cut_off(client, moves[at]) is None)
        running: dict[Future[int], tuple[int, Move]] = {}
        is_going_on = True
        with ThreadPoolExecutor(at_once, "moves") as pool:
            while running or (waiting and is_going_on):
                while waiting and is_going_on and len(running) < at_once:
                    entry = moves[waiting[0]]
                    try:
                        begun_move = _begun(client, mover, entry)
                    except (AllocationMoveFailed, MoveRefused):
                        if not running:
                            raise
                        break
                    at = waiting.pop(0)
                    if begun_move is None:
                        self._record_done(at, say)
                    else:
                        say(f"{self._name(at)}: moving")
                        running[pool.submit(move_guests, [entry])] = at, begun_move
                for ended in wait(running, return_when=FIRST_COMPLETED).done:
                    at, begun_move = running.pop(ended)
                    is_going_on &= self._end(mover, at, begun_move, ended.result(), say)
        if is_going_on:
            self._path.unlink()
        return is_going_on

    def _carry_out_together(
        self,
        client: PlacementClient,
        move_guests: Callable[[Sequence[Mapping[str, Any]]], int],
        say: Callable[[str], None],
    ) -> bool:
        moves, name = self._progress.moves, f"all {len(self._progress.moves)} moves together"
        exchange = Exchange(client, self._progress.keeper, moves, self._progress.sources)
        if not self._progress.done:
            exchange.claim()
            say(f"{name}: moving")
            status = move_guests(moves)
            if status:
                try:
                    exchange.revert()
                except AllocationMoveFailed as error:
                    # not raised: there is no other plan while guests are not where they hold
                    say(f"{name}: failed with status {status}. {error} Repeat it.")
                else:
                    say(f"{name}: failed with status {status}, and hold what they held")
                return False
            for at in range(len(moves)):
                self._record_done(at, say)
        # what the guests left
        client.release(self._progress.keeper)
        self._path.unlink()
        return True

    def _end(
        self, mover: Mover, at: int, begun_move: Move, status: int, say: Callable[[str], None]
    ) -> bool:
        """End a move by the status of its command; return whether the guest is moved."""
        try:
            if status:
                mover.revert(begun_move)
                say(f"{self._name(at)}: failed with status {status}, and holds what it held")
                return False
            mover.finish(begun_move)
        except (AllocationMoveFailed, MoveRefused) as error:
            # not raised: others may be running
            say(f"{self._name(at)}: {error}")
            return False
        self._record_done(at, say)
        return True

    def _record_done(self, at: int, say: Callable[[str], None]) -> None:
        self._progress.done.append(at)
        write_atomically(self._path, json.encode(self._progress), 0o600)
        say(f"{self._name(at)}: done")

    def _name(self, at: int) -> str:
        moves = self._progress.moves
        return f"move {at + 1} of {len(moves)}, {moves[at]['consumer']}"


def _cut_off(client: PlacementClient, entry: Mapping[str, Any]) -> Move | None:
    """Return the move if its claim was made and it has not ended."""
    return begun_before(client, MoveKind.LIVE, entry["consumer"], entry["migration"])


def _begun(client: PlacementClient, mover: Mover, entry: Mapping[str, Any]) -> Move | None:
    """Return the move after its claim, be it an earlier one; None where it is over."""
    begun_move = _cut_off(client, entry)
    if begun_move is not None:
        return begun_move
    consumer = entry["consumer"]
    wanted = of_record(entry)
    if client.holding(consumer).allocations == wanted:
        return None
    mappings = {suffix: tuple(uuids) for suffix, uuids in entry["mappings"].items()}
    candidate = Candidate(entry["to"]["root"], wanted, mappings)
    return mover.begin_at(consumer, entry["migration"], candidate)
