"""Plans of `compute-scheduler make-room`: placement's, as far as filters and hosts agree."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.functional.scheduler.conftest import Cloud, Command


@dataclass
class Fleet:
    """Three hosts with guests and 2 VCPU left, and one with room for four."""

    cloud: Cloud
    light: str
    heavy: str
    spare: str
    guests: dict[str, str]

    @property
    def request(self) -> tuple[str, ...]:
        return "--resources", "VCPU=6,MEMORY_MB=64", "--required", self.cloud.mark


@pytest.fixture
def fleet(cloud: Cloud) -> Fleet:
    light, heavy, spare = cloud.flat_host(8), cloud.flat_host(8), cloud.flat_host(4)
    guests = {}
    for host, memory in ((light, 256), (heavy, 512)):
        for vcpus in (4, 2):
            guest = str(uuid.uuid4())
            held = {host: {"resources": {"VCPU": vcpus, "MEMORY_MB": memory}}}
            owner = {"project_id": f"of {host}", "user_id": "u", "consumer_type": "INSTANCE"}
            body = {"allocations": held, "consumer_generation": None, **owner}
            cloud.call("PUT", f"/allocations/{guest}", json=body)
            if vcpus == 4:
                guests[host] = guest
    return Fleet(cloud, light, heavy, spare, guests)


def room(command: Command, *arguments: str) -> Any:
    done = command("make-room", *arguments, "--json")
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    assert (done.returncode == 0) == bool(document["fits"] or document["plan"])
    return document


def moves(document: Any) -> list[tuple[str, str, str]]:
    return [
        (move["consumer"], move["from"]["root"], move["to"]["root"])
        for move in document["plan"]["moves"]
    ]


def test_the_guest_to_move_is_named_and_then_the_request_fits(
    fleet: Fleet, command: Command
) -> None:
    document = room(command, *fleet.request)
    assert moves(document) == [(fleet.guests[fleet.light], fleet.light, fleet.spare)]
    assert document["proved"]
    assert document["then"]["hosts"] == [f"p-{fleet.light}"]
    read = command("make-room", *fleet.request)
    assert "Nothing fits. Move 1 guest, then it fits on " + f"p-{fleet.light}:" in read.stdout
    assert f"1.  {fleet.guests[fleet.light]}" in read.stdout
    assert "No plan moves less." in read.stdout
    # nothing was written
    assert fleet.cloud.held(fleet.guests[fleet.light]) == {
        fleet.light: {"VCPU": 4, "MEMORY_MB": 256}
    }


def test_a_host_that_filters_refuse_is_not_planned_for(
    fleet: Fleet, command: Command, config: Path
) -> None:
    with config.open("a") as file:
        file.write(
            "[filter_scheduler]\nenabled_filters = IsolatedHostsFilter\n"
            f"isolated_images = x\nisolated_hosts = p-{fleet.light}\n"
        )
    document = room(command, *fleet.request)
    assert moves(document) == [(fleet.guests[fleet.heavy], fleet.heavy, fleet.spare)]
    assert list(document["refused"]) == [f"p-{fleet.light}"]


def test_guests_that_are_kept_do_not_move(fleet: Fleet, command: Command) -> None:
    kept = ("--keep", fleet.guests[fleet.light], "--keep-project", f"of {fleet.heavy}")
    done = command("make-room", *fleet.request, *kept)
    assert done.returncode == 1
    assert "No plan makes room within these bounds." in done.stdout


def test_what_fits_needs_no_moves(fleet: Fleet, command: Command) -> None:
    done = command("make-room", "--resources", "VCPU=4", "--required", fleet.cloud.mark)
    assert done.returncode == 0
    assert "Nothing has to move." in done.stdout


def test_a_bound_beyond_what_placement_takes_is_refused(fleet: Fleet, command: Command) -> None:
    refused = command("make-room", *fleet.request, "--max-moves", "9")
    assert refused.returncode == 2
    assert "max_moves" in refused.stderr
