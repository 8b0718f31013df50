"""`compute-manage host list --watch`: the fleet as it changes, on a terminal and in a pipe."""

import json
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from compute_agent.cmd.manage.host_list import FollowedTrees
from compute_agent.cmd.scheduler import main as scheduler
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Request, Response, Transport
from tests.fixtures import programs
from tests.fixtures.terminal import Terminal
from tests.functional.agent.processes import PlacementProcess, claim, eventually
from tests.functional.manage.conftest import NOWHERE, Operator, PlacementView

pytestmark = pytest.mark.waiting

IN_PLACE = "\033[H"


@pytest.fixture
def arguments(server_config: str) -> list[str]:
    """Of a watch without a message bus."""
    return ["host", "list", server_config, "--watch", "--interval", "1"]


def new_host(server: PlacementProcess, name: str) -> str:
    view = PlacementView(KeystoneTransport.to_endpoint(server.url))
    return view.new_provider(name, {"VCPU": 4, "DISK_GB": 4}, ("COMPUTE_NODE",))


@pytest.mark.parametrize("key", ["q", "\x03"], ids=["q", "Ctrl-C"])
def test_on_a_terminal_the_list_is_drawn_in_place(
    server: PlacementProcess, arguments: list[str], key: str
) -> None:
    mark = f"mark{uuid.uuid4().hex[:8]}"
    roots = [new_host(server, f"{mark}-{number}") for number in range(3)]
    # four lines of a terminal: the head, the heading, one host
    terminal = Terminal(
        str(Path(sys.executable).parent / "compute-manage"),
        *(*arguments, mark, "--sort", "used", "--class", "VCPU"),
        size=(5, 120),
    )

    def picture() -> list[str]:
        return terminal.shown.rpartition(IN_PLACE)[2].replace("\033[K", "").splitlines()

    try:
        # a picture may be read while the next one is drawn
        shown = eventually(lambda: len(lines := picture()) >= 4 and lines, "a picture")
        assert "3 hosts" in shown[0]
        eventually(
            lambda: any("... 2 more lines" in line for line in picture()[3:4]), "the rest in a line"
        )
        claim(server, roots[2], {"VCPU": 2})
        eventually(
            lambda: any(f"{mark}-2" in line and "VCPU 2/4" in line for line in picture()[2:3]),
            "the host in use first",
        )
        assert "DISK_GB" not in terminal.shown
        terminal.type(key)
        assert terminal.ended() == 0
    finally:
        terminal.process.kill()
    assert terminal.is_as_before()


def test_in_a_pipe_lists_follow_each_other_over_an_outage_of_placement(
    server: PlacementProcess, arguments: list[str], tmp_path: Path
) -> None:
    name = f"host-{uuid.uuid4().hex[:8]}"
    root = new_host(server, name)
    printed = tmp_path / "printed"
    with printed.open("w") as output:
        process = programs.start("compute-manage", *arguments, name, output=output)
    try:
        eventually(lambda: printed.read_text().count("1 host: agents") >= 2, "two lists")
        server.kill()
        eventually(lambda: "Placement cannot be read" in printed.read_text(), "the outage")
        server.start()
        claim(server, root, {"VCPU": 3})
        eventually(lambda: "VCPU 3/4" in printed.read_text(), "a list after it")
    finally:
        process.kill()
        process.wait()
    text = printed.read_text()
    assert text.count("Placement cannot be read") == 1
    assert "\033" not in text


class CountedTrees(Transport):
    """Passes on requests, and keeps which trees they read."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.read: list[str] = []

    def send(self, request: Request) -> Response:
        if "tree" in request.path:
            self.read.append(request.path.partition("?")[0].rpartition("/")[2])
        return self._transport.send(request)


@pytest.fixture
def placement(offline: Operator) -> PlacementView:
    return offline.placement


def followed(
    placement: PlacementView, use_extensions: Callable[[], bool] = lambda: True
) -> tuple[CountedTrees, FollowedTrees]:
    counted = CountedTrees(placement.transport)
    api = PlacementApi(Connection(counted, use_extensions=use_extensions()))
    api.connection.versions()
    return counted, FollowedTrees(api)


def used(trees: FollowedTrees, roots: list[str]) -> dict[str, int]:
    return {tree[0].uuid: tree[0].inventories["VCPU"].used for tree in trees.current(roots)}


def test_only_trees_that_changed_are_read_again(placement: PlacementView) -> None:
    first, second, third = (placement.new_host() for _ in range(3))
    counted, trees = followed(placement)
    assert used(trees, [first, second]) == {first: 0, second: 0}
    assert sorted(counted.read) == sorted([first, second])
    placement.claim({second: {"VCPU": 2}})
    placement.claim({third: {"VCPU": 1}})
    counted.read.clear()
    assert used(trees, [first, second]) == {first: 0, second: 2}
    assert counted.read == [second]
    counted.read.clear()
    assert used(trees, [third, first]) == {third: 1, first: 0}
    assert counted.read == [third]
    placement.ask("DELETE", f"/resource_providers/{first}")
    assert used(trees, [third, first]) == {third: 1}


def test_without_a_feed_of_changes_all_trees_are_read(placement: PlacementView) -> None:
    first = placement.new_host()
    _, trees = followed(placement, lambda: False)
    assert used(trees, [first]) == {first: 0}
    placement.claim({first: {"VCPU": 2}})
    assert used(trees, [first]) == {first: 2}


def test_hosts_are_chosen_by_traits_of_their_trees_and_by_aggregates(offline: Operator) -> None:
    offline.topic, placement = "host", offline.placement
    gpu, plain, aggregate = placement.new_host(), placement.new_host(), str(uuid.uuid4())
    placement.new_provider(f"card-{gpu}", {"VGPU": 4}, ("HW_GPU_API_VULKAN",), gpu)
    placement.set_aggregates(plain, [aggregate])

    def listed(*options: str) -> set[str]:
        return {host["uuid"] for host in offline.run("list", "-f", "json", *options).document}

    assert listed() >= {gpu, plain}
    assert listed("--required", "HW_GPU_API_VULKAN") == {gpu}
    assert listed("--required", "HW_GPU_API_VULKAN,COMPUTE_STATUS_DISABLED") == set()
    assert plain in listed("--required", "COMPUTE_NODE", "--required", "!HW_GPU_API_VULKAN")
    assert gpu not in listed("--required", "!HW_GPU_API_VULKAN")
    assert listed("--member-of", aggregate) == {plain}
    assert plain not in listed("--member-of", f"!{aggregate}")


def test_columns_are_chosen_as_with_the_client_of_openstack(offline: Operator) -> None:
    offline.topic = "host"
    offline.placement.new_host("host-with-columns")
    ended = offline.run("list", "with-columns", "-f", "value", "-c", "used/capacity", "-c", "host")
    assert (ended.status, ended.out) == (0, "VCPU 0/8 host-with-columns\n")
    disk = offline.placement.new_provider("disk-host", {"DISK_GB": 2048}, ("COMPUTE_NODE",))
    for options, text in (((), "0/2048 (0/2 TiB)"), (("--bytes",), f"0/{2 * 2**40}")):
        shown = offline.run("list", "disk-host", "-f", "value", "-c", "used/capacity", *options)
        assert shown.out == f"DISK_GB {text}\n", disk
    unknown = offline.run("list", "-c", "colour")
    assert (unknown.status, unknown.out) == (127, "")
    assert "the columns are host, agent, bus, enabled" in unknown.err


def test_consumers_of_a_disabled_host_are_counted(offline: Operator) -> None:
    offline.topic, placement = "host", offline.placement
    root = placement.new_host("host-held")
    for _ in range(2):
        placement.claim({root: {"VCPU": 2}})
    amounts = ("list", "host-held", "-f", "value", "-c", "used/capacity")
    assert offline.run(*amounts).out == "VCPU 4/8\n"
    assert offline.run("disable", "host-held", "--reason", "fan").status == 0
    assert offline.run(*amounts).out == "VCPU 4/8  by 2 consumers\n"


def test_placement_may_be_that_of_a_cloud_of_clouds_yaml(
    online: Operator, placement_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clouds = tmp_path / "clouds.yaml"
    auth = {"endpoint": placement_url, "token": "admin"}
    clouds.write_text(json.dumps({"clouds": {"mine": {"auth_type": "admin_token", "auth": auth}}}))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
    online.topic = "host"
    online.configure(placement={"endpoint_override": NOWHERE})
    name = f"cloud-{uuid.uuid4().hex[:8]}"
    online.placement.new_host(name)
    assert online.run("list", name).status == 3
    ended = online.run("list", name, "--os-cloud", "mine", "-f", "value", "-c", "host")
    assert (ended.status, ended.out) == (0, f"{name}\n")
    config = f"--config-file={online.directory / 'agent.conf'}"
    assert scheduler.main([config, "--os-cloud", "mine", "list", "--host", name]) == 1
    assert scheduler.main([config, "list", "--host", name]) == 3
    assert scheduler.main([config, "--os-cloud", "mine", "serve"]) == 2
