"""Histories of clients at several workers, on real databases; and what the checker finds.

A long one is asked for in the environment: `HISTORY="seconds=25 kill=1 seed=2 clients=6"`.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.bank.service import Service
from tests.integration.history.clients import TOTAL, Recorder, act_together
from tests.integration.history.model import OK, SHORT, Operation, contradictions

OPERATIONS = 240
ASKED = [part.partition("=") for part in os.environ.get("HISTORY", "").split()]
LONG = {"seconds": 0, "kill": 0, "seed": 1, "clients": 6} | {
    name: int(number) for name, _, number in ASKED
}
SECONDS_BETWEEN_KILLS = 5.0


class Countdown:
    """True so often, for all threads together."""

    def __init__(self, number: int) -> None:
        self._left = threading.Semaphore(number)

    def __call__(self) -> bool:
        return self._left.acquire(blocking=False)


def act(recorder: Recorder, service: Service) -> None:
    """Let the clients act, and kill a worker now and then where that is asked for."""
    dice, end = random.Random(LONG["seed"]), time.monotonic() + LONG["seconds"]
    goes_on = Countdown(OPERATIONS) if not ASKED else lambda: time.monotonic() < end
    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(act_together, recorder, LONG["clients"], str(LONG["seed"]), goes_on)
        while wait([acting], SECONDS_BETWEEN_KILLS).not_done:
            if LONG["kill"]:
                service.kill_worker(dice)
        # an answer that a client did not expect is raised here
        acting.result()


@pytest.mark.timeout(0 if ASKED else 300)
@pytest.mark.parametrize("migrated_database_url", ["sqlite", "postgresql"], indirect=True)
def test_a_history_at_three_workers_has_an_order_that_explains_it(
    migrated_database_url: str, tmp_path: Path
) -> None:
    service = Service(tmp_path, migrated_database_url, workers=3, threads=2)
    recorder = Recorder(service.start())
    try:
        recorder.make_world()
        act(recorder, service)
    finally:
        service.stop()
    totals = dict.fromkeys(recorder.providers, TOTAL)
    assert list(contradictions(recorder.operations, totals)) == []
    results = Counter((operation.kind, operation.result) for operation in recorder.operations)
    sys.stdout.write(f"{dict(sorted(results.items()))}\n")
    assert {("claim", OK), ("claim", SHORT), ("release", OK), ("resize", OK)} <= results.keys()


def claim(
    begin: float,
    end: float,
    amount: int,
    result: str = OK,
    consumer: str = "c",
    was: int | None = None,
) -> Operation:
    return Operation(
        "claim", begin, end, result, consumer, amounts={"p": amount}, generation=was, short="p"
    )


def search(begin: float, end: float, amount: int, *hosts: str) -> Operation:
    return Operation("search", begin, end, OK, number=amount, hosts=frozenset(hosts))


def wrong(*operations: Operation, total: int = 4) -> list[str]:
    return list(contradictions(operations, {"p": total}))


def test_what_overlaps_may_have_happened_in_either_order() -> None:
    for hosts in ([], ["p"]):
        assert wrong(claim(0, 3, 4), search(1, 2, 1, *hosts)) == []


def test_a_search_that_does_not_see_an_acknowledged_claim_is_found() -> None:
    [sentence] = wrong(claim(0, 1, 4), search(2, 3, 1, "p"))
    assert sentence.startswith("inventory of p: kind search")


def test_more_claimed_than_there_is_is_found() -> None:
    [sentence] = wrong(claim(0, 2, 3), claim(1, 3, 3, consumer="d"))
    assert sentence.startswith("inventory of p: kind claim")


def test_a_claim_refused_although_there_is_room_is_found() -> None:
    assert wrong(claim(0, 1, 3, SHORT))
    # another one may have been there, and gone
    assert (
        wrong(
            claim(0, 5, 3, SHORT), claim(1, 2, 3, consumer="d"), Operation("release", 3, 4, OK, "d")
        )
        == []
    )


def test_two_writers_of_one_generation_are_found() -> None:
    [sentence] = wrong(claim(0, 2, 1), claim(1, 3, 2))
    assert sentence.startswith("consumer c: kind claim")


def test_a_write_without_an_answer_may_have_happened_or_not() -> None:
    lost = claim(0, 1, 4, "unanswered")
    for hosts in ([], ["p"]):
        assert wrong(lost, search(2, 3, 1, *hosts)) == []
    # and it does not come and go
    assert wrong(lost, search(2, 3, 1), search(4, 5, 1, "p"))
    assert wrong(lost, search(9, 10, 1, "p"), search(11, 12, 1))


def test_every_acknowledged_write_that_is_taken_out_of_a_history_is_missed() -> None:
    history = [claim(0, 1, 1), claim(2, 3, 2, was=1), search(4, 5, 3), claim(6, 7, 4, was=2)]
    assert wrong(*history) == []
    for number in range(2):
        assert wrong(*(history[:number] + history[number + 1 :])), number
    assert wrong(*history[:3], replace(history[3], generation=1))
