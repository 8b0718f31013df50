"""`compute-manage host drain`: who is left, where each would fit, and the way to an empty host."""

import argparse
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from compute_agent.cmd.manage.drain import DrainedHost
from compute_agent.manage import drain
from compute_agent.manage.drain import Holder, HostHolders
from compute_agent.manage.fleet import FleetHost
from compute_agent.manage.hosts import CommandRefused
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.provider_tree.trait_names import COMPUTE_STATUS_DISABLED
from compute_agent.scheduler.fleet.announcements import Announcements
from tests.fixtures import programs
from tests.functional.agent.processes import PlacementProcess, claim, eventually
from tests.functional.manage.conftest import Agent, Operator, PlacementView
from tests.functional.scheduler.schedulers import serving

pytestmark = pytest.mark.waiting

PLAIN = {"use_placement_extensions": "never"}


@pytest.fixture
def operator(offline: Operator) -> Operator:
    """Without a bus, with a fleet of its own."""
    offline.topic = "host"
    return offline


def traits(placement: PlacementView, name: str) -> set[str]:
    return set(placement.providers(name)[name]["traits"])


def release(placement: PlacementView, consumer: str) -> None:
    placement.ask("DELETE", f"/allocations/{consumer}")


@pytest.mark.parametrize("options", [{}, PLAIN], ids=["whole trees", "plain API"])
def test_a_host_is_disabled_and_its_consumers_have_other_hosts(
    operator: Operator, options: dict[str, str]
) -> None:
    operator.configure(compute_agent=options)
    placement = operator.placement
    old, large = placement.new_host("old", 8), placement.new_host("large", 5)
    placement.new_host("small", 3)
    first, second = placement.claim({old: {"VCPU": 5}}), placement.claim({old: {"VCPU": 3}})
    # a disabled host takes nothing, however much room it has
    placement.new_provider("off", {"VCPU": 64}, ("COMPUTE_NODE", COMPUTE_STATUS_DISABLED))
    assert operator.run("drain", "old", "--dry-run").status == 6
    assert COMPUTE_STATUS_DISABLED not in traits(placement, "old")
    drained = operator.run("drain", "old", "--json")
    assert drained.status == 8, drained
    to = {move["consumer"]: move["to"] for move in drained.document["consumers"]}
    assert to[first] == "large"
    # where placement supposes moves, each consumer is placed with what those before it have left
    assert to[second] == "small" if not options else to[second] in ("small", "large")
    assert "an agent that runs there" in drained.document["by"]
    assert drained.document["together"] == (not options)
    assert COMPUTE_STATUS_DISABLED in traits(placement, "old")
    assert placement.held(first) == {old: {"VCPU": 5}}
    placement.claim({large: {"VCPU": 1}})
    shown = operator.run("drain", "old", status=1)
    assert "is disabled already" in shown.out
    assert "2 consumers left, of which 1 fits nowhere else" in shown.out
    for consumer in (first, second):
        release(placement, consumer)
    assert operator.run("drain", "old").status == 0
    assert operator.run("drain", "old", "--dry-run").status == 0
    assert operator.run("drain", "old", "--undo", "--dry-run").status == 6
    for _ in range(2):
        assert operator.run("drain", "old", "--undo").status == 0
        assert COMPUTE_STATUS_DISABLED not in traits(placement, "old")


def test_a_part_below_the_root_goes_where_both_parts_fit(operator: Operator) -> None:
    placement = operator.placement
    roots = {name: placement.new_host(name) for name in ("old", "bare", "new")}
    gpus = {
        name: placement.new_provider(f"{name}_gpu", {"VGPU": 4}, (), roots[name])
        for name in ("old", "new")
    }
    placement.claim({roots["old"]: {"VCPU": 2}, gpus["old"]: {"VGPU": 1}})
    [move] = operator.run("drain", "old", "--json").document["consumers"]
    assert (move["to"], move["resources"]) == ("new", {"VCPU": 2, "VGPU": 1})
    placement.claim({gpus["new"]: {"VGPU": 4}})
    [move] = operator.run("drain", "old", "--json").document["consumers"]
    assert move["to"] is None
    assert move["reason"]


def test_what_an_unfinished_move_holds_needs_no_other_host(operator: Operator) -> None:
    placement = operator.placement
    old = placement.new_host("old")
    placement.claim({old: {"VCPU": 2}}, consumer_type="MIGRATION")
    drained = operator.run("drain", "old", "--json")
    [move] = drained.document["consumers"]
    assert (drained.status, move["to"]) == (8, None)
    assert "until the move is ended" in move["reason"]


def test_a_host_that_does_not_exist_is_refused(operator: Operator) -> None:
    assert operator.run("drain", "nobody").status == 4


# -- with a message bus --------------------------------------------------------------------------


@pytest.fixture
def heard(operator: Operator, on_bus: Callable[[Agent], None]) -> Iterator[Announcements]:
    """What a scheduler has heard that serves on the operator's bus."""
    operator.configure(DEFAULT={"service_down_time": 60})
    operator.arguments("drain")
    with serving(operator.directory / "agent.conf") as (service, _):
        yield service.announcements


def test_only_hosts_whose_agents_fell_silent_are_left_out(
    operator: Operator, on_bus: Callable[[Agent], None], heard: Announcements
) -> None:
    placement = operator.placement
    old, dead = placement.new_host("old", 8), placement.new_host("dead", 8)
    large, small = placement.claim({old: {"VCPU": 5}}), placement.claim({old: {"VCPU": 2}})
    # its tree is reported by what announces nothing
    placement.new_host("foreign", 4)
    on_bus(Agent("old", [old]))
    clock = heard._clock
    heard._clock = lambda: clock() - 61
    heard.receive({"host": "dead", "nodes": [{"uuid": dead}, {"uuid": str(uuid.uuid4())}]})
    heard._clock = clock
    drained = operator.run("drain", "old", "--dry-run", "--json")
    to = {move["consumer"]: move["to"] for move in drained.document["consumers"]}
    assert (to, drained.document["left_out"]) == ({large: None, small: "foreign"}, ["dead"])
    heard.receive({"host": "dead", "nodes": [{"uuid": dead}]})
    drained = operator.run("drain", "old", "--dry-run", "--json")
    to = {move["consumer"]: move["to"] for move in drained.document["consumers"]}
    assert (to[large], drained.document["left_out"]) == ("dead", [])


def test_without_a_scheduler_on_the_bus_all_hosts_take_consumers(
    operator: Operator, on_bus: Callable[[Agent], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compute_agent.scheduler.bus.running_scheduler.ANNOUNCEMENTS_TIMEOUT", 0.5)
    old = operator.placement.new_host("old")
    operator.placement.new_host("new")
    operator.placement.claim({old: {"VCPU": 1}})
    on_bus(Agent("old", [old]))
    drained = operator.run("drain", "old", "--dry-run", "--json")
    assert [move["to"] for move in drained.document["consumers"]] == ["new"]
    assert "not known which agents fell silent" in drained.err


# -- --watch, with real processes ----------------------------------------------------------------


@dataclass
class WatchedDrain:
    """A fleet of two hosts and a drain of the first that is watched."""

    placement: PlacementProcess
    root: str
    consumer: str
    output: Path
    process: programs.Process

    def printed(self, text: str) -> None:
        """Wait until the command has printed this."""
        eventually(lambda: text in self.output.read_text(), text)

    def release(self, consumer: str) -> None:
        assert self.placement.request("DELETE", f"/allocations/{consumer}").status_code == 204

    def set_traits(self, *names: str) -> None:
        path = f"/resource_providers/{self.root}"
        body = {
            "traits": list(names),
            "resource_provider_generation": self.placement.get(path)["generation"],
        }
        assert self.placement.request("PUT", f"{path}/traits", json=body).ok


def new_host(server: PlacementProcess, name: str) -> str:
    return PlacementView(KeystoneTransport.to_endpoint(server.url)).new_host(name, 4)


@pytest.fixture
def watched(
    server: PlacementProcess, server_config: str, tmp_path: Path
) -> Iterator[Callable[..., WatchedDrain]]:
    processes = []

    def start(*arguments: str) -> WatchedDrain:
        name = f"host-{uuid.uuid4().hex[:8]}"
        root = new_host(server, name)
        consumer = claim(server, root, {"VCPU": 1})
        output = tmp_path / "output"
        options = (server_config, "--watch", "--interval", "1", *arguments)
        with output.open("w") as file:
            process = programs.start("compute-manage", "host", "drain", name, *options, output=file)
        processes.append(process)
        watched = WatchedDrain(server, root, consumer, output, process)
        watched.printed(consumer)
        return watched

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_a_watch_ends_when_the_host_is_empty(watched: Callable[..., WatchedDrain]) -> None:
    fleet = watched()
    late = claim(fleet.placement, fleet.root, {"VCPU": 1})
    fleet.printed(f"{late} has arrived")
    fleet.release(fleet.consumer)
    fleet.printed(f"{fleet.consumer} has left; 1 consumer left")
    fleet.release(late)
    assert fleet.process.wait(60) == 0, fleet.output.read_text()
    assert "is empty" in fleet.output.read_text()


def test_a_watch_goes_on_after_an_outage_of_placement(watched: Callable[..., WatchedDrain]) -> None:
    fleet = watched()
    fleet.placement.kill()
    fleet.printed("is asked again")
    fleet.placement.start()
    fleet.printed("Placement answers again")
    fleet.release(fleet.consumer)
    assert fleet.process.wait(60) == 0, fleet.output.read_text()
    assert fleet.output.read_text().count("is asked again") == 1


def test_a_watch_of_a_host_that_is_enabled_meanwhile_ends_with_that(
    watched: Callable[..., WatchedDrain],
) -> None:
    fleet = watched()
    fleet.set_traits("COMPUTE_NODE")
    assert fleet.process.wait(60) == 4
    assert "was enabled while it was drained" in fleet.output.read_text()


def test_a_watch_ends_with_its_time_and_a_host_that_is_gone_is_empty(
    watched: Callable[..., WatchedDrain], server: PlacementProcess
) -> None:
    new_host(server, "spare")
    fleet = watched("--timeout", "1")
    assert fleet.process.wait(60) in (7, 8)
    fleet = watched()
    fleet.release(fleet.consumer)
    assert fleet.placement.request("DELETE", f"/resource_providers/{fleet.root}").ok
    assert fleet.process.wait(60) == 0, fleet.output.read_text()


def test_a_host_that_was_enabled_is_not_drained_though_nobody_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain, "use_of", lambda *_: HostHolders(is_disabled=False, holders=()))
    options = argparse.Namespace(timeout=None, interval=1, json=False)
    placement = cast(PlacementApi, None)
    host = cast(FleetHost, argparse.Namespace(uuid=str(uuid.uuid4()), name="old"))
    drained_host = DrainedHost(options, placement, host, "", was_disabled=False, left_out={})
    before = HostHolders(is_disabled=True, holders=(Holder("consumer", None, {}),))
    with pytest.raises(CommandRefused, match="Host old was enabled while it was drained"):
        drained_host.watch(before)
