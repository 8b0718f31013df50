"""Moves of instances between hosts: begun, confirmed, reverted, and finished after a crash.

    step     writes                                                     undone or finished by
    claim    the instance gets the destination, the migration what the  giving it back
             instance held on the source
    confirm  the migration's allocations are released                   releasing them
    revert   the instance gets back all it had, the migration nothing   giving it back
    return   the source's part of an evacuated instance goes            taking it away

The instance goes from source to destination in one request: were it to hold nothing in between, it
would start again with its generation, and a writer who read it before could overwrite it unnoticed.
Each step is one atomic request, and before it is sent the journal has a line with how to go
on. So whatever fails, and wherever, what the consumers hold is the state before a step or the one
after it, and `Mover.recover` leads from either to an end of the move.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.errors import PlacementError, PlacementUnavailable
from compute_agent.placement.allocations.allocations import INSTANCE
from compute_agent.request.candidate_request import PLAIN_MICROVERSION
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.errors import MoveRefused
from compute_agent.scheduler.manager import Scheduler, Selection
from compute_agent.scheduler.moves.claims import MoveClaims, Progress
from compute_agent.scheduler.moves.move import Move, MoveKind
from compute_agent.scheduler.moves.steps import (
    MoveStep,
    Step,
    carry_out,
    raise_refusal,
    undo_begin,
    wanted_of,
)
from compute_agent.scheduler.outcomes import MoveState, Observer
from compute_agent.scheduler.placement.candidates import Candidate
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.placement.holdings import Holding
from compute_agent.scheduler.search.targets import root_of

LOG = logging.getLogger(__name__)


class MoveStart(Struct, frozen=True):
    """A move that was begun, and the hosts for it: the first is claimed, the others are not."""

    move: Move
    selections: tuple[Selection, ...]


class Mover:
    """Drives the allocations of moves.  Safe in several threads and processes on one journal."""

    def __init__(
        self,
        placement: PlacementClient,
        scheduler: Scheduler,
        journal: Journal,
        observer: Observer | None = None,
    ) -> None:
        self._observer = observer or Observer()
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
    ) -> MoveStart:
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

        def claim(progress: Progress) -> MoveStart:
            move, own_spec = progress.move, replace(spec, instance=instance)
            if kind is not MoveKind.COLD:
                names = self._placement.provider_names([move.source_root]).values()
                own_spec = replace(own_spec, ignore_hosts=own_spec.ignore_hosts | set(names))
            claims = MoveClaims(self._placement, progress)
            [selections] = self._scheduler.select_destinations(
                own_spec, [instance], alternates=alternates, claims=claims
            )
            return MoveStart(progress.move, tuple(selections))

        return self._begun(kind, instance, migration, mappings or {}, claim)

    def begin_at(self, instance: str, migration: str, candidate: Candidate) -> Move:
        """Claim a known destination for a live migration; see `begin`.

        :raises AllocationMoveFailed: it does not fit there any more.
        """

        def claim(progress: Progress) -> MoveStart:
            claims = MoveClaims(self._placement, progress)
            spec = RequestSpec(progress.move.project_id, progress.move.user_id)
            refusal = claims.claim(instance, candidate, spec, PLAIN_MICROVERSION)
            raise_refusal(progress.move, refusal)
            return MoveStart(progress.move, ())

        return self._begun(MoveKind.LIVE, instance, migration, {}, claim).move

    def _begun(
        self,
        kind: MoveKind,
        instance: str,
        migration: str,
        mappings: Mapping[str, Sequence[str]],
        begin: Callable[[Progress], MoveStart],
    ) -> MoveStart:
        self.recover()
        holding = self._placement.holding(instance)
        move = self._prepare(kind, instance, holding, migration, mappings)
        with self._journal.begin(MoveStep.of(move, "claim")) as line:
            progress = Progress(self._placement, self._journal, line, move, holding)
            try:
                begun_move = begin(progress)
            except BaseException:
                self._undo(progress)
                self._observer.on_move(kind, MoveState.NOT_BEGUN)
                raise
            self._journal.close(line)
        self._observer.on_move(kind, MoveState.BEGUN)
        return begun_move

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
        self._observer.on_move(move.kind, MoveState.CONFIRMED)

    def revert(self, move: Move) -> Mapping[str, tuple[str, ...]]:
        """Give an instance back just what it held when its move began; return its mappings.

        Reverting again changes nothing.

        :raises MoveRefused: the move was confirmed, or the source's part was taken away.
        :raises PlacementError: it is done as soon as placement answers.
        """
        self.recover()
        self._carried_out(move, "revert")
        self._observer.on_move(move.kind, MoveState.REVERTED)
        return move.mappings

    def source_returned(self, instance: str, source_root: str) -> None:
        """Take from an evacuated instance what it holds on its old host, which is back.

        :raises MoveRefused: it holds nothing on any other host.
        :raises PlacementError: it is done as soon as placement answers.
        """
        self.recover()
        # what it holds elsewhere is read when it is written
        move = Move(
            kind=MoveKind.EVACUATE,
            instance=instance,
            migration="",
            source_root=source_root,
            source={},
            mappings={},
            destination_root="",
            destination={},
            left_amounts={},
            project_id="",
            user_id="",
        )
        self._carried_out(move, "return")
        self._observer.on_move(move.kind, MoveState.SOURCE_RETURNED)

    def recover(self) -> None:
        """Finish or undo what the journal still has, of this process and of those that died.

        What cannot be done because placement does not answer stays in the journal.
        """
        for identity in self._journal.entries_of(MoveStep):
            with self._journal.taken_over(identity, MoveStep) as move:
                if move is None:
                    continue
                try:
                    carry_out(self._placement, move, move.step, move.known_generation)
                except PlacementUnavailable as error:
                    LOG.warning(
                        "The journal of moves is processed with the next request: %s", error
                    )
                    return
                except PlacementError as error:
                    LOG.warning(
                        "The move of %s stays in the journal until the next request: %s",
                        move.instance,
                        error,
                    )
                    continue
                except MoveRefused as error:
                    LOG.warning(
                        "The move of %s is removed from the journal, since others have changed "
                        "its consumers: %s",
                        move.instance,
                        error,
                    )
                else:
                    LOG.info("Step %s of the move of %s was completed", move.step, move.instance)
                    self._observer.on_move(move.kind, MoveState.RECOVERED)
                self._journal.close(identity)

    # -- beginning ---------------------------------------------------------------------------

    def _prepare(
        self,
        kind: MoveKind,
        instance: str,
        holding: Holding,
        migration: str,
        mappings: Mapping[str, Sequence[str]],
    ) -> Move:
        if (kind is MoveKind.EVACUATE) is bool(migration):
            raise MoveRefused(
                f"Moving {instance} was refused: a cold or live move needs the uuid of its "
                f"migration and an evacuation has none, {migration or 'none'} was given."
            )
        if not holding.allocations:
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
            source_root=root_of(self._placement, instance, holding),
            source=holding.allocations,
            mappings={suffix: tuple(uuids) for suffix, uuids in mappings.items()},
            destination_root="",
            destination={},
            left_amounts={},
            project_id=str(holding.record.get("project_id", "")),
            user_id=str(holding.record.get("user_id", "")),
        )

    def _undo(self, progress: Progress) -> None:
        """Give back after a failed begin; the failure itself goes on to the caller."""
        move = progress.move
        try:
            if progress.wrote:
                undo_begin(self._placement, move)
        except PlacementError as error:
            LOG.warning(
                "The move of %s did not begin, and its claim could not be undone (%s); it is "
                "recorded in %s and undone before the next move",
                move.instance,
                error,
                self._journal.path,
            )
            return
        except MoveRefused as error:
            LOG.warning("Nothing of the move of %s is left to undo: %s", move.instance, error)
        self._journal.close(progress.line)

    def acknowledge(self, move: Move) -> None:
        """Go on with a move that another scheduler began, which will not undo it any more.

        :raises MoveRefused: the instance no longer holds the destination.
        :raises AllocationMoveFailed: another writer changed what it holds.
        """
        holding = self._placement.holding(move.instance)
        if holding.allocations != move.destination:
            raise MoveRefused(
                f"Continuing the move of {move.instance} was refused: it does not hold the "
                "destination any more. Begin the move again."
            )
        wanted_holdings = {move.instance: wanted_of(move, holding, move.destination, INSTANCE)}
        raise_refusal(move, self._placement.exchange(wanted_holdings))

    # -- ending ------------------------------------------------------------------------------

    def _carried_out(self, move: Move, step: Step) -> None:
        generation = None
        # a journal that is found again after the instance went on must not repeat the step
        with suppress(PlacementUnavailable):
            generation = self._placement.holding(move.instance).generation
        with self._journal.begin(MoveStep.of(move, step, generation)) as line:
            try:
                carry_out(self._placement, move, step)
            except MoveRefused:
                self._journal.close(line)
                raise
            self._journal.close(line)
