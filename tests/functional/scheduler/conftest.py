"""Hosts in a real placement, and schedulers that claim on them."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from compute_agent.placement.transports.transport import Transport
from tests.fixtures import programs
from tests.fixtures.allocations import Holding, amounts_of, claim_body, new_uuid
from tests.fixtures.plain_trees import make_provider
from tests.functional.either_placement import placement_of
from tests.functional.scheduler.guests import KINDS, Guest, Place
from tests.functional.scheduler.moving import World

HEADERS = {"OpenStack-API-Version": "placement 1.39", "X-Auth-Token": "admin"}


class Cloud:
    """Hosts of one test, told from those of others by a trait and a resource class of their own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.mark = f"CUSTOM_T{uuid.uuid4().hex[:12].upper()}"
        self._http = requests.Session()
        self._http.headers.update(HEADERS)
        self.call("PUT", f"/resource_classes/{self.mark}")

    def call(self, method: str, path: str, **arguments: Any) -> Any:
        """One request that must succeed; its JSON, if it has any."""
        answer = self._http.request(method, self.url + path, **arguments)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.text else None

    def provider(
        self,
        inventory: dict[str, Any] | None = None,
        *traits: str,
        parent: str | None = None,
        aggregates: tuple[str, ...] = (),
    ) -> str:
        """A new provider with these totals."""
        new = new_uuid()
        more: Any = {"uuid": new, "parent": parent, "aggregates": aggregates}
        return make_provider(self.send, f"p-{new}", inventory, traits, **more)

    def send(self, method: str, path: str, body: Any) -> Any:
        return self.call(method, path, json=body)

    def flat_host(self, vcpus: int, *traits: str) -> str:
        """A host with everything on its root."""
        inventory = {"VCPU": vcpus, "MEMORY_MB": 4096, "DISK_GB": 100}
        return self.provider(inventory, self.mark, "COMPUTE_NODE", *traits)

    def nested_host(
        self, *cells: int, root_traits: tuple[str, ...] = (), **root: Any
    ) -> tuple[str, list[str]]:
        """A host with so many VCPU on each of its cells, and nothing on its root."""
        top = self.provider({}, self.mark, "COMPUTE_NODE", *root_traits, **root)
        below = [
            self.provider({"VCPU": vcpus, "MEMORY_MB": 1024}, self.mark, "HW_NUMA_ROOT", parent=top)
            for vcpus in cells
        ]
        return top, below

    def claim(self, held: Holding, consumer: str | None = None, **more: Any) -> str:
        """Let a consumer hold something, past every scheduler."""
        consumer = consumer or new_uuid()
        self.call("PUT", f"/allocations/{consumer}", json=claim_body(held, **more))
        return consumer

    def plain_spec(self) -> dict[str, Any]:
        """What a conductor asks for a guest that takes one unit of the cloud's own class."""
        return {
            "project_id": "p",
            "user_id": "u",
            "flavor": {"extra_specs": {f"resources:{self.mark}": "1"}},
        }

    def held(self, consumer: str) -> dict[str, dict[str, int]]:
        """What a consumer holds."""
        return amounts_of(self.call("GET", f"/allocations/{consumer}"))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transport]:
    """The published placement, as a black box."""
    with placement_of("published", tmp_path_factory.mktemp("published")) as transport:
        yield transport


@pytest.fixture
def cloud(placement_url: str) -> Cloud:
    """An empty cloud."""
    return Cloud(placement_url)


def write_config(path: Path, url: str) -> Path:
    """A configuration of agent and scheduler that points at `url`."""
    path.write_text(
        f"[DEFAULT]\nstate_path = {path.parent}/state\n"
        f"[placement]\nauth_type = noauth\nendpoint_override = {url}\n"
    )
    return path


@pytest.fixture
def config(tmp_path: Path, placement_url: str) -> Path:
    """A configuration that points at the real placement."""
    return write_config(tmp_path / "scheduler.conf", placement_url)


@pytest.fixture(params=["auto", "never"])
def extensions(request: pytest.FixtureRequest, config: Path) -> str:
    """With the extensions of placement where it has them, and by the plain API alone."""
    with config.open("a") as file:
        file.write(f"[compute_agent]\nuse_placement_extensions = {request.param}\n")
    return str(request.param)


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(config: Path) -> Command:
    """Runs the real command `compute-scheduler`."""

    def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        file = options.pop("config_file", config)
        return programs.run(
            "compute-scheduler", "--config-file", str(file), *arguments, timeout=600, **options
        )

    return run


@pytest.fixture
def claimed(cloud: Cloud, command: Command) -> Callable[..., Any]:
    """What a claim by that command on hosts with the mark of the test printed as JSON."""

    def claim(resources: str, *more: str, **options: Any) -> Any:
        arguments = ("--resources", resources, "--required", cloud.mark, "--json", *more)
        done = command("claim", *arguments, **options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return claim


@pytest.fixture(scope="module")
def placement(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Transport]:
    """A placement that the tests of a module share: ours, or of the kind that they give."""
    kind = getattr(request, "param", "ours")
    with placement_of(kind, tmp_path_factory.mktemp("placement")) as transport:
        yield transport


@pytest.fixture
def world(placement: Transport, tmp_path: Path) -> World:
    """Hosts of one test, with a journal of its own."""
    return World(placement, tmp_path / "journal")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, world: World) -> Place:
    """Two like hosts, of every kind in turn."""
    made: Place = request.param(world)
    return made


@pytest.fixture
def guest(place: Place) -> Guest:
    """A guest on one of them."""
    return Guest(place)
