"""Calls to an agent on the bus with arguments of wrong shape: each is refused, none is a defect."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compute_agent.agent.commands import AgentCommands
from compute_agent.agent.rpc import COMMANDS, AgentEndpoint
from compute_agent.daemon import message_bus
from tests.functional.agent.in_process import Node
from tests.functional.either_placement import ours

pytestmark = pytest.mark.waiting

message_bus.use_threads()

INSTANCE = "00000000-0000-4000-8000-000000000001"
WRONG: list[Any] = [
    *(5, -1.5, float("nan"), 10**400, [], ["a"], [None], [[]], [{}], {}, {"a": 1}),
    *({"a": {"b": [1]}}, {INSTANCE: 5}, {INSTANCE: {"resources": {"VCPU": "1"}}}, "\ud800", "\0"),
    *({INSTANCE: {"resources": {"VCPU": 10**30}}}, {"instance_uuid": INSTANCE, "flavor": [1]}),
]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(ours(tmp_path), tmp_path)
    assert made.run().completed
    yield made
    made.parts.close()


def test_every_call_refuses_arguments_of_wrong_shape(node: Node) -> None:
    import oslo_messaging

    schedule = SimpleNamespace(
        trigger=lambda *_asked: True,
        request_pass=lambda *_asked: None,
        wait_for_passes=lambda *_asked: True,
        running_nodes=dict,
    )
    availability = SimpleNamespace(failed_builds=0)
    endpoint = AgentEndpoint(
        AgentCommands(
            node.parts.conf,
            node.parts,
            node.tracker,
            schedule,
            lambda: None,
            book=node.parts.claims(node.tracker),
            availability=availability,
        )
    )
    good = {
        "node": node.name,
        "enabled": "perhaps",
        "reason": "",
        "spec": {"instance_uuid": INSTANCE},
        "instance": INSTANCE,
        "provider": node.uuid,
        "allocations": None,
        "mappings": None,
    }
    called = 0
    for name in (*COMMANDS, "report_now", "set_host_enabled"):
        method = getattr(endpoint, name)
        parameters = set(inspect.signature(method.args[0]).parameters) & good.keys()
        for parameter in parameters:
            for value in WRONG:
                called += 1
                arguments = {**{key: good[key] for key in parameters}, parameter: value}
                try:
                    answer = method({}, **arguments)
                except oslo_messaging.ExpectedException:
                    continue
                except Exception as error:
                    raise AssertionError(f"{name}({arguments!r:.300})") from error
                assert answer in (False, None), f"{name}({arguments!r:.300}) is {answer}"
    assert called > 100
