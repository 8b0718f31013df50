"""Workers that start from a saved index, and saved ones that they refuse."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from placement_server.candidates.index.class_columns import GrowableArray
from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.index.saved.saved_file import SavedFile
from placement_server.store.providers import inventories, providers
from placement_server.store.records import InventoryRecord
from tests.fixtures.memory_stores import memory_store


class Site:
    """A database with one host, and a directory for its index."""

    def __init__(self, directory: Path) -> None:
        self.store = memory_store()
        self.host = "00000000-0000-4000-8000-000000000001"
        self.store.write(providers.create, uuid=self.host, name="host", parent_uuid=None)
        self.directory = directory
        self.follower = IndexFollower(self.store, saved_file=SavedFile(directory))

    def stock(self, total: int) -> None:
        """Change the host."""
        self.store.write(
            inventories.replace,
            self.host,
            generation=self.store.read(providers.get, self.host).generation,
            records={"VCPU": InventoryRecord(total=total)},
            reserved_may_equal_total=True,
        )

    def saved(self) -> None:
        """Let a first worker read everything and write the file."""
        file = SavedFile(self.directory)
        IndexFollower(self.store, saved_file=file).index()
        file.wait()

    def started(self) -> tuple[list[object], list[object]]:
        """Return the trees of a worker that starts, and those of the database."""
        follower = IndexFollower(self.store, saved_file=SavedFile(self.directory))
        return list(follower.index().trees()), list(IndexFollower(self.store).index().trees())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.store.close()


def check_refused(site: Site, caplog: pytest.LogCaptureFixture, reason: str) -> None:
    """A worker that starts says why it refuses the file, and has what the database has."""
    begun, fresh = site.started()
    assert begun == fresh
    assert reason in caplog.text


def test_a_worker_that_starts_reads_only_what_has_changed(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.saved()
    site.stock(8)
    caplog.set_level("INFO", "placement_server")
    begun, fresh = site.started()
    assert begun == fresh
    assert "Read 1 provider trees from" in caplog.text
    assert "after change 2: 1" in caplog.text


def test_a_file_is_written_by_one_worker_every_five_minutes(site: Site) -> None:
    now = [1_000_000.0]
    files = [SavedFile(site.directory, clock=lambda: now[0]) for _ in range(2)]
    followers = [IndexFollower(site.store, saved_file=file) for file in files]

    def is_written_by(number: int, after: float) -> bool:
        now[0] += after
        site.stock(int(now[0]) % 1000 + 1)
        before = files[0].path.stat().st_mtime if files[0].path.exists() else None
        followers[number].index()
        files[number].wait()
        if before == files[0].path.stat().st_mtime:
            return False
        os.utime(files[0].path, (now[0], now[0]))
        return True

    assert is_written_by(0, 0)
    assert not is_written_by(1, 200)
    assert is_written_by(0, 101)
    assert not is_written_by(1, 200)


def test_a_search_needs_no_thread_that_saves(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    site.follower.index()
    assert "could not be saved" in caplog.text


def test_the_file_of_another_database_is_refused(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site.saved()
    other = Site(tmp_path)
    check_refused(other, caplog, "does not have the change records")
    other.store.close()
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


def test_a_file_with_other_sums_than_the_database_is_refused(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.stock(8)
    site.saved()
    with site.store.engine.begin() as connection:
        # No change record tells of it: somebody repaired the database by hand.
        connection.exec_driver_sql("UPDATE inventories SET used = 3")
    check_refused(site, caplog, "do not have the same sums")


def test_a_file_of_trees_that_were_written_without_a_record_is_refused(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Another program exchanged what two hosts have, so that all sums are the same."""
    other = "00000000-0000-4000-8000-000000000002"
    site.store.write(providers.create, uuid=other, name="other", parent_uuid=None)
    site.stock(8)
    site.saved()
    site.stock(9)
    with site.store.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE resource_providers SET generation = generation + 1 WHERE name = 'other'"
        )
    check_refused(site, caplog, "have other generations")


def test_a_file_with_names_that_the_database_lacks_is_refused(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.stock(8)
    site.saved()
    file = SavedFile(site.directory)
    saved = file.read(0.0)
    assert saved is not None
    (stock,) = saved.columns.classes.items()
    saved.columns.classes = {stock[0] + 9999: stock[1]}
    saved.columns.inventory_class = GrowableArray.after(saved.columns.inventory_class.view() + 9999)
    file.write(saved)
    check_refused(site, caplog, "classes or traits that the database lacks")


def test_a_file_whose_missing_records_may_be_pruned_is_refused(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with site.store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE changes SET id = id + 5 WHERE id = 2")
    site.saved()
    with site.store.engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO changes (id, created_at, root_provider_id, kind, write_id) "
            "VALUES (20004, '2026-01-01 00:00:00', 0, 3, 5)"
        )
    check_refused(site, caplog, "may have been pruned")
