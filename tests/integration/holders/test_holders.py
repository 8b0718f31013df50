"""A short history of hosts whose parts are killed, and what the model finds; long ones by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fixtures.rabbitmq import RabbitMq
from tests.integration.holders.cloud import captured_machines, running_cloud
from tests.integration.holders.model import Content, History, Look, Record, contradictions
from tests.integration.holders.run import run

KILLS = 6
"""One round."""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_unit_has_one_holder_and_no_answered_claim_is_lost(
    tmp_path: Path, postgresql_url: str, rabbitmq: RabbitMq, libvirt_run_directory: Path
) -> None:
    with (
        captured_machines(tmp_path, libvirt_run_directory) as machines,
        running_cloud(tmp_path, postgresql_url, rabbitmq, machines) as cloud,
    ):
        done = run(
            cloud,
            lambda done: sum(n for what, n in done.items() if "kills" in what) >= KILLS,
            seed=1,
            clients=4,
            pause=0.7,
        )
    sys.stdout.write(f"{dict(sorted(done.items()))}\n")
    assert cloud.wrong == []
    kills = {what for what in done if what.startswith("kills")}
    assert len(kills) == 4
    assert done["ended"]
    assert done["looks"]


CPU: Content = {"PCPU 1": 1}
MEMORY: Content = {"MiB": 3}


def found(*events: tuple[str, Content] | str) -> list[str]:
    """Return what the model finds of events at one place, one after the other.

    :param events: a consumer that is given something; "-" and a consumer whose holding ends; or
        what a look shows: "look" with consumers that have a CPU.
    """
    history, records = History({"book": {"MiB": 4}}), {}
    for event in events:
        if not isinstance(event, str):
            consumer, content = event
            records[consumer] = Record(history, consumer, "book")
            records[consumer].answer(content)
        elif event.startswith("-"):
            records[event[1:]].begin_end()
            records[event[1:]].end()
        else:
            now = _later(history)
            history.looks.append(Look("book", now, now, dict.fromkeys(event.split()[1:], CPU)))
    return list(contradictions(history))


def _later(history: History) -> float:
    """Return a moment after all that happened so far."""
    record = Record(history, "clock", "book")
    record.end()
    return record.holdings[0].gone


def test_what_follows_the_answers_is_right() -> None:
    assert found(("a", CPU), "look a", "-a", "look", ("b", CPU), "look b") == []
    assert found(("a", MEMORY), "-a", ("b", MEMORY)) == []


def test_a_unit_that_is_given_twice_is_found() -> None:
    [sentence] = found(("a", CPU), ("b", CPU))
    assert sentence.startswith("book: PCPU 1 was given to b at ")


def test_more_of_an_amount_than_there_is_is_found() -> None:
    [sentence] = found(("a", MEMORY), ("b", {"MiB": 2}))
    assert sentence.endswith("5 of 4 then")


def test_an_answered_claim_that_a_look_does_not_show_is_found() -> None:
    [sentence] = found(("a", CPU), "look")
    assert "a has {}, and {'PCPU 1': 1} was answered" in sentence


def test_what_nobody_was_given_or_has_given_back_is_found() -> None:
    assert found("look a")
    assert found(("a", CPU), "-a", "look a")


def test_a_unit_that_a_look_shows_twice_is_found() -> None:
    assert any("is held by a, b" in s for s in found(("a", CPU), ("b", CPU), "look a b"))
