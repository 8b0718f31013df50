"""Passes of an agent that reads and replaces whole trees: requests, and what failures mean."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.placement.retries import SystemClock
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.report.client import ReportClient
from compute_agent.report.operations import describe
from compute_agent.tracker.decisions import ExitCode
from compute_agent.virt.fake.topology_drivers import Misdeed
from tests.functional.agent.answers import ANSWERS
from tests.functional.agent.in_process import Node
from tests.functional.either_placement import ours

pytestmark = pytest.mark.waiting

READ, WRITE = "GET /provider_trees", "PUT /provider_trees"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ours(tmp_path_factory.mktemp("whole_trees"))


@pytest.fixture
def node(app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(SystemClock, "sleep", lambda _self, _seconds: None)
    made = Node(app, tmp_path, whole_trees=True)
    made.parts.report.connect()
    yield made
    made.parts.close()


@pytest.fixture
def other(app: Any) -> Iterator[ReportClient]:
    client = ReportClient(InProcessTransport(app))
    client.connect()
    yield client
    client.close()


def requests_of(node: Node) -> list[str]:
    """Return the requests of a pass, without what they are about."""
    sent: list[str] = []
    node.transport.before = lambda method, path: sent.append(f"{method} /{path.split('/')[1]}")
    node.run()
    return sent


def test_a_first_start_takes_two_requests_a_quiet_pass_one_and_a_change_one(node):
    assert requests_of(node) == [READ, WRITE]
    assert requests_of(node) == [READ]
    node.gain_a_gpu()
    assert requests_of(node) == [WRITE]
    assert node.has_a_gpu()
    assert requests_of(node) == [READ]


def test_a_change_that_meets_one_of_others_takes_three_requests(node, other):
    node.run()
    other.change_traits(node.uuid, add=["HW_CPU_X86_VMX"])
    node.gain_a_gpu()
    assert requests_of(node) == [WRITE, READ, WRITE]
    assert node.has_a_gpu()
    assert "HW_CPU_X86_VMX" in other.find_provider(node.uuid).traits


def test_a_change_of_others_is_found_and_set_right_with_two_requests(node, other):
    node.run()
    other.change_traits(node.uuid, remove=["COMPUTE_NODE"])
    assert requests_of(node) == [READ, WRITE]
    assert "COMPUTE_NODE" in other.find_provider(node.uuid).traits


def test_a_tree_deleted_by_others_is_made_again_with_its_uuid(node, other):
    node.run()
    other.delete_resource_provider(node.uuid)
    assert requests_of(node) == [READ, WRITE]
    assert other.find_provider(node.uuid).name == node.name


def test_a_restart_takes_one_request(node, app, tmp_path):
    node.run()
    node.parts.close()
    again = Node(app, tmp_path, name=node.name, whole_trees=True)
    again.parts.report.connect()
    assert requests_of(again) == [READ]
    assert not again.is_starting
    again.parts.close()


def test_the_plan_is_the_same_either_way(node, app, tmp_path):
    node.run()
    node.gain_a_gpu()
    machine, planned = node.driver.machine, node.tracker.plan(node.name)
    node.parts.close()
    plain = Node(app, tmp_path, name=node.name)
    plain.driver.machine = machine
    assert [describe(o) for o in plain.tracker.plan(plain.name)] == [describe(o) for o in planned]
    assert planned
    plain.parts.close()


@pytest.mark.parametrize(
    "error", [errors.ReshapeNeeded("VGPU moved"), errors.InvalidInput("x"), RuntimeError("x")]
)
def test_a_driver_that_fails_in_a_period_changes_nothing(node, error):
    node.run()
    node.gain_a_gpu()
    node.driver.misbehave(Misdeed("update_provider_tree", error, calls=0))
    assert requests_of(node) == [READ]
    assert node.parts.board.node(node.name).trouble is not None
    assert not node.has_a_gpu()
    assert node.is_made_good()


def test_a_driver_that_fails_on_a_tree_that_is_another_by_now_is_asked_again(node, other):
    node.run()
    other.change_traits(node.uuid, remove=["COMPUTE_NODE"])
    node.driver.misbehave(Misdeed("update_provider_tree", RuntimeError("x"), calls=1))
    assert requests_of(node) == [READ, WRITE]
    assert node.parts.board.node(node.name).trouble is None


def test_a_root_whose_name_is_taken_ends_the_start_with_both_uuids(app, tmp_path, other):
    holder, name = str(uuid.uuid4()), f"host-{uuid.uuid4().hex[:8]}"
    made = Node(app, tmp_path, name=name, whole_trees=True)
    other.placement.providers.create(holder, name, None)
    result = made.run()
    made.parts.close()
    assert result.exit_code == ExitCode.IDENTITY
    assert holder in result.message
    assert made.uuid in result.message
    assert other.find_provider(made.uuid) is None


GONE_AROUND = {
    "GET": {"404"},
    "PUT": {"400", "403", "404", "409", "500", "500 of a proxy", "garbage", "empty"},
}
"""Answers after which the tree is read or written by provider, in the same pass."""

rows = pytest.mark.parametrize(
    ("method", "answer"), [(method, answer) for method in GONE_AROUND for answer in ANSWERS]
)


@rows
def test_a_placement_that_answers_so_at_a_start(node, method, answer):
    node.gain_a_gpu()
    given, code = ANSWERS[answer]
    node.transport.lie(method, "^/provider_trees/", given)
    result = node.run()
    assert node.transport.told
    assert result.completed is (answer in GONE_AROUND[method])
    assert result.exit_code == (None if result.completed else code)
    assert node.is_made_good()


@rows
def test_a_placement_that_answers_so_in_a_period(node, method, answer):
    node.run()
    if method == "PUT":
        node.gain_a_gpu()
    given, _code = ANSWERS[answer]
    node.transport.lie(method, "^/provider_trees/", given)
    result = node.run()
    assert node.transport.told
    assert result.completed is (answer in GONE_AROUND[method])
    assert result.exit_code is None
    node.gain_a_gpu()
    assert node.is_made_good()
