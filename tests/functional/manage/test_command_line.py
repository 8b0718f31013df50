"""Common behaviour of the commands: version, help, and a status for bad arguments."""

import stat
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from compute_agent.cmd.agent import main as agent
from compute_agent.cmd.manage import main as manage
from tests.functional.manage.conftest import Answer, Operator
from tests.functional.manage.described_instances import described, instance

pytestmark = pytest.mark.waiting

PROGRAMS = ("compute-agent", "compute-manage", "compute-scheduler")
COMMANDS = (
    *("migrate_compute_inventory", "heal_allocations", "audit", "sync_aggregates"),
    *("rename", "delete-host", "adopt"),
)
IN_NOVA = ("heal_allocations", "audit", "sync_aggregates")
"""Commands that nova-manage has too."""


def run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    path = Path(sys.executable).parent / program
    return subprocess.run(
        [str(path), *arguments], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_version_is_that_of_the_package(program: str) -> None:
    done = run(program, "--version")
    assert done.returncode == 0
    assert done.stdout.strip() == metadata.version("compute-agent")


@pytest.mark.parametrize(("program", "status"), [("compute-agent", 127), ("compute-manage", 127)])
def test_no_command_at_all_is_a_bad_argument(program: str, status: int) -> None:
    done = run(program)
    assert done.returncode == status
    assert "usage" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_its_exit_status_and_the_options_that_all_have(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        manage.main(["placement", command, "--help"])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "exit status: 0 " in shown
    assert f"nova-manage placement {command}" in shown or command not in IN_NOVA
    for option in ("--config-file", "--dry-run", "--json", "--verbose", "--request-timeout"):
        assert option in shown


ENDS = [
    ("migrate_compute_inventory", (), 1, 4),
    ("heal_allocations", ("INSTANCES",), 127, 3),
    ("audit", ("INSTANCES", "--min-age=0"), 1, 1),
    ("sync_aggregates", (), 127, 2),
    ("rename", ("h", "i"), 2, 3),
    ("delete-host", ("h",), 2, 3),
    ("adopt", (str(uuid.uuid4()),), 2, 3),
]
"""Commands with arguments, and how they end with a wrong option and without placement."""


@pytest.mark.parametrize(
    ("command", "arguments", "wrong_option", "no_placement"), ENDS, ids=COMMANDS
)
def test_every_command_tells_by_its_status_what_is_wrong(
    offline: Operator,
    answering: Callable[[Answer], None],
    command: str,
    arguments: tuple[str, ...],
    wrong_option: int,
    no_placement: int,
) -> None:
    offline.placement.new_host("h")
    aggregates = offline.directory / "aggregates.yaml"
    aggregates.write_text(f"[{{uuid: {uuid.uuid4()}, hosts: [h]}}]")
    offline.configure(compute_scheduler={"aggregate_source": aggregates})
    exist = described(offline, instance("h"))
    arguments = tuple(exist if word == "INSTANCES" else word for word in arguments)
    before = offline.dump()

    assert offline.run(command, *arguments, "--nonsense").status == 127

    def broken(*_args: object) -> None:
        raise RuntimeError("broken")

    answering(broken)
    result = offline.run(command, *arguments, status=255)
    assert "Traceback" in result.err

    offline.extra = ["--request-timeout=5"]
    assert offline.run(command, *arguments).status == no_placement

    offline.configure(DEFAULT={"update_resources_interval": "often"})
    result = offline.run(command, *arguments, status=wrong_option)
    assert "update_resources_interval" in result.err
    assert offline.dump() == before


@pytest.mark.parametrize(
    "line",
    [
        "placement delete-host",
        "placement rename host",
        "placement adopt no-uuid",
        "placement no-such-command",
        "placement audit --min-age=-1",
        "placement audit --resource_provider=x",
        "placement migrate_compute_inventory --node no-such-node",
        "placement migrate_compute_inventory --request-timeout 0",
        "placement heal_allocations INSTANCES --force",
        "placement heal_allocations INSTANCES --cell=a --instance=UUID",
        "placement heal_allocations INSTANCES --force --skip-port-allocations --instance=UUID",
        "placement heal_allocations INSTANCES --instance=UUID",
        "placement heal_allocations INSTANCES --max-count=0",
        "placement heal_allocations INSTANCES --instance=x",
        "host list --interval 3",
        "host drain host --undo --watch",
        "host drain host --watch --dry-run",
        "host drain host --timeout 5",
        "host drain host --with x",
    ],
)
def test_127_for_bad_arguments(offline: Operator, line: str) -> None:
    offline.placement.new_host("host")
    values = {"INSTANCES": described(offline, instance("host")), "UUID": str(uuid.uuid4())}
    for word, value in values.items():
        line = line.replace(word, value)
    offline.topic, command, *arguments = line.split()
    before = offline.dump()
    result = offline.run(command, *arguments)
    assert (result.status, bool(result.err)) == (127, True)
    assert offline.dump() == before


def test_130_for_a_command_that_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("compute_agent.cmd.manage.hosts.configuration", interrupted)
    assert manage.main(["placement", "rename", "a", "b"]) == 130
    assert "compute-manage placement rename: interrupted" in capsys.readouterr().err
    monkeypatch.setattr("compute_agent.cmd.program.configuration", interrupted)
    assert agent.main(["plan"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_bundle_has_all_of_a_machine_but_its_secrets(
    offline: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline.configure(placement={"password": "Pl4nted", "auth_type": "password"})
    offline.configure(DEFAULT={"transport_url": "rabbit://u:Pl4nted@127.0.0.1:1//"})
    offline.arguments("audit")
    archive = tmp_path / "bundle.tar.gz"
    config = offline.directory / "agent.conf"
    assert manage.main(["bundle", f"--config-file={config}", str(archive)]) == 0
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as opened:
        texts = {
            member.name: file.read().decode(errors="replace")
            for member in opened.getmembers()
            if member.isfile() and (file := opened.extractfile(member))
        }
    assert "password = ***" in texts[f"configuration{config}"]
    assert "oslo.config==" in texts["versions.txt"]
    assert "exit status 2" in texts["commands/compute-agent-doctor.txt"]
    assert "capture/capture.json" in texts
    assert not [name for name, text in texts.items() if "Pl4nted" in text]
    assert manage.main(["bundle", f"--config-file={config}", str(archive)]) == 2
