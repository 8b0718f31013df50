"""Connections and watchers that end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.events import HypervisorEvents
from tests.integration.libvirt.connections import Changes


@pytest.fixture
def connect() -> Iterator[Callable[..., LibvirtConnection]]:
    """Makes connections, closed in the end."""
    made: list[LibvirtConnection] = []

    def make(uri: str, **options: Any) -> LibvirtConnection:
        made.append(LibvirtConnection(uri, **options))
        return made[-1]

    yield make
    for connection in made:
        connection.close()


@pytest.fixture
def watch() -> Iterator[Callable[[LibvirtConnection], Changes]]:
    """Watches connections, until the end of the test."""
    watchers: list[HypervisorEvents] = []

    def begin(connection: LibvirtConnection) -> Changes:
        changes = Changes()
        watchers.append(HypervisorEvents(connection, changes, quiet=0.01))
        watchers[-1].start()
        return changes

    yield begin
    for watcher in watchers:
        watcher.stop()
