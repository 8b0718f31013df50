"""Clients deal over HTTP while everything around them is killed, cut and restarted.

A run is made again with `BANK_SEED=...`: the choices of the clients and the schedule of the
faults come from it.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.bank import bank, private_database


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """One that the database's own user may enter."""
    directory = Path("/tmp") / f"bank-{secrets.token_hex(4)}"
    directory.mkdir()
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("kind", private_database.MAKERS)
def test_nothing_is_lost_and_nothing_handed_out_twice_under_fire(
    kind: str, short_directory: Path
) -> None:
    reason = private_database.missing(kind)
    if reason is not None:
        pytest.skip(reason)
    seed = os.environ.get("BANK_SEED", "1")
    report = bank.run(private_database.MAKERS[kind], short_directory, seed, tellers=4, pace=10)
    assert report.violations == [], f"BANK_SEED={seed} makes this run again\n{report}"
    assert report.looks > 10, "the observer hardly saw anything"
    assert report.acknowledged > 40
