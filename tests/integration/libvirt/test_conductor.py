"""The conductor of the examples with real guests: RabbitMQ, schedulers, agents and libvirtds."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import libvirt
import pytest

from compute_agent.conf import new_config
from compute_agent.scheduler.bus import running_scheduler
from compute_agent.scheduler.errors import NoSchedulerAnswers
from compute_agent.scheduler.python_api import connect
from tests.fixtures.libvirt_guests import guest_xml
from tests.fixtures.libvirtd import Libvirtd, running_libvirtd
from tests.functional.agent.processes import (
    AgentProcess,
    PlacementProcess,
    eventually,
    running,
)
from tests.functional.scheduler.conftest import write_config
from tests.functional.scheduler.running_service import service

pytestmark = pytest.mark.long

PROGRAM = Path(__file__).parents[3] / "examples" / "conductor" / "conductor.py"
PINNED = {
    "project_id": "p",
    "user_id": "u",
    "flavor": {
        "vcpus": 1,
        "memory_mb": 64,
        "root_gb": 0,
        "extra_specs": {"hw:cpu_policy": "dedicated"},
    },
}


class World:
    """Three hosts on this machine, each with a libvirtd and an agent, and placement."""

    def __init__(self, directory: Path, run_directory: Path, bus: str, parts: ExitStack) -> None:
        self.placement = PlacementProcess(directory)
        self.placement.start()
        parts.callback(self.placement.kill)
        self.daemons: dict[str, Libvirtd] = {}
        self.agents: dict[str, AgentProcess] = {}
        # short, for the paths of sockets
        links = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="lv")))
        for _ in range(3):
            name = f"host-{uuid.uuid4().hex[:8]}"
            daemon = parts.enter_context(running_libvirtd(run_directory, hostname=name))
            (links / name).symlink_to(daemon.directory)
            (directory / name).mkdir()
            agent = AgentProcess(
                directory / name,
                self.placement.url,
                DEFAULT={
                    "host": name,
                    "compute_driver": "libvirt.LibvirtDriver",
                    "instances_path": directory,
                    "transport_url": bus,
                    "report_interval": 1,
                    "update_resources_interval": 600,
                },
                libvirt={"virt_type": "qemu", "connection_uri": daemon.uri},
                compute={"cpu_dedicated_set": "0-1", "enable_numa_reporting_to_placement": True},
            )
            self.daemons[name], self.agents[name] = daemon, agent
            parts.enter_context(running(agent))
        self.address = f"qemu+unix:///system?socket={links}/{{host}}/sock/libvirt-sock"

    def guests(self) -> dict[str, dict[str, list[int]]]:
        """The CPUs of each guest's vCPUs, by host and instance."""
        found: dict[str, dict[str, list[int]]] = {}
        for name, daemon in self.daemons.items():
            connection = libvirt.open(daemon.uri)
            for guest in connection.listAllDomains():
                cpus = [row.index(True) for row in guest.vcpuPinInfo() if sum(row) == 1]
                found.setdefault(name, {})[guest.UUIDString()] = cpus
            connection.close()
        return found

    def claimed(self) -> dict[str, dict[str, list[int]]]:
        """The CPUs that agents gave, by host and instance."""
        found: dict[str, dict[str, list[int]]] = {}
        for name, agent in self.agents.items():
            if agent.process is not None:
                for claim in agent.ask("claims"):
                    cpus = [int(unit["name"]) for unit in claim["units"]]
                    found.setdefault(name, {})[claim["instance"]] = cpus
        return found

    def held(self, instance: str) -> set[str]:
        """The hosts that an instance holds something of."""
        record = self.placement.get(f"/allocations/{instance}")["allocations"]
        roots = {
            self.placement.get(f"/resource_providers/{provider}")["root_provider_uuid"]
            for provider in record
        }
        return {self.placement.get(f"/resource_providers/{root}")["name"] for root in roots}

    def assert_only_on(self, host: str, instance: str) -> None:
        """A guest runs on one host, with just the CPUs that it was given there."""
        assert self.guests() == self.claimed()
        assert list(self.guests()) == [host]
        assert len(self.guests()[host][instance]) == 1
        assert self.held(instance) == {host}


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, libvirt_run_directory: Path, bus_url: str
) -> Iterator[World]:
    with ExitStack() as parts:
        yield World(tmp_path_factory.mktemp("world"), libvirt_run_directory, bus_url, parts)


@pytest.fixture
def config(world: World, tmp_path: Path) -> Path:
    return write_config(tmp_path / "scheduler.conf", world.placement.url)


@pytest.fixture
def hosts_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(PROGRAM.parent)
    return importlib.import_module("hosts")


@pytest.fixture
def conductor_module(hosts_module: ModuleType) -> ModuleType:
    return importlib.import_module("conductor")


def test_a_guest_lives_by_the_program_over_the_bus(
    world: World, config: Path, tmp_path: Path, bus_url: str
) -> None:
    instance = str(uuid.uuid4())
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(PINNED))

    def step(name: str, *arguments: str, status: int = 0) -> list[str]:
        command = [sys.executable, PROGRAM, "--virt-type=qemu", config, world.address, name]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == status, done.stderr
        return done.stdout.split() if status == 0 else [done.stderr]

    with service(config, bus=bus_url) as scheduler:
        scheduler.until("READY=1")
        eventually(lambda: _heard(config) == 3, "all agents announced themselves")
        host, root = step("build", str(spec), instance)
        world.assert_only_on(host, instance)

        [refusal] = step("local_delete", instance, status=1)
        assert "is alive" in refusal

        host, root = step("move", str(spec), instance, host, root)
        world.assert_only_on(host, instance)

        step("delete", instance, host)
        assert world.guests() == world.claimed() == {}
        assert world.held(instance) == set()


def _heard(config: Path) -> int:
    """How many agents the scheduler has heard of."""
    try:
        return len(running_scheduler.announcements(new_config([f"--config-file={config}"])).all())
    except NoSchedulerAnswers:
        return 0


def test_failures_evacuation_and_a_local_delete_over_local_sockets(
    world: World,
    config: Path,
    hosts_module: Any,
    conductor_module: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    instance = str(uuid.uuid4())
    conductor = conductor_module.Conductor(
        connect(str(config)),
        hosts_module.AgentsOnSockets(lambda host: world.agents[host].state / "status.sock"),
        hosts_module.Libvirt(world.address, "qemu"),
    )
    first = conductor.build(PINNED, instance)
    conductor.delete(instance, first.host)

    # the name of the guest is taken there: the agent is notified, and another host is next
    connection = libvirt.open(world.daemons[first.host].uri)
    other = str(uuid.uuid4())
    taken = connection.defineXML(guest_xml(other).replace(f"test-{other}", f"guest-{instance}"))
    source = conductor.build(PINNED, instance)
    taken.undefine()
    connection.close()
    assert f"{first.host} cannot start {instance}: its hypervisor" in caplog.text
    world.assert_only_on(source.host, instance)

    # the host dies, and its guest with it
    agent = world.agents[source.host]
    agent.process.kill()
    agent.process.wait()
    agent.process = None
    world.daemons[source.host].stop()
    place = conductor.evacuate(PINNED, instance, source)
    assert world.held(instance) == {source.host, place.host}
    world.daemons[source.host].start()
    with running(agent):
        conductor.source_returned(instance, source)
        world.assert_only_on(place.host, instance)

    # the agent of the host is away: what the guest holds is released, and it goes later
    conductor.local_delete(instance)
    assert world.held(instance) == set()
    assert list(world.guests()) == [place.host]
    conductor.clean(instance, place.host)
    assert world.guests() == {}
