"""A scheduler as a service: what systemd hears of it, and what signals do."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.fixtures.ports import free_port
from tests.fixtures.rabbitmq import RabbitMq
from tests.functional.agent.lying_proxy import LyingProxy
from tests.functional.agent.processes import PATIENCE, eventually, read_url
from tests.functional.scheduler.conftest import write_config
from tests.functional.scheduler.running_service import service

pytestmark = pytest.mark.waiting


@pytest.mark.parametrize("workers", [1, 2])
def test_it_is_ready_reloaded_and_stopped_as_systemd_wants_to_hear_it(
    config: Path, workers: int
) -> None:
    with service(config, workers) as scheduler:
        scheduler.until("READY=1")
        assert "serving topic scheduler; placement answers" in scheduler.status
        scheduler.process.send_signal(signal.SIGHUP)
        scheduler.until("RELOADING=1")
        scheduler.until("READY=1", times=2)
        assert scheduler.stop() == 0
        scheduler.until("STOPPING=1")
        assert scheduler.logged().count("Serving topic scheduler") == workers
        # a worker waits for its parent to go while it ends itself
        assert "Fatal Python error" not in scheduler.logged()
        first, *_ = scheduler.logged().splitlines()
        assert f"starts: {workers} worker" in first
        assert "message bus fake" in first


@pytest.mark.parametrize("workers", [1, 2])
def test_it_is_ready_without_placement_and_tells_when_that_is_back(
    config: Path, placement_url: str, workers: int
) -> None:
    proxy = LyingProxy(placement_url)
    write_config(config, proxy.url)
    proxy.answer("GET", ".*", 503)
    with service(config, workers) as scheduler:
        scheduler.until("READY=1")
        assert "placement cannot be reached" in scheduler.status
        proxy.honest()
        eventually(
            lambda: (
                scheduler.status.endswith("; placement answers")
                and "cannot be reached" not in scheduler.status
            ),
            "the state of placement",
        )


@pytest.mark.parametrize("workers", [1, 2])
def test_a_reload_that_is_asked_for_during_the_start_follows_it(
    config: Path, placement_url: str, workers: int
) -> None:
    proxy = LyingProxy(placement_url)
    write_config(config, proxy.url)
    pauses = [proxy.pause("GET", "^/$") for _ in range(workers)]
    if workers > 1:
        # of the process that starts them
        proxy.pause("GET", "^/$")[1].set()
    with service(config, workers) as scheduler:
        for held, _ in pauses:
            assert held.wait(PATIENCE)
        scheduler.process.send_signal(signal.SIGHUP)
        scheduler.process.send_signal(signal.SIGUSR2)
        for _, go_on in pauses:
            go_on.set()
        scheduler.until("READY=1")
        texts = ("Reloaded configuration and aggregates", "state of compute-scheduler: end")
        eventually(
            lambda: all(scheduler.logged().count(text) == workers for text in texts),
            "a reload and a dump of every process that serves",
        )
        if workers == 1:
            scheduler.until("READY=1", times=2)
            notices = [n for n in scheduler.heard if n in ("READY=1", "RELOADING=1")]
            assert notices == ["READY=1", "RELOADING=1", "READY=1"]
        assert scheduler.stop() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_the_line_of_systemctl_status_has_a_reload_that_failed_until_one_succeeds(
    config: Path, tmp_path: Path, workers: int
) -> None:
    aggregates = tmp_path / "aggregates.yaml"
    aggregates.write_text("[]")
    with config.open("a") as file:
        file.write(f"[compute_scheduler]\naggregate_source = {aggregates}\n")
    with service(config, workers) as scheduler:
        scheduler.until("READY=1")
        assert "not reloaded" not in scheduler.status
        aggregates.write_text("- nothing")
        scheduler.process.send_signal(signal.SIGHUP)
        scheduler.until("READY=1", times=2)
        assert "; placement answers; not reloaded at 20" in scheduler.status
        aggregates.write_text("[]")
        scheduler.process.send_signal(signal.SIGHUP)
        scheduler.until("READY=1", times=3)
        assert "not reloaded" not in scheduler.status


def test_an_idle_scheduler_shows_that_the_database_of_placement_is_away(
    config: Path, placement_url: str
) -> None:
    proxy, bind = LyingProxy(placement_url), f"127.0.0.1:{free_port()}"
    write_config(config, proxy.url)
    with config.open("a") as file:
        file.write(f"[compute_scheduler]\nmetrics_bind = {bind}\n")
    with service(config) as scheduler:
        scheduler.until("READY=1")
        eventually(
            lambda: "compute_scheduler_placement_up 1.0" in read_url(f"http://{bind}/metrics"),
            "the state of placement",
        )
        proxy.answer("GET", "/resource_providers.*", 503)
        eventually(
            lambda: "compute_scheduler_placement_up 0.0" in read_url(f"http://{bind}/metrics"),
            "the outage in the metrics",
        )
        eventually(lambda: "placement cannot be reached" in scheduler.status, "and in the status")
        state = next(line for line in scheduler.logged().splitlines() if "State of" in line)
        assert "placement answered 503 to GET /resource_providers" in state
        scheduler.process.send_signal(signal.SIGUSR2)
        eventually(lambda: "compute-scheduler: end" in scheduler.logged(), "the state")
        dump = scheduler.logged().partition("state of compute-scheduler")[2]
        assert "placement answered 503 to GET /resource_providers" in dump


def test_an_idle_scheduler_shows_that_the_broker_is_away_and_what_to_look_at(
    config: Path, rabbitmq: RabbitMq
) -> None:
    bind = f"127.0.0.1:{free_port()}"
    with config.open("a") as file:
        file.write(f"[compute_scheduler]\nmetrics_bind = {bind}\n")
    with service(config, bus=rabbitmq.url) as scheduler:
        scheduler.until("READY=1")
        assert "serving topic" in scheduler.status
        up = "compute_scheduler_placement_up 1.0"
        eventually(lambda: up in read_url(f"http://{bind}/metrics"), "its state")
        assert "compute_scheduler_bus_up 1.0" in read_url(f"http://{bind}/metrics")
        with rabbitmq.stopped():
            eventually(lambda: "bus cannot be reached" in scheduler.status, "the outage")
        state = next(line for line in scheduler.logged().splitlines() if "State of" in line)
        assert "Check [DEFAULT]transport_url" in state


def test_it_is_ready_without_a_broker_and_ends_when_asked_to(config: Path) -> None:
    with service(config, bus=f"rabbit://nobody@127.0.0.1:{free_port()}//") as scheduler:
        scheduler.until("READY=1")
        assert scheduler.status.startswith("waiting for the message bus; placement answers")
        assert scheduler.stop() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_the_watchdog_of_an_idle_scheduler_is_fed(config: Path, workers: int) -> None:
    with service(config, workers, watchdog=1.0) as scheduler:
        scheduler.until("WATCHDOG=1", times=3)
        if workers > 1:
            # systemd has to notice one worker that hangs, though the others do not
            match = re.search(r"Worker (\d+) was started", scheduler.logged())
            assert match
            os.kill(int(match[1]), signal.SIGSTOP)
            eventually(lambda: is_stopped(int(match[1])), "a worker that hangs")
            for dumps in (1, 2):
                # what it had sent before is passed on until the first dump
                scheduler.heard.clear()
                scheduler.process.send_signal(signal.SIGUSR2)
                eventually(
                    lambda dumps=dumps: scheduler.logged().count("compute-scheduler: end") >= dumps,
                    "the other worker",
                )
            assert scheduler.heard.count("WATCHDOG=1") <= 1
            os.kill(int(match[1]), signal.SIGCONT)
            scheduler.until("WATCHDOG=1", times=2)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("workers", [1, 2])
def test_sigusr2_dumps_state_threads_and_options_without_secrets(
    config: Path, workers: int
) -> None:
    with config.open("a") as file:
        file.write("password = hunter2\n")
    with service(config, workers) as scheduler:
        scheduler.until("READY=1")
        scheduler.process.send_signal(signal.SIGUSR2)
        eventually(
            lambda: scheduler.logged().count("state of compute-scheduler: end") == workers,
            "a dump of every process that serves",
        )
        for part in ('"calls"', '"journal"', "thread MainThread", "claim_candidates_per_host"):
            assert part in scheduler.logged()
        assert "hunter2" not in scheduler.logged()
        assert scheduler.stop() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_metrics_are_served_where_configured_and_names_are_those_of_the_documentation(
    config: Path, workers: int
) -> None:
    bind = f"127.0.0.1:{free_port()}"
    with config.open("a") as file:
        file.write(f"[compute_scheduler]\nmetrics_bind = {bind}\n")
    with service(config, workers) as scheduler:
        scheduler.until("READY=1")
        eventually(
            lambda: "compute_scheduler_placement_up 1.0" in read_url(f"http://{bind}/metrics"),
            "the state of placement",
        )
        text = read_url(f"http://{bind}/metrics")
        assert scheduler.stop() == 0
    names = set(re.findall(r"^# TYPE (compute_scheduler_\w+) ", text, re.MULTILINE))
    # the library adds when each counter began
    names = {name for name in names if not name.endswith("_created")}
    documented = (
        Path(__file__).parents[3] / "docs" / "reference" / "scheduler-service.md"
    ).read_text()
    assert names <= set(re.findall(r"compute_scheduler_\w+", documented))


def test_a_journal_that_cannot_be_written_is_named_and_is_no_outage_of_placement(
    config: Path, tmp_path: Path
) -> None:
    bind, journal = f"127.0.0.1:{free_port()}", tmp_path / "journal"
    journal.mkdir()
    with config.open("a") as file:
        file.write(f"[compute_scheduler]\nmetrics_bind = {bind}\njournal_path = {journal}\n")
    with service(config) as scheduler:
        scheduler.until("READY=1")
        eventually(
            lambda: "compute_scheduler_placement_up 1.0" in read_url(f"http://{bind}/metrics"),
            "the state of placement",
        )
        assert "compute_scheduler_journal_usable 0.0" in read_url(f"http://{bind}/metrics")
        expected = f"placement answers; The journal {journal}"
        eventually(lambda: expected in scheduler.status, "the journal in the status")


def test_metrics_that_cannot_be_served_end_the_start_as_bad_configuration(config: Path) -> None:
    with config.open("a") as file:
        file.write("[compute_scheduler]\nmetrics_bind = 9102\n")
    with service(config) as scheduler:
        assert scheduler.process.wait(60) == 2
        assert "expected ADDRESS:PORT" in scheduler.logged()
