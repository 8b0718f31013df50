"""The modules that a search and a claim run through, of the scheduler and of the server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.transport import Request
from compute_agent.request.spec_reader import read_spec
from compute_agent.testing.fixtures import SchedulerFixture
from tests.fixtures.plain_trees import make_provider
from tests.functional.either_placement import ours
from tests.functional.executed_modules import executed_modules

SEARCH = 35
CLAIM = {"compute_agent": 40, "placement_server": 48}

INVENTORIES = {"VCPU": 64, "MEMORY_MB": 65536, "DISK_GB": 1000}
QUERY = "resources=VCPU:1,MEMORY_MB:512,DISK_GB:1&required=COMPUTE_NODE&limit=10"


class Cloud:
    """Four flat hosts in a placement of this process, and a scheduler in front of them."""

    def __init__(self, directory: Path) -> None:
        self.transport = InProcessTransport(ours(directory))
        for number in range(4):
            make_provider(self.ask, f"host{number}", INVENTORIES, ["COMPUTE_NODE"])
        self.fixture = SchedulerFixture(self.transport)
        self.fixture.setUp()

    def ask(self, method: str, path: str, body: Any = None) -> None:
        answer = self.transport.send(Request(method, path, (1, 39), body))
        assert answer.status < 300, answer.text

    def search(self) -> None:
        self.ask("GET", f"/allocation_candidates?{QUERY}")

    def claim(self) -> None:
        instance = str(uuid.uuid4())
        spec = {
            "instance_uuid": instance,
            "project_id": "p",
            "user_id": "u",
            "flavor": {"vcpus": 1, "memory_mb": 512, "root_gb": 1, "extra_specs": {}},
            "image": {"id": "i", "properties": {}},
        }
        scheduler = self.fixture.life_cycle._parts.scheduler
        assert scheduler.select_destinations(read_spec(spec), [instance])


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.fixture.cleanUp()


def test_a_search_runs_through_few_modules(cloud: Cloud) -> None:
    for _ in range(3):
        cloud.search()
    with executed_modules() as modules:
        cloud.search()
    server = modules.of("placement_server")
    assert len(server) <= SEARCH, "\n".join(server)


def test_a_claim_runs_through_few_modules(cloud: Cloud) -> None:
    for _ in range(3):
        cloud.claim()
    with executed_modules() as modules:
        cloud.claim()
    for package, most in CLAIM.items():
        assert len(modules.of(package)) <= most, "\n".join(modules.of(package))
