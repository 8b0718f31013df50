"""A short run of fuzzed requests of every kind; and what its judge finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.bank.service import Service
from tests.integration.fuzz import kinds
from tests.integration.fuzz.answers import Answer, MalformedAnswer, answers, defect, unanswered
from tests.integration.fuzz.campaign import Campaign

REQUESTS = 1000


@pytest.mark.parametrize("migrated_database_url", ["postgresql"], indirect=True)
def test_no_request_of_any_kind_is_500_html_or_ends_a_worker(
    migrated_database_url: str, tmp_path: Path
) -> None:
    service = Service(tmp_path, migrated_database_url, workers=2, threads=2)
    campaign = Campaign(service, service.start(), "test", REQUESTS)
    try:
        findings = campaign.run(clients=3)
    finally:
        service.stop()
    assert findings.wrong == []
    assert set(findings.statuses) == {kind.__name__ for kind in kinds.KINDS}
    statuses = {status for counter in findings.statuses.values() for status in counter}
    assert {200, 201, 204, 400, 404, 409} <= statuses


def test_an_exchange_of_a_seed_is_always_the_same() -> None:
    assert [kinds.draw("a", number) for number in range(50)] == [
        kinds.draw("a", number) for number in range(50)
    ]
    assert kinds.draw("a", 1) != kinds.draw("b", 1)


HEAD = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nContent-Type: %s\r\n\r\n"


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (500, b"application/json", b'{"errors": [{"status": 500}]}'),
        (400, b"text/html", b"<html>"),
        (400, b"application/json", b"{"),
        (400, b"application/json", b'{"errors": [{"status": 404}]}'),
    ],
)
def test_a_defect_of_an_answer_is_found(status: int, kind: bytes, body: bytes) -> None:
    proper = b'{"errors": [{"status": 400}]}'
    received = HEAD % (status, len(body), kind) + body
    received += HEAD % (400, len(proper), b"application/json") + proper
    wrong, right = answers(received)
    assert wrong == Answer(
        status, {b"content-length": b"%d" % len(body), b"content-type": kind}, body
    )
    assert defect(wrong, html_is_asked_for=False)
    assert defect(right, html_is_asked_for=False) is None


@pytest.mark.parametrize(
    ("number", "closes", "complete"),
    [
        (3, False, True),
        (3, True, True),
        (2, True, True),
        (2, False, False),
        (4, False, False),
        (0, True, False),
    ],
)
def test_requests_without_an_answer_are_found_unless_the_server_said_that_it_closes(
    number: int, closes: bool, complete: bool
) -> None:
    last = {b"connection": b"close"} if closes else {}
    got = [Answer(200, last if number == place else {}, b"") for place in range(1, number + 1)]
    assert (unanswered(got, 3) is None) == complete


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_an_answer_in_chunks_is_read_to_its_end() -> None:
    first, second = answers(2 * (CHUNKED + b"5\r\nbytes\r\n0\r\n\r\n"))
    assert first.body == second.body == b"bytes"


@pytest.mark.parametrize(
    "received",
    [
        b"<html>",
        b"HTTP/1.1 200 OK\r\n",
        HEAD % (200, 9, b"text/plain") + b"short",
        CHUNKED,
        CHUNKED + b"9\r\nshort",
        CHUNKED + b"5\r\nbytes\r\n",
    ],
)
def test_bytes_that_are_not_answers_are_found(received: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        list(answers(received))
