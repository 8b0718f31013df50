"""A hypervisor whose answers a test writes down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from compute_agent.discovery.errors import CallUnsupported
from compute_agent.discovery.libvirt.connection import LibvirtConnection

MakeConnection = Callable[..., "WrittenConnection"]


class WrittenConnection(LibvirtConnection):
    """A connection to a hypervisor that has the calls a test names, and no other.

    :ivar counts: calls made, by the first word of their names.
    """

    def __init__(self, **calls: Callable[..., Any]) -> None:
        super().__init__("written:///")
        self.counts: Counter[str] = Counter()
        self._hypervisor = SimpleNamespace(**calls)

    def call(self, name: str, function: Callable[[Any], Any]) -> Any:
        method = name.partition(" ")[0]
        self.counts[method] += 1
        if not hasattr(self._hypervisor, method):
            raise CallUnsupported(name, "this function is not supported", 3)
        return function(self._hypervisor)


@pytest.fixture
def make_connection() -> MakeConnection:
    return WrittenConnection
