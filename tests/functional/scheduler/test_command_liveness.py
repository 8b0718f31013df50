"""The commands that choose hosts, and what a running scheduler on the bus has heard of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from compute_agent.cmd.scheduler import main as command
from compute_agent.programs.exit_status import Exit
from compute_agent.provider_tree.trait_names import COMPUTE_STATUS_DISABLED
from compute_agent.scheduler.bus import rpc, running_scheduler
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.fleet.announcements import Announcements
from tests.fixtures.claim_options import spec_of_options
from tests.fixtures.ports import free_port
from tests.functional.scheduler.conftest import Cloud, Command
from tests.functional.scheduler.schedulers import scheduler, serving

pytestmark = pytest.mark.waiting

Run = Callable[..., tuple[int, str, str]]
UNKNOWN = "It is unknown which hosts are alive"


@pytest.fixture
def on_bus(config: Path) -> Path:
    """A configuration with a bus in memory."""
    config.write_text(
        config.read_text().replace("[DEFAULT]\n", "[DEFAULT]\ntransport_url=fake://\n")
    )
    return config


@pytest.fixture
def run(on_bus: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command with it in this process: its status, and what it printed."""

    def ended(*arguments: str) -> tuple[int, str, str]:
        status = command.main(["--config-file", str(on_bus), *arguments])
        return status, *capsys.readouterr()

    return ended


@pytest.fixture
def heard(on_bus: Path) -> Iterator[Announcements]:
    """What a scheduler has heard that serves on that bus."""
    with serving(on_bus) as (service, _):
        yield service.announcements


def announced(heard: Announcements, root: str, *, silent: float = 0.0, **node: Any) -> None:
    """Let an agent announce itself, so many seconds ago."""
    clock = heard._clock
    heard._clock = lambda: clock() - silent
    heard.receive({"host": f"p-{root}", "nodes": [{"uuid": root, **node}]})
    heard._clock = clock


def specification(cloud: Cloud) -> dict[str, Any]:
    extra = {f"trait:{cloud.mark}": "required"}
    return {
        "instance_uuid": str(uuid.uuid4()),
        "project_id": "p",
        "user_id": "u",
        "flavor": {"vcpus": 1, "memory_mb": 64, "extra_specs": extra},
    }


def test_a_claim_takes_neither_silent_nor_disabled_hosts(
    cloud: Cloud, run: Run, heard: Announcements
) -> None:
    silent, disabled, alive = (cloud.flat_host(4) for _ in range(3))
    announced(heard, silent, silent=61.0)
    announced(heard, disabled, enabled=False)
    announced(heard, alive)
    asked = ("claim", "--resources", "VCPU=4", "--required", cloud.mark, "--json")
    status, out, err = run(*asked)
    assert (status, err) == (Exit.FINE, "")
    assert json.loads(out)["root_provider"] == alive
    status, _, err = run(*asked)
    assert status == Exit.FAILED
    assert "ComputeFilter dropped the last 2 host(s)" in err


@pytest.mark.parametrize("words", [("select",), ("move", "begin", "live")])
def test_a_specification_is_not_placed_on_a_silent_host(
    cloud: Cloud,
    run: Run,
    heard: Announcements,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, silent = cloud.flat_host(1), cloud.flat_host(4)
    body = specification(cloud)
    arguments = list(words)
    if "move" in words:
        _, out, _ = run("claim", "--resources", "VCPU=1", "--host", f"p-{source}", "--json")
        instance = json.loads(out)["consumer"]
        arguments += [instance, "--migration", str(uuid.uuid4())]
    else:
        announced(heard, source, enabled=False)
    announced(heard, silent, silent=61.0)
    monkeypatch.setattr("sys.stdin", StringIO(json.dumps(body)))
    status, _, err = run(*arguments)
    assert status == Exit.FAILED
    assert "ComputeFilter dropped the last" in err


def test_a_silent_host_that_is_named_is_taken_with_a_warning(
    cloud: Cloud, run: Run, heard: Announcements
) -> None:
    host = cloud.flat_host(4)
    announced(heard, host, silent=61.0)
    asked = ("claim", "--resources", "VCPU=1", "--host", f"p-{host}", "--json")
    _, out, err = run(*asked)
    assert json.loads(out)["root_provider"] == host
    assert f"Host p-{host} is used because the request forces it" in err
    assert "its agent was last heard" in err
    status, out, _ = run("explain", *asked[1:-1])
    assert status == Exit.FINE
    assert "its agent was last heard" in " ".join(out.split())


def test_a_disabled_host_that_is_named_is_refused_with_the_reason_of_its_operator(
    cloud: Cloud, run: Run, heard: Announcements
) -> None:
    host = cloud.provider({"VCPU": 4}, COMPUTE_STATUS_DISABLED)
    asked = ("--resources", "VCPU=1", "--host", f"p-{host}")
    status, _, err = run("claim", *asked)
    assert status == Exit.FAILED
    assert f"Host p-{host} is disabled: enable it" in err
    announced(heard, host, enabled=False, disabled_reason="new power supply")
    for word in ("claim", "explain"):
        status, out, err = run(word, *asked)
        assert status == Exit.FAILED
        assert f"Host p-{host} is disabled (new power supply): enable" in out + err


def test_whether_a_named_host_is_disabled_takes_one_request_whatever_its_tree(
    cloud: Cloud, config: Path
) -> None:
    host = cloud.provider({"VCPU": 4}, COMPUTE_STATUS_DISABLED)
    cloud.provider({cloud.mark: 1}, parent=host)
    claiming, transport = scheduler(config)
    asked = spec_of_options(resources="VCPU=1", host=f"p-{host}")
    with pytest.raises(NoValidHost, match="is disabled"):
        claiming.select_destinations(asked, [str(uuid.uuid4())])
    assert not [request for request in transport.requests if request.endswith("/traits")]


def test_without_a_bus_a_claim_reports_once_that_liveness_is_unknown_and_is_made(
    cloud: Cloud, command: Command
) -> None:
    host = cloud.flat_host(4)
    done = command("claim", "--resources", "VCPU=1", "--required", cloud.mark, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["root_provider"] == host
    assert done.stderr.count(UNKNOWN) == 1
    assert "transport_url is not set" in done.stderr
    assert command("release", json.loads(done.stdout)["consumer"]).stderr == ""


def test_without_an_answer_from_a_scheduler_a_claim_is_made_too(
    cloud: Cloud, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_scheduler, "ANNOUNCEMENTS_TIMEOUT", 0.1)
    host = cloud.flat_host(4)
    asked = ("claim", "--resources", "VCPU=1", "--required", cloud.mark, "--json")
    status, out, err = run(*asked)
    assert status == Exit.FINE
    assert json.loads(out)["root_provider"] == host
    assert err.count(UNKNOWN) == 1
    assert "No scheduler answered announced_hosts" in err


def test_without_a_broker_a_claim_is_made_too(
    cloud: Cloud, config: Path, command: Command, claimed: Callable[..., Any]
) -> None:
    host = cloud.flat_host(4)
    bus = f"transport_url = rabbit://user:password@127.0.0.1:{free_port()}//"
    config.write_text(config.read_text().replace("[DEFAULT]", f"[DEFAULT]\n{bus}"))
    assert claimed("VCPU=1")["root_provider"] == host
    done = command("explain", "--resources", "VCPU=1", "--required", cloud.mark)
    assert done.returncode == Exit.FINE, done.stderr
    assert UNKNOWN in done.stderr
    assert "the message bus is unreachable" in done.stderr
    # one sentence, and no line of the library
    assert len(done.stderr.splitlines()) == 1


def test_an_error_with_which_a_scheduler_answers_is_not_taken_for_silence(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise rpc.oslo_messaging.RemoteError(
            "PlacementUnavailable", "placement answered 503", ["Traceback"]
        )

    monkeypatch.setattr(rpc.SchedulerClient, "call", fail)
    status, _, text = run("status", "upgrade")
    assert status == Exit.PLACEMENT
    assert "A scheduler answered upgrade_status with an error: placement answered 503" in text
    assert "Traceback" not in text
