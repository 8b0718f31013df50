"""Calls on the bus with arguments of wrong shape: each is refused by name, in one line."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compute_agent import conf as agent_conf
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.scheduler import assembly
from compute_agent.scheduler.bus.calls import oslo_messaging
from compute_agent.scheduler.bus.rpc import SchedulerEndpoint
from compute_agent.scheduler.bus.rpc_life_cycle import LifeCycleEndpoint
from compute_agent.scheduler.fleet.announcements import Announcements
from compute_agent.scheduler.outcomes import Observer

from .conftest import write_config

INSTANCE = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"
SPEC = {
    "project_id": "p",
    "user_id": "u",
    "flavor": {"vcpus": 1, "memory_mb": 1, "root_gb": 1},
}
GOOD: dict[str, Any] = {
    "spec_obj": SPEC,
    "instance_uuids": [INSTANCE],
    "instance_uuid": INSTANCE,
    "consumer_uuid": INSTANCE,
    "migration_uuid": OTHER,
    "migration_uuids": [OTHER],
    "source_root": OTHER,
    "failed_hosts": ["host"],
    "kind": "cold",
    "mappings": {},
    "move": {},
    "before": {INSTANCE: {"VCPU": 1}},
    "allocations": {INSTANCE: {"VCPU": 1}},
    "return_objects": True,
    "return_alternates": False,
    "changes": {},
}


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


WRONG: list[Any] = [
    *(None, 5, True, float("nan"), 10**400, "text", "\ud800", "\0", ["a"], [None], [[]], [{}], {}),
    *({"a": 1}, {"a": {"b": [1]}}, {"nova_object.data": 5}, {"a": {"nova_object.data": None}}),
    *("x\nFORGED", {"x\nFORGED": [5]}, "x" * 100_000, nested(900)),
]
"""Values for each argument, and for each field of a specification."""
WRONG_AMOUNTS: list[Any] = [
    *(-1.5, float("inf"), "", [], [5], {"a": None}, {"": []}),
    *({INSTANCE: 5}, {INSTANCE: None}, {INSTANCE: [OTHER]}, {INSTANCE: {"VCPU": "x"}}),
    *({INSTANCE: {"VCPU": -1}}, {INSTANCE: {"VCPU": 1.5}}, {INSTANCE: {"VCPU": 10**30}}),
    ["x" * 100_000],
]
"""More values for each argument."""
FIELDS: dict[str, tuple[str, ...]] = {
    "project_id": (),
    "user_id": (),
    "flavor": ("vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap", "extra_specs", "flavorid"),
    "image": ("id", "properties", "disk_format"),
    "is_bfv": (),
    "availability_zone": (),
    "requested_destination": (
        *("host", "node", "aggregates", "forbidden_aggregates", "cell", "allow_cross_cell_move"),
    ),
    "ignore_hosts": (),
    "force_hosts": (),
    "force_nodes": (),
    "retry": ("hosts",),
    "instance_group": ("policy", "rules", "hosts", "members"),
    "numa_topology": ("cells",),
    "requested_resources": (),
    "pci_requests": (),
    "request_level_params": ("root_required", "root_forbidden", "same_subtree"),
    "requested_networks": (),
    "scheduler_hints": (),
    "consumer_type": (),
    "num_instances": (),
}
ENTRIES: dict[str, tuple[str, ...]] = {
    "requested_resources": (
        *("requester_id", "resources", "required_traits", "forbidden_traits", "aggregates"),
        *("forbidden_aggregates", "in_tree"),
    ),
    "pci_requests": ("request_id", "alias_name", "count", "spec"),
    "requested_networks": (
        *("segment_aggregates", "remote_managed", "physnet", "tunneled", "resource_request"),
        "port_id",
    ),
}


@pytest.fixture
def endpoints(
    placement: InProcessTransport, tmp_path: Path
) -> tuple[SchedulerEndpoint, LifeCycleEndpoint]:
    file = write_config(tmp_path / "scheduler.conf", "http://unused")
    conf = agent_conf.new_config([f"--config-file={file}"])
    observer, announcements = Observer(), Announcements()
    scheduler = SchedulerEndpoint(
        lambda: assembly.parts_of(conf, placement, announcements, observer=observer),
        observer,
        "controller1",
    )
    return scheduler, LifeCycleEndpoint(lambda: scheduler.parts, observer, "4.5")


def wrong_arguments(method: Any) -> Iterator[dict[str, Any]]:
    """Yield arguments of which one is wrong."""
    good = {name: GOOD[name] for name in inspect.signature(method).parameters if name in GOOD}
    for name in good:
        for value in (*WRONG, *WRONG_AMOUNTS):
            yield {**good, name: value}


def wrong_specs() -> Iterator[dict[str, Any]]:
    """Yield specifications of which one field is wrong."""
    for field, names in FIELDS.items():
        for value in WRONG:
            yield {**SPEC, field: value}
            for name in names:
                known: Any = SPEC.get(field, {})
                yield {**SPEC, field: {**known, name: value}}
    for field, names in ENTRIES.items():
        for name in names:
            for value in WRONG:
                yield {**SPEC, field: [{name: value}]}
    for name in ("pcpuset", "cpuset", "memory", "pagesize"):
        for value in WRONG:
            yield {**SPEC, "numa_topology": {"cells": [{name: value}]}}


def check(method: Any, arguments: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Call, and check that a refusal is one for the caller, in a line of no great length."""
    caplog.clear()
    try:
        method({}, **arguments)
    except oslo_messaging.ExpectedException:
        pass
    except Exception as error:
        raise AssertionError(f"{method.__name__}({arguments!r:.300})") from error
    for record in caplog.records:
        line = record.getMessage()
        assert len(line) < 2000, f"{method.__name__}: {line[:300]}"
        assert "\nFORGED" not in line, f"{method.__name__}: {line}"


def test_every_call_refuses_arguments_of_wrong_shape(
    endpoints: tuple[SchedulerEndpoint, LifeCycleEndpoint], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "compute_agent.scheduler.bus")
    called = 0
    for endpoint in endpoints:
        for name, method in inspect.getmembers(endpoint, inspect.ismethod):
            if not name.startswith("_") and name != "renew":
                required = {"_ctxt", "ctxt", *GOOD}
                assert required.issuperset(inspect.signature(method).parameters), name
                called += 1
                for arguments in wrong_arguments(method):
                    check(method, arguments, caplog)
    assert called > 15


def test_every_field_of_a_specification_is_refused_by_name(
    endpoints: tuple[SchedulerEndpoint, LifeCycleEndpoint], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "compute_agent.scheduler.bus")
    for spec in wrong_specs():
        check(endpoints[1].explain, {"spec_obj": spec}, caplog)
