"""Announcements of agents on the bus, by the uuid of the root provider."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from compute_agent.programs.decoding import Whole, convert
from compute_agent.programs.kept_values import KeptValues

ASKED_AGAIN_SECONDS: Final = 10.0


class Announcement(Struct, frozen=True):
    """The last announcement about one host.

    `service_version` says what the agent can do, 0 where it announces none.
    `attributes` are further facts by name (hypervisor type, version, ...) that filters compare.
    """

    host: str
    seen_at: float
    enabled: bool = True
    instances: int | None = None
    io_ops: int = 0
    build_failures: int = 0
    service_version: int = 0
    attributes: Mapping[str, Any] = {}


class _AnnouncedNode(Struct, frozen=True):
    uuid: str
    enabled: bool = True
    instances: Whole | list[Any] | None = None
    io_ops: Whole = 0
    build_failures: Whole = 0


class _AnnouncedState(Struct, frozen=True):
    host: str
    nodes: list[_AnnouncedNode] = []
    service_version: Whole = 0


UNHEARD: Final = Announcement("", math.inf)
"""Stands for the announcement of a host that was not heard of: alive, and without any facts."""


class Announcements:
    """Collects announcements; safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_root: dict[str, Announcement] = {}
        self._lock = threading.Lock()
        self.versions_revision = 0
        """How often a service version was heard that was not known."""

    def receive(self, state: Mapping[str, Any]) -> None:
        """Take in one announcement: `{"host", "nodes": [{"uuid", "enabled", ...}], ...}`.

        :raises Misfit: it is not of this form; nothing of it is taken in.
        """
        now = self._clock()
        announced = convert(state, _AnnouncedState)
        states = {
            node.uuid: Announcement(
                host=announced.host,
                seen_at=now,
                enabled=node.enabled,
                instances=len(node.instances)
                if isinstance(node.instances, list)
                else node.instances,
                io_ops=node.io_ops,
                build_failures=node.build_failures,
                service_version=announced.service_version,
                attributes=attributes,
            )
            for node, attributes in zip(announced.nodes, state.get("nodes", ()), strict=True)
        }
        with self._lock:
            before = [self._by_root.get(root) for root in states]
            self._by_root |= states
            self.versions_revision += any(
                old is None or old.service_version != new.service_version
                for old, new in zip(before, states.values(), strict=True)
            )

    def snapshot(self) -> list[dict[str, Any]]:
        """Return every announcement as plain values, with its age in seconds, for `restore`."""
        return [
            {**to_builtins(announcement), "root": root, "age": self.age(announcement)}
            for root, announcement in self.all().items()
        ]

    def restore(self, snapshot: Iterable[Mapping[str, Any]]) -> None:
        """Take in the announcements that another process has heard.

        Fields that are not known here are left out: that process may be of a newer version.
        """
        now = self._clock()
        with self._lock:
            for entry in snapshot:
                announcement = convert(entry, Announcement)
                self._by_root[entry["root"]] = replace(announcement, seen_at=now - entry["age"])

    def of(self, root: str) -> Announcement | None:
        """Return the last announcement about a host, None if there was none."""
        return self.of_hosts((root,))[0]

    def of_hosts(self, roots: Iterable[str]) -> list[Announcement | None]:
        """Return the last announcement about each of some hosts, None where there was none."""
        with self._lock:
            return list(map(self._by_root.get, roots))

    def all(self) -> dict[str, Announcement]:
        """Return the last announcement about every host that was ever heard of, by root."""
        with self._lock:
            return dict(self._by_root)

    def roots_of(self, service: str) -> tuple[str, ...]:
        """Return the roots of the nodes that a service manages, by its last announcements."""
        with self._lock:
            return tuple(
                r for r, announcement in self._by_root.items() if announcement.host == service
            )

    def time(self) -> float:
        """Return the time on the clock of `Announcement.seen_at`."""
        return self._clock()

    def silent_roots(self, seconds: float) -> frozenset[str]:
        """Return the roots of the hosts that were heard of, but not for so long."""
        return frozenset(root for root, last in self.all().items() if self.age(last) >= seconds)

    def age(self, announcement: Announcement) -> float:
        """Return the seconds since an announcement arrived."""
        return self._clock() - announcement.seen_at


class AskedAnnouncements(Announcements):
    """What another process has heard, asked for again before it is used when it is old.

    :param ask: returns the `snapshot` of that process.
    """

    def __init__(
        self,
        ask: Callable[[], Iterable[Mapping[str, Any]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock)
        self._ask = ask
        self._answers: KeptValues[None, bool] = KeptValues(ASKED_AGAIN_SECONDS, clock)

    def refresh(self) -> None:
        """Ask, unless that was done lately."""
        if self._answers.get(None) is None:
            self.restore(self._ask())
            self._answers.keep(None, True)

    def of_hosts(self, roots: Iterable[str]) -> list[Announcement | None]:
        """See `Announcements`."""
        self.refresh()
        return super().of_hosts(roots)

    def all(self) -> dict[str, Announcement]:
        """See `Announcements`."""
        self.refresh()
        return super().all()
