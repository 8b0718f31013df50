"""Guests that exist only in memory, complete enough for claims, moves and audits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from compute_agent import errors
from compute_agent.virt.driver import InstanceDevices


class GuestFailure(errors.ComputeAgentError):
    """A hypervisor could not do what was asked with a guest."""


class BuildAborted(GuestFailure):
    """The build failed in a way that no other host would do better."""


class GuestOperation(Enum):
    """What can be asked for with a guest, and made to fail by a fake."""

    SPAWN = "spawn"
    UNSHELVE = "unshelve"
    FINISH_MIGRATION = "finish_migration"


@dataclass(frozen=True, slots=True)
class FakeInstance:
    """A guest, where it runs, and what of the host it holds."""

    uuid: str
    nodename: str
    devices: InstanceDevices = field(default_factory=InstanceDevices)


class FakeInstances:
    """The guests of one fake host. Safe for several threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._instances: dict[str, FakeInstance] = {}
        self._migrating: dict[str, threading.Event] = {}

    def __iter__(self) -> Iterator[FakeInstance]:
        with self._mutex:
            return iter(list(self._instances.values()))

    def get(self, uuid: str) -> FakeInstance | None:
        with self._mutex:
            return self._instances.get(uuid)

    def add(self, instance: FakeInstance) -> None:
        """Start a guest. Raises GuestFailure when it is running already."""
        with self._mutex:
            if instance.uuid in self._instances:
                raise GuestFailure(f"Guest {instance.uuid} is running on this host already.")
            self._instances[instance.uuid] = instance

    def remove(self, uuid: str) -> None:
        """End a guest; ending one that is not here is not an error, as on a real hypervisor."""
        with self._mutex:
            self._instances.pop(uuid, None)
            moving = self._migrating.pop(uuid, None)
        if moving is not None:
            moving.set()

    @contextmanager
    def migrating(self, uuid: str) -> Iterator[threading.Event]:
        """Run a live migration of a guest; the event is set when it is ended."""
        with self._mutex:
            if uuid not in self._instances:
                raise GuestFailure(f"Guest {uuid} does not run on this host.")
            end_event = self._migrating.setdefault(uuid, threading.Event())
        try:
            yield end_event
        finally:
            with self._mutex:
                self._migrating.pop(uuid, None)

    def end_migration(self, uuid: str) -> None:
        """Let a live migration of a guest end. Raises GuestFailure when there is none."""
        with self._mutex:
            end_event = self._migrating.get(uuid)
        if end_event is None:
            raise GuestFailure(f"Guest {uuid} is not being migrated.")
        end_event.set()
