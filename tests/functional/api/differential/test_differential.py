"""This server and the published one give the same answers to the same random requests.

`PLACEMENT_DIFFERENTIAL_REQUESTS` says how many requests each seed makes (250 by default),
`PLACEMENT_DIFFERENTIAL_SEEDS` how many seeds there are (4) and `PLACEMENT_DIFFERENTIAL_FIRST`
which is the first (0).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.fixtures.environments import skip_without_environment

from ..conftest import MakeApi
from . import comparison, deliberate
from .pair import START, Difference, Pair
from .reference import Reference
from .traffic import Traffic


def _number(name: str, default: int) -> int:
    return int(os.environ.get(f"PLACEMENT_DIFFERENTIAL_{name}", default))


REQUESTS = _number("REQUESTS", 250)
SEEDS = range(_number("FIRST", 0), _number("FIRST", 0) + _number("SEEDS", 4))


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[Reference]:
    directory = tmp_path / "reference"
    directory.mkdir()
    with skip_without_environment():
        server = Reference(directory)
    yield server
    server.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_requests_get_the_same_answers(
    seed: int,
    make_api: MakeApi,
    reference: Reference,
    record_property: Callable[[str, object], None],
) -> None:
    pair = Pair(reference, make_api())
    traffic = Traffic(seed, pair.api)
    asked: list[str] = []
    requests = chain(traffic.warm_up(), (traffic.next() for _ in range(REQUESTS)))
    for number, sent in enumerate(requests):
        asked.append(str(sent))
        theirs, ours = pair.ask(sent)
        found = comparison.differences(theirs, ours, START)
        difference = Difference(sent, theirs, ours, tuple(found), pair)
        if found and deliberate.reason(difference) is None:
            told = "\n    ".join(found)
            before = "\n".join(asked[-5:])
            pytest.fail(f"seed {seed}, request {number}:\n{before}\n    {told}")
        assert ours.status < 500, sent
        if (theirs.status < 400) != (ours.status < 400) and sent.method != "GET":
            # A write that failed on one has succeeded on the other: from now on the data differ.
            break
        traffic.retire_consumers(sent)
    record_property("requests", len(asked))


def test_every_deliberate_difference_is_told_in_a_sentence() -> None:
    for entry in deliberate.DELIBERATE:
        assert len(entry.reason.split()) > 5
