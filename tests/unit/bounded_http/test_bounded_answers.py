"""Documents, waits and clients within bounds, without a network."""

import email.utils
import io
import socket
import time

import pytest

from compute_agent import errors
from compute_agent.bounded_http import json_document
from compute_agent.bounded_http.limits import ANSWER_BYTES, AnswerReader, LimitExceeded, seconds_of
from compute_agent.placement.connection import Retries


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def test_a_document_of_a_hundred_levels_is_read_and_one_more_is_not():
    assert json_document.parse(nested(100))
    with pytest.raises(LimitExceeded, match="deeper than 100 levels"):
        json_document.parse(nested(101))


def test_brackets_in_texts_and_beside_one_another_are_no_depth():
    many = b"[" + b",".join([b"[]"] * 500) + b"]"
    assert len(json_document.parse(many)) == 500
    assert json_document.parse(b'["%b"]' % nested(500)) == [nested(500).decode()]


def test_levels_of_objects_and_lists_count_together():
    text = b'{"a": [' * 60 + b"]}" * 60
    with pytest.raises(LimitExceeded):
        json_document.parse(text)


@pytest.mark.parametrize(
    "text", ["NaN", "[-Infinity]", "1e400", '{"total": 12345678901234567890}', "-" + "9" * 5000]
)
def test_numbers_nobody_can_reckon_with_are_out_of_bounds(text):
    with pytest.raises(LimitExceeded):
        json_document.parse(text.encode())


@pytest.mark.parametrize("number", [2**31 - 1, -(2**31), 9_999_999_999_999_999_999, 0.5, 1e300])
def test_numbers_of_placement_are_read_as_they_are(number):
    assert json_document.parse(f"[{number}]".encode()) == [number]


@pytest.mark.parametrize("text", ["", "<html>", "{", '{"a": }'])
def test_what_is_not_json_is_no_broken_bound(text):
    with pytest.raises(ValueError, match="Expecting"):
        json_document.parse(text.encode())


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        (" 7 ", 7.0),
        ("-5", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("9" * 400, float("inf")),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("1e9", None),
    ],
)
def test_a_retry_after_is_seconds_or_nothing(value, seconds):
    assert seconds_of(value) == seconds


def test_a_retry_after_may_be_a_date_without_a_zone():
    later = email.utils.formatdate(time.time() + 600)
    assert later.endswith("-0000")
    assert seconds_of(later) == pytest.approx(600, abs=60)


def test_an_answer_whose_time_is_over_is_not_read_though_bytes_are_there():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"HTTP/1.1 200 OK\r\n")
        reader = AnswerReader(ours.makefile("rb", 0), ours, 0.0)
        with pytest.raises(LimitExceeded, match="timed out"):
            reader.readinto(bytearray(10))
        reader.close()


def test_an_answer_is_not_read_beyond_its_bytes():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = AnswerReader(io.BytesIO(b"a" * (ANSWER_BYTES + 1)), ours, None)
        assert reader.readinto(bytearray(ANSWER_BYTES)) == ANSWER_BYTES
        with pytest.raises(LimitExceeded, match="64 MiB"):
            reader.readinto(bytearray(10))


def test_an_answer_that_breaks_a_bound_is_not_asked_for_again():
    calls = []

    def attempt():
        calls.append(1)
        raise errors.PlacementAnswerRefused("too large")

    with pytest.raises(errors.PlacementAnswerRefused):
        Retries().while_unavailable(attempt)
    assert len(calls) == 1
