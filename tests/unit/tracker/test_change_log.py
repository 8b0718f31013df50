"""Log lines of a pass about its writes."""

from __future__ import annotations

import logging

import pytest

from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import Inventory, complete_inventory
from compute_agent.report.operations import Operation, SetInventories, SetInventory
from compute_agent.tracker.change_log import log_changes

UUID = "5b1c8a3e-7d0f-4a55-9a51-2f5a8b1b7c11"
OTHER = "aa1c8a3e-7d0f-4a55-9a51-2f5a8b1b7c11"


def stock(**totals: int) -> Inventory:
    return complete_inventory({name: {"total": total} for name, total in totals.items()})


def warnings(
    caplog: pytest.LogCaptureFixture, done: list[Operation], left: Inventory | None
) -> list[str]:
    tree = None
    if left is not None:
        tree = ProviderTree()
        tree.new_root("host1", UUID, 1)
        tree.update_inventory(UUID, left)
    with caplog.at_level(logging.INFO):
        log_changes("host1", done, tree)
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def change(found: Inventory, after: Inventory, uuid: str = UUID) -> SetInventory:
    return SetInventory(uuid, "host1", found, after)


@pytest.mark.parametrize("in_one_request", [False, True])
def test_what_somebody_changed_by_hand_is_told_when_it_is_undone(
    caplog: pytest.LogCaptureFixture, in_one_request: bool
) -> None:
    ours = stock(VCPU=8, MEMORY_MB=1024)
    one = change(stock(VCPU=4, MEMORY_MB=1024), ours)
    done: list[Operation] = [SetInventories((one,))] if in_one_request else [one]
    (told,) = warnings(caplog, done, ours)
    assert "total 4 is 8 again" in told
    assert f"host1 ({UUID})" in told
    assert "MEMORY_MB" not in told


def test_a_deleted_inventory_that_comes_back_is_told(caplog: pytest.LogCaptureFixture) -> None:
    ours = stock(VCPU=8, MEMORY_MB=1024)
    (told,) = warnings(caplog, [change(stock(VCPU=8), ours)], ours)
    assert "MEMORY_MB was deleted and is there again" in told


@pytest.mark.parametrize(
    ("left", "found", "after"),
    [
        (stock(VCPU=8), stock(VCPU=8), stock(VCPU=16)),
        (stock(VCPU=8), stock(VCPU=4), stock(VCPU=16)),
        (stock(VCPU=8), stock(VCPU=8), stock()),
        (stock(VCPU=8), stock(VCPU=8, CUSTOM_X=1), stock(VCPU=8, CUSTOM_X=1)),
        (None, stock(VCPU=4), stock(VCPU=8)),
    ],
    ids=["host changed", "both changed", "host lost it", "of others", "first pass"],
)
def test_what_the_host_changes_itself_is_no_warning(
    caplog: pytest.LogCaptureFixture, left: Inventory | None, found: Inventory, after: Inventory
) -> None:
    assert warnings(caplog, [change(found, after)], left) == []
    assert "1 change(s) written" in caplog.text


def test_a_provider_that_was_not_there_before_is_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[Operation] = [change(stock(VCPU=4), stock(VCPU=8), OTHER)]
    assert warnings(caplog, done, stock(VCPU=8)) == []
