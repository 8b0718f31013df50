"""Classes that get other names, sizes and places by an out-of-tree driver, while held."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from compute_agent import errors
from compute_agent.cmd.agent import inspection
from compute_agent.placement.connection import Clock
from compute_agent.tracker.decisions import ExitCode
from compute_agent.virt.driver import ClassChange
from compute_agent.virt.fake.driver import FakeDriver
from tests.functional.agent.in_process import Node
from tests.functional.either_placement import ours

HERE = "tests.functional.agent.test_class_changes"
CARD = "card"


class Pivot(NamedTuple):
    """A class of a provider that becomes another; provider "": the root."""

    old: str
    new: str
    factor: Fraction = Fraction(1)
    at: str = ""
    to: str = ""


class PivotDriver(FakeDriver):
    """A root with a card, whose classes change between two starts."""

    pivot: Pivot | None = None
    total = 8
    new_total: int | None = None
    is_declared = False
    loses = False

    def class_changes(self, nodename):
        pivot = self.pivot
        assert pivot is not None
        return [ClassChange(pivot.old, pivot.new, pivot.factor)] if self.is_declared else []

    def update_provider_tree(self, provider_tree, nodename, allocations=None):
        pivot, tree = self.pivot, provider_tree
        assert pivot is not None
        card = f"{nodename}_{CARD}"
        if not tree.exists(card):
            tree.new_child(card, nodename)
        old_place, new_place = (card if place else nodename for place in (pivot.at, pivot.to))
        is_new = self.new_total is not None
        if is_new and pivot.old in tree.data(old_place).inventory:
            if allocations is None:
                raise errors.ReshapeNeeded(f"{pivot.old} becomes {pivot.new}")
            self._move(allocations, tree.data(old_place).uuid, tree.data(new_place).uuid)
        unit = (
            (pivot.new, new_place, self.new_total) if is_new else (pivot.old, old_place, self.total)
        )
        for place in (nodename, card):
            records = {unit[0]: {"total": unit[2]}} if unit[1] == place else {}
            base = {"VCPU": {"total": 8}} if place == nodename else {}
            tree.update_inventory(place, {**base, **records})

    def _move(self, allocations, source, target):
        pivot = self.pivot
        assert pivot is not None
        for record in allocations.values():
            entries = record["allocations"]
            amount = entries.get(source, {}).get("resources", {}).pop(pivot.old, 0)
            if amount and not self.loses:
                resources = entries.setdefault(target, {"resources": {}})["resources"]
                resources[pivot.new] = -int(-amount * pivot.factor // 1)
            for place in [place for place in entries if not entries[place]["resources"]]:
                del entries[place]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ours(tmp_path_factory.mktemp("pivots"))


@pytest.fixture(params=[False, True], ids=["plain", "whole trees"])
def node(
    app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Node]:
    monkeypatch.setattr(Clock, "sleep", lambda _self, _seconds: None)
    extra = f"[DEFAULT]\ncompute_driver = {HERE}.PivotDriver\n"
    made = Node(app, tmp_path, extra=extra, whole_trees=request.param)
    yield made
    made.parts.close()


def occupied(node: Node, pivot: Pivot, amounts: list[int], total: int = 8) -> dict[str, int]:
    """Report the old class, and claim amounts of it."""
    node.driver.pivot, node.driver.total = pivot, total
    assert node.run().completed
    tree = node.parts.report.get_provider_tree(node.uuid)
    place = tree.data(f"{node.name}_{CARD}" if pivot.at else node.name).uuid
    held = {}
    for amount in amounts:
        consumer = str(uuid.uuid4())
        entries = {node.uuid: {"resources": {"VCPU": 1}}}
        entries.setdefault(place, {"resources": {}})["resources"][pivot.old] = amount
        node.parts.report.placement.allocations.put_allocations(
            consumer,
            {
                "allocations": entries,
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": None,
                "consumer_type": "INSTANCE",
            },
        )
        held[consumer] = amount
    return held


def holding(node: Node, consumer: str) -> dict[str, dict[str, int]]:
    record = node.parts.report.placement.allocations.get_allocs_for_consumer(consumer)
    tree = node.parts.report.get_provider_tree(node.uuid)
    return {
        CARD if tree.data(place).name.endswith(CARD) else "": entry["resources"]
        for place, entry in record["allocations"].items()
    }


PIVOTS = {
    "FPGA": (Pivot("CUSTOM_FPGA_XILINX", "FPGA"), 8),
    "VF": (Pivot("CUSTOM_NIC_VF", "SRIOV_NET_VF"), 8),
    "GPU": (Pivot("CUSTOM_GPU", "PGPU"), 8),
    "bandwidth": (Pivot("CUSTOM_BW", "NET_BW_EGR_KILOBIT_PER_SEC"), 8),
    "move and rename": (Pivot("CUSTOM_FPGA", "FPGA", to=CARD), 8),
    "another total": (Pivot("CUSTOM_FPGA", "FPGA", at=CARD, to=CARD), 6),
    "x1000": (Pivot("CUSTOM_BW", "NET_BW_EGR_KILOBIT_PER_SEC", Fraction(1000)), 8000),
    "x1000 to a card": (
        Pivot("CUSTOM_BW", "NET_BW_EGR_KILOBIT_PER_SEC", Fraction(1000), to=CARD),
        8000,
    ),
    "/2": (Pivot("CUSTOM_HALF", "FPGA", Fraction(1, 2)), 4),
}


@pytest.mark.parametrize("name", PIVOTS)
def test_a_start_moves_what_is_held_under_its_new_name(
    node: Node, name: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    pivot, total = PIVOTS[name]
    held = occupied(node, pivot, [2, 4])
    node.driver.new_total = total
    node.start_again()
    inspection.plan(node.parts, None, as_json=False)
    assert f"  = {pivot.old} becomes {pivot.new}" in capsys.readouterr().out
    caplog.clear()
    assert node.run().completed
    for consumer, amount in held.items():
        expected: dict[str, dict[str, int]] = {"": {"VCPU": 1}}
        expected.setdefault(pivot.to, {})[pivot.new] = int(amount * pivot.factor)
        assert holding(node, consumer) == expected
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(said) == (pivot.factor != 1), said
    assert all(pivot.old in line for line in said)
    node.start_again()
    assert node.run().completed


def test_a_change_that_the_driver_declares_needs_no_warning_and_rounds_up(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    pivot = Pivot("CUSTOM_KIB", "CUSTOM_MIB", Fraction(1, 1024))
    held = occupied(node, pivot, [1500, 2048], total=8192)
    node.driver.new_total, node.driver.is_declared = 8, True
    node.start_again()
    assert node.run().completed
    assert [holding(node, c)[""]["CUSTOM_MIB"] for c in held] == [2, 2]
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("is_declared", [False, True])
def test_a_loss_is_refused_and_leaves_all_as_it_was(node: Node, is_declared: bool) -> None:
    pivot = Pivot("CUSTOM_FPGA", "FPGA", to=CARD)
    held = occupied(node, pivot, [1])
    node.driver.new_total, node.driver.loses, node.driver.is_declared = 8, True, is_declared
    node.start_again()
    assert node.run().exit_code == ExitCode.RESHAPE_FAILED
    assert [holding(node, consumer) for consumer in held] == [{"": {"VCPU": 1, "CUSTOM_FPGA": 1}}]
