"""Metrics of an agent, as Prometheus scrapes them."""

from __future__ import annotations

import platform
import resource
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from compute_agent import __version__
from compute_agent.agent import metrics
from compute_agent.daemon.message_bus import BusState
from compute_agent.daemon.trouble import Trouble
from compute_agent.discovery.bounded_calls import HungCall
from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.trait_names import CUSTOM_GPU_UNHEALTHY
from compute_agent.state.files import StateUnusable, WriteFailure
from compute_agent.state.ledger import Ledger, ServiceState
from compute_agent.tracker.status import (
    FeedState,
    StatusBoard,
    faulty_in,
    inventories_of,
)
from tests.fixtures.promtool import needs_promtool, promtool

ROOT, CELL, GPU = (f"00000000-0000-4000-8000-00000000000{number}" for number in range(3))


def host_tree() -> ProviderTree:
    """A host with VCPU on the root and on a cell, and a broken GPU below it."""
    tree = ProviderTree()
    tree.new_root("h", ROOT, 1)
    tree.new_child("h_NUMA0", ROOT, CELL, 1)
    tree.new_child("h_GPU", CELL, GPU, 1)
    inventories = {
        ROOT: {"VCPU": {"total": 4, "allocation_ratio": 4.0}},
        CELL: {"VCPU": {"total": 8, "reserved": 2, "allocation_ratio": 1.5}},
        GPU: {"VGPU": {"total": 2, "reserved": 2}},
    }
    for uuid, inventory in inventories.items():
        tree.update_inventory(uuid, inventory)
    tree.add_traits(GPU, CUSTOM_GPU_UNHEALTHY)
    return tree


@pytest.fixture
def board() -> StatusBoard:
    board, tree = StatusBoard("agent1"), host_tree()
    board.set_node(
        "h",
        ROOT,
        inventories=inventories_of(tree, ROOT),
        faulty=faulty_in(tree, ROOT),
        drift={"missing": ["a", "b"]},
    )
    board.count_request("GET", 200)
    board.count_pass("completed", 0.5)
    board.feed_is(FeedState.FOLLOWING, last=7, changes=2)
    board.hung_calls = lambda: (HungCall("libvirt", "getInfo", 12.0),)
    return board


def value(board: StatusBoard, name: str, **labels: str) -> float | None:
    return metrics.registry(board).get_sample_value(f"compute_agent_{name}", labels)


def test_the_version_and_the_offset_of_the_clock_are_shown(board: StatusBoard) -> None:
    labels = {"version": __version__, "python": platform.python_version()}
    assert value(board, "build_info", **labels) == 1
    assert value(board, "clock_offset_seconds") is None
    board.count_request("GET", 200, -2.5)
    assert value(board, "clock_offset_seconds") == -2.5


def test_a_reload_that_failed_is_shown_until_one_succeeds(board: StatusBoard) -> None:
    assert value(board, "configuration_read") == 1
    assert "reloaded" not in board.summary()
    board.reload_trouble = Trouble("not reloaded", "[a]b is wrong", 0.0, 1)
    assert value(board, "configuration_read") == 0
    assert "; not reloaded at 1970" in board.summary()


def test_a_state_file_that_is_not_written_is_shown_until_it_can_be(
    board: StatusBoard, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path)
    board.state_files = ledger.files
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, limits[1]))
    try:
        with pytest.raises(StateUnusable, match="ledger"):
            ledger.remember_providers([f"provider-{number}" for number in range(10_000)])
        # a smaller file, and a block, still have room
        ledger.set_service_state(ServiceState(enabled=False))
        for file in ledger.files:
            file.try_again()
        assert value(board, "state_written") == 0
        assert "; state not written since " in board.summary()
        assert board.state_trouble is not None
        assert (board.state_trouble.seen, "ledger.json" in board.state_trouble.message) == (2, True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for file in ledger.files:
        file.try_again()
    assert value(board, "state_written") == 1


class MendedFile:
    """A state file that is written after so many looks at its failure."""

    def __init__(self, looks: int) -> None:
        self._failures = iter([WriteFailure("No space", 0.0, 1, 1)] * looks)

    @property
    def failure(self) -> WriteFailure | None:
        return next(self._failures, None)


@pytest.mark.parametrize("looks", range(4))
def test_a_trouble_may_end_while_it_is_shown(board: StatusBoard, looks: int) -> None:
    board.state_files = (MendedFile(looks),)  # type: ignore[assignment]
    shown = board.document()["state"]
    assert (shown and shown["message"]) == ("No space" if looks else None)


def test_a_node_shows_the_sums_of_its_tree_and_its_broken_devices(board: StatusBoard) -> None:
    def sums(resource_class: str) -> list[float | None]:
        return [
            value(board, f"node_inventory_{name}", node="h", resource_class=resource_class)
            for name in ("capacity", "reserved")
        ]

    assert sums("VCPU") == [4 * 4 + (8 - 2) * 1.5, 2]
    assert sums("VGPU") == [0, 2]
    assert value(board, "node_faulty_providers", node="h") == 1
    assert board.document()["nodes"][0]["faulty"] == ("h_GPU",)


def test_stages_of_passes_are_counted_and_timed_also_where_they_fail(board: StatusBoard) -> None:
    with board.stage("read"):
        pass
    with pytest.raises(OSError, match="away"), board.stage("read"):
        raise OSError("away")
    assert value(board, "pass_stage_seconds_count", stage="read") == 2
    assert (value(board, "pass_stage_seconds_sum", stage="read") or 0) > 0
    assert value(board, "pass_stage_seconds_count", stage="flush") is None


def test_the_bus_shows_whether_it_takes_announcements(board: StatusBoard) -> None:
    assert value(board, "bus_up") is None
    for state, is_up in ((BusState.WAITING, None), (BusState.UP, 1), (BusState.REFUSED, 0)):
        board.bus_is(state, "the password")
        assert value(board, "bus_up") == is_up
    assert board.document()["bus"]["why"] == "the password"
    assert "message bus refused since" in board.summary()


def test_a_host_whose_nodes_are_not_found_is_in_trouble() -> None:
    board = StatusBoard("agent1")
    assert value(board, "nodes_found") == 1
    board.search_trouble = Trouble("the driver is not ready", "It is away.", 1.0, 1)
    assert value(board, "nodes_found") == 0
    assert "the driver is not ready" in board.summary()


def test_hung_calls_and_the_feed_show_since_when_and_how(board: StatusBoard) -> None:
    start = "hung_call_start_timestamp_seconds"
    assert value(board, start, source="libvirt", call="getInfo") == 12
    assert value(board, "changes_followed") == 1
    board.feed_is(FeedState.FAILING)
    assert value(board, "changes_followed") == 0


@needs_promtool
def test_names_and_units_are_as_prometheus_wants_them(board: StatusBoard) -> None:
    with board.stage("read"):
        pass
    promtool("check", "metrics", text=generate_latest(metrics.registry(board)).decode())
