"""Passes of an agent that reads whole trees: requests, and what failures mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.report.client import ReportClient
from compute_agent.report.steps import describe
from compute_agent.virt.fake import Misdeed
from tests.functional.agent.answers import ANSWERS
from tests.functional.agent.in_process import Node

pytestmark = pytest.mark.waiting

READ = "GET /provider_trees"


@pytest.fixture
def node(app: Any, tmp_path: Path, no_waits: None) -> Iterator[Node]:
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


def test_a_tree_deleted_by_others_is_made_again_with_its_uuid(node, other):
    node.run()
    other.delete_resource_provider(node.uuid)
    node.run()
    assert other.find_provider(node.uuid).name == node.name


def test_the_plan_is_the_same_however_the_tree_is_read(node, app, tmp_path):
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


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("at_start", [True, False])
def test_a_placement_that_answers_a_read_so(node, answer, at_start):
    if not at_start:
        node.run()
    given, code = ANSWERS[answer]
    node.transport.lie("GET", "^/provider_trees/", given)
    result = node.run()
    assert node.transport.told
    # a 404 is a tree that is not there, which is made: it is there after all
    assert result.completed is (answer == "404")
    assert result.exit_code == (None if result.completed or not at_start else code)
    node.gain_a_gpu()
    assert node.is_made_good()
