"""A scheduler of several processes on a real RabbitMQ, and agents that announce their versions."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from tests.fixtures import programs
from tests.fixtures.ports import free_port
from tests.functional.agent.processes import eventually
from tests.functional.scheduler.conftest import Cloud, write_config

pytestmark = pytest.mark.waiting

PROGRAM = "compute-scheduler"


@pytest.fixture
def cloud(placement_url: str) -> Cloud:
    return Cloud(placement_url)


@pytest.fixture
def config(bus_url: str, placement_url: str, tmp_path: Path) -> Path:
    file = write_config(tmp_path / "scheduler.conf", placement_url)
    file.write_text(
        f"[DEFAULT]\ntransport_url = {bus_url}\nhost = s-{uuid.uuid4().hex[:8]}\n"
        f"control_exchange = e-{uuid.uuid4().hex[:8]}\n"
        + file.read_text().removeprefix("[DEFAULT]\n")
        + f"[scheduler]\nworkers = 2\n[compute_scheduler]\nmetrics_bind = 127.0.0.1:{free_port()}\n"
    )
    return file


@pytest.fixture
def log(config: Path, tmp_path: Path) -> Iterator[Path]:
    """The log of a scheduler with two workers that serve."""
    path = tmp_path / "scheduler.log"
    with path.open("wb") as output:
        process = programs.start(PROGRAM, "--config-file", str(config), "serve", output=output)
        try:
            eventually(lambda: said(path, "Serving topic scheduler") == 2, path.read_text())
            yield path
        finally:
            process.terminate()
            assert process.wait(60) == 0, path.read_text()


def said(log: Path, text: str) -> int:
    return log.read_text().count(text)


@pytest.fixture
def announce(config: Path) -> Iterator[Callable[..., None]]:
    """Announces an agent, to whom the root provider belongs."""
    transport = message_bus.open_transport(agent_conf.new_config([f"--config-file={config}"]))
    import oslo_messaging

    target = oslo_messaging.Target(topic="compute-state", version="1.0", fanout=True)
    client = oslo_messaging.get_rpc_client(transport, target)

    def send(root: str, version: int, **node: Any) -> None:
        nodes = [{"uuid": root, **node}]
        state = {"host": f"h-{root}", "nodes": nodes, "service_version": version}
        client.cast({}, "compute_state", state=state)

    yield send
    transport.cleanup()


@pytest.fixture
def call(config: Path) -> Iterator[Callable[..., Any]]:
    from compute_agent.scheduler.bus.rpc import SchedulerClient

    transport = message_bus.open_transport(agent_conf.new_config([f"--config-file={config}"]))
    yield SchedulerClient(transport).call
    transport.cleanup()


def status(config: Path, *options: str) -> str:
    command = ("--config-file", str(config), "status", "upgrade", *options)
    done = programs.run(PROGRAM, *command, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_worker_hears_the_agents_and_the_status_names_the_old_ones(
    cloud: Cloud, config: Path, log: Path, announce: Callable[..., None]
) -> None:
    old, new = (cloud.provider({cloud.mark: 1}, "COMPUTE_NODE") for _ in range(2))
    announce(old, 0)
    announce(new, 1)

    def all_workers_know() -> bool:
        # who answers is chosen by the broker, in turn
        told = [json.loads(status(config, "--json")) for _ in range(2)]
        return all(line["behaviours"][0]["held_back_by"] == [f"h-{old}"] for line in told)

    eventually(all_workers_know, log.read_text())
    assert f"by h-{old}" in status(config)
    cloud.call("DELETE", f"/resource_providers/{old}")


def test_a_command_leaves_out_the_hosts_that_a_running_scheduler_knows_as_disabled(
    cloud: Cloud, config: Path, log: Path, call: Callable[..., Any], announce: Callable[..., None]
) -> None:
    host = cloud.provider({cloud.mark: 1}, "COMPUTE_NODE")
    announce(host, 1, enabled=False)

    def all_workers_know() -> bool:
        # who answers is chosen by the broker, in turn
        told = [call("announced_hosts")["hosts"] for _ in range(2)]
        return all(host in [row["root"] for row in hosts] for hosts in told)

    eventually(all_workers_know, log.read_text())
    command = ("--config-file", str(config), "claim", "--resources", f"{cloud.mark}=1")
    done = programs.run(PROGRAM, *command, timeout=60)
    assert done.returncode == 1, done.stderr
    assert "ComputeFilter dropped the last" in done.stderr


@pytest.mark.usefixtures("console_scripts")
def test_moves_and_claims_are_served_by_any_worker_and_one_that_dies_is_replaced(
    cloud: Cloud, log: Path, call: Callable[..., Any]
) -> None:
    hosts = [cloud.provider({cloud.mark: 1}, "COMPUTE_NODE") for _ in range(2)]
    instance, migration = str(uuid.uuid4()), str(uuid.uuid4())
    spec = cloud.plain_spec()
    [[first]] = call("select_destinations", spec_obj=spec, instance_uuids=[instance])
    source = first["compute_node_uuid"]
    for _ in range(3):
        begun = call(
            "begin_move",
            kind="live",
            spec_obj=spec,
            instance_uuid=instance,
            migration_uuid=migration,
        )
        assert set(cloud.held(instance)) | set(cloud.held(migration)) == set(hosts)
        call("revert_move", move=begun["move"])
        assert (set(cloud.held(instance)), cloud.held(migration)) == ({source}, {})

    pids = [int(pid) for pid in re.findall(r"Worker (\d+) was started", log.read_text())]
    # a worker that ends within its first seconds would end them all
    eventually(lambda: settled(pids[0]), log.read_text())
    os.kill(pids[0], signal.SIGKILL)
    eventually(lambda: said(log, "Serving topic scheduler") == 3, log.read_text())
    assert said(log, "is started again") == 1


def metric(config: Path, sample: str) -> float:
    """The value of a sample, as `name` or `name{labels}`; 0 while there is none."""
    bind = re.search(r"metrics_bind = (\S+)", config.read_text())
    assert bind
    with urllib.request.urlopen(f"http://{bind[1]}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{sample} "))


def test_the_metrics_of_all_workers_add_up_and_do_not_go_back_when_one_is_replaced(
    cloud: Cloud, config: Path, log: Path, call: Callable[..., Any], announce: Callable[..., None]
) -> None:
    host = cloud.provider({cloud.mark: 6}, "COMPUTE_NODE")
    announce(host, 0)
    for _ in range(6):
        call("select_destinations", spec_obj=cloud.plain_spec(), instance_uuids=[str(uuid.uuid4())])
    answered = 'compute_scheduler_requests_total{method="select_destinations",result="answered"}'
    # an answer goes out just before its call is counted as ended
    eventually(lambda: metric(config, answered) == 6, "the calls of both workers")
    assert metric(config, 'compute_scheduler_claims_total{outcome="won"}') == 6
    for state in ("placement_up", "journal_usable"):
        # by the upkeep of both, which runs beside the calls
        eventually(lambda state=state: metric(config, f"compute_scheduler_{state}") == 1, state)
    eventually(
        lambda: metric(config, "compute_scheduler_oldest_announcement_age_seconds") > 0,
        "the age of the announcement",
    )
    pids = [int(pid) for pid in re.findall(r"Worker (\d+) was started", log.read_text())]
    eventually(lambda: settled(pids[0]), log.read_text())
    os.kill(pids[0], signal.SIGKILL)
    eventually(lambda: said(log, "Serving topic scheduler") == 3, log.read_text())
    assert metric(config, answered) == 6
    assert metric(config, "compute_scheduler_requests_in_progress") == 0


def settled(pid: int) -> bool:
    from compute_agent.scheduler.service.workers import SETTLED_SECONDS

    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - started / os.sysconf("SC_CLK_TCK") > SETTLED_SECONDS + 1
