"""Classes that get other names, sizes and places by an out-of-tree driver, while held."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from compute_agent.cmd.agent import inspection
from compute_agent.tracker.decisions import ExitCode
from tests.fixtures.allocations import amounts_of, claim_body, new_uuid
from tests.functional.agent.in_process import Node
from tests.functional.class_changes import CARD, DRIVER, PIVOTS, Pivot, will_report


@pytest.fixture(params=[False, True], ids=["plain", "whole trees"])
def node(
    app: Any, tmp_path: Path, no_waits: None, request: pytest.FixtureRequest
) -> Iterator[Node]:
    extra = f"[DEFAULT]\ncompute_driver = {DRIVER}\n"
    made = Node(app, tmp_path, extra=extra, whole_trees=request.param)
    yield made
    made.parts.close()


def occupied(node: Node, pivot: Pivot, amounts: list[int]) -> dict[str, int]:
    """Report the old class, and claim amounts of it."""
    will_report(node.state, pivot, after=False)
    assert node.run().completed
    tree = node.parts.report.get_provider_tree(node.uuid)
    place = tree.data(f"{node.name}_{CARD}" if pivot.at else node.name).uuid
    held = {}
    for amount in amounts:
        consumer, entries = new_uuid(), {node.uuid: {"VCPU": 1}}
        entries.setdefault(place, {})[pivot.old] = amount
        allocations = node.parts.report.placement.allocations
        allocations.put_allocations(consumer, claim_body(entries))
        held[consumer] = amount
    return held


def holding(node: Node, consumer: str) -> dict[str, dict[str, int]]:
    record = node.parts.report.placement.allocations.get_allocs_for_consumer(consumer)
    tree = node.parts.report.get_provider_tree(node.uuid)
    return {
        CARD if tree.data(place).name.endswith(CARD) else "": amounts
        for place, amounts in amounts_of(record).items()
    }


@pytest.mark.parametrize("name", PIVOTS)
def test_a_start_moves_what_is_held_under_its_new_name(
    node: Node, name: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    pivot = PIVOTS[name]
    held = occupied(node, pivot, [2, 4])
    will_report(node.state, pivot, after=True)
    node.start_again()
    inspection.print_plan(node.parts, None, as_json=False)
    assert f"  = {pivot.old} becomes {pivot.new}" in capsys.readouterr().out
    caplog.clear()
    assert node.run().completed
    for consumer, amount in held.items():
        expected: dict[str, dict[str, int]] = {"": {"VCPU": 1}}
        expected.setdefault(pivot.to, {})[pivot.new] = int(amount * pivot.factor)
        assert holding(node, consumer) == expected
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    has_less = pivot.old_total * pivot.factor > pivot.new_total
    assert len(said) == (pivot.factor != 1) + has_less, said
    assert all(pivot.old in line for line in said)
    node.start_again()
    assert node.run().completed


def test_a_change_that_the_driver_declares_needs_no_warning_and_rounds_up(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    pivot = Pivot("CUSTOM_KIB", "CUSTOM_MIB", Fraction(1, 1024), old_total=8192)
    held = occupied(node, pivot, [1500, 2048])
    will_report(node.state, pivot, after=True, is_declared=True)
    node.start_again()
    assert node.run().completed
    assert [holding(node, c)[""]["CUSTOM_MIB"] for c in held] == [2, 2]
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("is_declared", [False, True])
def test_a_loss_is_refused_and_leaves_all_as_it_was(node: Node, is_declared: bool) -> None:
    pivot = Pivot("CUSTOM_FPGA", "FPGA", to=CARD)
    held = occupied(node, pivot, [1])
    will_report(node.state, pivot, after=True, is_declared=is_declared, loses=True)
    node.start_again()
    assert node.run().exit_code == ExitCode.RESHAPE_FAILED
    assert [holding(node, consumer) for consumer in held] == [{"": {"VCPU": 1, "CUSTOM_FPGA": 1}}]
