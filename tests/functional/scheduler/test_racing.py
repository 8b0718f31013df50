"""Schedulers in each other's way, and placement that fails in between, over real HTTP."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from compute_agent import bus as message_bus
from compute_agent import conf as agent_conf
from compute_agent.errors import PlacementAPIConnectFailure, PlacementUnavailable
from compute_agent.report.keystone import KeystoneTransport
from compute_agent.report.transport import RecordingTransport, Response
from compute_agent.scheduler import assembly
from compute_agent.scheduler.command_options import ClaimWords, spec_of
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.manager import Scheduler
from compute_agent.scheduler.rpc import SchedulerClient, SchedulerService
from compute_agent.scheduler.spec import RequestSpec
from tests.functional.scheduler.conftest import Cloud

Before = Callable[[str, str, Any], Response | None]


def scheduler(config: Path, before: Before | None = None) -> tuple[Scheduler, RecordingTransport]:
    conf = agent_conf.new_config([f"--config-file={config}"])
    transport = RecordingTransport(KeystoneTransport.from_conf(conf), before=before)
    return assembly.scheduler_of(conf, transport)[0], transport


def one_slot(cloud: Cloud) -> RequestSpec:
    return spec_of(ClaimWords(resources=[f"{cloud.mark}=1"], project="project", user="user"))


def new_uuid() -> str:
    return str(uuid.uuid4())


def test_of_two_schedulers_after_one_slot_one_gets_it_and_the_other_the_next(
    cloud: Cloud, config: Path
) -> None:
    hosts = {cloud.provider({cloud.mark: 1}, "COMPUTE_NODE") for _ in range(2)}
    both_have_chosen = threading.Barrier(2, timeout=60)
    first_claim = threading.local()

    def before(method: str, path: str, _body: Any) -> None:
        if method == "PUT" and not getattr(first_claim, "made", False):
            first_claim.made = True
            both_have_chosen.wait()

    def claim() -> tuple[str, list[str]]:
        one, transport = scheduler(config, before)
        [[selection]] = one.select_destinations(one_slot(cloud), [new_uuid()])
        return selection.compute_node_uuid, transport.writes

    with ThreadPoolExecutor(2) as pool:
        results = [future.result() for future in [pool.submit(claim) for _ in range(2)]]
    assert {host for host, _ in results} == hosts
    assert sorted(len(writes) for _, writes in results) == [1, 2]


def test_a_claim_is_one_request(cloud: Cloud, config: Path) -> None:
    cloud.provider({cloud.mark: 1}, "COMPUTE_NODE")
    one, transport = scheduler(config)
    one.select_destinations(one_slot(cloud), [new_uuid()])
    assert len([path for path in transport.requests if "/allocations/" in path]) == 1


def test_several_instances_leave_nothing_when_one_does_not_fit(cloud: Cloud, config: Path) -> None:
    cloud.provider({cloud.mark: 2}, "COMPUTE_NODE")
    instances = [new_uuid() for _ in range(3)]
    with pytest.raises(NoValidHost):
        scheduler(config)[0].select_destinations(one_slot(cloud), instances)
    assert [cloud.held(one) for one in instances] == [{}, {}, {}]


def test_what_placement_failed_to_take_back_is_given_back_later(cloud: Cloud, config: Path) -> None:
    host = cloud.provider({cloud.mark: 2}, "COMPUTE_NODE")
    instances = [new_uuid(), new_uuid()]
    down = threading.Event()

    def before(method: str, path: str, _body: Any) -> None:
        if path == f"/allocations/{instances[1]}":
            down.set()
        if down.is_set():
            raise PlacementAPIConnectFailure(f"{method} {path} got no answer")

    with pytest.raises(PlacementUnavailable):
        scheduler(config, before)[0].select_destinations(one_slot(cloud), instances)
    assert cloud.held(instances[0]) == {host: {cloud.mark: 1}}

    last = new_uuid()
    scheduler(config)[0].select_destinations(one_slot(cloud), [last])
    assert cloud.held(instances[0]) == {}
    assert cloud.held(last) == {host: {cloud.mark: 1}}


def test_a_claim_whose_answer_is_lost_is_not_made_twice(cloud: Cloud, config: Path) -> None:
    host = cloud.provider({cloud.mark: 2}, "COMPUTE_NODE")
    conf = agent_conf.new_config([f"--config-file={config}"])
    lost: list[str] = []

    def after(method: str, path: str, _body: Any, answer: Response) -> Response:
        if method == "PUT" and not lost:
            lost.append(path)
            raise PlacementAPIConnectFailure("the answer was lost")
        return answer

    transport = RecordingTransport(KeystoneTransport.from_conf(conf), after=after)
    instance = new_uuid()
    assembly.scheduler_of(conf, transport)[0].select_destinations(one_slot(cloud), [instance])
    assert lost
    assert cloud.held(instance) == {host: {cloud.mark: 1}}


def test_the_bus_carries_requests_answers_and_errors(cloud: Cloud, config: Path) -> None:
    host = cloud.provider({cloud.mark: 1}, "COMPUTE_NODE")
    conf = agent_conf.new_config([f"--config-file={config}"])
    bus = message_bus.open_transport(conf, "fake://")
    service = SchedulerService(conf, bus, KeystoneTransport.from_conf(conf), "scheduler")
    service.start()
    try:
        client = SchedulerClient(bus, timeout=60)
        plain = {
            "project_id": "p",
            "user_id": "u",
            "flavor": {"extra_specs": {f"resources:{cloud.mark}": "1"}},
        }
        [[selection]] = client.select_destinations(plain, [new_uuid()])
        assert selection["compute_node_uuid"] == host

        wrapped = {
            "nova_object.name": "RequestSpec",
            "nova_object.data": {
                **plain,
                "flavor": {"nova_object.name": "Flavor", "nova_object.data": plain["flavor"]},
            },
        }
        # a bus in memory hands over the error itself, one of another process a RemoteError
        with pytest.raises(NoValidHost, match="Placement has no candidate"):
            client.select_destinations(wrapped, [new_uuid()])
    finally:
        service.stop()
        bus.cleanup()
