"""Rows of benchmarks beside what they are compared with."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks.floors.table import FAILS, HOLDS, UNDECIDED, Row, show


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        (Row("claim", "ms", 2.0, floor=1.0, most=2.0), True),
        (Row("claim", "ms", 2.1, floor=1.0, most=2.0), False),
        (Row("start", "s", 0.9, most=1.0), True),
        (Row("rate", "1/s", 50.0, floor=100.0, least=0.6), False),
        (Row("search", "ms", 1.0, published_value=100.0, times=30.0), True),
        (Row("search", "ms", 5.0, published_value=100.0, times=30.0), False),
        (Row("search", "ms", 5.0, times=30.0), False),
        (Row("search", "ms", 1.0, verdict="FAILS: 3 candidates, not 4"), False),
        (Row("search", "ms", 1.0), True),
    ],
)
def test_a_row_holds_when_all_of_its_bounds_do(row: Row, holds: bool) -> None:
    assert row.holds == holds
    assert (FAILS in row.cells()[-1]) == (not holds)


@pytest.mark.parametrize(
    ("row", "judgement"),
    [
        (Row("claim", "ms", 1.9, floor=1.0, most=2.0), HOLDS),
        (Row("claim", "ms", 3.9, floor=1.0, most=2.0), UNDECIDED),
        (Row("claim", "ms", 4.1, floor=1.0, most=2.0), FAILS),
        (Row("start", "s", 9.0, most=1.0), UNDECIDED),
        (Row("rate", "1/s", 50.0, floor=100.0, least=0.6), UNDECIDED),
        (Row("rate", "1/s", 29.0, floor=100.0, least=0.6), FAILS),
        (Row("search", "ms", 5.0, published_value=100.0, times=30.0), UNDECIDED),
        (Row("search", "ms", 9.0, published_value=100.0, times=30.0), FAILS),
        (Row("index", "MiB", 61.0, most=60.0), FAILS),
        (Row("conflicts", "", 1.0, most=0.0), FAILS),
        (Row("conflicts", "", 0.0, most=0.0), HOLDS),
        (Row("search", "ms", 5.0, verdict="FAILS: no answer"), "FAILS: no answer"),
        (Row("search", "ms", 5.0), ""),
    ],
)
def test_a_short_run_leaves_open_what_the_load_may_have_turned(row: Row, judgement: str) -> None:
    short = row.for_short_run()
    assert short.judgement == judgement
    assert short.holds == ("FAILS" not in judgement)


@pytest.mark.parametrize(
    ("verdicts", "holds"), [(["holds", ""], True), (["holds", "FAILS: 3 candidates, not 4"], False)]
)
def test_a_table_counts_its_verdicts(verdicts: list[str], holds: bool) -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    rows = [Row("search", "ms", 1.0, verdict=verdict) for verdict in verdicts]
    assert show(console, "Rows", rows) == holds
    assert ("1 rows: FAILS" in console.export_text()) != holds
