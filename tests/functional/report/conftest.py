"""A real placement in process, a clock that does not sleep, and a host to report."""

import random
import uuid as uuidlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from compute_agent.provider_tree import ProviderTree
from compute_agent.report.client import ReportClient
from compute_agent.report.connection import Tally
from compute_agent.report.flush import FlushReport
from compute_agent.report.transport import InProcessTransport, RecordingTransport
from placement_server.app import build_app
from placement_server.conf import new_config


@pytest.fixture(scope="session")
def placement_app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A placement with a database of its own, shared by the tests of one process."""
    conf = new_config(config_files=[])
    database = tmp_path_factory.mktemp("placement") / "placement.db"
    conf.set_override("connection", f"sqlite:///{database}", group="placement_database")
    conf.set_override("sync_on_startup", True, group="placement_database")
    conf.set_override("sqlite_synchronous", False, group="placement_database")
    return build_app(conf, auth_strategy="noauth2")


@dataclass
class FakeClock:
    """Time that passes only when somebody waits, or when a test says so."""

    now: float = 1000.0
    waits: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@dataclass
class Host:
    """One host under test: its client, the recorded requests, and the passes it makes."""

    transport: RecordingTransport
    clock: FakeClock
    cache_path: Path
    root: str
    name: str
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
            **options,
        )
        client.connect()
        self.transport.clear()
        self.clients.append(client)
        return client

    def report(
        self, lay_out: Callable[[ProviderTree], None], *, fresh: bool = False, **options: Any
    ) -> FlushReport:
        """One pass: read, lay out, write.  ``tally`` counts its requests."""
        client = self.client
        self.transport.clear()
        with client.tracing() as self.tally:
            base = client.get_provider_tree_and_ensure_root(self.root, self.name, fresh=fresh)
            new = base.snapshot()
            lay_out(new)
            return client.update_from_provider_tree(base, new, **options)

    @property
    def requests(self) -> list[str]:
        return self.transport.requests

    @property
    def writes(self) -> list[str]:
        return self.transport.writes


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def new_host(placement_app: Any, clock: FakeClock, tmp_path: Path) -> Iterator[Callable[[], Host]]:
    hosts: list[Host] = []

    def make() -> Host:
        root = str(uuidlib.uuid4())
        transport = RecordingTransport(InProcessTransport(placement_app))
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
def other(placement_app: Any) -> Iterator[ReportClient]:
    """Somebody else who writes to the same placement."""
    client = ReportClient(InProcessTransport(placement_app), clock=FakeClock())
    yield client
    client.close()
