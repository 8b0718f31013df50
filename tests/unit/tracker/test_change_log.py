"""Log lines of a pass about its writes."""

from __future__ import annotations

import logging

import pytest

from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import Inventory, complete_inventory
from compute_agent.report.steps import SetInventories, SetInventory, Step
from compute_agent.tracker.change_log import LENGTH, LINES_OF_A_PASS, ChangeHistory, log_changes

UUID = "5b1c8a3e-7d0f-4a55-9a51-2f5a8b1b7c11"
OTHER = "aa1c8a3e-7d0f-4a55-9a51-2f5a8b1b7c11"


def stock(**totals: int) -> Inventory:
    return complete_inventory({name: {"total": total} for name, total in totals.items()})


def warnings(
    caplog: pytest.LogCaptureFixture, done: list[Step], left: Inventory | None
) -> list[str]:
    tree = None
    if left is not None:
        tree = ProviderTree()
        tree.new_root("host1", UUID, 1)
        tree.update_inventory(UUID, left)
    with caplog.at_level(logging.INFO):
        log_changes("host1", done, tree, ChangeHistory())
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and "another client" in record.getMessage()
    ]


def change(found: Inventory, after: Inventory, uuid: str = UUID) -> SetInventory:
    return SetInventory(uuid, "host1", found, after)


@pytest.mark.parametrize("in_one_request", [False, True])
def test_what_somebody_changed_by_hand_is_told_when_it_is_undone(
    caplog: pytest.LogCaptureFixture, in_one_request: bool
) -> None:
    ours = stock(VCPU=8, MEMORY_MB=1024)
    one = change(stock(VCPU=4, MEMORY_MB=1024), ours)
    done: list[Step] = [SetInventories((one,))] if in_one_request else [one]
    (told,) = warnings(caplog, done, ours)
    assert ": VCPU total 4 is 8 again. The agent" in told
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
    done: list[Step] = [change(stock(VCPU=4), stock(VCPU=8), OTHER)]
    assert warnings(caplog, done, stock(VCPU=8)) == []


def test_each_change_of_a_few_is_logged_and_a_loss_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        log_changes(
            "host1",
            [change(stock(VGPU=8, VCPU=1), stock(VGPU=0, VCPU=2))],
            None,
            ChangeHistory(),
        )
    lines = {record.getMessage(): record.levelno for record in caplog.records}
    assert lines["Node host1: VGPU of host1: total 8 to 0"] == logging.WARNING
    assert lines["Node host1: VCPU of host1: total 1 to 2"] == logging.INFO


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (1, "CUSTOM_LOST0 of host1: total 1, removed"),
        (LINES_OF_A_PASS + 1, f"{LINES_OF_A_PASS + 1} provider(s) or amounts were lost."),
    ],
)
def test_a_large_plan_is_a_line_and_its_losses_or_their_number(
    caplog: pytest.LogCaptureFixture, lost: int, said: str
) -> None:
    before = {f"CUSTOM_{number}": 1 for number in range(LINES_OF_A_PASS)}
    after = {f"CUSTOM_{number}": 2 for number in range(LINES_OF_A_PASS)}
    losses = {f"CUSTOM_LOST{number}": 1 for number in range(lost)}
    with caplog.at_level(logging.INFO):
        done = [change(stock(**before, **losses), stock(**after))]
        log_changes("host1", done, None, ChangeHistory())
        log_changes("host1", [], None, ChangeHistory())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[1] == f"Node host1: {said}"


def test_the_history_has_the_last_changes_and_what_is_lost_until_it_is_back() -> None:
    history = ChangeHistory()
    for after in (0, 8, 0):
        log_changes("host1", [change(stock(VGPU=8 - after), stock(VGPU=after))], None, history)
    assert [past.is_loss for past in history.changes()] == [True, False, True]
    (loss,) = history.losses("host1")
    assert loss.text == "VGPU of host1: total 8 to 0"
    assert history.losses("host2") == []
    log_changes("host1", [change(stock(), stock(VGPU=8))], None, history)
    assert history.losses("host1") == []
    for _ in range(LENGTH):
        log_changes("host1", [change(stock(), stock(VGPU=8))], None, history)
    assert len(history.changes()) == LENGTH
