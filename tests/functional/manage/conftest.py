"""An operator's machine: configuration, placement by file or by URL, and the command."""

import json
import signal
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from compute_agent import conf as agent_conf
from compute_agent.agent.rpc import RpcServer
from compute_agent.cmd.manage import main as manage
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Request, Response, Transport, make_response
from compute_agent.tracker.place import own_place
from compute_agent.virt.driver import InstanceDevices
from tests.fixtures import programs
from tests.fixtures.allocations import amounts_of, claim_body, new_uuid
from tests.fixtures.databases import migrated_sqlite
from tests.fixtures.plain_trees import make_provider
from tests.functional.agent.processes import PlacementProcess, running_placement
from tests.functional.manage.cloud import Cloud, running_cloud

VERSION = (1, 39)
REPOSITORY = Path(__file__).resolve().parents[3]
NOWHERE = "http://127.0.0.1:1"


@dataclass
class PlacementView:
    """What is in placement, as anybody may see it."""

    transport: Transport

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        response = self.transport.send(Request(method, path, VERSION, body))
        assert response.status < 300, f"{method} {path}: {response.status} {response.text}"
        return json.loads(response.content or b"null")

    def providers(self, name: str) -> dict[str, dict[str, Any]]:
        """Every provider of a host's tree by its name, with what it has."""
        found = self.ask("GET", f"/resource_providers?name={name}")["resource_providers"]
        if not found:
            return {}
        query = f"/resource_providers?in_tree={found[0]['uuid']}"
        tree = {}
        for provider in self.ask("GET", query)["resource_providers"]:
            path = f"/resource_providers/{provider['uuid']}"
            tree[provider["name"]] = {
                **provider,
                "inventories": self.ask("GET", f"{path}/inventories")["inventories"],
                "traits": self.ask("GET", f"{path}/traits")["traits"],
                "aggregates": self.ask("GET", f"{path}/aggregates")["aggregates"],
            }
        return tree

    def new_provider(
        self,
        name: str,
        inventory: Mapping[str, int] | None = None,
        traits: tuple[str, ...] = (),
        parent: str | None = None,
    ) -> str:
        return make_provider(self.ask, name, inventory, traits, parent=parent)

    def new_host(self, name: str | None = None, vcpus: int = 8) -> str:
        return self.new_provider(
            name or f"host-{uuid.uuid4().hex[:8]}", {"VCPU": vcpus}, ("COMPUTE_NODE",)
        )

    def claim(
        self,
        resources: Mapping[str, Mapping[str, int]],
        consumer: str | None = None,
        consumer_type: str | None = "INSTANCE",
    ) -> str:
        """Give a new consumer something; without a type as writers before 1.38 did."""
        consumer, version = consumer or new_uuid(), VERSION
        owner = {"project_id": "a-project", "user_id": "a-user"}
        body = claim_body(resources, consumer_type=consumer_type, **owner)
        if consumer_type is None:
            version = (1, 37)
            del body["consumer_type"]
        response = self.transport.send(Request("PUT", f"/allocations/{consumer}", version, body))
        assert response.status == 204, response.text
        return consumer

    def held(self, consumer: str) -> dict[str, dict[str, int]]:
        return amounts_of(self.ask("GET", f"/allocations/{consumer}"))

    def set_aggregates(self, provider: str, aggregates: list[str]) -> None:
        path = f"/resource_providers/{provider}"
        generation = self.ask("GET", path)["generation"]
        body = {"resource_provider_generation": generation, "aggregates": aggregates}
        self.ask("PUT", f"{path}/aggregates", body)

    def aggregates(self, provider: str) -> set[str]:
        return set(self.ask("GET", f"/resource_providers/{provider}/aggregates")["aggregates"])


@dataclass
class Result:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass
class Operator:
    """Runs `compute-manage placement ...` for one host with a state directory of its own.

    :ivar topic: the word before the command.
    """

    directory: Path
    placement: PlacementView
    database: Path | None
    name: str
    options: dict[str, dict[str, Any]]
    capture: Any
    extra: list[str] = field(default_factory=list)
    topic: str = "placement"

    @property
    def state(self) -> Path:
        return self.directory / "state"

    def configure(self, **groups: Mapping[str, Any]) -> None:
        for group, options in groups.items():
            self.options.setdefault(group, {}).update(options)

    def arguments(self, command: str, *arguments: str) -> list[str]:
        lines = []
        for group, values in self.options.items():
            lines += [f"[{group}]", *(f"{name} = {value}" for name, value in values.items())]
        config = self.directory / "agent.conf"
        config.write_text("\n".join(lines) + "\n")
        options = [f"--config-file={config}", *self.extra]
        return [self.topic, command, *options, *arguments]

    def run(self, command: str, *arguments: str, status: int | None = None) -> Result:
        """Run the command in this process.

        :param status: with which it has to end.
        """
        argv = self.arguments(command, *arguments)
        self.capture.readouterr()
        try:
            ended_with = manage.main(argv)
        except SystemExit as ended:
            ended_with = int(ended.code or 0)
        result = Result(ended_with, *self.capture.readouterr())
        assert status in (None, ended_with), result
        return result

    def run_killed_before_write(
        self, write: int | str, command: str = "migrate_compute_inventory", *arguments: str
    ) -> Result:
        """Run the command in a process that is killed before its n-th write to placement.

        With `N:commit` in the commit of that write, where placement is in the same process; with
        `N:answer` after it.
        """
        script = "tests.functional.manage.killed_before_write"
        done = programs.run(script, str(write), *self.arguments(command, *arguments), timeout=120)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return Result(done.returncode, done.stdout, done.stderr)

    def migrate(self, *arguments: str, status: int | None = None) -> Result:
        return self.run("migrate_compute_inventory", *arguments, status=status)

    def dump(self) -> list[str]:
        """Every row of the database."""
        assert self.database is not None
        with sqlite3.connect(self.database) as connection:
            return list(connection.iterdump())


@pytest.fixture
def new_operator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Operator]:
    """Makes operators: with a URL over HTTP, otherwise on a database or a SQLite file of their own.

    The commands of one on a file share a placement in this process: each would open one.
    """
    opened = InProcessTransport.from_config_files

    def make(url: str | None = None, connection: str | None = None) -> Operator:
        name = f"host-{uuid.uuid4().hex[:8]}"
        options: dict[str, dict[str, Any]] = {
            "DEFAULT": {
                "compute_driver": "fake.FakeNumaDriver",
                "state_path": tmp_path / "state",
                "host": name,
            },
            "placement": {"auth_type": "noauth", "endpoint_override": url or NOWHERE},
            "compute": {"provider_config_location": tmp_path / "provider_config"},
            "fake": {"cells": 1, "cpus_per_cell": 4, "gpus": 1, "nics": 0},
        }
        if url is not None:
            view = PlacementView(KeystoneTransport.to_endpoint(url))
            return Operator(tmp_path, view, None, name, options, capsys)
        database = tmp_path / "placement.db"
        connection = connection or migrated_sqlite(database)
        file = tmp_path / "placement.conf"
        file.write_text(
            f"[placement_database]\nconnection = {connection}\nsync_on_startup = true\n"
            "max_retries = 0\nsqlite_synchronous = false\n"
        )
        placement = opened([str(file)])

        def reopened(files: Sequence[str]) -> InProcessTransport:
            return placement if list(files) == [str(file)] else opened(files)

        monkeypatch.setattr(InProcessTransport, "from_config_files", reopened)
        view = PlacementView(placement)
        extra = [f"--placement-config={file}"]
        return Operator(tmp_path, view, database, name, options, capsys, extra)

    return make


Answer = Callable[[Request, Callable[[Request], Response]], Response | None]
"""What a test answers to a request instead of placement, if not `None`; it may ask placement."""


def refusing(method: str, path: str, status: int) -> Answer:
    """Refuse requests of one method whose path ends so."""
    text = f'{{"errors": [{{"status": {status}, "title": "no", "detail": "as a test wants"}}]}}'

    def answer(request: Request, _ask: Callable[[Request], Response]) -> Response | None:
        refused = request.method == method and request.path.endswith(path)
        return make_response(status, [], text) if refused else None

    return answer


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], None]:
    """Let a test answer requests to the placement of this process."""
    forward = InProcessTransport.send

    def install(answer: Answer) -> None:
        def send(transport: InProcessTransport, request: Request) -> Response:
            found = answer(request, lambda other: forward(transport, other))
            return forward(transport, request) if found is None else found

        monkeypatch.setattr(InProcessTransport, "send", send)

    return install


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementProcess]:
    """A server of the module alone, for tests that watch all of its hosts."""
    with running_placement(tmp_path_factory.mktemp("placement")) as server:
        yield server


@pytest.fixture
def server_config(server: PlacementProcess, tmp_path: Path) -> str:
    """The option that names a configuration with that server, and without a message bus."""
    config = tmp_path / "manage.conf"
    config.write_text(
        f"[DEFAULT]\nstate_path = {tmp_path}\n"
        f"[placement]\nauth_type = noauth\nendpoint_override = {server.url}\n"
    )
    return f"--config-file={config}"


@pytest.fixture
def offline(new_operator: Callable[..., Operator]) -> Operator:
    """With placement's database in a file, and no server."""
    return new_operator()


@pytest.fixture
def online(new_operator: Callable[..., Operator], placement_url: str) -> Operator:
    """With a placement server that other tests use too."""
    return new_operator(placement_url)


@pytest.fixture(params=["offline", "online"])
def operator(request: pytest.FixtureRequest) -> Operator:
    """Once with a file and once with a server."""
    found: Operator = request.getfixturevalue(request.param)
    return found


@dataclass
class Agent:
    """What an agent answers on the bus: its nodes and its instances."""

    host: str
    roots: list[str]
    instances: list[str] = field(default_factory=list)
    devices: dict[str, InstanceDevices] = field(default_factory=dict)

    def list_instances(self, node: str | None = None) -> list[str]:
        return self.instances

    def announcement(self, sequence: int) -> dict[str, Any]:
        return {"host": self.host, "nodes": [{"uuid": root} for root in self.roots]}

    def instance_devices(self, instance: str) -> dict[str, Any] | None:
        return to_builtins(self.devices[instance]) if instance in self.devices else None


@pytest.fixture
def on_bus(offline: Operator, tmp_path: Path) -> Iterator[Callable[[Agent], None]]:
    """Puts agents on a bus in memory, which the operator uses too."""
    offline.configure(
        DEFAULT={
            "transport_url": "fake://",
            "report_interval": 1,
            "control_exchange": f"test-{uuid.uuid4()}",
        }
    )
    servers = []

    def start(agent: Agent) -> None:
        offline.arguments("audit")
        conf = agent_conf.new_config([f"--config-file={offline.directory / 'agent.conf'}"])
        conf.set_override("host", agent.host, group="DEFAULT")
        server = RpcServer(
            conf,
            agent,  # type: ignore[arg-type]
            own_place(conf),
            lambda _state, _why: None,
            lambda: None,
        )
        server.start()
        servers.append(server)

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def cloud(offline: Operator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """Nova and Neutron as the operator's configuration names them."""
    monkeypatch.setattr("compute_agent.openstack.service.TRIES", 1)
    with running_cloud() as found:
        offline.configure(**found.options())
        yield found
