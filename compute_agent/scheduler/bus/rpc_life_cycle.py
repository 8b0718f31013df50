"""Life cycle of instances on the message bus: the methods of `LifeCycle` as calls.

    claim(spec_obj, instance_uuid, return_alternates) -> Claim
    reschedule(spec_obj, instance_uuid, failed_hosts) -> Claim
    release(consumer_uuid) -> bool
    delete_instance(instance_uuid, migration_uuids) -> bool, local_delete(...) -> bool
    begin_move(kind, spec_obj, instance_uuid, migration_uuid, mappings, return_alternates,
               source_root) -> {"move": {...}, "selections": [Selection, ...]}
    finish_move(move), revert_move(move) -> mappings, source_returned(instance_uuid, source_root)
    attach_resources(spec_obj, instance_uuid, before) -> {"allocations", "mappings"}
    detach_resources(instance_uuid, allocations, before)
    explain(spec_obj) -> {"fits", "hosts", "causes"}

A Claim is {"instance", "claimed", "host", "root", "allocations", "mappings", "alternates"};
"claimed" is false while claims are left to agents that are too old. Every call may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from compute_agent.request.extra_specs import uuid_text
from compute_agent.request.spec_reader import Fields
from compute_agent.scheduler.assembly import SchedulerParts
from compute_agent.scheduler.bus.calls import (
    Context,
    answer_of,
    answering,
    is_versioned,
    spec_of,
)
from compute_agent.scheduler.life_cycle.life_cycle import LifeCycle
from compute_agent.scheduler.moves.move import move_kind, move_of
from compute_agent.scheduler.outcomes import Observer


class LifeCycleEndpoint:
    """What the bus can call to bring instances through their life.

    :param parts: returns what calls are answered with now.
    :param target: what the bus knows it by.
    """

    def __init__(
        self, parts: Callable[[], SchedulerParts], observer: Observer, target: Any
    ) -> None:
        self._parts = parts
        self._observer = observer
        self.target = target

    @property
    def _life_cycle(self) -> LifeCycle:
        return LifeCycle(self._parts())

    def claim(
        self, _ctxt: Context, spec_obj: Any, instance_uuid: str, return_alternates: bool = False
    ) -> dict[str, Any]:
        """Claim a host for an instance; see `LifeCycle.claim`."""
        with answering(self._observer, "claim", "for", instance_uuid):
            instance = uuid_text("instance_uuid", instance_uuid)
            claim = self._life_cycle.claim(
                spec_of(spec_obj), instance, alternates=return_alternates
            )
            return _plain(claim)

    def reschedule(
        self, _ctxt: Context, spec_obj: Any, instance_uuid: str, failed_hosts: Sequence[str]
    ) -> dict[str, Any]:
        """Give an instance another host; see `LifeCycle.reschedule`."""
        with answering(self._observer, "reschedule", "of", instance_uuid):
            instance = uuid_text("instance_uuid", instance_uuid)
            claim = self._life_cycle.reschedule(
                spec_of(spec_obj), instance, _names("failed_hosts", failed_hosts)
            )
            return _plain(claim)

    def release(self, _ctxt: Context, consumer_uuid: str) -> bool:
        """Release what a consumer holds; see `LifeCycle.release`."""
        with answering(self._observer, "release", "of", consumer_uuid):
            return self._life_cycle.release(uuid_text("consumer_uuid", consumer_uuid))

    def delete_instance(
        self, _ctxt: Context, instance_uuid: str, migration_uuids: Sequence[str] = ()
    ) -> bool:
        """Release what an instance held whose guest is gone; see `LifeCycle.delete`."""
        with answering(self._observer, "delete_instance", "of", instance_uuid):
            return self._life_cycle.delete(
                uuid_text("instance_uuid", instance_uuid), _uuids(migration_uuids)
            )

    def local_delete(
        self, _ctxt: Context, instance_uuid: str, migration_uuids: Sequence[str] = ()
    ) -> bool:
        """Release what an instance holds on a host that is away; see `LifeCycle.local_delete`."""
        with answering(self._observer, "local_delete", "of", instance_uuid):
            return self._life_cycle.local_delete(
                uuid_text("instance_uuid", instance_uuid), _uuids(migration_uuids)
            )

    def begin_move(
        self,
        _ctxt: Context,
        kind: str,
        spec_obj: Any,
        instance_uuid: str,
        migration_uuid: str = "",
        mappings: Mapping[str, Sequence[str]] | None = None,
        return_alternates: bool = False,
        source_root: str = "",
    ) -> dict[str, Any]:
        """Claim the destination of a move; see `LifeCycle.begin_move`."""
        with answering(self._observer, "begin_move", "of", instance_uuid):
            begun_move = self._life_cycle.begin_move(
                move_kind(kind),
                spec_of(spec_obj),
                uuid_text("instance_uuid", instance_uuid),
                uuid_text("migration_uuid", migration_uuid) if migration_uuid else "",
                source_root=uuid_text("source_root", source_root) if source_root else "",
                mappings=Fields({"mappings": mappings or {}}).lists("mappings"),
                alternates=return_alternates,
            )
        versioned = is_versioned(spec_obj)
        return {
            "move": to_builtins(begun_move.move),
            "selections": [
                answer_of(selection, is_versioned=versioned) for selection in begun_move.selections
            ],
        }

    def finish_move(self, _ctxt: Context, move: Mapping[str, Any]) -> None:
        """Confirm a move; see `LifeCycle.confirm_move`."""
        with answering(self._observer, "finish_move"):
            self._life_cycle.confirm_move(move_of(move))

    def revert_move(self, _ctxt: Context, move: Mapping[str, Any]) -> dict[str, Any]:
        """Undo a move and return the mappings of the source; see `LifeCycle.revert_move`."""
        with answering(self._observer, "revert_move"):
            mappings = self._life_cycle.revert_move(move_of(move))
        return {suffix: list(uuids) for suffix, uuids in mappings.items()}

    def source_returned(self, _ctxt: Context, instance_uuid: str, source_root: str) -> None:
        """Release an evacuated instance's old host; see `LifeCycle.source_returned`."""
        with answering(self._observer, "source_returned", "for", instance_uuid):
            self._life_cycle.source_returned(
                uuid_text("instance_uuid", instance_uuid), uuid_text("source_root", source_root)
            )

    def attach_resources(
        self,
        _ctxt: Context,
        spec_obj: Any,
        instance_uuid: str,
        before: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Add a port or accelerator to what an instance holds; see `LifeCycle.attach`."""
        with answering(self._observer, "attach_resources", "to", instance_uuid):
            instance = uuid_text("instance_uuid", instance_uuid)
            held_amounts = None if before is None else Fields(before, "before").amounts()
            return _plain(self._life_cycle.attach(spec_of(spec_obj), instance, held_amounts))

    def detach_resources(
        self,
        _ctxt: Context,
        instance_uuid: str,
        allocations: Mapping[str, Any],
        before: Mapping[str, Any] | None = None,
    ) -> None:
        """Take what was attached from an instance; see `LifeCycle.detach`."""
        with answering(self._observer, "detach_resources", "from", instance_uuid):
            self._life_cycle.detach(
                uuid_text("instance_uuid", instance_uuid),
                Fields(allocations, "allocations").amounts(),
                None if before is None else Fields(before, "before").amounts(),
            )

    def explain(self, _ctxt: Context, spec_obj: Any) -> dict[str, Any]:
        """Return where a request fits, or why it does not; see `Explainer.explain`."""
        with answering(self._observer, "explain"):
            return self._life_cycle.explain(spec_of(spec_obj)).as_dict()


def _plain(value: Struct) -> dict[str, Any]:
    fields: dict[str, Any] = to_builtins(value)
    return fields


def _uuids(uuids: Sequence[str]) -> list[str]:
    return [uuid_text("migration_uuids", uuid) for uuid in _names("migration_uuids", uuids)]


def _names(field: str, names: Sequence[str]) -> list[str]:
    return [str(name) for name in Fields({field: names}).list(field)]
