"""The commands that need the extensions, on this project's server; refused on any other."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from compute_agent.placement.transports.transport import Transport
from tests.functional.either_placement import PipeTransport
from tests.functional.placement_command.conftest import CommandEnd, Run, done

EXTENDED = [
    ["explain", "--resources", "VCPU=1"],
    ["capacity", "--resources", "VCPU=1"],
    ["fragmentation", "VCPU=1"],
    ["what-if", "--resources", "VCPU=1"],
    ["history"],
]


class Zone:
    """Hosts of one test, in an aggregate of their own."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.uuid = str(uuid.uuid4())
        self.name = f"z{self.uuid[:8]}"

    def host(self, number: int, vcpus: int, *more: str) -> str:
        name = f"{self.name}-{number}"
        done(self.run("provider", "create", name))
        done(self.run("inventory", "set", name, f"VCPU={vcpus}", "MEMORY_MB=1024", *more))
        done(self.run("aggregate", "set", name, self.uuid))
        return name

    def claim(self, host: str, holding: str) -> str:
        consumer = str(uuid.uuid4())
        owner = ("--project", "p", "--user", "u")
        done(self.run("allocation", "set", consumer, f"{host}:{holding}", *owner))
        return consumer

    def capacity(self, resources: str, *more: str) -> CommandEnd:
        return self.run("capacity", "--resources", resources, "--member-of", self.uuid, *more)


@pytest.fixture
def zone(run_ours: Run) -> Zone:
    return Zone(run_ours)


def test_an_explanation_names_the_filter_that_left_nobody(zone: Zone) -> None:
    zone.host(1, 8)
    query = ("--member-of", zone.uuid)
    ended = zone.run("explain", "--resources", "VCPU=9", *query)
    assert ended.status == 1
    assert "resources VCPU:9" in ended.out
    short = ended.lines[-1].split()
    assert short == [f"{zone.name}-1", "VCPU", "9", "8", "8", "0", "-"]
    zone.run("inventory", "set", f"{zone.name}-1", "VCPU=8", "--max-unit", "4")
    ended = zone.run("explain", "--resources", "VCPU:6", *query)
    assert ended.lines[-1].split()[-1] == "max_unit=4"
    zone.run("inventory", "set", f"{zone.name}-1", "VCPU=8", "--max-unit", "8")
    assert zone.run("explain", "--resources", "VCPU=8", *query).status == 0
    shown = zone.run("explain", "--resources", "VCPU=8", *query, "--json").json
    assert shown["trees_left"] == 1


def test_a_request_for_nothing_is_refused_in_words_of_the_command(run_ours: Run) -> None:
    ended = run_ours("candidates", "--required", "CUSTOM_X")
    assert (ended.status, ended.out) == (2, "")
    assert "expected --resources CLASS=N,..." in ended.err


def test_a_claim_is_for_the_first_candidate_that_fits(zone: Zone) -> None:
    host, consumer = zone.host(1, 4), str(uuid.uuid4())
    owner = ("--project", "p", "--user", "u", "--member-of", zone.uuid)
    claimed = zone.run("claim", "--resources", "VCPU=3", *owner, "--consumer", consumer, "--json")
    assert done(claimed).json["consumer"] == consumer
    assert done(zone.run("usage", host, "-f", "value")).lines == ["MEMORY_MB 0", "VCPU 3"]
    assert zone.run("claim", "--resources", "VCPU=1", *owner, "--consumer", consumer).status == 4
    none = zone.run("claim", "--resources", "VCPU=3", *owner)
    assert none.status == 1
    assert "placement explain" in none.err


def test_capacity_is_counted_in_all_in_each_zone_and_in_each_tree(zone: Zone) -> None:
    hosts = [zone.host(1, 8), zone.host(2, 4)]
    other = Zone(zone.run)
    other.host(1, 2)
    assert done(zone.capacity("VCPU=3", "-f", "value", "-c", "at_most")).lines == ["3"]
    each = ("--in-each", zone.uuid, "--in-each", other.uuid)
    counted = zone.run("capacity", "--resources", "VCPU=2", *each, "-f", "value")
    assert [line.split()[:3] for line in done(counted).lines] == [
        [zone.uuid, "6", "6"],
        [other.uuid, "1", "1"],
    ]
    assert done(zone.capacity("VCPU=2")).lines[-1].split("  ")[-1].strip() == "VCPU (2 tree(s))"
    trees = done(zone.capacity("VCPU=2", "--trees", "-f", "value", "-c", "name", "-c", "at_least"))
    assert trees.lines == [f"{hosts[0]} 4", f"{hosts[1]} 2"]
    assert zone.capacity("VCPU=9").status == 1


def test_disabled_hosts_are_left_out_unless_they_are_asked_for(zone: Zone) -> None:
    hosts = [zone.host(1, 4), zone.host(2, 4)]
    done(zone.run("trait", "set", "--add", hosts[0], "COMPUTE_STATUS_DISABLED"))
    count = ("-f", "value", "-c", "at_most")
    assert done(zone.capacity("VCPU=1", *count)).lines == ["4"]
    assert done(zone.capacity("VCPU=1", "--disabled", *count)).lines == ["8"]
    own = "root_required=COMPUTE_STATUS_DISABLED"
    assert done(zone.capacity("VCPU=1", own, *count)).lines == ["4"]
    other = "root_required=!CUSTOM_OTHER"
    done(zone.run("trait", "create", "CUSTOM_OTHER"))
    assert done(zone.capacity("VCPU=1", other, *count)).lines == ["4"]
    query = ("--resources", "VCPU=1", "--member-of", zone.uuid, "--remove", hosts[1])
    assert done(zone.run("what-if", *query, "-f", "value", "-c", "at_most")).lines == ["4", "0"]


def test_what_is_stranded_is_shown(zone: Zone) -> None:
    host = zone.host(1, 4)
    zone.claim(host, "VCPU=4")
    shape = ("fragmentation", "VCPU=1,MEMORY_MB=256", "--member-of", zone.uuid)
    rows = done(zone.run(*shape, "-f", "value", "-c", "resource_class", "-c", "stranded")).lines
    assert "MEMORY_MB 1024" in rows
    assert done(zone.run(*shape, "--json")).json["shapes"][0]["at_most"] == 0
    assert "together" in done(zone.run(*shape)).out


def test_what_if_counts_now_and_then(zone: Zone) -> None:
    host, other = zone.host(1, 4), zone.host(2, 2)
    consumer = zone.claim(host, "VCPU=4")
    done(zone.run("trait", "create", f"CUSTOM_{zone.name.upper()}"))

    def most(*changes: str) -> tuple[int, int]:
        query = ("--resources", "VCPU=2", "--member-of", zone.uuid)
        counted = done(zone.run("what-if", *query, *changes, "--json")).json
        return counted["now"]["at_most"], counted["then"]["at_most"]

    assert most() == (1, 1)
    assert most("--add-like", f"{host}=10") == (1, 21)
    assert most("--add-like", host, "--remove", host) == (1, 3)
    assert most("--release", consumer) == (1, 3)
    assert most("--set-inventory", f"{other}:VCPU=6") == (1, 3)
    assert most("--set-traits", f"{other}:CUSTOM_{zone.name.upper()}") == (1, 1)
    assert zone.run("what-if", "--release", str(uuid.uuid4()), "--resources", "VCPU=1").status == 1
    assert zone.run("what-if", "--set-inventory", "VCPU=1", "--resources", "VCPU=1").status == 2
    several = zone.run("what-if", "--set-inventory", f"{other}:VCPU=1,MEMORY_MB=2")
    assert several.status == 2
    assert "names several classes" in several.err


def test_what_was_changed_of_a_host_is_listed_with_who_did_it(zone: Zone) -> None:
    host, other = zone.host(1, 4), zone.host(2, 4)
    consumer = zone.claim(host, "VCPU=1")
    zone.claim(other, "VCPU=1")
    done(zone.run("trait", "set", "--add", host, "COMPUTE_STATUS_DISABLED"))
    columns = ("-f", "value", "-c", "consumer", "-c", "change", "-c", "user")
    lines = done(zone.run("history", host, *columns)).lines
    assert [line.split() for line in lines[:2]] == [
        ["+trait", "COMPUTE_STATUS_DISABLED", "admin"],
        [consumer, "VCPU", "0", "to", "1", "admin"],
    ]
    assert f"+provider {host} admin" in lines[-1]
    [one] = done(zone.run("history", "--consumer", consumer, "--json")).json["history"]
    assert one["root_provider_name"] == host
    [row] = done(zone.run("history", host, "--name", "COMPUTE_STATUS_DISABLED", *columns)).lines
    assert "COMPUTE_STATUS_DISABLED" in row


def test_changes_are_watched_until_an_interrupt(placement_url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "compute_agent.cmd.placement.main", "--url", placement_url]
    name = f"watched-{uuid.uuid4().hex[:8]}"

    def run(*arguments: str) -> None:
        subprocess.run([*command, *arguments], check=True, capture_output=True)

    run("provider", "create", name)
    # a test run in the background ignores interrupts, and its children would too
    heeding = ["env", "--default-signal=INT", *command, "watch", name]
    with subprocess.Popen(heeding, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        ready = threading.Event()

        def change_until_seen() -> None:
            total = 1
            while not ready.is_set():
                run("inventory", "set", name, f"VCPU={total}")
                total += 1

        writer = threading.Thread(target=change_until_seen)
        writer.start()
        line = watching.stdout.readline()
        ready.set()
        writer.join()
        watching.send_signal(2)
        assert watching.wait(30) == 130
    assert f" {name} {name} VCPU total " in line


@pytest.mark.parametrize("arguments", EXTENDED)
def test_a_placement_without_the_extensions_is_named(
    any_placement: Transport, run_on: Callable[[Transport], Run], arguments: list[str]
) -> None:
    run = run_on(any_placement)
    run("provider", "create", "host")
    ended = run(*arguments)
    assert (ended.status == 3) == isinstance(any_placement, PipeTransport), ended.err
    if ended.status == 3:
        assert f"placement {arguments[0]} needs placement-ext 1.1" in ended.err
