"""The journal: what is written down stays until it is closed, whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from compute_agent.scheduler.journal import Journal, JournalUnusable


def test_an_entry_is_there_for_the_next_process_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "below" / "journal"
    identity = Journal(path).open({"op": "x"})
    assert Journal(path).entries() == {identity: {"op": "x"}}
    Journal(path).close(identity)
    assert Journal(path).entries() == {}
    assert path.read_text() == ""


def test_an_update_replaces_what_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    identity = journal.open({"step": 1})
    journal.update(identity, {"step": 2})
    assert journal.entries() == {identity: {"step": 2}}


def test_closing_one_entry_keeps_the_others(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    first, second = journal.open({"n": 1}), journal.open({"n": 2})
    journal.close(first)
    assert journal.entries() == {second: {"n": 2}}


def test_a_line_cut_off_by_a_crash_costs_nothing_but_itself(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    first = journal.open({"n": 1})
    with path.open("a") as file:
        file.write('{"id": "cut", "ent')
    second = journal.open({"n": 2})
    assert journal.entries() == {first: {"n": 1}, second: {"n": 2}}


def test_a_journal_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalUnusable, match="journal_path"):
        Journal(tmp_path / "file" / "journal").open({})


def test_a_journal_that_is_not_there_has_no_entries(tmp_path: Path) -> None:
    assert Journal(tmp_path / "journal").entries() == {}
