"""The commands of the plain API, on this project's server and on the published one."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from compute_agent.cmd.placement.main import main
from compute_agent.placement.transports.transport import Transport
from tests.functional.either_placement import OlderPlacement
from tests.functional.placement_command.conftest import Run, done


@pytest.fixture
def host(run: Run) -> str:
    """A host with two cells, named by a name of its own."""
    name = f"host-{uuid.uuid4().hex[:8]}"
    done(run("provider", "create", name))
    done(run("inventory", "set", name, "MEMORY_MB=4096", "DISK_GB=100", "--reserved", "10"))
    for cell in ("0", "1"):
        done(run("provider", "create", f"{name}_NUMA{cell}", "--parent", name))
        done(run("inventory", "set", f"{name}_NUMA{cell}", "VCPU=8"))
    return name


def test_a_provider_is_created_renamed_moved_and_deleted(run: Run, host: str) -> None:
    new, made = f"{host}-new", str(uuid.uuid4())
    created = done(run("provider", "create", new, "--uuid", made, "--json")).json
    assert (created["uuid"], created["name"]) == (made, new)
    done(run("provider", "set", made, "--name", f"{new}er", "--parent", host))
    listed = done(run("provider", "list", "--in-tree", host, "-f", "value", "-c", "name"))
    assert sorted(listed.lines) == sorted([host, f"{host}_NUMA0", f"{host}_NUMA1", f"{new}er"])
    assert done(run("provider", "set", made, "--root", "--json")).json["root_provider_uuid"] == made
    done(run("provider", "delete", f"{new}er"))
    assert run("provider", "show", made).status == 1
    assert done(run("provider", "list", "--name", new, "--json")).json == []


def test_inventories_that_are_not_named_stay(run: Run, host: str) -> None:
    done(run("inventory", "set", host, "MEMORY_MB=8192", "--allocation-ratio", "1.5"))
    stock = done(run("inventory", "list", host, "--json")).json
    assert stock["MEMORY_MB"]["total"] == 8192
    assert (stock["MEMORY_MB"]["reserved"], stock["MEMORY_MB"]["allocation_ratio"]) == (10, 1.5)
    assert stock["DISK_GB"]["total"] == 100
    done(run("inventory", "delete", host, "DISK_GB"))
    rows = done(
        run("inventory", "list", host, "-f", "value", "-c", "resource_class", "-c", "total")
    )
    assert rows.lines == ["MEMORY_MB 8192"]
    done(run("inventory", "set", host, "DISK_GB=5", "--only"))
    assert list(done(run("inventory", "list", host, "--json")).json) == ["DISK_GB"]
    done(run("inventory", "delete", host, "--all"))
    assert done(run("inventory", "list", host, "--json")).json == {}


def test_traits_and_aggregates_are_replaced_added_and_removed(run: Run, host: str) -> None:
    done(run("trait", "set", host, "CUSTOM_PLACED", "HW_NUMA_ROOT"))
    done(run("trait", "set", host, "CUSTOM_MORE", "--add"))
    done(run("trait", "set", host, "HW_NUMA_ROOT", "--remove"))
    assert done(run("trait", "list", host, "-f", "value")).lines == ["CUSTOM_MORE", "CUSTOM_PLACED"]
    assert done(run("trait", "list", host, "--prefix", "CUSTOM_M", "--json")).json == [
        "CUSTOM_MORE"
    ]
    assert "CUSTOM_MORE" in done(run("trait", "list", "--prefix", "CUSTOM_M", "--associated")).out
    aggregate = str(uuid.uuid4())
    done(run("aggregate", "set", host, aggregate))
    assert done(run("aggregate", "list", host, "--json")).json == [aggregate]
    members = done(run("aggregate", "members", aggregate, "--json")).json
    assert [member["name"] for member in members] == [host]
    done(run("aggregate", "set", host, aggregate, "--remove"))
    assert done(run("aggregate", "list", host, "--json")).json == []
    done(run("trait", "set", host))
    done(run("trait", "delete", "CUSTOM_MORE"))
    assert run("trait", "delete", "CUSTOM_MORE").status == 1


def test_a_custom_class_is_created_listed_and_deleted(run: Run) -> None:
    name = f"CUSTOM_C{uuid.uuid4().hex[:8].upper()}"
    done(run("class", "create", name))
    assert name in done(run("class", "list", "-f", "value")).lines
    done(run("class", "delete", name))
    assert run("class", "delete", name).status == 1


def test_a_consumer_holds_shows_and_gives_back(run: Run, host: str) -> None:
    consumer, project = str(uuid.uuid4()), str(uuid.uuid4())
    cell = f"{host}_NUMA0"
    new = run("allocation", "set", consumer, f"{cell}:VCPU=3")
    assert new.status == 2
    assert "--project" in new.err
    owner = ("--project", project, "--user", "u")
    done(run("allocation", "set", consumer, f"{cell}:VCPU=3", f"{host}:MEMORY_MB=100", *owner))
    done(run("allocation", "set", consumer, f"{cell}:VCPU=4"))
    held = done(run("allocation", "show", consumer, "-f", "value"))
    assert [line.split()[1:] for line in held.lines] == [[cell, "VCPU", "4"]]
    holders = done(run("allocation", "list", cell, "--json")).json
    assert list(holders) == [consumer]
    assert done(run("usage", cell, "--json")).json == {"VCPU": 4}
    used = done(run("usage", "--project", project, "--json")).json
    assert used["INSTANCE"]["VCPU"] == 4
    refused = run("inventory", "delete", cell, "VCPU")
    assert refused.status == 4
    assert "in use" in refused.err
    done(run("allocation", "delete", consumer))
    assert run("allocation", "show", consumer).status == 1
    assert run("allocation", "delete", consumer).status == 1


def test_usage_of_a_provider_and_of_a_project_are_two_questions(
    run_on: Callable[[None], Run], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        run_on(None)("usage", "a-host", "--project", "p")
    assert refused.value.code == 2
    assert "not both" in capsys.readouterr().err


def test_usage_of_a_project_is_shown_by_a_placement_without_consumer_types(
    our_placement: Transport, run_ours: Run, run_on: Callable[[Transport | None], Run]
) -> None:
    name, project = f"old-{uuid.uuid4().hex[:8]}", str(uuid.uuid4())
    done(run_ours("provider", "create", name))
    done(run_ours("inventory", "set", name, "VCPU=4"))
    owner = ("--project", project, "--user", "u")
    done(run_ours("allocation", "set", str(uuid.uuid4()), f"{name}:VCPU=3", *owner))
    older = run_on(OlderPlacement(our_placement, (1, 37)))
    shown = done(older("usage", "--project", project, "-f", "value"))
    assert shown.lines == ["- VCPU 3"]


def test_candidates_are_lines_and_none_is_an_exit_status(run: Run, host: str) -> None:
    query = ("candidates", "--resources", "VCPU=2", "--in-tree", host)
    listed = done(run(*query, "resources_M=MEMORY_MB:64", "group_policy=none", "-f", "value"))
    assert len(listed.lines) == 4
    assert all(line.split()[0] in "12" for line in listed.lines)
    assert len(done(run(*query, "--limit", "1", "--json")).json["allocation_requests"]) == 1
    none = run("candidates", "--resources", "VCPU=200", "--in-tree", host)
    assert (none.status, none.err) == (1, "")


def test_a_tree_is_drawn_with_bars(run: Run, host: str) -> None:
    consumer = str(uuid.uuid4())
    done(
        run("allocation", "set", consumer, f"{host}_NUMA1:VCPU=4", "--project", "p", "--user", "u")
    )
    drawn = [line.split()[:5] for line in done(run("tree", f"{host}_NUMA0", "--providers")).lines]
    assert ["├──", "NUMA0", "VCPU", "░░░░░░░░", "0/8"] in drawn
    assert ["└──", "NUMA1", "VCPU", "████░░░░", "4/8"] in drawn
    assert "DISK_GB" not in done(run("tree", host, "--class", "VCPU")).out
    assert "total" in done(run("tree", host, "--full")).out
    rows = done(run("tree", host, "-f", "value", "-c", "name", "-c", "used"))
    assert f"{host}_NUMA1 4" in rows.lines
    assert done(run("tree", host, "--json")).json[0]["name"] == host


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["provider", "show", "no-such-host"], 1, "no resource provider 'no-such-host'"),
        (["provider", "show", str(uuid.uuid4())], 1, "No resource provider"),
        (["provider", "list", "-c", "colour"], 2, "no column 'colour'"),
        (["inventory", "set", "h", "VCPU"], 2, "such as VCPU=4"),
        (["inventory", "delete", "h"], 2, "--all"),
        (["candidates", "--resources", "NOPE=1"], 2, "NOPE"),
        (["class", "create", "VCPUS"], 2, "400"),
    ],
)
def test_what_cannot_be_done_ends_with_a_sentence_and_a_status(
    run: Run, arguments: list[str], status: int, words: str
) -> None:
    run("provider", "create", "h")
    ended = run(*arguments)
    assert ended.status == status, ended.err
    assert words in ended.err
    assert ended.err.startswith(f"placement {' '.join(arguments[:1])}")
    assert "Traceback" not in ended.err


def test_a_placement_that_cannot_be_reached_is_status_3(
    run_on: Callable[[None], Run], tmp_path: Path
) -> None:
    run = run_on(None)
    assert run("--url", "http://127.0.0.1:9", "provider", "list").status == 3
    assert run("--config-file", tmp_path / "none.conf", "provider", "list").status == 2


def test_placement_is_asked_in_this_process_with_its_configuration(
    run_on: Callable[[None], Run], tmp_path: Path
) -> None:
    conf = tmp_path / "placement.conf"
    conf.write_text(
        f"[placement_database]\nconnection = sqlite:///{tmp_path}/placement.db\n"
        "sync_on_startup = true\n"
    )
    assert done(run_on(None)("--config-file", conf, "provider", "list", "--json")).json == []


def test_placement_is_the_one_of_a_cloud_of_clouds_yaml_or_of_a_url(
    run_on: Callable[[None], Run],
    placement_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clouds = tmp_path / "clouds.yaml"
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
    auth = {"endpoint": placement_url, "token": "admin"}
    cloud = {"auth_type": "admin_token", "auth": auth, "region_name": "r"}
    clouds.write_text(json.dumps({"clouds": {"mine": cloud}}))
    run = run_on(None)
    name = f"cloud-{uuid.uuid4().hex[:8]}"
    done(run("--os-cloud", "mine", "provider", "create", name))
    for way in (["--url", placement_url, "--token", "admin"], ["--url", placement_url]):
        listed = done(run(*way, "provider", "list", "--name", name, "--json")).json
        assert [provider["name"] for provider in listed] == [name]
    unknown = run("--os-cloud", "theirs", "provider", "list")
    assert unknown.status == 2
    assert "theirs" in unknown.err


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("placement pro", {"provider"}),
        ("placement provider s", {"show", "set"}),
        ("placement --url u tree h --tr", {"--traits"}),
        ("placement allocation set x --p", {"--project"}),
        ("/usr/bin/placement completion ", {"-h", "--help", "bash", "zsh"}),
        ("placement tree host-", {"host-1", "host-2"}),
        ("placement candidates --in-tree ", {"host-1", "host-2", "other"}),
        ("compute-agent do", {"doctor"}),
        ("compute-agent dev --mac", {"--machine"}),
        ("compute-scheduler list --host o", {"other"}),
        ("compute-manage host show host-", {"host-1", "host-2"}),
        ("compute-manage placement del", {"delete-host"}),
        ("placement-server serve --wor", {"--workers"}),
        ("placement-manage db s", {"sync", "stamp"}),
        ("placement-status upgrade c", {"check"}),
    ],
)
def test_bash_completes_commands_options_and_hosts_of_all_programs(
    run_on: Callable[[None], Run], tmp_path: Path, line: str, completed: set[str]
) -> None:
    script = tmp_path / "completion.sh"
    script.write_text(done(run_on(None)("completion", "bash")).out)
    listing = tmp_path / "placement"
    listing.write_text("#!/bin/sh\nprintf 'host-1\\nhost-2\\nother\\n'\n")
    listing.chmod(0o755)
    line_words = line.split(" ")
    words = " ".join(repr(word) for word in line_words)
    asked = f"PATH={tmp_path}:$PATH; source {script}; COMP_WORDS=({words}); "
    asked += f"COMP_CWORD={len(line_words) - 1}; _compute_agent_completion; "
    shown = subprocess.run(
        ["bash", "-c", f'{asked} printf "%s\\n" "${{COMPREPLY[@]}}"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(shown.stdout.split()) == completed


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs the Debian package zsh")
def test_zsh_completes_commands_and_options_as_they_are_typed(
    run_on: Callable[[None], Run], tmp_path: Path
) -> None:
    script = tmp_path / "completion.zsh"
    script.write_text(done(run_on(None)("completion", "zsh")).out)
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "dumb", "PS1": "> ", "HOME": str(tmp_path)},
        start_new_session=True,
    )
    os.close(theirs)

    terminal = select.poll()
    terminal.register(ours, select.POLLIN)

    def typed(keys: str, shown: str, then: str = "") -> None:
        os.write(ours, keys.encode())
        seen = ""
        while shown not in seen or then not in seen.partition(shown)[2]:
            assert terminal.poll(60_000), seen
            seen += os.read(ours, 65536).decode(errors="replace")

    try:
        # What is typed is shown as well, so what is waited for is written in another way.
        # The shell reads keys one by one, as for a completion, from its next prompt on.
        load = f"autoload -U compinit && compinit -u -D; source {script}"
        typed(f"{load}; echo re''ady\n", "ready", then="> ")
        typed("placement prov\t", "provider ")
        typed("sho\t", "show ")
        typed("\x15placement --url u tree h --tra\t", "--traits ")
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("candidates resources=VCPU:x", "expected positive integer"),
        ("candidates resources=NOPE:1", "No such resource class NOPE"),
        ("trait create lower", "CUSTOM_"),
        ("provider create a --uuid b", "'b' is not a 'uuid'"),
    ],
)
def test_an_argument_that_placement_refuses_is_a_bad_argument(
    run: Run, arguments: str, named: str
) -> None:
    ended = run(*arguments.split())
    assert (ended.status, named in ended.err) == (2, True), ended.err


@pytest.mark.parametrize("url", ["localhost:8778", "placement", "ftp://placement", "http://[::1"])
def test_what_is_no_url_is_a_bad_argument(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", url, "provider", "list"]) == 2
    assert f"--url is '{url}': expected a URL" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [("tree",), ("inventory", "list"), ("provider", "show"), ("provider", "delete")]
)
def test_no_provider_has_the_empty_name(run: Run, command: tuple[str, ...]) -> None:
    done(run("provider", "create", str(uuid.uuid4())))
    ended = run(*command, "")
    assert ended.status == 1
    assert "There is no resource provider ''." in ended.err
