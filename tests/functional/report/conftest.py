"""A real placement in process, a clock that does not sleep, and a host to report."""

import random
import uuid as uuidlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from compute_agent.placement.allocations.allocations import Allocations
from compute_agent.placement.connection import Tally
from compute_agent.placement.transports.transport import Transport
from compute_agent.provider_tree import ProviderTree
from compute_agent.report.client import ReportClient
from compute_agent.report.flush import FlushReport
from compute_agent.testing.transports import RecordingTransport
from tests.fixtures.clocks import WaitingClock
from tests.functional.either_placement import KINDS, placement_of
from tests.functional.report.gpu_move import guests_of
from tests.functional.report.layouts import small


@pytest.fixture(scope="session", params=KINDS)
def placement(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Transport]:
    """A placement with a database of its own, shared by the tests of one process.

    Once this project's server and once the published one: the client works with either.
    """
    with placement_of(request.param, tmp_path_factory.mktemp("placement")) as made:
        yield made


@dataclass
class Host:
    """One host under test: its client, the recorded requests, and the passes it makes.

    :ivar whole_trees: its client reads whole trees where placement has that.
    """

    transport: RecordingTransport
    clock: WaitingClock
    cache_path: Path
    root: str
    name: str
    whole_trees: bool = False
    clients: list[ReportClient] = field(default_factory=list)
    tally: Tally | None = None

    @property
    def tag(self) -> str:
        """Makes custom names of this test its own."""
        return self.root[:8].upper()

    @property
    def client(self) -> ReportClient:
        return self.clients[-1] if self.clients else self.restart()

    def restart(self, *, cache: bool = True, **options: Any) -> ReportClient:
        """A new process: a client that knows only what is in the cache file."""
        client = ReportClient(
            self.transport,
            cache_path=self.cache_path if cache else None,
            clock=self.clock,
            random=random.Random(7),
            use_extensions=self.whole_trees,
            **options,
        )
        client.connect()
        self.transport.clear()
        self.clients.append(client)
        return client

    def report(
        self, lay_out: Callable[[ProviderTree], None], *, fresh: bool = False, **options: Any
    ) -> FlushReport:
        """One pass: read, lay out, write.  `tally` counts its requests."""
        client = self.client
        self.transport.clear()
        with client.tracing() as self.tally:
            base = client.get_provider_tree_and_ensure_root(self.root, self.name, fresh=fresh)
            new = base.snapshot()
            lay_out(new)
            return client.update_from_provider_tree(base, new, **options)

    @property
    def allocations(self) -> Allocations:
        return self.client.placement.allocations

    @property
    def requests(self) -> list[str]:
        return self.transport.requests

    @property
    def writes(self) -> list[str]:
        return self.transport.writes


@pytest.fixture
def clock() -> WaitingClock:
    return WaitingClock()


@pytest.fixture
def new_host(
    placement: Transport, clock: WaitingClock, tmp_path: Path
) -> Iterator[Callable[[], Host]]:
    hosts: list[Host] = []

    def make() -> Host:
        root = str(uuidlib.uuid4())
        transport = RecordingTransport(placement)
        cache = tmp_path / f"placement-cache-{len(hosts)}.json"
        hosts.append(Host(transport, clock, cache, root, f"host-{root[:8]}"))
        return hosts[-1]

    yield make
    for host in hosts:
        for client in host.clients:
            client.close()


@pytest.fixture
def host(new_host: Callable[[], Host]) -> Host:
    return new_host()


@pytest.fixture
def whole(new_host: Callable[[], Host]) -> Host:
    """A host whose agent reads whole trees."""
    host = new_host()
    host.whole_trees = True
    return host


@pytest.fixture
def other(placement: Transport) -> Iterator[ReportClient]:
    """Somebody else who writes to the same placement."""
    client = ReportClient(placement, clock=WaitingClock())
    yield client
    client.close()


@pytest.fixture
def guests(host: Host, other: ReportClient) -> list[str]:
    """A flat host with two guests that have a GPU and one that has none."""
    return guests_of(host, other)


@pytest.fixture
def hosted(host):
    host.report(small(host.name))
    host.transport.clear()
    return host
