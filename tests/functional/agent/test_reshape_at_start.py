"""A start that has to reshape, while placement refuses, falters, dies, or serves others too."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.transport import Response, make_response
from compute_agent.provider_tree.trait_names import COMPUTE_STATUS_DISABLED
from compute_agent.report.client import ReportClient
from compute_agent.tracker.decisions import MAX_TRIES, ExitCode
from compute_agent.tracker.pass_attempt import PassResult
from compute_agent.tracker.resource_tracker import TRIES_TO_MARK
from compute_agent.virt.fake.topology import MachineSize, fake_topology
from tests.fixtures.allocations import claim_body, new_uuid
from tests.functional.agent.answers import ANSWERS, refusal, silence
from tests.functional.agent.in_process import Node

pytestmark = pytest.mark.waiting

RESHAPER = "/reshaper"
SIZE = MachineSize(cells=2, gpus=1, nics=0)
GUESTS = ({"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 10}, {"VCPU": 20, "MEMORY_MB": 90_000})


class ReshapingHost:
    """A host that placement has flat, with guests, and whose agent starts with NUMA cells."""

    def __init__(self, app: Any, directory: Path, *, whole_trees: bool) -> None:
        self.whole_trees = whole_trees
        self._app = app
        self._directory = directory
        self.neighbour = ReportClient(InProcessTransport(app))
        self.neighbour.connect()
        self.done = 0
        """Reshapes that placement did."""
        self.node = self._started(nested=False)
        assert self.node.run().completed
        self.done = 0
        self.root = self.node.uuid
        self.guests = {self.claim(amounts): amounts for amounts in GUESTS}
        self.restart()

    def _started(self, name: str | None = None, *, nested: bool) -> Node:
        node = Node(self._app, self._directory, name=name, whole_trees=self.whole_trees)
        node.driver.machine = fake_topology(node.name, SIZE)
        node.driver.options = replace(node.driver.options, is_nested=nested)
        node.transport.after = self.count
        return node

    def count(self, method: str, path: str, answer: Response) -> None:
        self.done += answer.status < 300 and path == RESHAPER

    def restart(self) -> None:
        """A new process of the agent, which has to reshape unless it was done."""
        self.node.parts.close()
        self.node = self._started(self.node.name, nested=True)

    def claim(self, amounts: dict[str, int]) -> str:
        consumer, held = new_uuid(), claim_body({self.root: amounts})
        self.neighbour.placement.allocations.put_allocations(consumer, held)
        return consumer

    def meanwhile(self, act: Callable[[], None], times: int, at: str = RESHAPER) -> None:
        """Have somebody act so many times just before a write of the agent arrives."""
        left = [times]

        def hook(method: str, path: str) -> None:
            if method == "POST" and path == at and left[0]:
                left[0] -= 1
                act()

        self.node.transport.before = hook

    def lose_placement_after_the_reshape(self, *, answered: bool, away: Callable[[], Any]) -> None:
        def hook(method: str, path: str, answer: Response) -> None:
            self.count(method, path, answer)
            if path == RESHAPER:
                self.node.transport.lie("(GET|PUT|POST|DELETE)", ".", away)
                if not answered:
                    away()

        self.node.transport.after = hook

    def find_placement_again(self) -> PassResult:
        self.node.transport.honest()
        self.node.transport.after = self.count
        return self.node.run()

    def assert_flat(self) -> None:
        tree = self.neighbour.get_provider_tree(self.root, fresh=True)
        assert {"VCPU", "MEMORY_MB", "DISK_GB"} <= tree.data(self.root).inventory.keys()
        for consumer, amounts in self.guests.items():
            record = self.neighbour.placement.allocations.get_allocs_for_consumer(consumer)
            assert {u: e["resources"] for u, e in record["allocations"].items()} == {
                self.root: amounts
            }

    def assert_nested(self) -> None:
        """Everything is held once, on the cells, and a quiet pass finds nothing to do."""
        assert self.done == 1
        assert not self.node.is_starting
        tree = self.neighbour.get_provider_tree(self.root, fresh=True)
        names = sorted(tree.data(u).name for u in tree.get_provider_uuids_in_tree(self.root))
        name = self.node.name
        assert names == [name, f"{name}_NUMA0", f"{name}_NUMA1", f"{name}_pci_0000_20_00_0"]
        assert tree.data(self.root).inventory.keys() == {"DISK_GB"}
        for consumer, amounts in self.guests.items():
            record = self.neighbour.placement.allocations.get_allocs_for_consumer(consumer)
            held: Counter[str] = Counter()
            for provider, entry in record["allocations"].items():
                held.update(entry["resources"])
                assert provider != self.root or entry["resources"].keys() == {"DISK_GB"}
            assert held == amounts
        assert self._cost() == (0, 1)

    def _cost(self) -> tuple[int, int]:
        """Writes and requests of a pass; placement may have to be asked for its versions first."""
        self.node.parts.report.connect()
        assert self.node.run().completed
        last = self.node.parts.board.node(self.node.name).last_pass
        assert last is not None
        return last.writes, last.requests


@pytest.fixture(params=[False, True], ids=["plain", "whole trees"])
def host(
    app: Any, tmp_path: Path, no_waits: None, request: pytest.FixtureRequest
) -> Iterator[ReshapingHost]:
    made = ReshapingHost(app, tmp_path, whole_trees=request.param)
    yield made
    made.node.parts.close()
    made.neighbour.close()


def test_a_start_moves_what_guests_hold_to_the_cells(host: ReshapingHost) -> None:
    assert host.node.run().completed
    host.assert_nested()


# -- what placement answers ----------------------------------------------------------------------

CODES = {
    "401": ExitCode.PLACEMENT_REJECTED,
    "409 conflict": ExitCode.PLACEMENT_REJECTED,
    "500": None,
    "503": None,
    "429": None,
    "500 of a proxy": None,
    "nothing": None,
}


@pytest.mark.parametrize("answer", [*ANSWERS, "429"])
def test_a_placement_that_answers_the_reshape_so(host: ReshapingHost, answer: str) -> None:
    given = refusal(429) if answer == "429" else ANSWERS[answer][0]
    code = CODES.get(answer, ExitCode.RESHAPE_FAILED)
    host.node.transport.lie("POST", f"^{RESHAPER}$", given)
    result = host.node.run()
    assert host.node.transport.told
    assert result.exit_code == code
    assert not result.completed
    assert host.node.is_starting
    host.assert_flat()
    assert host.find_placement_again().completed
    host.assert_nested()


@pytest.mark.parametrize("answer", ["500", "503", "429", "nothing"])
def test_an_outage_during_the_reshape_is_waited_for_however_long(
    host: ReshapingHost, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = refusal(429) if answer == "429" else ANSWERS[answer][0]
    host.node.transport.lie("POST", f"^{RESHAPER}$", given)
    for number in range(1, 7):
        result = host.node.run()
        assert (result.exit_code, result.completed) == (None, False)
        assert host.node.transport.told == number, "one reshape in each pass, not repeated blindly"
        assert result.next_in <= 60.0
    (said,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert "placement cannot be reached" in said
    assert "the layout is still the old one" in said
    host.assert_flat()
    assert host.find_placement_again().completed
    host.assert_nested()


def test_a_provider_that_is_gone_when_the_reshape_is_looked_into_is_a_round_to_repeat(
    host: ReshapingHost,
) -> None:
    """Reading what became of the reshape may find less than there was."""

    def gone() -> Response:
        host.node.transport.honest()
        return refusal(404, "placement.resource_provider.not_found")()

    def unheard() -> Response:
        host.node.transport.lie("GET", "/inventories$", gone)
        raise errors.PlacementAPIConnectFailure("reset")

    host.node.transport.lie("POST", f"^{RESHAPER}$", unheard)
    assert host.node.run().completed
    assert host.node.transport.told == 1
    host.assert_nested()


# -- placement that dies -------------------------------------------------------------------------

AWAY = {
    "nothing": silence,
    "500": refusal(500),
    "503": refusal(503),
    "500 of a proxy": lambda: make_response(500, [], "<html>"),
}
dying = pytest.mark.parametrize("away", AWAY)
restarts = pytest.mark.parametrize("restarted", [False, True], ids=["", "the agent dies too"])


def assert_the_start_is_finished_later(host: ReshapingHost, restarted: bool) -> None:
    """The reshape is done once, and what is left of the start when placement is back."""
    result = host.node.run()
    assert (result.exit_code, result.completed, host.done) == (None, False, 1)
    assert host.node.is_starting
    if restarted:
        host.restart()
    assert host.find_placement_again().completed
    host.assert_nested()


@dying
@restarts
def test_placement_dies_between_the_answer_and_what_the_agent_reads_next(
    host: ReshapingHost, away: str, restarted: bool
) -> None:
    host.lose_placement_after_the_reshape(answered=True, away=AWAY[away])
    assert_the_start_is_finished_later(host, restarted)


@restarts
def test_placement_dies_with_the_answer_and_cannot_be_asked_what_became_of_it(
    host: ReshapingHost, restarted: bool
) -> None:
    host.lose_placement_after_the_reshape(answered=False, away=silence)
    assert_the_start_is_finished_later(host, restarted)


def test_a_lost_answer_is_found_out_by_reading_and_the_start_goes_on(host: ReshapingHost) -> None:
    def hook(method: str, path: str, answer: Response) -> None:
        host.count(method, path, answer)
        if path == RESHAPER:
            raise errors.PlacementAPIConnectFailure("reset")

    host.node.transport.after = hook
    assert host.node.run().completed
    host.assert_nested()


# -- neighbours ----------------------------------------------------------------------------------

NEWCOMER = {"VCPU": 1, "MEMORY_MB": 512}


@pytest.mark.parametrize(
    ("times", "at"), [(1, RESHAPER), (3, RESHAPER), (1, "/resource_providers")]
)
def test_who_allocates_during_the_reshape_is_moved_in_the_next_round(
    host: ReshapingHost, times: int, at: str
) -> None:
    """Also one that came before the agent read the generations again, for its new providers."""
    host.meanwhile(lambda: host.guests.update({host.claim(NEWCOMER): NEWCOMER}), times, at)
    assert host.node.run().completed
    assert len(host.guests) == len(GUESTS) + times
    host.assert_nested()


def test_who_leaves_during_the_reshape_is_not_brought_back(host: ReshapingHost) -> None:
    leaving = next(iter(host.guests))

    def leave() -> None:
        host.neighbour.placement.allocations.delete_allocation(leaving, force=True)
        del host.guests[leaving]

    host.meanwhile(leave, 1)
    assert host.node.run().completed
    host.assert_nested()
    assert host.neighbour.placement.allocations.get_allocs_for_consumer(leaving) == {
        "allocations": {}
    }


@pytest.mark.parametrize("too_fast", [0, 20])
def test_neighbours_that_rest_late_are_asked_to_keep_away_and_waited_for(
    host: ReshapingHost, caplog: pytest.LogCaptureFixture, too_fast: int
) -> None:
    """More rounds than a period would have, and at the end the host takes instances again.

    :param too_fast: of those that ask them so many come too late.
    """
    disabled: list[bool] = []
    left = [too_fast]

    def allocate() -> None:
        guest = host.claim(NEWCOMER)
        host.guests[guest] = NEWCOMER
        root = host.neighbour.find_provider(host.root)
        assert root is not None
        disabled.append(COMPUTE_STATUS_DISABLED in root.traits)

    host.meanwhile(allocate, 12)
    before_reshapes = host.node.transport.before

    def hook(method: str, path: str) -> None:
        before_reshapes(method, path)
        is_mark = (method, path) == ("PUT", f"/resource_providers/{host.root}/traits")
        if is_mark and left[0] and len(disabled) >= MAX_TRIES:
            left[0] -= 1
            host.guests[host.claim(NEWCOMER)] = NEWCOMER

    host.node.transport.before = hook
    with caplog.at_level(logging.INFO):
        assert host.node.run().completed
    late = too_fast // TRIES_TO_MARK
    assert disabled == [False] * (MAX_TRIES + late) + [True] * (8 - late)
    assert caplog.text.count("It takes no new instances until") == 1
    root = host.neighbour.find_provider(host.root)
    assert root is not None
    assert COMPUTE_STATUS_DISABLED not in root.traits
    host.assert_nested()


def test_neighbours_that_never_rest_end_the_start_after_two_minutes_with_all_as_it_was(
    host: ReshapingHost,
) -> None:
    rounds: list[str] = []

    def allocate() -> None:
        rounds.append(host.claim(NEWCOMER))
        host.guests[rounds[-1]] = NEWCOMER

    host.meanwhile(allocate, 100)
    result = host.node.run()
    assert result.exit_code == ExitCode.PLACEMENT_REJECTED
    assert (len(rounds), host.done) == (60, 0)
    host.assert_flat()
    host.restart()
    assert host.node.run().completed
    host.assert_nested()
