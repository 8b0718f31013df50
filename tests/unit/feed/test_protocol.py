"""The protocol of the feed of changes for clients, in every order of its steps.

Longer, by hand: `python -m tests.unit.feed.protocol`.
"""

from __future__ import annotations

import pytest

from tests.unit.feed.protocol import Exploration, Protocol, beginning, explore


def test_three_writers_and_two_readers_lose_nothing_in_any_order() -> None:
    explored = explore(Protocol(ids=4), beginning(writers=3, readers=2))
    assert explored.violation is None, explored.path
    assert explored.states > 50_000


def test_nothing_is_lost_while_records_are_pruned_and_a_process_starts_again() -> None:
    first = beginning(writers=2, readers=2, prunings=1, restarts=1)
    explored = explore(Protocol(ids=3), first)
    assert explored.violation is None, explored.path
    assert explored.states > 20_000


def test_a_transaction_whose_id_was_voided_is_begun_again_and_seen() -> None:
    explored = explore(Protocol(ids=5), beginning(writers=2, readers=1, prunings=1, restarts=1))
    assert explored.violation is None, explored.path


def wrong(protocol: Protocol, records: int = 1, prunings: int = 0) -> Exploration:
    explored = explore(protocol, beginning(2, 1, records=records, prunings=prunings))
    assert explored.violation is not None
    return explored


@pytest.mark.parametrize(
    ("protocol", "prunings"),
    [
        pytest.param(
            Protocol(ids=3, settled=lambda position: position.last), 0, id="gaps are not awaited"
        ),
        pytest.param(Protocol(ids=3, insert_fails=lambda _: False), 0, id="a void id can be used"),
        pytest.param(
            Protocol(ids=3, is_pruned=lambda _state, _last: False), 1, id="pruning is not noticed"
        ),
    ],
)
def test_a_protocol_with_a_defect_is_found_out(protocol: Protocol, prunings: int) -> None:
    assert wrong(protocol, prunings=prunings).path[-1] in ("answer", "insert")


def test_the_first_record_has_to_be_there_before_anybody_reads() -> None:
    # which `insert_standard_names` sees to
    explored = wrong(Protocol(ids=2), records=0)
    assert explored.violation == "id 1 may still commit, and a client is at 2"
