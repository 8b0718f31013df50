"""Every row of the table of a start and a period, with all real parts but the network between.

A driver that misbehaves as told, and a placement whose answers are taken away, at a start and in a
period: what is fatal where, what is waited for, and that the next pass makes it good.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.placement.transports.transport import make_response
from compute_agent.tracker.decisions import ExitCode
from compute_agent.virt.fake import Misdeed
from compute_agent.virt.fake.topology import fake_topology
from tests.functional.agent.answers import ANSWERS
from tests.functional.agent.in_process import SMALL, Node

pytestmark = pytest.mark.waiting


@pytest.fixture
def node(app: Any, tmp_path: Path, no_waits: None) -> Iterator[Node]:
    made = Node(app, tmp_path)
    yield made
    made.parts.close()


@pytest.fixture
def whole(app: Any, tmp_path: Path, no_waits: None) -> Iterator[Node]:
    """An agent that reads whole trees."""
    made = Node(app, tmp_path, whole_trees=True)
    made.parts.report.connect()
    yield made
    made.parts.close()


# -- the driver ----------------------------------------------------------------------------------

DRIVER_ROWS = [
    # what it raises, how often, exit status at a start (None: it stays a start), level in a period
    (errors.ReshapeNeeded("VGPU moved"), 0, ExitCode.RESHAPE_FAILED, logging.ERROR),
    (errors.ReshapeFailed("consumer x"), 0, ExitCode.RESHAPE_FAILED, logging.ERROR),
    (errors.InvalidConfiguration("bad"), 0, ExitCode.CONFIGURATION, logging.ERROR),
    (errors.ProviderConfigConflict("bad"), 0, ExitCode.CONFIGURATION, logging.ERROR),
    (errors.InvalidNodeConfiguration("bad"), 0, ExitCode.IDENTITY, logging.ERROR),
    (RuntimeError("broken"), 0, ExitCode.DRIVER_FAILED, logging.ERROR),
    (errors.InvalidInput("broken"), 0, ExitCode.DRIVER_FAILED, logging.ERROR),
    (errors.VirtDriverNotReady("wait"), 0, None, logging.WARNING),
    (errors.HypervisorUnavailable("wait"), 0, None, logging.WARNING),
    (errors.ComputeHostNotFound("who"), 0, None, logging.WARNING),
]
driver_rows = pytest.mark.parametrize(
    ("error", "calls", "code", "level"),
    DRIVER_ROWS,
    ids=[type(error).__name__ for error, *_rest in DRIVER_ROWS],
)


@driver_rows
def test_a_driver_that_misbehaves_at_a_start(node, error, calls, code, level):
    node.gain_a_gpu()
    node.driver.misbehave(Misdeed("update_provider_tree", error, calls=calls))
    result = node.run()
    assert result.exit_code == code
    assert node.is_starting
    assert not node.has_a_gpu(), "nothing of a tree half edited is flushed"
    assert node.is_made_good()


@driver_rows
def test_a_driver_that_misbehaves_in_a_period(node, error, calls, code, level, caplog):
    assert node.run().completed
    node.gain_a_gpu()
    node.driver.misbehave(Misdeed("update_provider_tree", error, calls=calls))
    for _ in range(2):
        result = node.run()
        assert result.exit_code is None
        assert not result.completed
        assert not node.has_a_gpu()
    told = [r for r in caplog.records if r.levelno >= logging.WARNING and node.name in r.message]
    assert [record.levelno for record in told] == [level], "once, though it lasts"
    pending = isinstance(error, errors.ReshapeNeeded)
    assert node.parts.board.node(node.name).reshape_pending is pending
    assert node.is_made_good()
    assert not node.parts.board.node(node.name).reshape_pending


def test_a_reshape_asked_for_by_the_first_call_of_a_start_is_done_with_the_second(node, caplog):
    caplog.set_level(logging.INFO)
    node.driver.misbehave(Misdeed("update_provider_tree", errors.ReshapeNeeded("VGPU"), calls=1))
    assert node.run().completed
    assert not node.is_starting
    assert "being migrated to a new layout" in caplog.text


def test_a_reshape_asked_for_in_a_reload_is_none_of_a_start(node):
    assert node.run().completed
    node.parts.reload()
    node.driver.misbehave(Misdeed("update_provider_tree", errors.ReshapeNeeded("VGPU"), calls=1))
    assert not node.run().completed
    assert node.parts.board.node(node.name).reshape_pending


# -- placement -----------------------------------------------------------------------------------


CALLS = {
    "the probe": ("GET", "in_tree="),
    "a new provider": ("POST", "^/resource_providers$"),
    "inventories": ("PUT", "/inventories$"),
    "traits": ("PUT", "/traits$"),
}
placement_rows = pytest.mark.parametrize(
    ("answer", "call"), [(answer, call) for answer in ANSWERS for call in CALLS]
)


READS = {
    "inventories": ("/inventories$", {"inventories": [], "resource_provider_generation": 1}),
    "traits": ("/traits$", {"traits": 5, "resource_provider_generation": 1}),
    "aggregates": ("/aggregates$", {"aggregates": [1], "resource_provider_generation": 1}),
    "known traits": (r"/traits\?name=in:", {"traits": [None]}),
}


@pytest.mark.parametrize("read", READS)
def test_a_placement_that_answers_a_read_with_nonsense_at_a_start_is_to_blame(node, read):
    path, nonsense = READS[read]
    if read != "known traits":
        assert node.run().completed
        node.start_again()
    node.transport.lie("GET", path, lambda: make_response(200, [], json.dumps(nonsense)))
    result = node.run()
    assert node.transport.told
    assert result.exit_code == ExitCode.PLACEMENT_REJECTED
    assert "URL of placement" in result.message
    node.transport.honest()
    assert node.run().completed


@placement_rows
@pytest.mark.parametrize("at_start", [True, False])
def test_a_placement_that_answers_so(node, answer, call, at_start):
    if not at_start:
        assert node.run().completed
    node.gain_a_gpu()
    given, code = ANSWERS[answer]
    node.transport.lie(*CALLS[call], given)
    result = node.run()
    assert node.transport.told
    assert result.exit_code == (code if at_start else None)
    assert not result.completed
    assert node.is_starting is at_start
    if not at_start:
        assert node.parts.board.node(node.name).trouble is not None
    elif code is None:
        assert result.next_in <= 60.0, "it is waited for"
    assert node.is_made_good()
    assert node.parts.board.node(node.name).trouble is None


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("at_start", [True, False])
def test_a_placement_that_answers_a_read_of_a_whole_tree_so(whole, answer, at_start):
    if not at_start:
        assert whole.run().completed
    given, code = ANSWERS[answer]
    whole.transport.lie("GET", "^/provider_trees/", given)
    result = whole.run()
    assert whole.transport.told
    # a 404 is a tree that is not there, which is made: it is there after all
    assert result.completed is (answer == "404")
    assert result.exit_code == (None if result.completed or not at_start else code)
    whole.gain_a_gpu()
    assert whole.is_made_good()


GONE_AROUND = {
    "400",
    "403",
    "404",
    "409",
    "409 conflict",
    "500",
    "500 of a proxy",
    "garbage",
    "empty",
}
"""Answers to many inventories at once after which they are written one by one."""


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("at_start", [True, False])
def test_a_placement_that_answers_many_inventories_so(node, answer, at_start):
    if not at_start:
        assert node.run().completed
    # so many that they go to the reshaper, in one request
    node.driver.machine = fake_topology(node.name, replace(SMALL, gpus=12))
    given, code = ANSWERS[answer]
    node.transport.lie("POST", "^/reshaper$", given)
    result = node.run()
    assert node.transport.told == 1
    assert result.completed is (answer in GONE_AROUND)
    assert result.exit_code == (None if result.completed or not at_start else code)
    assert node.is_starting is (at_start and not result.completed)
    assert node.is_made_good()
