"""Moves of instances between hosts: begun, confirmed, reverted, and finished after a crash.

    step        writes                                                 undone or finished by
    hand_over   all that the instance holds goes to the migration      giving it back
    claim       the instance gets the destination                      giving it back
    confirm     the migration's allocations are released               releasing them
    revert      the instance gets back all it had, the migration none  giving it back
    return      the source's part of an evacuated instance goes        taking it away

Each step is one atomic request, and before it is sent the journal has a line that says how to go
on. So whatever fails, and wherever, what the consumers hold is the state before a step or the one
after it, and `Mover.recover` leads from either to an end of the move.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compute_agent.errors import AllocationMoveFailed, PlacementError, PlacementUnavailable
from compute_agent.scheduler.answer import Candidate
from compute_agent.scheduler.carried import Carried
from compute_agent.scheduler.errors import MoveRefused
from compute_agent.scheduler.journal import Journal
from compute_agent.scheduler.manager import Scheduler
from compute_agent.scheduler.move import (
    Move,
    MoveKind,
    both_places,
    holds_all,
    left_on_source,
    move_of,
)
from compute_agent.scheduler.placement_port import (
    Holding,
    Microversion,
    Placement,
    Shortage,
    Wanted,
)
from compute_agent.scheduler.selection import Selection
from compute_agent.scheduler.spec import RequestSpec
from compute_agent.scheduler.whereabouts import root_of

LOG = logging.getLogger(__name__)

OP = "move"
INSTANCE = "INSTANCE"
MIGRATION = "MIGRATION"


@dataclass(frozen=True, slots=True)
class Begun:
    """A move that was begun, and the hosts for it: the first is claimed, the others are not."""

    move: Move
    selections: tuple[Selection, ...]


class Mover:
    """Drives the allocations of moves.  Safe in several threads and processes on one journal."""

    def __init__(self, placement: Placement, scheduler: Scheduler, journal: Journal) -> None:
        self._placement = placement
        self._scheduler = scheduler
        self._journal = journal

    def begin(
        self,
        kind: MoveKind,
        spec: RequestSpec,
        instance: str,
        migration: str = "",
        *,
        mappings: Mapping[str, Sequence[str]] | None = None,
        alternates: bool = False,
    ) -> Begun:
        """Claim a destination for an instance and keep what it holds on its source.

        :param spec: what it needs at the destination. A live migration or evacuation never stays
            on the source; a cold one may, unless `spec` says to ignore that host.
        :param migration: consumer that holds the source meanwhile; not for an evacuation.
        :param mappings: group to providers of the claim that the instance holds now.
        :raises MoveRefused: the consumers hold something else than a move begins with.
        :raises NoValidHost: there is no destination; the instance holds its source as before.
        :raises PlacementError: the instance holds its source as before, or does so again as soon
            as placement answers.
        """
        self.recover()
        move = self._prepared(kind, instance, migration, mappings or {})
        with self._journal.begun(_entry(move, "hand_over")) as line:
            try:
                begun = self._begin(move, spec, line, alternates=alternates)
            except BaseException:
                self._undo(move, line)
                raise
            self._journal.close(line)
        return begun

    def finish(self, move: Move) -> None:
        """Confirm a move: the source's allocations are released.

        An evacuated instance keeps them until its source is back, see `source_returned`.

        :raises MoveRefused: the instance holds nothing: its move is to be reverted, not confirmed.
        :raises PlacementError: it is done as soon as placement answers.
        """
        self.recover()
        if move.kind is MoveKind.EVACUATE:
            return
        if not self._placement.holding(move.instance).allocations:
            raise MoveRefused(
                f"Confirming the move of {move.instance} was refused: it holds nothing at its "
                "destination. Revert the move, or release both consumers if it was deleted."
            )
        self._carried_out(move, "confirm")

    def revert(self, move: Move) -> Mapping[str, tuple[str, ...]]:
        """Give an instance back just what it held when its move began; return its mappings.

        Reverting again changes nothing.

        :raises MoveRefused: the move was confirmed, or the source's part was taken away.
        :raises PlacementError: it is done as soon as placement answers.
        """
        self.recover()
        self._carried_out(move, "revert")
        return move.mappings

    def source_returned(self, instance: str, source_root: str) -> None:
        """Take from an evacuated instance what it holds on its old host, which is back.

        :raises MoveRefused: it holds nothing on any other host.
        :raises PlacementError: it is done as soon as placement answers.
        """
        self.recover()
        move = Move(MoveKind.EVACUATE, instance, "", source_root, {})
        self._carried_out(move, "return")

    def recover(self) -> None:
        """Finish or undo what the journal still has, of this process and of those that died.

        What cannot be done because placement does not answer stays in the journal.
        """
        for identity, entry in self._journal.entries().items():
            if entry.get("op") != OP:
                continue
            with self._journal.taken_over(identity) as still_open:
                if still_open is None:
                    continue
                move, step = move_of(still_open), still_open["step"]
                try:
                    self._do(move, step)
                except PlacementUnavailable as error:
                    LOG.warning("The journal of moves is worked off later: %s", error)
                    return
                except PlacementError as error:
                    LOG.warning("The move of %s stays in the journal: %s", move.instance, error)
                    continue
                except MoveRefused as error:
                    LOG.warning(
                        "The move of %s is taken out of the journal, somebody else dealt with it: "
                        "%s",
                        move.instance,
                        error,
                    )
                else:
                    LOG.info("Step %s of the move of %s was completed", step, move.instance)
                self._journal.close(identity)

    # -- beginning ---------------------------------------------------------------------------

    def _prepared(
        self,
        kind: MoveKind,
        instance: str,
        migration: str,
        mappings: Mapping[str, Sequence[str]],
    ) -> Move:
        if (kind is MoveKind.EVACUATE) is bool(migration):
            raise MoveRefused(
                f"Moving {instance} was refused: a cold or live move needs the uuid of its "
                f"migration and an evacuation has none, {migration or 'none'} was given."
            )
        held = self._placement.holding(instance)
        if not held.allocations:
            raise MoveRefused(
                f"Moving {instance} was refused: it holds nothing that could be moved. Claim for "
                "it first; if a move of it was begun before, revert that one."
            )
        if migration and self._placement.holding(migration).allocations:
            raise MoveRefused(
                f"Moving {instance} was refused: migration {migration} holds allocations already. "
                "Confirm or revert the move that it belongs to."
            )
        return Move(
            kind=kind,
            instance=instance,
            migration=migration,
            source_root=root_of(self._placement, instance, held),
            source=held.allocations,
            mappings={suffix: tuple(uuids) for suffix, uuids in mappings.items()},
            project_id=str(held.record.get("project_id", "")),
            user_id=str(held.record.get("user_id", "")),
        )

    def _begin(self, move: Move, spec: RequestSpec, line: str, *, alternates: bool) -> Begun:
        if move.kind is not MoveKind.COLD:
            names = self._placement.provider_names([move.source_root])
            spec = replace(spec, ignore_hosts=spec.ignore_hosts | set(names.values()))
        if move.migration:
            self._hand_over(move)

        def trying(root: str) -> None:
            self._journal.update(line, _entry(replace(move, destination_root=root), "claim"))

        claims = _MoveClaims(self._placement, move, trying)
        [selections] = self._scheduler.select_destinations(
            spec, [move.instance], alternates=alternates, claims=claims
        )
        root = selections[0].compute_node_uuid
        return Begun(replace(move, destination_root=root), tuple(selections))

    def _hand_over(self, move: Move) -> None:
        held = self._placement.holding(move.instance)
        if held.allocations != move.source:
            raise MoveRefused(f"Moving {move.instance} was refused: its allocations just changed.")
        self._exchange(
            move,
            {
                move.instance: _wanted(move, held, {}, INSTANCE),
                move.migration: _wanted(
                    move, self._placement.holding(move.migration), move.source, MIGRATION
                ),
            },
        )

    def _undo(self, move: Move, line: str) -> None:
        """Give back after a failed begin; the failure itself goes on to the caller."""
        try:
            self._restore(move)
        except PlacementError as error:
            LOG.warning(
                "The source of %s could not be given back (%s); it is in %s and given back with "
                "the next move",
                move.instance,
                error,
                self._journal.path,
            )
            return
        except MoveRefused as error:
            LOG.warning("Nothing of the move of %s is left to undo: %s", move.instance, error)
        self._journal.close(line)

    # -- ending ------------------------------------------------------------------------------

    def _carried_out(self, move: Move, step: str) -> None:
        with self._journal.begun(_entry(move, step)) as line:
            try:
                self._do(move, step)
            except MoveRefused:
                self._journal.close(line)
                raise
            self._journal.close(line)

    def _do(self, move: Move, step: str) -> None:
        if step == "confirm":
            self._placement.release(move.migration)
        elif step == "return":
            self._take_away_source(move)
        else:
            self._restore(move)

    def _restore(self, move: Move) -> None:
        held = self._placement.holding(move.instance)
        kept = self._placement.holding(move.migration) if move.migration else Holding({}, {})
        if held.allocations == move.source and not kept.allocations:
            return
        if move.migration:
            if not kept.allocations:
                raise MoveRefused(
                    f"Reverting the move of {move.instance} was refused: migration "
                    f"{move.migration} holds nothing, so the move was confirmed or never begun."
                )
        elif not holds_all(held.allocations, move.source):
            raise MoveRefused(
                f"Reverting the evacuation of {move.instance} was refused: it does not hold its "
                f"source {move.source_root} any more."
            )
        wanted = {move.instance: _wanted(move, held, move.source, INSTANCE)}
        if move.migration:
            wanted[move.migration] = _wanted(move, kept, {}, MIGRATION)
        self._exchange(move, wanted)

    def _take_away_source(self, move: Move) -> None:
        held = self._placement.holding(move.instance)
        source = set(self._placement.tree(move.source_root))
        if not source & set(held.allocations):
            return
        left = {uuid: n for uuid, n in held.allocations.items() if uuid not in source}
        if not set(left) - self._placement.sharing(tuple(left)):
            raise MoveRefused(
                f"Taking the source {move.source_root} from {move.instance} was refused: it is on "
                "no other host."
            )
        self._exchange(move, {move.instance: _wanted(move, held, left, INSTANCE)})

    def _exchange(self, move: Move, wanted: Mapping[str, Wanted]) -> None:
        lacking = self._placement.exchange(wanted)
        if lacking is not None:
            raise AllocationMoveFailed(
                f"Writing the allocations of {move.instance} was refused: provider "
                f"{lacking.provider} has too little {lacking.resource_class} for what it held "
                "there. Was its inventory reduced below what is in use?"
            )


class _MoveClaims:
    """Claims the destination of a move, for an instance whose source somebody holds."""

    def __init__(self, placement: Placement, move: Move, trying: Callable[[str], None]) -> None:
        self._placement = placement
        self._move = move
        self._trying = trying
        self._held = placement.holding(move.instance)
        self._kept = placement.holding(move.migration) if move.migration else Holding({}, {})
        self._sharing = placement.sharing(tuple(move.source))
        self.carried = Carried(
            {pool: move.source[pool] for pool in self._sharing},
            {pool: placement.aggregates(pool) for pool in self._sharing},
        )

    def claim(
        self,
        instance: str,
        candidate: Candidate,
        spec: RequestSpec,  # noqa: ARG002 - part of the protocol; owners are those of the source
        microversion: Microversion,  # noqa: ARG002 - likewise; several consumers need their own
    ) -> Shortage | None:
        """See `Claims`."""
        self._trying(candidate.root)
        move, there = self._move, candidate.allocations
        if not move.migration:
            there = both_places(self._held.allocations, there, self._sharing)
        wanted = {
            instance: replace(
                _wanted(move, self._held, there, INSTANCE), mappings=candidate.mappings
            )
        }
        if move.migration:
            left = left_on_source(move.source, there, self._sharing)
            wanted[move.migration] = _wanted(move, self._kept, left, MIGRATION)
        return self._placement.exchange(wanted)

    def give_back(self, held: Mapping[str, Candidate]) -> None:
        """Leave it to the move, which knows what its consumers held before."""
        LOG.debug("The claims of %s are undone with the move", ", ".join(held) or "nobody")


def _wanted(
    move: Move, holding: Holding, allocations: Mapping[str, Mapping[str, int]], kind: str
) -> Wanted:
    return Wanted(holding, allocations, kind, move.project_id, move.user_id)


def _entry(move: Move, step: str) -> dict[str, Any]:
    return {"op": OP, "step": step, **move.as_dict()}
