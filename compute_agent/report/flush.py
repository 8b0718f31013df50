"""Execution of a plan: placement is updated to the wanted tree, provider by provider.

A failure of one provider does not stop the others; failures are collected and raised at the end.
An outage of placement or wrong credentials end the flush at once.  Every write that
succeeded is in the live tree immediately, so a repetition does only the rest.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct, field

from compute_agent import errors
from compute_agent.placement.providers import Providers
from compute_agent.placement.traits_and_classes import Names
from compute_agent.placement.transports.request_pool import RequestPool
from compute_agent.programs.kept_values import LastingConditions
from compute_agent.provider_tree import ProviderTree
from compute_agent.report.plan import order_inventories, stages
from compute_agent.report.provider_writes import ProviderWrites
from compute_agent.report.reshape import Reshaper
from compute_agent.report.steps import (
    CreateProvider,
    DeleteProvider,
    EnsureResourceClass,
    EnsureTraits,
    KeepProvider,
    PutProvider,
    Reshape,
    SetAggregates,
    SetInventories,
    SetInventory,
    SetTraits,
    Step,
)

LOG = logging.getLogger(__name__)

NO_SUCH_CLASS: Final = r"No such resource class ([A-Z0-9_]+(?:, [A-Z0-9_]+)*)"

MANY_INTERNAL_ERRORS: Final = 3
"""So many answers 500 in one flush are an outage, not a fault of one provider."""

ASPECT_OF: Final[Mapping[type, str]] = {
    EnsureTraits: "traits",
    EnsureResourceClass: "inventories",
    CreateProvider: "create",
    PutProvider: "rename",
    SetInventory: "inventories",
    SetInventories: "inventories",
    SetAggregates: "aggregates",
    SetTraits: "traits",
    DeleteProvider: "delete",
}


class KeptProvider(Struct, frozen=True):
    """A provider that is no longer wanted but stays, with the reason."""

    uuid: str
    name: str
    reason: str


class FlushReport(Struct):
    """The result of a flush.

    `steps`: its plan.  `created_uuids`: providers that this agent owns from now on.
    """

    steps: tuple[Step, ...] = ()
    created_uuids: list[str] = []
    kept_providers: list[KeptProvider] = []


class Flush(Struct, eq=False):
    """One execution of one plan.

    :ivar live: the tree as last known from placement; updated with every write.
    :ivar report: filled in, also by a flush that fails.
    """

    root_uuid: str
    live: ProviderTree
    providers: Providers
    names: Names
    writes: ProviderWrites
    reshaper: Reshaper
    workers: RequestPool
    report: FlushReport
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _failures: list[errors.SyncFailure] = []
    _new_uuids: set[str] = set()
    _lost_uuids: set[str] = set()
    _unready: set[str] = set()
    _doomed_uuids: set[str] = set()
    _internal_errors: int = 0

    def run(self, steps: Sequence[Step]) -> None:
        """Carry out `steps`.

        :raises errors.PlacementUnavailable: placement cannot answer; earlier writes stay.
        :raises errors.PlacementUnauthorized: likewise.
        :raises errors.ResourceProviderUpdateConflict: a provider disappeared meanwhile; the pass
            has to start again.
        :raises errors.PlacementReshapeConflict: another writer changed what the reshape moves.
        :raises errors.ReshapeFailed: the reshape was refused.
        :raises errors.ResourceProviderSyncFailed: everything else, collected.
        """
        self.report.steps = tuple(steps)
        self._doomed_uuids = {o.uuid for o in steps if isinstance(o, DeleteProvider)}
        for stage in stages(steps):
            if isinstance(stage[0], Reshape):
                if self._failures:
                    # Nothing has moved yet, and the reshape may need what failed.
                    break
                self._reshape(stage[0])
            else:
                self._run_stage(stage)
        self._raise_failures()

    # -- stages ------------------------------------------------------------------------------

    def _run_stage(self, stage: Sequence[Step]) -> None:
        ready_steps = [step for step in stage if not self._is_blocked(step)]
        tasks = [partial(self._execute, step) for step in ready_steps]
        outcomes = self.workers.outcomes(tasks, self._ends_flush)
        for step, outcome in zip(ready_steps, outcomes, strict=True):
            if isinstance(outcome, errors.ComputeAgentError):
                self._record_failure(step, outcome)

    def _is_blocked(self, step: Step) -> bool:
        """Return whether an earlier step that it needs failed, which is reported already."""
        match step:
            case CreateProvider(uuid, _, parent_uuid):
                if parent_uuid in self._lost_uuids:
                    self._lost_uuids.add(uuid)
                    return True
                return False
            case PutProvider(uuid, _, _, _, parent_uuid):
                return not self._lost_uuids.isdisjoint({uuid, parent_uuid})
            case SetAggregates(uuid) | SetTraits(uuid):
                return uuid in self._lost_uuids
            case SetInventory(uuid):
                return uuid in self._lost_uuids or uuid in self._unready
            case _:
                return False

    def _record_failure(self, step: Step, error: errors.ComputeAgentError) -> None:
        uuid = getattr(step, "uuid", self.root_uuid)
        name = getattr(step, "name", None) or (
            self.live.data(uuid).name if self.live.exists(uuid) else uuid
        )
        aspect = ASPECT_OF[type(step)]
        if isinstance(step, PutProvider) and step.reparents:
            aspect = "reparent"
        self._failures.append(errors.SyncFailure(uuid, name, aspect, error))
        if isinstance(step, CreateProvider) or isinstance(error, errors.ResourceProviderNotFound):
            self._lost_uuids.add(uuid)
        elif uuid in self._new_uuids and isinstance(step, SetTraits | SetAggregates):
            # Its capacity must not be seen without them.
            self._unready.add(uuid)

    def _raise_failures(self) -> None:
        if not self._failures:
            return
        failures = [failure.error for failure in self._failures]
        not_found = [e for e in failures if isinstance(e, errors.ResourceProviderNotFound)]
        outages = [e for e in failures if isinstance(e, errors.PlacementUnavailable)]
        if len(not_found) + len(outages) < len(failures):
            raise errors.ResourceProviderSyncFailed(self._failures)
        if outages:
            raise outages[0]
        raise errors.ResourceProviderUpdateConflict(
            f"a provider is gone from placement, the pass has to begin again: {not_found[0]}"
        ) from not_found[0]

    def _ends_flush(self, error: errors.ComputeAgentError) -> bool:
        """Return whether other steps would fail too; a 500 may concern one provider only."""
        match error:
            case errors.PlacementUnauthorized():
                return True
            case errors.PlacementUnavailable():
                with self._lock:
                    self._internal_errors += 1
                return error.status != 500 or self._internal_errors >= MANY_INTERNAL_ERRORS
            case _:
                return False

    # -- steps --------------------------------------------------------------------------

    def _execute(self, step: Step) -> None:
        match step:
            case EnsureTraits(traits):
                self.names.ensure_traits(traits)
            case EnsureResourceClass(resource_class):
                self.names.ensure_class(resource_class)
            case CreateProvider():
                self._create(step)
            case PutProvider(uuid, _, name, _, parent_uuid):
                self.providers.put(uuid, name, parent_uuid, reparents=step.reparents)
                self.live.move(uuid, parent_uuid)
                self.live.rename(uuid, name)
            case SetInventory():
                self._set_inventory(step)
            case SetInventories(changes):
                self._set_inventories(changes)
            case SetAggregates():
                self.writes.set_aggregates(step)
            case SetTraits():
                self._set_traits(step)
            case DeleteProvider(uuid, name):
                self._delete(uuid, name)
            case KeepProvider(uuid, name):
                self._keep(uuid, name, "it is not this agent's to delete")

    def _reshape(self, step: Reshape) -> None:
        """Reshape; any failure ends the flush, since all that follows needs the new layout."""

        def attempt() -> None:
            self.reshaper.reshape(self.live, self._ready(step.changes), step.allocations)

        try:
            try:
                attempt()
            except errors.ReshapeFailed as exc:
                if exc.status != 400 or not self._learns_classes(exc.detail):
                    raise
                attempt()
        except errors.ResourceProviderNotFound as exc:
            raise errors.ResourceProviderUpdateConflict(
                f"a provider is gone from placement, the reshape has to begin again: {exc}"
            ) from exc

    def _create(self, step: CreateProvider) -> None:
        uuid, name, parent_uuid = step.uuid, step.name, step.parent_uuid
        new_provider = self.providers.create(uuid, name, parent_uuid)
        with self._lock:
            self._new_uuids.add(uuid)
            self.report.created_uuids.append(uuid)
        if parent_uuid is None:
            self.live.new_root(name, uuid, new_provider.generation)
        else:
            self.live.new_child(name, parent_uuid, uuid, new_provider.generation)
        if not new_provider.content:
            self.live.mark_stale(uuid)

    def _set_inventory(self, step: SetInventory) -> None:
        try:
            self.writes.set_inventory(step)
        except errors.InventoryInUse:
            if step.uuid not in self._doomed_uuids:
                raise
            self.writes.retire(step.uuid, step.name)
        except errors.InvalidInventory as exc:
            if not self._learns_classes(exc.detail):
                raise
            self.writes.set_inventory(step)

    def _learns_classes(self, detail: str) -> bool:
        """Create classes that placement lacks, or leave them out from now on.

        :param detail: of a refusal; when it names no classes, false is returned.
        """
        unknown_classes = re.search(NO_SUCH_CLASS, detail)
        if unknown_classes is None:
            return False
        for resource_class in unknown_classes[1].split(", "):
            self.names.ensure_class(resource_class, again=True)
        return True

    def _set_inventories(self, changes: Sequence[SetInventory]) -> None:
        ready_changes = self._ready(changes)
        if not self.reshaper.set_inventories(self.live, ready_changes):
            for stage in stages(order_inventories(ready_changes)):
                self._run_stage(stage)

    def _ready(self, changes: Iterable[SetInventory]) -> list[SetInventory]:
        return [
            SetInventory(c.uuid, c.name, c.before, self.names.accepted_inventory(c.after))
            for c in changes
            if not self._is_blocked(c)
        ]

    def _set_traits(self, step: SetTraits) -> None:
        try:
            self.writes.set_traits(step)
        except errors.TraitCreationFailed as exc:
            if exc.status != 400:
                raise
            self.names.ensure_traits(step.after, again=True)
            self.writes.set_traits(step)

    def _delete(self, uuid: str, name: str) -> None:
        try:
            self.providers.delete(uuid, name)
        except errors.ResourceProviderInUse as exc:
            if self.live.exists(uuid):
                self.writes.retire(uuid, name)
            self._keep(uuid, name, f"it is in use: {exc.detail}")
            return
        if self.live.exists(uuid):
            self.live.remove(uuid)

    def _keep(self, uuid: str, name: str, reason: str) -> None:
        with self._lock:
            self.report.kept_providers.append(KeptProvider(uuid, name, reason))


def log_kept(report: FlushReport, conditions: LastingConditions) -> None:
    """Log the providers that a flush kept, each once while it is, and forget those now deleted."""
    deleted_uuids = {step.uuid for step in report.steps if isinstance(step, DeleteProvider)}
    for uuid in deleted_uuids - {kept.uuid for kept in report.kept_providers}:
        conditions.is_over(uuid)
    for kept in report.kept_providers:
        if conditions.is_new(kept.uuid, kept.reason):
            LOG.warning("Provider %s (%s) is not deleted: %s", kept.name, kept.uuid, kept.reason)
