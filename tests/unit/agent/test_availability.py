"""The disabled state of a host: who sets it, and who may undo it."""

import threading
from contextlib import nullcontext
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.agent.availability import BUILDS, Availability
from compute_agent.state.claim import Claim
from compute_agent.state.ledger import Ledger, ServiceState
from compute_agent.tracker.status import StatusBoard
from tests.fixtures.agent_commands import commands_of

ROOTS = ["root1", "root2"]


class Report:
    """A placement that keeps what traits were changed."""

    def __init__(self) -> None:
        self.changed: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
        self.error: Exception | None = None

    tracing = nullcontext

    def change_traits(self, uuid: str, *, add: Any = (), remove: Any = ()) -> None:
        self.changed.append((uuid, tuple(add), tuple(remove)))
        if self.error is not None:
            raise self.error


class Bench:
    def __init__(self, state_path, *, threshold: int = 3, enabled: bool = True) -> None:
        self.path = state_path
        self.report, self.board = Report(), StatusBoard("h")
        self.board.set_node("n", "root1")
        self.now = 100.0
        self.availability = Availability(
            Ledger(state_path),
            self.report,
            self.board,
            default_enabled=lambda: enabled,
            roots=lambda: ROOTS,
            threshold=lambda: threshold,
            clock=lambda: self.now,
        )

    def shown(self) -> tuple[bool, str]:
        node = self.board.node("n")
        return node.enabled, node.disabled_reason


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)


def test_what_cannot_be_recorded_fails_no_pass_and_is_done_once_it_can(bench, caplog):
    service_file = bench.path / "service.json"
    service_file.rename(bench.path / "before")
    service_file.mkdir()
    for _ in range(3):
        bench.availability.hypervisor_is_away("libvirt is gone")
    assert bench.shown() == (True, "")
    assert not bench.report.changed
    [record] = caplog.records
    assert "The host stays enabled" in record.message
    assert str(service_file) in record.message
    with pytest.raises(errors.ComputeAgentError, match=str(service_file)):
        bench.availability.set_by_operator(False, "fan")

    service_file.rmdir()
    bench.availability.hypervisor_is_away("libvirt is gone")
    assert bench.shown()[0] is False


def test_an_operators_choice_is_kept_shown_and_mirrored_on_every_root_at_once(bench):
    bench.availability.set_by_operator(False, "fan")
    assert bench.shown() == (False, "fan")
    assert bench.report.changed == [(r, ("COMPUTE_STATUS_DISABLED",), ()) for r in ROOTS]
    assert Bench(bench.path).availability.state() == ServiceState(False, "fan")
    bench.availability.set_by_operator(True, "")
    assert bench.shown() == (True, "")
    assert bench.report.changed[2:] == [(r, (), ("COMPUTE_STATUS_DISABLED",)) for r in ROOTS]


def test_an_operators_choice_is_not_lost_to_a_hypervisor_that_is_back_at_that_moment(
    bench, monkeypatch
):
    bench.availability.hypervisor_is_away("socket closed")
    ledger = bench.availability.ledger
    read = ledger.service_state
    operator = threading.Thread(target=bench.availability.set_by_operator, args=(False, "fan"))

    def read_and_order(**default: bool) -> ServiceState:
        state = read(**default)
        if operator.ident is None:
            operator.start()
            operator.join(0.1)  # it may have to wait for the other change
        return state

    monkeypatch.setattr(ledger, "service_state", read_and_order)
    bench.availability.hypervisor_is_back()
    operator.join(30)
    assert bench.availability.state() == ServiceState(False, "fan")
    assert bench.shown() == (False, "fan")


def test_saying_the_same_again_asks_placement_nothing(bench):
    bench.availability.set_by_operator(True, "")
    bench.availability.hypervisor_is_back()
    assert bench.report.changed == []


def test_what_cannot_be_mirrored_is_left_to_the_next_pass(bench, caplog):
    bench.report.error = errors.PlacementUnavailable("away")
    bench.availability.set_by_operator(False, "fan")
    assert not bench.availability.state().enabled
    assert len(bench.report.changed) == 1, "a placement that is away is not asked for each root"
    assert "the next pass writes it" in caplog.text


@pytest.mark.parametrize("is_first", [True, False])
def test_what_an_operator_disabled_the_agent_never_enables(bench, is_first):
    if not is_first:
        bench.availability.hypervisor_is_away("socket closed")
    bench.availability.set_by_operator(False, "fan")
    bench.availability.hypervisor_is_away("socket closed")
    assert bench.shown() == (False, "fan")
    bench.availability.hypervisor_is_back()
    bench.availability.build_succeeded()
    assert bench.shown() == (False, "fan")


def test_the_return_of_the_hypervisor_does_not_forgive_failed_builds(tmp_path):
    bench = Bench(tmp_path, threshold=1)
    bench.availability.build_failed("i1", "", "no bootable disk")
    bench.availability.hypervisor_is_back()
    assert bench.shown() == (False, f"{BUILDS}: 1 in a row, the last with: no bootable disk")


def test_failed_builds_in_a_row_disable_and_a_build_that_runs_enables(bench):
    for number in range(3):
        assert bench.availability.state().enabled
        bench.availability.build_failed(f"i{number}", f"image{number}", "no disk")
    assert bench.shown() == (False, f"{BUILDS}: 3 in a row, the last with: no disk")
    assert bench.availability.failed_builds == 3
    assert bench.availability.waits_for_a_build()
    before = [Claim("i9", "n", {}, "i9", claimed_at=99.0)]
    after = [Claim("i9", "n", {}, "i9", claimed_at=101.0)]
    assert not bench.availability.has_built(before, {"i9"}), "it was claimed before they failed"
    assert not bench.availability.has_built(after, set()), "it does not run yet"
    assert bench.availability.has_built(after, {"i9"})
    bench.availability.build_succeeded()
    assert bench.shown() == (True, "")
    assert not bench.availability.waits_for_a_build()


def test_a_success_in_between_starts_the_count_again(bench):
    for number in range(2):
        bench.availability.build_failed(f"i{number}", f"image{number}", "no disk")
    bench.availability.build_succeeded()
    bench.availability.build_failed("i3", "image3", "no disk")
    assert bench.availability.state().enabled


@pytest.mark.parametrize(
    ("failures", "threshold", "against"),
    [
        ([("i1", "a"), ("i2", "b")], 2, True),
        ([("i1", "a"), ("i2", "b")], 3, False),
        ([("i1", "a"), ("i2", "b")], 0, False),
        ([("i1", "a"), ("i2", "a"), ("i3", "a")], 2, False),
        ([("i1", "a"), ("i1", "b"), ("i1", "c")], 2, False),
        ([("i1", ""), ("i2", "")], 2, True),
        ([("i1", "a"), ("i2", "")], 2, True),
    ],
)
def test_one_image_or_one_instance_alone_does_not_speak_against_the_host(
    tmp_path, failures, threshold, against
):
    bench = Bench(tmp_path, threshold=threshold)
    for instance, image in failures:
        bench.availability.build_failed(instance, image, "no disk")
    assert bench.shown()[0] is not against


def test_an_operator_who_enables_forgives_failed_builds(tmp_path):
    bench = Bench(tmp_path, threshold=1)
    bench.availability.build_failed("i1", "", "no disk")
    bench.availability.set_by_operator(True, "")
    assert bench.availability.failed_builds == 0
    assert bench.shown() == (True, "")


def test_a_host_that_starts_disabled_waits_for_an_operator(tmp_path):
    bench = Bench(tmp_path, enabled=False)
    bench.availability.hypervisor_is_back()
    assert bench.shown() == (False, "new hosts start disabled")


@pytest.mark.parametrize(
    ("word", "enabled"),
    [(True, True), (False, False), ("false", False), ("True", True), (0, False), ("on", True)],
)
def test_an_order_to_enable_is_understood_as_it_was_meant(bench, word, enabled):
    bench.availability.set_by_operator(not enabled, "before")
    commands_of(availability=bench.availability).set_host_enabled(word, "why")
    assert bench.availability.state().enabled is enabled


@pytest.mark.parametrize("word", ["", "perhaps", None, 2, []])
def test_an_order_that_means_nothing_is_refused_and_changes_nothing(bench, word):
    with pytest.raises(errors.InvalidInput, match="true or false was expected"):
        commands_of(availability=bench.availability).set_host_enabled(word)
    assert bench.availability.state().enabled
