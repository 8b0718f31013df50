"""The commands that look on: `list` and `top`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry

from compute_agent.cmd.scheduler.running import picture
from compute_agent.programs.metrics_server import MetricsServer
from compute_agent.scheduler.outcomes import FilterCause
from compute_agent.scheduler.service.metrics import CountedCalls
from compute_agent.scheduler.service.readings import reading_of
from tests.fixtures.ports import free_port
from tests.fixtures.terminal import Terminal
from tests.functional.agent.processes import eventually
from tests.functional.documentation.shell_blocks import BlocksToRun, commands_of
from tests.functional.scheduler.conftest import Cloud, Command
from tests.functional.scheduler.running_service import PROGRAM


def test_list_shows_what_a_consumer_a_host_and_a_project_hold(
    cloud: Cloud, command: Command
) -> None:
    host = cloud.flat_host(4)
    card = cloud.provider({cloud.mark: 2}, parent=host)
    project = cloud.mark.lower()
    claimed = [
        json.loads(
            command(
                *("claim", "--resources", f"VCPU=1,{cloud.mark}=1", "--project", project),
                *("--type", kind, "--json"),
            ).stdout
        )["consumer"]
        for kind in ("INSTANCE", "MIGRATION")
    ]
    first = json.loads(command("list", claimed[0], "--json").stdout)
    assert [(c["consumer"], c["hosts"], c["project_id"]) for c in first] == [
        (claimed[0], [f"p-{host}"], project)
    ]
    assert first[0]["allocations"] == {
        host: {"name": f"p-{host}", "resources": {"VCPU": 1}},
        card: {"name": f"p-{card}", "resources": {cloud.mark: 1}},
    }
    on_host = command("list", "--host", f"p-{host}").stdout
    assert all(consumer in on_host for consumer in claimed)
    assert "MIGRATION" in on_host
    usages = json.loads(command("list", "--project", project, "--json").stdout)
    assert usages["INSTANCE"] == {"consumer_count": 1, "VCPU": 1, cloud.mark: 1}
    assert "MIGRATION  1          " in command("list", "--project", project).stdout

    assert command("release", claimed[0]).returncode == 0
    nothing = command("list", claimed[0])
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert "no consumer holds anything" in nothing.stderr
    assert command("list").returncode == 2
    assert command("list", "--host", "nowhere").returncode == 2


@contextmanager
def metrics() -> Iterator[tuple[CountedCalls, str]]:
    registry = CollectorRegistry()
    calls, bind = CountedCalls(registry), f"127.0.0.1:{free_port()}"
    server = MetricsServer("a test", bind, registry, OSError)
    server.start()
    try:
        yield calls, f"http://{bind}/metrics"
    finally:
        server.stop()


def test_top_shows_what_a_scheduler_does_now_and_leaves_the_terminal_as_it_was() -> None:
    with metrics() as (calls, url):
        blocks = BlocksToRun("with a scheduler")
        ((_, *arguments),) = commands_of(blocks.next_of("do/monitoring"))
        assert not blocks.left
        terminal = Terminal(PROGRAM, *arguments, "--url", url, "--interval", "0.2")
        try:
            eventually(lambda: "claims/s" in terminal.shown, "a picture")
            calls.on_upkeep(placement_up=True, bus_up=True, oldest_announcement=7.0)
            with calls.answering("select_destinations"):
                for _ in range(50):
                    calls.on_claim("won", again=False)
                calls.on_filtering([FilterCause("ComputeFilter", 30, 10, ())])
            for text in (
                "placement answers  bus up",
                "options read",
                "oldest announcement 7 s",
                "p95 ",
                "ComputeFilter",
            ):
                eventually(lambda text=text: text in terminal.shown, text)
            eventually(lambda: "claims/s     won 0.0" in terminal.shown, "the end of the burst")
            rates = [line for line in terminal.shown.splitlines() if "claims/s     won" in line]
            assert any("won 0.0" not in line for line in rates)
            terminal.type("q")
            assert terminal.ended() == 0
        finally:
            terminal.process.kill()
        assert terminal.is_as_before()


def test_top_shows_options_and_a_journal_that_cannot_be_used() -> None:
    text = "compute_scheduler_configuration_read 0\ncompute_scheduler_journal_usable 0"
    reading = reading_of(text, 1.0)
    shown = list(picture(reading_of(text, 0.0), reading, "http://here/metrics"))
    assert "journal cannot be used, see the log  options not reloaded, see the log" in shown[1]


def test_top_without_a_scheduler_says_where_it_looked(command: Command) -> None:
    unset = command("top")
    assert unset.returncode == 2
    assert "metrics_bind is not set" in unset.stderr
    away = command("top", "--url", f"http://127.0.0.1:{free_port()}/metrics", "--count", "1")
    assert away.returncode == 3
    assert "compute-scheduler serve" in away.stderr


@pytest.mark.parametrize(
    ("option", "value"), [("--interval", "0"), ("--interval", "x"), ("--count", "-1")]
)
def test_top_refuses_an_interval_or_a_count_that_is_none(
    command: Command, option: str, value: str
) -> None:
    refused = command("top", option, value)
    assert refused.returncode == 2
    assert value in refused.stderr


def test_top_names_an_address_that_shows_something_else(command: Command) -> None:
    bind = f"127.0.0.1:{free_port()}"
    server = MetricsServer("a test", bind, CollectorRegistry(), OSError)
    server.start()
    try:
        ended = command("top", "--url", f"http://{bind}/metrics", "--count", "1")
    finally:
        server.stop()
    assert ended.returncode == 3
    assert "not the metrics of a scheduler" in ended.stderr
