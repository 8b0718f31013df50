"""Plans of `compute-scheduler make-room`: placement's, as far as filters and hosts agree."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.functional.scheduler.conftest import Cloud, Command

# However busy the machine, the planner comes to an end.
PATIENCE = ("--time-limit", "600")


@dataclass
class Fleet:
    """Three hosts with guests and 2 VCPU left, and one with room for four."""

    cloud: Cloud
    light: str
    heavy: str
    spare: str
    guests: dict[str, str]
    vcpus: int = 6

    @property
    def request(self) -> tuple[str, ...]:
        wanted = f"VCPU={self.vcpus},MEMORY_MB=64"
        return "--resources", wanted, "--required", self.cloud.mark, *PATIENCE


@pytest.fixture
def fleet(cloud: Cloud) -> Fleet:
    light, heavy, spare = cloud.flat_host(8), cloud.flat_host(8), cloud.flat_host(4)
    guests = {}
    for host, memory in ((light, 256), (heavy, 512)):
        for vcpus in (4, 2):
            held = {host: {"VCPU": vcpus, "MEMORY_MB": memory}}
            guest = cloud.claim(held, project_id=f"of {host}")
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


def test_a_host_whose_cells_hide_that_it_is_full_is_planned_for(
    cloud: Cloud, command: Command
) -> None:
    """A guest may span cells, for which placement is asked about one VCPU, and finds it."""
    guests = {}
    tops = []
    for held in ((4, 2), (6,)):
        top, (full, fuller) = cloud.nested_host(8, 8)
        tops.append(top)
        for cell, vcpus in (*((full, vcpus) for vcpus in held), (fuller, 7)):
            guests[top, vcpus] = cloud.claim({cell: {"VCPU": vcpus}})
    document = room(command, "--resources", "VCPU=4", "--required", cloud.mark, *PATIENCE)
    assert moves(document) == [(guests[tops[0], 2], *tops)]
    assert not document["refused"]
    nothing = command("make-room", "--resources", "VCPU=500", "--required", cloud.mark)
    assert nothing.returncode == 1
    assert "would be room" not in nothing.stdout
    assert "No plan was found" in nothing.stdout


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


# -- carried out -----------------------------------------------------------------------------------


def carry_out(
    command: Command, fleet: Fleet, directory: Path, mover: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    script = directory / "mover"
    script.write_text(f'#!/bin/sh\necho "$@" >> {directory}/moved\n{mover}\n')
    script.chmod(0o755)
    options = ("--carry-out", str(directory / "plan"), "--mover", str(script))
    return command("make-room", *fleet.request, *options, *arguments)


def moved_guest(fleet: Fleet) -> dict[str, dict[str, int]]:
    return fleet.cloud.held(fleet.guests[fleet.light])


def used_of(fleet: Fleet, host: str) -> int:
    return int(fleet.cloud.call("GET", f"/resource_providers/{host}/usages")["usages"]["VCPU"])


def take_some(fleet: Fleet, host: str, vcpus: int = 1) -> None:
    """Claim a part of the room of which the guest needs all."""
    fleet.cloud.claim({host: {"VCPU": vcpus}})


def there(fleet: Fleet, host: str) -> dict[str, dict[str, int]]:
    return {host: {"VCPU": 4, "MEMORY_MB": 256}}


def test_a_plan_is_carried_out_by_the_command_that_moves_a_guest(
    fleet: Fleet, command: Command, tmp_path: Path
) -> None:
    done = carry_out(command, fleet, tmp_path, "exit 0")
    assert done.returncode == 0, done.stderr
    guest = fleet.guests[fleet.light]
    assert f"move 1 of 1, {guest}: done" in done.stdout
    assert f"It fits on p-{fleet.light} as it is." in done.stdout
    assert (tmp_path / "moved").read_text() == f"{guest} p-{fleet.light} p-{fleet.spare}\n"
    assert moved_guest(fleet) == there(fleet, fleet.spare)
    assert not (tmp_path / "plan").exists()


def test_a_guest_that_cannot_be_moved_holds_what_it_held_and_may_be_tried_again(
    fleet: Fleet, command: Command, tmp_path: Path
) -> None:
    failed = carry_out(command, fleet, tmp_path, "exit 3")
    assert failed.returncode == 1
    assert "failed with status 3" in failed.stdout
    assert moved_guest(fleet) == there(fleet, fleet.light)
    assert carry_out(command, fleet, tmp_path, "exit 0").returncode == 0
    assert moved_guest(fleet) == there(fleet, fleet.spare)


def test_a_plan_that_was_killed_goes_on(fleet: Fleet, command: Command, tmp_path: Path) -> None:
    killed = carry_out(command, fleet, tmp_path, "kill -9 $PPID")
    assert killed.returncode == -9
    # source and destination are held while nobody knows whether the guest was moved
    assert moved_guest(fleet) == there(fleet, fleet.spare)
    assert used_of(fleet, fleet.light) == 6
    assert carry_out(command, fleet, tmp_path, "exit 0").returncode == 0
    assert len((tmp_path / "moved").read_text().splitlines()) == 2
    assert used_of(fleet, fleet.light) == 2


def test_a_step_that_others_took_the_room_of_is_planned_again(
    fleet: Fleet, command: Command, tmp_path: Path
) -> None:
    assert carry_out(command, fleet, tmp_path, "exit 3").returncode == 1
    take_some(fleet, fleet.spare)
    done = carry_out(command, fleet, tmp_path, "exit 0")
    assert "Another plan is made." in done.stdout
    # one guest makes way for another
    assert "Move 2 guests" in done.stdout
    assert done.returncode == 0
    assert 2 in (used_of(fleet, fleet.light), used_of(fleet, fleet.heavy))
    assert not (tmp_path / "plan").exists()


def test_a_plan_is_not_carried_out_without_a_mover(
    fleet: Fleet, command: Command, tmp_path: Path
) -> None:
    refused = command("make-room", *fleet.request, "--carry-out", str(tmp_path / "plan"))
    assert refused.returncode == 2
    assert "--mover" in refused.stderr


# -- some at once ----------------------------------------------------------------------------------

# Waits until both guests are being moved; fails where they never are.
MEET = """
: > "$0.$1"
for _ in $(seq 600); do
    [ "$(ls "$0".* | wc -l)" = 2 ] && break
    sleep 0.05
done
[ "$(ls "$0".* | wc -l)" = 2 ] || exit 9
"""
# The request together with this needs a whole host, from which two guests move to different ones.
BOTH = ("--resources", "VCPU=2", "--at-once")


def test_moves_that_do_not_need_each_other_are_made_at_once(
    fleet: Fleet, command: Command, tmp_path: Path
) -> None:
    done = carry_out(command, fleet, tmp_path, MEET, *BOTH, "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert used_of(fleet, fleet.light) == 0
    assert not (tmp_path / "plan").exists()


@pytest.mark.parametrize("at_once", ["1", "2"])
def test_moves_that_were_cut_off_together_go_on(
    fleet: Fleet, command: Command, tmp_path: Path, at_once: str
) -> None:
    killed = carry_out(command, fleet, tmp_path, MEET + "kill -9 $PPID", *BOTH, "2")
    assert killed.returncode == -9
    # both sources and destinations are held
    assert [used_of(fleet, host) for host in (fleet.light, fleet.heavy, fleet.spare)] == [6, 8, 4]
    done = carry_out(command, fleet, tmp_path, "exit 0", *BOTH, at_once)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [used_of(fleet, host) for host in (fleet.light, fleet.heavy, fleet.spare)] == [0, 8, 4]


def test_one_that_fails_lets_the_others_end(fleet: Fleet, command: Command, tmp_path: Path) -> None:
    fails = MEET + f"[ $1 != {fleet.guests[fleet.light]} ]"
    assert carry_out(command, fleet, tmp_path, fails, *BOTH, "2").returncode == 1
    assert moved_guest(fleet) == there(fleet, fleet.light)
    assert [used_of(fleet, host) for host in (fleet.light, fleet.heavy, fleet.spare)] == [4, 8, 0]
    assert carry_out(command, fleet, tmp_path, "exit 0", *BOTH, "2").returncode == 0
    # the other one was not moved again
    assert len((tmp_path / "moved").read_text().splitlines()) == 3


def test_a_move_waits_for_the_room_that_an_earlier_one_frees(
    fleet: Fleet, command: Command, tmp_path: Path
) -> None:
    take_some(fleet, fleet.spare)
    done = carry_out(command, fleet, tmp_path, "exit 0", "--at-once", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    progress = [line for line in done.stdout.splitlines() if line.startswith("move ")]
    assert [line.split()[1] + line.split()[-1] for line in progress] == [
        "1moving",
        "1done",
        "2moving",
        "2done",
    ]
    assert "Another plan is made." not in done.stdout


# -- together --------------------------------------------------------------------------------------


@pytest.fixture
def crossed(cloud: Cloud) -> Fleet:
    """Hosts of 8 and 6 VCPU with guests of 5 and 4: after an exchange, 4 are free on the first."""
    light, heavy = cloud.flat_host(8), cloud.flat_host(6)
    guests = {
        host: cloud.claim({host: {"VCPU": vcpus}}) for host, vcpus in ((light, 5), (heavy, 4))
    }
    return Fleet(cloud, light, heavy, "", guests, vcpus=4)


def exchange(
    command: Command, fleet: Fleet, directory: Path, mover: str
) -> subprocess.CompletedProcess[str]:
    return carry_out(command, fleet, directory, mover, "--swap")


def vcpus_of(fleet: Fleet) -> list[dict[str, int]]:
    """What both guests hold, by the number of their hosts."""
    hosts = [fleet.light, fleet.heavy]
    held = [fleet.cloud.held(guest) for guest in fleet.guests.values()]
    return [{str(hosts.index(host)): n["VCPU"] for host, n in amounts.items()} for amounts in held]


BEFORE, AFTER = [{"0": 5}, {"1": 4}], [{"1": 5}, {"0": 4}]


def test_guests_that_take_one_anothers_places_are_moved_by_one_command(
    crossed: Fleet, command: Command, tmp_path: Path
) -> None:
    assert carry_out(command, crossed, tmp_path, "").returncode == 1
    done = exchange(command, crossed, tmp_path, "exit 0")
    assert done.returncode == 0, done.stdout + done.stderr
    [moved] = (tmp_path / "moved").read_text().splitlines()
    light, heavy = f"p-{crossed.light}", f"p-{crossed.heavy}"
    of_light, of_heavy = crossed.guests.values()
    words = moved.split()
    assert sorted((words[:3], words[3:])) == sorted(
        ([of_light, light, heavy], [of_heavy, heavy, light])
    )
    assert vcpus_of(crossed) == AFTER
    assert [used_of(crossed, host) for host in (crossed.light, crossed.heavy)] == [4, 5]
    assert not (tmp_path / "plan").exists()


def test_guests_that_cannot_be_moved_together_hold_what_they_held(
    crossed: Fleet, command: Command, tmp_path: Path
) -> None:
    failed = exchange(command, crossed, tmp_path, "exit 3")
    assert failed.returncode == 1
    assert "failed with status 3, and hold what they held" in failed.stdout
    assert vcpus_of(crossed) == BEFORE
    assert [used_of(crossed, host) for host in (crossed.light, crossed.heavy)] == [5, 4]


def test_an_exchange_that_was_killed_goes_on(
    crossed: Fleet, command: Command, tmp_path: Path
) -> None:
    assert exchange(command, crossed, tmp_path, "kill -9 $PPID").returncode == -9
    # all places are held, and of those that were left what may be needed to go back
    assert vcpus_of(crossed) == AFTER
    assert [used_of(crossed, host) for host in (crossed.light, crossed.heavy)] == [5, 5]
    done = exchange(command, crossed, tmp_path, "exit 0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [used_of(crossed, host) for host in (crossed.light, crossed.heavy)] == [4, 5]


def test_an_exchange_whose_room_was_taken_is_planned_again(
    crossed: Fleet, command: Command, tmp_path: Path
) -> None:
    assert exchange(command, crossed, tmp_path, "exit 3").returncode == 1
    take_some(crossed, crossed.heavy, 2)
    done = exchange(command, crossed, tmp_path, "exit 0")
    assert "Another plan is made." in done.stdout
    assert done.returncode == 1
    assert vcpus_of(crossed) == BEFORE
    assert not (tmp_path / "plan").exists()
