"""Schedulers that end by `kill -9` when placement has their request, and the start of the next one.

The next scheduler is asked nothing: it finishes or undoes what the dead one began, by itself.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.agent.lying_proxy import LyingProxy
from tests.functional.agent.processes import eventually
from tests.functional.scheduler.conftest import Cloud, Command, write_config
from tests.functional.scheduler.running_service import PROGRAM, service

HELD = {"VCPU": 1, "MEMORY_MB": 64}


def spec_of(cloud: Cloud, *instances: str) -> dict[str, Any]:
    return {
        "instance_uuids": list(instances),
        "project_id": "p",
        "user_id": "u",
        "flavor": {"vcpus": 1, "memory_mb": 64, "extra_specs": {f"trait:{cloud.mark}": "required"}},
    }


def new_uuids(number: int) -> list[str]:
    return [str(uuid.uuid4()) for _ in range(number)]


class Victim:
    """A scheduler whose requests go through a proxy, and which is killed there."""

    def __init__(self, config: Path, url: str) -> None:
        self.proxy = LyingProxy(url)
        self._config = config
        self._own = write_config(config.parent / "victim.conf", self.proxy.url)
        self._journal = config.parent / "state" / "scheduler-journal"

    def claims_one_by_one(self) -> None:
        """Let it claim as from a placement without extensions: each path names the instance."""
        with self._own.open("a") as file:
            file.write("[compute_agent]\nuse_placement_extensions = never\n")

    def killed_at(self, method: str, path: str, *arguments: str, stdin: Any) -> None:
        """Kill it once placement has carried out the request; it never hears the answer."""
        held = self.proxy.hold(method, path)
        command = [PROGRAM, "--config-file", str(self._own), *arguments]
        with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            process.stdin.write(json.dumps(stdin))
            process.stdin.close()
            try:
                eventually(held.is_set, f"{method} {path} by {' '.join(arguments)}")
            finally:
                process.kill()
        assert self._journal.read_text(), "the journal has how to go on"

    def another_starts(self) -> None:
        """Start another scheduler and wait until nothing of the journal is open."""
        with service(self._config) as scheduler:
            scheduler.until("READY=1")
            eventually(lambda: not self._journal.read_text(), "an empty journal")
            assert scheduler.stop() == 0
        assert [path.name for path in self._journal.parent.iterdir()] == [self._journal.name]


@pytest.fixture
def victim(config: Path, placement_url: str) -> Iterator[Victim]:
    made = Victim(config, placement_url)
    yield made
    made.proxy.close()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_killed_at_any_claim_of_several_instances_none_stays_claimed(
    cloud: Cloud, victim: Victim, number: int
) -> None:
    victim.claims_one_by_one()
    cloud.flat_host(8)
    instances = new_uuids(3)
    path = f"/allocations/{instances[number]}"
    victim.killed_at("PUT", path, "select", stdin=spec_of(cloud, *instances))
    claimed = [bool(cloud.held(instance)) for instance in instances]
    assert claimed == [index <= number for index in range(3)]
    victim.another_starts()
    assert [cloud.held(instance) for instance in instances] == [{}, {}, {}]


def test_killed_at_a_claim_with_alternatives_the_one_that_was_chosen_is_given_back(
    cloud: Cloud, victim: Victim
) -> None:
    hosts = {cloud.flat_host(8), cloud.flat_host(8)}
    instances = new_uuids(2)
    victim.killed_at("POST", "/claims", "select", stdin=spec_of(cloud, *instances))
    assert set(cloud.held(instances[0])) < hosts
    assert cloud.held(instances[1]) == {}
    victim.another_starts()
    assert [cloud.held(instance) for instance in instances] == [{}, {}]


class Moved:
    """An instance on one of two hosts, and a move of it."""

    def __init__(self, cloud: Cloud, command: Command) -> None:
        self.cloud = cloud
        hosts = {cloud.flat_host(4), cloud.flat_host(4)}
        self.instance, self.migration = new_uuids(2)
        self.spec = spec_of(cloud, self.instance)
        self.command = command
        assert command("select", input=json.dumps(self.spec)).returncode == 0
        [self.source] = cloud.held(self.instance)
        [self.destination] = hosts - {self.source}
        self.begin = ("move", "begin", "live", self.instance, "--migration", self.migration)

    def begun(self) -> Any:
        done = self.command(*self.begin, input=json.dumps(self.spec))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def holdings(self) -> tuple[set[str], set[str]]:
        """The hosts that instance and migration hold."""
        return set(self.cloud.held(self.instance)), set(self.cloud.held(self.migration))


@pytest.fixture
def moved(cloud: Cloud, command: Command) -> Moved:
    return Moved(cloud, command)


def test_a_move_whose_scheduler_is_killed_at_its_beginning_is_undone(
    moved: Moved, victim: Victim
) -> None:
    victim.killed_at("POST", "/allocations$", *moved.begin, stdin=moved.spec)
    assert moved.holdings() == ({moved.destination}, {moved.source})
    victim.another_starts()
    assert moved.holdings() == ({moved.source}, set())


def test_a_confirmation_or_a_revert_whose_scheduler_is_killed_is_completed(
    moved: Moved, victim: Victim
) -> None:
    victim.killed_at("POST", "/allocations$", "move", "revert", stdin=moved.begun())
    victim.another_starts()
    assert moved.holdings() == ({moved.source}, set())
    path = f"/allocations/{moved.migration}"
    victim.killed_at("PUT", path, "move", "finish", stdin=moved.begun())
    victim.another_starts()
    assert moved.holdings() == ({moved.destination}, set())


def test_an_evacuation_whose_scheduler_is_killed_is_undone_and_a_return_is_completed(
    moved: Moved, victim: Victim
) -> None:
    evacuate = ("move", "begin", "evacuate", moved.instance)
    victim.killed_at("POST", "/allocations$", *evacuate, stdin=moved.spec)
    assert moved.holdings() == ({moved.source, moved.destination}, set())
    victim.another_starts()
    assert moved.holdings() == ({moved.source}, set())
    assert moved.command(*evacuate, input=json.dumps(moved.spec)).returncode == 0
    returned = ("move", "returned", moved.instance, moved.source)
    victim.killed_at("POST", "/allocations$", *returned, stdin=None)
    victim.another_starts()
    assert moved.holdings() == ({moved.destination}, set())


def test_what_placement_could_not_take_back_is_given_back_without_another_request(
    cloud: Cloud, victim: Victim, command: Command
) -> None:
    cloud.flat_host(8)
    instances = new_uuids(2)
    victim.killed_at("POST", "/claims", "select", stdin=spec_of(cloud, *instances))
    # the next scheduler starts while placement is away, and is asked nothing when that is back
    victim.proxy.answer("GET", ".*", 503)
    with service(victim._own) as scheduler:
        scheduler.until("READY=1")
        assert cloud.held(instances[0])
        victim.proxy.honest()
        eventually(lambda: not cloud.held(instances[0]), "the return of the claim")
        assert scheduler.stop() == 0
