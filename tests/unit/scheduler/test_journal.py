"""The journal: what is written down stays until it is closed, whatever happens."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct, to_builtins

from compute_agent.scheduler.claiming.claims import ClaimToGiveBack
from compute_agent.scheduler.claiming.journal import Journal, JournalUnusable
from compute_agent.scheduler.moves.move import Move, MoveKind
from compute_agent.scheduler.moves.steps import MoveStep
from tests.unit.tracker.damaged_documents import NO_FILES, misshapen


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


def test_an_entry_that_was_closed_meanwhile_leaves_no_lock_behind(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    identity = journal.open(ENTRIES["move"])
    journal.close(identity)
    with journal.taken_over(identity, MoveStep) as entry:
        assert entry is None
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


# -- damage ---------------------------------------------------------------------------------------


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(["id", "entry", "done", "op", IDENTITY])
    return st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)


IDENTITY = "6a2cd4b4-5c46-4f0a-a1a3-8e0a9a5ec0a0"
AMOUNTS = {IDENTITY: {"VCPU": 1}}
MOVE = Move(
    *(MoveKind.COLD, IDENTITY, IDENTITY, IDENTITY, AMOUNTS, {"": (IDENTITY,)}),
    *(IDENTITY, AMOUNTS, AMOUNTS, "project", "user"),
)
ENTRIES: dict[str, Struct] = {
    "move": MoveStep.of(MOVE, "revert"),
    "give_back": ClaimToGiveBack(IDENTITY, {IDENTITY: {"VCPU": 1}}),
}


@pytest.mark.parametrize("form", NO_FILES)
def test_a_journal_that_is_no_file_is_refused_without_waiting_for_it(
    tmp_path: Path, form: str
) -> None:
    path = tmp_path / "journal"
    NO_FILES[form](path)
    for use in (Journal(path).entries, lambda: Journal(path).close(IDENTITY)):
        with pytest.raises(JournalUnusable, match=str(path)):
            use()
    if form != "10 GiB":
        with pytest.raises(JournalUnusable, match=str(path)):
            Journal(path).open({})


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ('{"id": [], "done": true}', "id is []"),
        ('{"id": "../../x", "entry": {}}', "id is"),
        (f'{{"id": "{IDENTITY}", "entry": 3}}', "entry is 3"),
        (f'{{"id": "{IDENTITY}", "done": "yes"}}', "done is"),
        ("[]", "is []"),
        ("3", "is 3"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_line_of_the_journal_is_named_and_stays(
    tmp_path: Path, line: str, place: str
) -> None:
    path = tmp_path / "journal"
    Journal(path).open({"op": "x"})
    with path.open("a") as file:
        file.write(line + "\n")
    before = path.read_text()
    with pytest.raises(JournalUnusable, match="line 2") as caught:
        Journal(path).entries()
    assert str(path) in str(caught.value)
    assert place in str(caught.value)
    assert path.read_text() == before


@pytest.mark.parametrize("op", ENTRIES)
def test_an_entry_that_says_something_impossible_is_named_and_not_worked_off(
    tmp_path: Path, op: str
) -> None:
    good, kind = ENTRIES[op], type(ENTRIES[op])
    journal = Journal(tmp_path / "journal")
    identity = journal.open(good)
    assert journal.entries_of(kind) == {identity: good}
    for key, entry in misshapen(json.loads(json.dumps(to_builtins(good)))):
        if not isinstance(entry, dict) or entry.get("op") != op:
            continue
        if r"\ud800" in json.dumps(entry):
            continue  # half a character is not written
        journal.update(identity, entry)
        with pytest.raises(JournalUnusable, match=identity) as caught:
            journal.entries_of(kind)
        assert key in str(caught.value)
        with pytest.raises(JournalUnusable), journal.taken_over(identity, kind):
            raise AssertionError("it was taken over")


@pytest.mark.parametrize("op", ENTRIES)
def test_an_entry_that_lacks_something_is_named_and_not_worked_off(tmp_path: Path, op: str) -> None:
    whole = to_builtins(ENTRIES[op])
    journal = Journal(tmp_path / "journal")
    identity = journal.open(whole)
    for key in whole.keys() - {"op"}:
        journal.update(identity, {other: whole[other] for other in whole if other != key})
        with pytest.raises(JournalUnusable, match=f"{identity}, {key} is missing"):
            journal.entries_of(type(ENTRIES[op]))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(line=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), _nested))
def test_any_json_in_the_journal_is_read_or_refused(tmp_path: Path, line: Any) -> None:
    path = tmp_path / "journal"
    path.write_text(json.dumps(line) + "\n")
    with contextlib.suppress(JournalUnusable):
        for good in ENTRIES.values():
            Journal(path).entries_of(type(good))


def test_a_journal_that_is_a_link_is_not_written_to(tmp_path: Path) -> None:
    target = tmp_path / "of another user"
    target.write_text("")
    path = tmp_path / "journal"
    path.symlink_to(target)
    with pytest.raises(JournalUnusable, match="is a symbolic link"):
        Journal(path).open({"n": 1})
    assert target.read_text() == ""
