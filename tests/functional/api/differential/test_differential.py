"""This server and the published one give the same answers to the same random requests.

``PLACEMENT_DIFFERENTIAL_REQUESTS`` says how many requests each seed makes (250 by default).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from ..conftest import MakeApi
from ..wsgi_client import Answer, Client
from . import comparison, deliberate
from .reference import Reference, ReferenceMissing
from .traffic import Traffic
from .vocabulary import Sent

REQUESTS = int(os.environ.get("PLACEMENT_DIFFERENTIAL_REQUESTS", "250"))
SEEDS = range(int(os.environ.get("PLACEMENT_DIFFERENTIAL_SEEDS", "4")))


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[Reference]:
    directory = tmp_path / "reference"
    directory.mkdir()
    try:
        server = Reference(directory)
    except ReferenceMissing as missing:
        pytest.skip(
            f"the published package is not there and cannot be installed ({missing}); name an "
            "environment that has it in PLACEMENT_REFERENCE_VENV"
        )
    yield server
    server.close()


def ask_ours(api: Client, sent: Sent) -> Answer:
    return api(
        sent.method,
        sent.url,
        raw=sent.body,
        version=None,
        token=None,
        headers=sent.all_headers(),
        environ={
            "SERVER_NAME": "localhost",
            "CONTENT_LENGTH": str(len(sent.body)) if sent.body else "",
        },
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_requests_get_the_same_answers(
    seed: int, make_api: MakeApi, reference: Reference
) -> None:
    api = make_api()
    traffic = Traffic(seed, api)
    asked: list[str] = []
    requests = chain(traffic.warm_up(), (traffic.next() for _ in range(REQUESTS)))
    for number, sent in enumerate(requests):
        asked.append(str(sent))
        theirs = reference(sent.method, sent.url, headers=sent.all_headers(), body=sent.body)
        ours = ask_ours(api, sent)
        traffic.retire_consumers(sent)
        found = comparison.differences(theirs, ours)
        if found and deliberate.reason(sent, theirs, ours, found) is None:
            told = "\n    ".join(found)
            before = "\n".join(asked[-5:])
            pytest.fail(f"seed {seed}, request {number}:\n{before}\n    {told}")
        if theirs.status == 500 and sent.method != "GET":
            # A write that failed there may have succeeded here: from now on the data differ.
            return


def test_every_deliberate_difference_is_told_in_a_sentence() -> None:
    for entry in deliberate.DELIBERATE:
        assert len(entry.reason.split()) > 5
