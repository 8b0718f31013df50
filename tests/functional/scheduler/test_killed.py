"""Schedulers that end by `kill -9` when placement has their request, and the start of the next one.

On the same host the next scheduler is asked nothing: it finishes or undoes what the dead one began,
by itself. Where the host is lost with its journal, consumers hold the state before a step or the
one after it, and whoever repeats the step on another scheduler brings it to its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event
from typing import Any

import pytest

from tests.fixtures import programs
from tests.fixtures.allocations import new_uuid
from tests.functional.agent.lying_proxy import LyingProxy
from tests.functional.agent.processes import eventually
from tests.functional.scheduler.conftest import Cloud, Command, write_config
from tests.functional.scheduler.running_service import service

pytestmark = pytest.mark.waiting

HELD = {"VCPU": 1, "MEMORY_MB": 64}


def spec_of(cloud: Cloud, *instances: str) -> dict[str, Any]:
    return {
        "instance_uuids": list(instances),
        "project_id": "p",
        "user_id": "u",
        "flavor": {"vcpus": 1, "memory_mb": 64, "extra_specs": {f"trait:{cloud.mark}": "required"}},
    }


class Victim:
    """A scheduler whose requests go through a proxy, and which is killed there.

    :param directory: of its configuration and state.
    """

    def __init__(self, config: Path, url: str, directory: Path) -> None:
        self.proxy = LyingProxy(url)
        self._config = config
        self._own = write_config(directory / "victim.conf", self.proxy.url)
        self._journal = directory / "state" / "scheduler-journal"

    def killed_at(
        self, method: str, path: str, *arguments: str, stdin: Any, held: Event | None = None
    ) -> None:
        """Kill it once placement has carried out the request; it never hears the answer.

        :param held: set when that is so, where the proxy holds the request already.
        """
        held = held or self.proxy.hold(method, path)
        with TemporaryFile("w+") as given, TemporaryFile("w+") as output:
            json.dump(stdin, given)
            given.seek(0)
            process = programs.start(
                "compute-scheduler",
                *("--config-file", str(self._own), *arguments),
                output=output,
                given=given,
            )
            try:
                eventually(held.is_set, f"{method} {path} by {' '.join(arguments)}")
            finally:
                process.kill()
                process.wait(60)

    @property
    def journal(self) -> str:
        """What it has written down."""
        return self._journal.read_text() if self._journal.exists() else ""

    def another_starts(self) -> None:
        """Start another scheduler and wait until nothing of the journal is open."""
        assert self.journal, "the journal has how to go on"
        with service(self._config) as scheduler:
            scheduler.until("READY=1")
            eventually(lambda: not self._journal.read_text(), "an empty journal")
            assert scheduler.stop() == 0
        assert [path.name for path in self._journal.parent.iterdir()] == [self._journal.name]


@pytest.fixture
def victim(config: Path, placement_url: str) -> Iterator[Victim]:
    made = Victim(config, placement_url, config.parent)
    yield made
    made.proxy.close()


@pytest.fixture
def lost(config: Path, placement_url: str, tmp_path: Path) -> Iterator[Victim]:
    """A scheduler whose host is lost with its state directory."""
    directory = tmp_path / "lost"
    directory.mkdir()
    made = Victim(config, placement_url, directory)
    yield made
    made.proxy.close()


def test_killed_while_it_claims_for_several_instances_all_of_them_hold_their_host_or_none(
    cloud: Cloud, lost: Victim, command: Command
) -> None:
    host = cloud.flat_host(8)
    instances = [new_uuid() for _ in range(3)]
    lost.killed_at("POST", "/allocations$", "select", stdin=spec_of(cloud, *instances))
    assert lost.journal == "", "there is nothing to undo, on any host"
    assert [cloud.held(instance) for instance in instances] == [{host: HELD}] * 3
    again = command("select", input=json.dumps(spec_of(cloud, *instances)))
    assert again.returncode == 0, "the caller who got no answer gets it from any scheduler"
    assert [cloud.held(instance) for instance in instances] == [{host: HELD}] * 3
    # of others nothing reaches placement
    more = [new_uuid() for _ in range(2)]
    lost.proxy.answer("POST", "/allocations$", None)
    lost.proxy.answer("GET", "/allocations/", 503)
    refused = command("select", input=json.dumps(spec_of(cloud, *more)), config_file=lost._own)
    assert refused.returncode == 3
    assert [cloud.held(instance) for instance in more] == [{}, {}]


def test_killed_while_it_claims_an_instance_holds_its_host_and_any_other_goes_on(
    cloud: Cloud, lost: Victim, command: Command
) -> None:
    host = cloud.flat_host(4)
    instance = new_uuid()
    claim = ("claim", "--consumer", instance, "--resources", "VCPU=1,MEMORY_MB=64")
    claim += ("--required", cloud.mark, "--json")
    lost.killed_at("PUT", f"/allocations/{instance}$", *claim, stdin=None)
    assert lost.journal == "", "there is nothing to undo, on any host"
    assert cloud.held(instance) == {host: HELD}
    again = command(*claim)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["root_provider"] == host
    assert cloud.held(instance) == {host: HELD}


class MovedInstance:
    """An instance on one of two hosts, and a move of it."""

    def __init__(self, cloud: Cloud, command: Command) -> None:
        self.cloud = cloud
        hosts = {cloud.flat_host(4), cloud.flat_host(4)}
        self.instance, self.migration = new_uuid(), new_uuid()
        self.spec = spec_of(cloud, self.instance)
        self.command = command
        assert command("select", input=json.dumps(self.spec)).returncode == 0
        [self.source] = cloud.held(self.instance)
        [self.destination] = hosts - {self.source}
        self.begin = ("move", "begin", "live", self.instance, "--migration", self.migration)

    def begun(self) -> Any:
        done = self.command(*self.begin, input=json.dumps(self.spec))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def holdings(self) -> tuple[set[str], set[str]]:
        """The hosts that instance and migration hold."""
        return set(self.cloud.held(self.instance)), set(self.cloud.held(self.migration))


@pytest.fixture
def moved(cloud: Cloud, command: Command) -> MovedInstance:
    return MovedInstance(cloud, command)


def test_a_move_whose_scheduler_is_killed_at_its_beginning_is_undone(
    moved: MovedInstance, victim: Victim
) -> None:
    victim.killed_at("POST", "/allocations$", *moved.begin, stdin=moved.spec)
    assert moved.holdings() == ({moved.destination}, {moved.source})
    victim.another_starts()
    assert moved.holdings() == ({moved.source}, set())


def test_a_confirmation_or_a_revert_whose_scheduler_is_killed_is_completed(
    moved: MovedInstance, victim: Victim
) -> None:
    victim.killed_at("POST", "/allocations$", "move", "revert", stdin=moved.begun())
    victim.another_starts()
    assert moved.holdings() == ({moved.source}, set())
    path = f"/allocations/{moved.migration}"
    victim.killed_at("PUT", path, "move", "finish", stdin=moved.begun())
    victim.another_starts()
    assert moved.holdings() == ({moved.destination}, set())


def test_an_evacuation_whose_scheduler_is_killed_is_undone_and_a_return_is_completed(
    moved: MovedInstance, victim: Victim
) -> None:
    evacuate = ("move", "begin", "evacuate", moved.instance)
    victim.killed_at("POST", "/allocations$", *evacuate, stdin=moved.spec)
    assert moved.holdings() == ({moved.source, moved.destination}, set())
    victim.another_starts()
    assert moved.holdings() == ({moved.source}, set())
    assert moved.command(*evacuate, input=json.dumps(moved.spec)).returncode == 0
    returned = ("move", "returned", moved.instance, moved.source)
    victim.killed_at("POST", "/allocations$", *returned, stdin=None)
    victim.another_starts()
    assert moved.holdings() == ({moved.destination}, set())


def test_a_move_is_undone_when_placement_is_back_without_another_request(
    moved: MovedInstance, victim: Victim
) -> None:
    victim.killed_at("POST", "/allocations$", *moved.begin, stdin=moved.spec)
    # the next scheduler starts while placement is away, and is asked nothing when that is back
    victim.proxy.answer("GET", ".*", 503)
    with service(victim._own) as scheduler:
        scheduler.until("READY=1")
        assert moved.holdings() == ({moved.destination}, {moved.source})
        victim.proxy.honest()
        eventually(lambda: moved.holdings() == ({moved.source}, set()), "the source")
        assert scheduler.stop() == 0


def test_what_a_lost_host_had_begun_is_whole_and_brought_to_its_end_by_any_other(
    moved: MovedInstance, lost: Victim, tmp_path: Path
) -> None:
    def repeated(*arguments: str, stdin: Any = None) -> Any:
        done = moved.command(*arguments, input=json.dumps(stdin))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    # begun, and the caller was told nothing: another scheduler tells it the same move
    lost.killed_at("POST", "/allocations$", *moved.begin, stdin=moved.spec)
    assert moved.holdings() == ({moved.destination}, {moved.source})
    begun = repeated(*moved.begin, stdin=moved.spec)
    # the lost host comes back, with a journal that knows nothing of that
    with service(lost._own) as scheduler:
        scheduler.until("READY=1")
        eventually(lambda: not lost.journal, "an empty journal")
        assert scheduler.stop() == 0
    assert moved.holdings() == ({moved.destination}, {moved.source})

    lost.killed_at("POST", "/allocations$", "move", "revert", stdin=begun)
    assert moved.holdings() == ({moved.source}, set())
    repeated("move", "revert", stdin=begun)
    begun = moved.begun()
    path = f"/allocations/{moved.migration}"
    lost.killed_at("PUT", path, "move", "finish", stdin=begun)
    repeated("move", "finish", stdin=begun)
    assert moved.holdings() == ({moved.destination}, set())

    evacuate = ("move", "begin", "evacuate", moved.instance, "--source", moved.destination)
    lost.killed_at("POST", "/allocations$", *evacuate, stdin=moved.spec)
    assert moved.holdings() == ({moved.source, moved.destination}, set())
    evacuated = repeated(*evacuate, stdin=moved.spec)["move"]
    assert (evacuated["source_root"], evacuated["destination_root"]) == (
        moved.destination,
        moved.source,
    )
    returned = ("move", "returned", moved.instance, moved.destination)
    lost.killed_at("POST", "/allocations$", *returned, stdin=None)
    repeated(*returned)
    assert moved.holdings() == ({moved.source}, set())

    held = moved.cloud.held(moved.instance)
    before = tmp_path / "before.json"
    before.write_text(json.dumps(held))
    groups = [{"requester_id": "port", "resources": {"VCPU": 1}}]
    port = {"project_id": "p", "user_id": "u", "requested_resources": groups}
    attach = ("attach", moved.instance, "--before", str(before))
    lost.killed_at("POST", "/allocations$", *attach, stdin=port)
    assert moved.cloud.held(moved.instance) == {moved.source: {**HELD, "VCPU": 2}}
    attached = repeated(*attach, stdin=port)
    assert attached["allocations"] == {moved.source: {"VCPU": 1}}
    repeated("detach", moved.instance, stdin=attached)
    assert moved.cloud.held(moved.instance) == held

    failed = ("reschedule", moved.instance, "--failed", f"p-{moved.source}")
    lost.killed_at("POST", "/allocations$", *failed, stdin=moved.spec)
    assert moved.holdings() == ({moved.destination}, set())
    assert repeated(*failed, stdin=moved.spec)["root_provider"] == moved.destination
    lost.killed_at("POST", "/allocations$", "delete", moved.instance, stdin=None)
    assert repeated("delete", moved.instance) == {"deleted": moved.instance, "released": False}


def test_a_detach_whose_scheduler_is_killed_takes_no_more_when_it_is_repeated(
    moved: MovedInstance, lost: Victim, tmp_path: Path
) -> None:
    held = moved.cloud.held(moved.instance)
    groups = [{"requester_id": "port", "resources": {"VCPU": 1}}]
    port = {"project_id": "p", "user_id": "u", "requested_resources": groups}
    attached = moved.command("attach", moved.instance, input=json.dumps(port))
    assert attached.returncode == 0, attached.stderr
    before = tmp_path / "before.json"
    before.write_text(json.dumps(moved.cloud.held(moved.instance)))
    detach = ("detach", moved.instance, "--before", str(before))
    lost.killed_at("POST", "/allocations$", *detach, stdin=json.loads(attached.stdout))
    assert moved.cloud.held(moved.instance) == held
    again = moved.command(*detach, input=attached.stdout)
    assert again.returncode == 0, again.stderr
    assert moved.cloud.held(moved.instance) == held


class GroupedInstance:
    """A member of an anti-affinity group, and another one that is claimed at the same time."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.hosts = {cloud.flat_host(4), cloud.flat_host(4)}
        self.member, self.other = new_uuid(), new_uuid()
        group = {"policy": "anti-affinity", "members": [self.member, self.other]}
        self.spec = {**spec_of(cloud, self.member), "instance_group": group}

    @property
    def host(self) -> str:
        """The host of the member."""
        [host] = self.cloud.held(self.member)
        return host

    def claim_other(self) -> None:
        """Claim for the other on the same host."""
        self.cloud.claim({self.host: HELD}, self.other)


def test_a_member_whose_scheduler_is_killed_before_it_looks_at_the_host_moves_on_by_reschedule(
    cloud: Cloud, lost: Victim, command: Command
) -> None:
    grouped = GroupedInstance(cloud)
    lost.killed_at("PUT", f"/allocations/{grouped.member}$", "select", stdin=grouped.spec)
    claimed = grouped.host
    grouped.claim_other()
    spec = json.dumps(grouped.spec)
    # a guest may run there by now, so nobody takes the claim back when it is made once more
    assert command("select", input=spec).returncode == 4
    assert grouped.host == claimed
    # the host refuses the later of two members, and the caller goes on as after any refusal
    failed = ("reschedule", grouped.member, "--failed", f"p-{claimed}")
    assert command(*failed, input=spec).returncode == 0
    assert {grouped.host} == grouped.hosts - {claimed}


def test_a_member_whose_scheduler_is_killed_while_it_gives_way_is_claimed_elsewhere(
    cloud: Cloud, lost: Victim, command: Command
) -> None:
    grouped = GroupedInstance(cloud)
    path = f"/allocations/{grouped.member}$"
    # the first of two writes is the claim, the second takes it back
    taken_back = lost.proxy.hold("PUT", path)
    claimed, go_on = lost.proxy.pause("PUT", path)

    def race() -> str:
        assert claimed.wait(120)
        eventually(lambda: bool(cloud.held(grouped.member)), "the claim")
        host = grouped.host
        grouped.claim_other()
        go_on.set()
        return host

    with ThreadPoolExecutor() as pool:
        crowded = pool.submit(race)
        lost.killed_at("PUT", path, "select", stdin=grouped.spec, held=taken_back)
    assert cloud.held(grouped.member) == {}
    assert command("select", input=json.dumps(grouped.spec)).returncode == 0
    assert {grouped.host} == grouped.hosts - {crowded.result()}
