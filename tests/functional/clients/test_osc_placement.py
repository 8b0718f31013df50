"""Every command of osc-placement, as an operator types it, at its lowest and its highest version.

The real client runs in a fork of this process, which spares it the second that its imports take; a
fork of its own for each command, because the client remembers the first version it was given. The
server is a real process spoken to over HTTP.
"""

import contextlib
import io
import json
import multiprocessing
import uuid
from collections.abc import Callable
from importlib.metadata import entry_points
from multiprocessing.connection import Connection
from typing import Any

import pytest
from openstackclient import shell

HIGHEST = "1.39"
Openstack = Callable[..., Any]

# The version at which osc-placement offers a command first.
LOWEST = {
    "allocation candidate list": "1.10",
    "resource class create": "1.2",
    "resource class delete": "1.2",
    "resource class list": "1.2",
    "resource class set": "1.7",
    "resource class show": "1.2",
    "resource provider aggregate list": "1.1",
    "resource provider aggregate set": "1.1",
    "resource provider allocation delete": "1.0",
    "resource provider allocation set": "1.0",
    "resource provider allocation show": "1.0",
    "resource provider allocation unset": "1.12",
    "resource provider create": "1.0",
    "resource provider delete": "1.0",
    "resource provider inventory class set": "1.0",
    "resource provider inventory delete": "1.0",
    "resource provider inventory list": "1.0",
    "resource provider inventory set": "1.0",
    "resource provider inventory show": "1.0",
    "resource provider list": "1.0",
    "resource provider set": "1.0",
    "resource provider show": "1.0",
    "resource provider trait delete": "1.6",
    "resource provider trait list": "1.6",
    "resource provider trait set": "1.6",
    "resource provider usage show": "1.0",
    "resource usage show": "1.9",
    "trait create": "1.6",
    "trait delete": "1.6",
    "trait list": "1.6",
    "trait show": "1.6",
}
SILENT = {
    "resource class create",
    "resource class delete",
    "resource class set",
    "resource provider allocation delete",
    "resource provider delete",
    "resource provider inventory delete",
    "resource provider trait delete",
    "trait create",
    "trait delete",
}


FORK = multiprocessing.get_context("fork")


@pytest.fixture(scope="module")
def plugins() -> None:
    """Let the client find and load its plugins once, for all forks: nine tenths of a command."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert shell.OpenStackShell().run(["command", "list"]) == 0


def run_shell(argv: list[str], answer: Connection) -> None:
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = shell.OpenStackShell().run(argv)
    answer.send((code, output.getvalue(), errors.getvalue()))


@pytest.fixture(params=["lowest", HIGHEST])
def openstack(request: pytest.FixtureRequest, plugins: None, placement_url: str) -> Openstack:
    """Runs one command; its JSON output, decoded. `.seen` holds the commands run."""
    lowest = request.param == "lowest"

    def run(command: str, *arguments: str) -> Any:
        run.seen.add(command)  # type: ignore[attr-defined]
        argv = [
            *("--os-auth-type", "admin_token", "--os-token", "admin"),
            *("--os-endpoint", placement_url),
            *("--os-placement-api-version", LOWEST[command] if lowest else HIGHEST),
            *command.split(),
            *arguments,
            *([] if command in SILENT else ["-f", "json"]),
        ]
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=run_shell, args=(argv, theirs))
        process.start()
        theirs.close()
        code, output, errors = ours.recv()
        process.join()
        assert code == 0, f"{' '.join(argv)}: {errors}"
        return json.loads(output) if output.strip() else None

    run.lowest = lowest  # type: ignore[attr-defined]
    run.seen = set()  # type: ignore[attr-defined]
    return run


def test_the_table_above_names_every_command_of_osc_placement() -> None:
    offered = {
        entry.name.replace("_", " ") for entry in entry_points(group="openstack.placement.v1")
    }
    assert offered == set(LOWEST)


def test_an_operators_day_with_every_command(openstack: Openstack) -> None:
    """One story, because each command needs what the one before it made.

    host (VCPU 8, DISK_GB 100, CUSTOM_LICENCE 2)  <- consumer (VCPU 2, DISK_GB 10)
    """
    lowest: bool = openstack.lowest  # type: ignore[attr-defined]
    suffix = uuid.uuid4().hex[:8].upper()
    host, consumer, aggregate = (str(uuid.uuid4()) for _ in range(3))
    licence, faster, trait = (
        f"CUSTOM_LICENCE_{suffix}",
        f"CUSTOM_FAST_{suffix}",
        f"CUSTOM_T_{suffix}",
    )
    project, user = f"project-{suffix}", f"user-{suffix}"

    made = openstack("resource provider create", f"host-{suffix}", "--uuid", host)
    assert made["uuid"] == host
    assert openstack("resource provider set", host, "--name", f"renamed-{suffix}")["uuid"] == host
    assert openstack("resource provider show", host)["name"] == f"renamed-{suffix}"
    listed = openstack("resource provider list", "--name", f"renamed-{suffix}")
    assert [provider["uuid"] for provider in listed] == [host]

    openstack("resource class create", licence)
    openstack("resource class set", faster)
    assert openstack("resource class show", licence)["name"] == licence
    assert {"name": licence} in openstack("resource class list")
    openstack("resource class delete", faster)
    assert {"name": faster} not in openstack("resource class list")

    openstack(
        "resource provider inventory set",
        host,
        *("--resource", "VCPU=8", "--resource", "DISK_GB=100", "--resource", f"{licence}=1"),
    )
    record = openstack("resource provider inventory class set", host, licence, "--total", "2")
    assert record["total"] == 2
    assert openstack("resource provider inventory show", host, "VCPU")["total"] == 8
    classes = {row["resource_class"] for row in openstack("resource provider inventory list", host)}
    assert classes == {"VCPU", "DISK_GB", licence}
    openstack("resource provider inventory delete", host, "--resource-class", licence)
    assert len(openstack("resource provider inventory list", host)) == 2

    openstack("trait create", trait)
    openstack("trait show", trait)
    assert {"name": trait} in openstack("trait list")
    openstack("resource provider trait set", host, "--trait", trait)
    assert openstack("resource provider trait list", host) == [{"name": trait}]

    generation = str(openstack("resource provider show", host)["generation"])
    openstack(
        "resource provider aggregate set",
        host,
        *("--aggregate", aggregate),
        *([] if lowest else ["--generation", generation]),
    )
    assert openstack("resource provider aggregate list", host) == [{"uuid": aggregate}]

    candidates = openstack("allocation candidate list", "--resource", "VCPU=2")
    assert host in {candidate["resource provider"] for candidate in candidates}

    owner = ["--project-id", project, "--user-id", user]
    openstack(
        "resource provider allocation set",
        consumer,
        *("--allocation", f"rp={host},VCPU=2,DISK_GB=10"),
        *([] if lowest else [*owner, "--consumer-type", "INSTANCE"]),
    )
    held = openstack("resource provider allocation show", consumer)
    assert held[0]["resource_provider"] == host
    used = openstack("resource provider usage show", host)
    assert {"resource_class": "VCPU", "usage": 2} in used
    if not lowest:
        totals = openstack("resource usage show", project, "--user-id", user)
        usage = {"VCPU": 2, "DISK_GB": 10, "consumer_count": 1}
        assert totals == [{"resource_class": "INSTANCE", "usage": usage}]
    else:
        assert openstack("resource usage show", project) == []
    left = openstack("resource provider allocation unset", consumer, "--resource-class", "DISK_GB")
    assert left[0]["resources"] == {"VCPU": 2}
    openstack("resource provider allocation delete", consumer)
    assert openstack("resource provider allocation show", consumer) == []

    openstack("resource provider trait delete", host)
    assert openstack("resource provider trait list", host) == []
    openstack("trait delete", trait)
    openstack("resource provider delete", host)
    assert openstack("resource provider list", "--uuid", host) == []
    openstack("resource class delete", licence)

    assert openstack.seen == set(LOWEST)  # type: ignore[attr-defined]
