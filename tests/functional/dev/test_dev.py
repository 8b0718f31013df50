"""`compute-agent dev` as a newcomer meets it: real processes, this very machine."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest
import requests

from tests.functional.dev.conftest import UP, Start

PROVIDER = re.compile(r"(\S+)  ([0-9a-f]{8}-[0-9a-f-]{27})")


def test_one_run_shows_tree_claim_and_release_and_the_next_finds_the_same_tree(
    start: Start,
) -> None:
    first = start("--once", "--port", "0")
    assert first.end() == 0, first.output + first.stderr
    tree, claim, released = re.split(r"A sample claim|Released [0-9a-f-]{36}", first.output)
    assert re.search(r"Placement API  http://127\.0\.0\.1:\d+", tree)
    assert re.search(r"VCPU +\d+ +\d+ +\S+ +0/", tree)
    assert "traits" in tree
    assert re.search(r"VCPU +\d+ +\d+ +\S+ +1/", claim)
    assert re.search(r"VCPU +\d+ +\d+ +\S+ +0/", released)
    assert first.stderr == ""

    second = start("--once", "--port", "0")
    assert second.end() == 0, second.output + second.stderr
    assert set(PROVIDER.findall(tree)) == set(
        PROVIDER.findall(second.output.split("A sample claim")[0])
    )


@pytest.mark.usefixtures("console_scripts")
def test_what_it_says_to_type_works_and_ctrl_c_ends_everything(start: Start) -> None:
    dev = start("--port", "0")
    dev.wait_for(UP)
    typed = re.findall(r"^# [^\n]+\n(\S.*)$", dev.output, re.MULTILINE)
    assert len(typed) >= 7
    environment, *lines = typed
    consumer = ""
    for line in lines:
        done = subprocess.run(
            ["sh", "-c", f"{environment}\n{line.replace('CONSUMER', consumer)}"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        if " claim " in line:
            consumer = done.stdout.split()[1]
    pages = re.search(r"in a browser  (http\S+)", dev.output)
    assert pages
    assert "text/html" in requests.get(pages[1], timeout=60).headers["content-type"]
    guests = re.findall(r"[0-9a-f-]{36}", dev.output.split("To look at")[1].splitlines()[0])
    placement = re.search(r"Placement API  (http\S+)", dev.output)
    assert placement
    for guest in guests:
        url, token = f"{placement[1]}/allocations/{guest}", {"X-Auth-Token": "admin"}
        assert requests.get(url, headers=token, timeout=60).json()["allocations"]
    assert len(guests) == 2
    children = dev.children()
    assert len(children) >= 2
    assert dev.interrupt() == 0, dev.stderr
    assert not [child for child in children if child.is_running()]
    assert dev.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "hosts", "fit"),
    [
        (("--machine", "gpu-server", "--hosts", "3"), 3, 3),
        (("--fake",), 1, 2),
        (("--machine", "nps4-server"), 1, 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_devices_of_one_cell_are_claimed_until_none_fits_and_that_is_explained(
    start: Start, arguments: tuple[str, ...], hosts: int, fit: int
) -> None:
    dev = start("--once", "--port", "0", *arguments)
    assert dev.end() == 0, dev.output + dev.stderr
    others = re.findall(r"^The same machine is reported by (.*)$", dev.output, re.MULTILINE)
    assert [len(names.split(" and ")) for names in others] == ([hosts - 1] if hosts > 1 else [])
    assert "SRIOV_NET_VF=1 of one NUMA cell" in dev.output
    assert f"Claim {fit} of the same has" in dev.output
    claimed, explained = dev.output.split(f"Claim {fit + 1} of the same does not fit")
    assert "would fit with" in explained
    # all of them belong to one cell: the claimed tree has no other
    [tree] = re.findall(r"used/capacity.*?in all", claimed.split("A sample claim")[1], re.DOTALL)
    assert len(re.findall(r"── NUMA\d+ ", tree)) == 1
    assert "Released" in explained


def test_a_second_run_on_the_same_state_is_told_who_has_it(start: Start) -> None:
    first = start("--port", "0")
    first.wait_for("placement-server")
    second = start("--once", "--port", "0")
    assert second.end() == 1
    assert f"process {first.process.pid}" in second.stderr
    assert "--state-dir" in second.stderr
    first.wait_for(UP)
    assert first.interrupt() == 0


def test_a_child_that_dies_ends_the_run_with_its_name(start: Start) -> None:
    dev = start("--port", "0")
    dev.wait_for(UP)
    [agent] = [
        child for child in dev.children() if "compute_agent.cmd.agent.main" in child.cmdline()
    ]
    others = [child for child in dev.children() if child.pid != agent.pid]
    agent.send_signal(signal.SIGKILL)
    assert dev.end() == 1
    assert "compute-agent was killed by signal 9" in dev.stderr
    assert str(dev.state_home) in dev.stderr
    assert not [other for other in others if other.is_running()]


def test_nothing_is_left_running_when_the_run_itself_is_killed(start: Start) -> None:
    dev = start("--port", "0")
    dev.wait_for(UP)
    children = dev.children()
    dev.process.kill()
    dev.end()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


@pytest.mark.usefixtures("console_scripts")
def test_ctrl_c_while_starting_ends_everything(start: Start) -> None:
    dev = start("--port", "0")
    dev.wait_for("placement-server")
    children = dev.children()
    assert dev.interrupt() == 130
    assert "interrupted" in dev.stderr
    assert "Traceback" not in dev.stderr
    assert not [child for child in children if child.is_running()]


def test_a_port_that_is_taken_is_named(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        dev = start("--once", "--port", str(port))
        assert dev.end() == 1
    assert f"Port {port} of 127.0.0.1 is in use by another process" in dev.stderr
    assert "Traceback" not in dev.stderr


def test_a_state_directory_that_is_in_the_way_is_named(start: Start, tmp_path: Path) -> None:
    (tmp_path / "compute-agent").touch()
    dev = start("--once", "--port", "0")
    assert dev.end() == 1
    assert f"The state directory {tmp_path}/compute-agent cannot be used" in dev.stderr
    assert "--state-dir" in dev.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; run as a normal user")
def test_a_state_directory_that_cannot_be_written_is_named(start: Start, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        dev = start("--once", "--port", "0")
        assert dev.end() == 1
    finally:
        tmp_path.chmod(0o700)
    assert "Permission denied" in dev.stderr


@pytest.mark.parametrize(
    ("option", "value"), [("--port", "http"), ("--port", "65536"), ("--interval", "0")]
)
def test_an_option_that_cannot_be_is_named(start: Start, option: str, value: str) -> None:
    dev = start("--once", option, value)
    assert dev.end() == 2
    assert option in dev.stderr
    assert repr(value) in dev.stderr
