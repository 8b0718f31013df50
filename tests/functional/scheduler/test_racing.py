"""Schedulers in each other's way, and placement that fails in between, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from compute_agent.daemon.trouble import Trouble
from compute_agent.errors import PlacementAPIConnectFailure, PlacementUnavailable
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Response
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.spec import InstanceGroup, RequestSpec
from compute_agent.scheduler import assembly
from compute_agent.scheduler.bus.rpc import SchedulerClient
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.testing.transports import RecordingTransport
from tests.fixtures.allocations import new_uuid
from tests.fixtures.claim_options import spec_of_options
from tests.functional.scheduler.conftest import Cloud
from tests.functional.scheduler.schedulers import claimed_by, scheduler, serving

pytestmark = pytest.mark.waiting


def one_slot(cloud: Cloud) -> RequestSpec:
    return spec_of_options(resources=f"{cloud.mark}=1")


def in_placements_order(config: Path) -> None:
    """Let all schedulers choose the same host first."""
    with config.open("a") as file:
        file.write("[compute_scheduler]\nspread_equal_hosts = false\n")


@pytest.mark.parametrize("spread", [True, False])
def test_schedulers_that_choose_at_the_same_time_choose_different_hosts_unless_told_not_to(
    cloud: Cloud, config: Path, spread: bool
) -> None:
    if not spread:
        in_placements_order(config)
    schedulers = 8
    for _ in range(schedulers):
        cloud.provider({cloud.mark: 1}, "COMPUTE_NODE")
    all_have_chosen = threading.Barrier(schedulers, timeout=60)
    first_claim = threading.local()
    first_choices: list[str] = []

    def before(method: str, path: str, body: Any) -> None:
        claimed = claimed_by(method, path, body)
        if claimed and not getattr(first_claim, "made", False):
            first_claim.made = True
            first_choices.extend(claimed)
            all_have_chosen.wait()

    def claim() -> str:
        chooser, _ = scheduler(config, before)
        [[selection]] = chooser.select_destinations(one_slot(cloud), [new_uuid()])
        return selection.compute_node_uuid

    with ThreadPoolExecutor(schedulers) as pool:
        claimed = [future.result() for future in [pool.submit(claim) for _ in range(schedulers)]]
    assert len(set(claimed)) == schedulers, "no claim is refused while there is room"
    assert (len(set(first_choices)) > 1) is spread


def test_of_two_schedulers_after_one_slot_one_gets_it_and_the_other_the_next(
    cloud: Cloud, config: Path
) -> None:
    in_placements_order(config)
    hosts = {cloud.provider({cloud.mark: 1}, "COMPUTE_NODE") for _ in range(2)}
    both_have_chosen = threading.Barrier(2, timeout=60)
    first_claim = threading.local()

    def before(method: str, path: str, body: Any) -> None:
        if claimed_by(method, path, body) and not getattr(first_claim, "made", False):
            first_claim.made = True
            both_have_chosen.wait()

    def claim() -> tuple[str, list[str]]:
        chooser, transport = scheduler(config, before)
        [[selection]] = chooser.select_destinations(one_slot(cloud), [new_uuid()])
        return selection.compute_node_uuid, transport.writes

    with ThreadPoolExecutor(2) as pool:
        results = [future.result() for future in [pool.submit(claim) for _ in range(2)]]
    assert {host for host, _ in results} == hosts
    assert sorted(len(writes) for _, writes in results) == [1, 2]


@pytest.mark.usefixtures("extensions")
def test_members_of_an_anti_affinity_group_that_are_claimed_at_the_same_time_part(
    cloud: Cloud, config: Path
) -> None:
    in_placements_order(config)
    hosts = {cloud.provider({cloud.mark: 9}, "COMPUTE_NODE") for _ in range(3)}
    members = [new_uuid(), new_uuid()]
    group = InstanceGroup("anti-affinity", members=frozenset(members))
    both_are_claimed = threading.Barrier(2, timeout=60)
    first_claim = threading.local()

    def after(method: str, path: str, body: Any, answer: Response) -> Response:
        if claimed_by(method, path, body) and not getattr(first_claim, "made", False):
            first_claim.made = True
            both_are_claimed.wait()
        return answer

    def claim(member: str) -> str:
        conf = agent_conf.new_config([f"--config-file={config}"])
        transport = RecordingTransport(KeystoneTransport.from_conf(conf), after=after)
        asked = replace(one_slot(cloud), instance_group=group)
        scheduler_ = assembly.parts_of(conf, transport).scheduler
        [[selection]] = scheduler_.select_destinations(asked, [member])
        return selection.compute_node_uuid

    with ThreadPoolExecutor(2) as pool:
        claimed = list(pool.map(claim, members))
    assert len(set(claimed)) == 2
    assert [cloud.held(member) for member in members] == [{h: {cloud.mark: 1}} for h in claimed]
    assert set(claimed) < hosts


def test_a_claim_is_one_request(cloud: Cloud, config: Path) -> None:
    cloud.provider({cloud.mark: 1}, "COMPUTE_NODE")
    chooser, transport = scheduler(config)
    chooser.select_destinations(one_slot(cloud), [new_uuid()])
    assert len(transport.writes) == 1


def test_several_instances_leave_nothing_when_one_does_not_fit(cloud: Cloud, config: Path) -> None:
    cloud.provider({cloud.mark: 2}, "COMPUTE_NODE")
    instances = [new_uuid() for _ in range(3)]
    with pytest.raises(NoValidHost):
        scheduler(config)[0].select_destinations(one_slot(cloud), instances)
    assert [cloud.held(instance) for instance in instances] == [{}, {}, {}]


def test_what_placement_failed_to_take_back_is_given_back_later(cloud: Cloud, config: Path) -> None:
    host = cloud.provider({cloud.mark: 2}, "COMPUTE_NODE")
    instances = [new_uuid(), new_uuid()]
    down = threading.Event()

    def before(method: str, path: str, _body: Any) -> None:
        if down.is_set():
            raise PlacementAPIConnectFailure(f"{method} {path} got no answer")

    def after(method: str, path: str, _body: Any, answer: Response) -> Response:
        if (method, path) == ("POST", "/allocations"):
            # it was carried out, and placement is away from then on
            down.set()
            raise PlacementAPIConnectFailure("the answer was lost")
        return answer

    conf = agent_conf.new_config([f"--config-file={config}"])
    transport = RecordingTransport(KeystoneTransport.from_conf(conf), before, after)
    several = assembly.parts_of(conf, transport).scheduler
    with pytest.raises(PlacementUnavailable):
        several.select_destinations(one_slot(cloud), instances)
    assert [cloud.held(instance) for instance in instances] == [{host: {cloud.mark: 1}}] * 2

    last = new_uuid()
    scheduler(config)[0].select_destinations(one_slot(cloud), [last])
    assert [cloud.held(instance) for instance in instances] == [{}, {}]
    assert cloud.held(last) == {host: {cloud.mark: 1}}


def test_a_claim_whose_answer_is_lost_is_not_made_twice(cloud: Cloud, config: Path) -> None:
    hosts = [cloud.provider({cloud.mark: 2}, "COMPUTE_NODE") for _ in range(2)]
    conf = agent_conf.new_config([f"--config-file={config}"])
    lost: list[str] = []

    def after(method: str, path: str, body: Any, answer: Response) -> Response:
        if claimed_by(method, path, body) and not lost:
            lost.append(path)
            raise PlacementAPIConnectFailure("the answer was lost")
        return answer

    transport = RecordingTransport(KeystoneTransport.from_conf(conf), after=after)
    instance = new_uuid()
    scheduler_ = assembly.parts_of(conf, transport).scheduler
    [[selection]] = scheduler_.select_destinations(one_slot(cloud), [instance])
    assert lost
    assert selection.compute_node_uuid in hosts
    assert cloud.held(instance) == {selection.compute_node_uuid: {cloud.mark: 1}}


@pytest.fixture
def client(config: Path) -> Iterator[SchedulerClient]:
    """A client of a scheduler on a bus in memory."""
    with serving(config, "fake://") as (_, bus):
        yield SchedulerClient(bus, timeout=60)


def versioned(flavor: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a specification as a conductor of Nova sends it."""
    wrapped_flavor = {"nova_object.name": "Flavor", "nova_object.data": flavor}
    return {
        "nova_object.name": "RequestSpec",
        "nova_object.data": {**fields, "flavor": wrapped_flavor},
    }


def test_the_bus_carries_requests_answers_and_errors(cloud: Cloud, client: SchedulerClient) -> None:
    host = cloud.provider({cloud.mark: 1}, "COMPUTE_NODE")
    plain = cloud.plain_spec()
    [[selection]] = client.select_destinations(plain, [new_uuid()])
    assert selection["compute_node_uuid"] == host

    wrapped = versioned(**plain)
    # a bus in memory hands over the error itself, one of another process a RemoteError
    with pytest.raises(Exception, match="Placement has no candidate") as caught:
        client.select_destinations(wrapped, [new_uuid()])
    assert (type(caught.value).__module__, type(caught.value).__name__) == (
        "nova.exception",
        "NoValidHost",
    )


def test_a_conductor_that_asks_for_another_host_of_an_instance_evacuates_it(
    cloud: Cloud, client: SchedulerClient
) -> None:
    hosts = [cloud.provider({cloud.mark: 1}, "COMPUTE_NODE") for _ in range(2)]
    plain, instance = cloud.plain_spec(), new_uuid()
    [[first]] = client.select_destinations(versioned(**plain), [instance])
    [[second]] = client.select_destinations(
        versioned(**plain, ignore_hosts=[first["nova_object.data"]["nodename"]]), [instance]
    )
    assert second["nova_object.data"]["compute_node_uuid"] in hosts
    # a conductor that claims an alternate at 1.38 or later would have to send a consumer type
    assert second["nova_object.data"]["allocation_request_version"] == "1.36"
    assert cloud.held(instance).keys() == {*hosts}


def test_the_bus_carries_moves_from_begin_to_end(cloud: Cloud, client: SchedulerClient) -> None:
    hosts = [cloud.provider({cloud.mark: 1}, "COMPUTE_NODE") for _ in range(2)]
    instance, migration = new_uuid(), new_uuid()
    [[first]] = client.select_destinations(cloud.plain_spec(), [instance])
    source = first["compute_node_uuid"]
    [destination] = set(hosts) - {source}
    asked = {"spec_obj": cloud.plain_spec(), "instance_uuid": instance}

    def begin() -> Any:
        return client.call(
            "begin_move",
            kind="live",
            migration_uuid=migration,
            mappings={"port": [source]},
            **asked,
        )

    begun = begin()
    assert begun["selections"][0]["compute_node_uuid"] == destination
    assert cloud.held(migration) == {source: {cloud.mark: 1}}
    assert client.call("revert_move", move=begun["move"]) == {"port": [source]}
    assert (cloud.held(instance), cloud.held(migration)) == ({source: {cloud.mark: 1}}, {})

    client.call("finish_move", move=begin()["move"])
    assert (cloud.held(instance), cloud.held(migration)) == ({destination: {cloud.mark: 1}}, {})

    client.call("begin_move", kind="evacuate", **asked)
    client.call("source_returned", instance_uuid=instance, source_root=destination)
    assert cloud.held(instance) == {source: {cloud.mark: 1}}
    with pytest.raises(InvalidRequest, match="cold or live or evacuate"):
        client.call("begin_move", kind="teleport", **asked)


def test_the_bus_tells_which_agents_hold_an_upgrade_back(cloud: Cloud, config: Path) -> None:
    old, new = (cloud.provider({cloud.mark: 1}, "COMPUTE_NODE") for _ in range(2))
    with serving(config, "fake://") as (service, bus):
        client = SchedulerClient(bus, timeout=60)
        for root, version in ((old, 0), (new, 1)):
            state = {"host": f"h-{root}", "nodes": [{"uuid": root}], "service_version": version}
            service.announcements.receive(state)
        status = client.call("upgrade_status")
        assert status["minimum_service_version"] == 0
        assert (status["host"], status["reload"]) == (service.endpoint.host, None)
        assert {tuple(behaviour["held_back_by"]) for behaviour in status["behaviours"]} == {
            (f"h-{old}",)
        }
        cloud.call("DELETE", f"/resource_providers/{old}")
        service.endpoint.renew()
        service.endpoint.reload_trouble = Trouble("not reloaded", "[a]b is wrong", 0.0, 1)
        status = client.call("upgrade_status")
        assert status["minimum_service_version"] == 1
        assert status["reload"]["message"] == "[a]b is wrong"


def test_all_requests_of_a_selection_carry_one_id(cloud: Cloud, config: Path) -> None:
    cloud.provider({cloud.mark: 1}, "COMPUTE_NODE")
    chooser, transport = scheduler(config)
    chooser.select_destinations(one_slot(cloud), [new_uuid()], request_id="req-of-the-caller")
    asked = {e.request.global_request_id for e in transport.exchanges if e.request.path != "/"}
    assert asked == {"req-of-the-caller"}
    transport.clear()
    for _ in range(2):
        with pytest.raises(NoValidHost):
            chooser.select_destinations(one_slot(cloud), [new_uuid()])
    assert len({e.request.global_request_id for e in transport.exchanges}) == 2


@pytest.mark.parametrize(
    ("value", "cap"), [("4.4", "4.4"), ("auto", None), ("zed", None), ("", None)]
)
def test_a_version_bounds_calls_and_the_name_of_a_release_does_not(
    config: Path, value: str, cap: str | None
) -> None:
    config.write_text(config.read_text() + f"[upgrade_levels]\nscheduler = {value}\n")
    conf = agent_conf.new_config([f"--config-file={config}"])
    assert message_bus.version_cap(conf, "scheduler") == cap
    assert message_bus.version_cap(conf, "compute") is None


def test_calls_above_the_bound_are_not_sent(config: Path) -> None:
    import oslo_messaging

    conf = agent_conf.new_config([f"--config-file={config}"])
    bus = message_bus.open_transport(conf, "fake://")
    with pytest.raises(oslo_messaging.RPCVersionCapError):
        SchedulerClient(bus, timeout=1, version_cap="4.4").call("upgrade_status")
    bus.cleanup()


def test_an_alternate_is_claimed_as_it_was_given_after_the_first_host_failed(
    cloud: Cloud, config: Path
) -> None:
    for _ in range(3):
        cloud.provider({cloud.mark: 1}, "COMPUTE_NODE")
    chooser, _ = scheduler(config)
    instance = new_uuid()
    [[first, *others]] = chooser.select_destinations(one_slot(cloud), [instance], alternates=True)
    assert len(others) == 2
    assert len({selection.compute_node_uuid for selection in (first, *others)}) == 3
    cloud.call("DELETE", f"/allocations/{instance}")
    body = {
        **json.loads(others[0].allocation_request),
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    version = {"OpenStack-API-Version": f"placement {others[0].allocation_request_version}"}
    cloud.call("PUT", f"/allocations/{instance}", json=body, headers=version)
    assert cloud.held(instance) == {others[0].compute_node_uuid: {cloud.mark: 1}}


def test_the_bus_carries_the_life_of_an_instance(cloud: Cloud, client: SchedulerClient) -> None:
    hosts = [cloud.provider({cloud.mark: 1}, "COMPUTE_NODE") for _ in range(2)]
    asked = {"spec_obj": cloud.plain_spec(), "instance_uuid": new_uuid()}
    instance = {"instance_uuid": asked["instance_uuid"]}
    explained = client.call("explain", spec_obj=cloud.plain_spec())
    assert (explained["fits"], len(explained["hosts"])) == (True, 2)
    claim = client.call("claim", **asked)
    assert client.call("claim", **asked) == claim
    again = client.call("reschedule", failed_hosts=[claim["host"]], **asked)
    assert {claim["root"], again["root"]} == set(hosts)
    assert cloud.held(asked["instance_uuid"]) == {again["root"]: {cloud.mark: 1}}
    for call, arguments in (
        ("release", {"consumer_uuid": asked["instance_uuid"]}),
        ("delete_instance", {**instance, "migration_uuids": [new_uuid()]}),
        ("local_delete", instance),
    ):
        client.call("claim", **asked)
        assert [client.call(call, **arguments) for _ in range(2)] == [True, False]
