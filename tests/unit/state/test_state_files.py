"""State that survives a crash: whole files or none, and a clear word about damaged ones."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from compute_agent.state import files as state_files
from compute_agent.state import identity
from compute_agent.state.files import AgentLock, AgentRunning, StateFile, StateUnusable
from compute_agent.state.ledger import Providers
from compute_agent.tracker.decisions import exit_code_of


def test_a_written_file_has_the_content_and_the_mode_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        state_files.write_atomically(tmp_path / "file", b"content", 0o644)
    finally:
        os.umask(before)
    assert (tmp_path / "file").read_bytes() == b"content"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        state_files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def full_disk(monkeypatch):
    def full(descriptor, *_):
        raise OSError(28, "No space left on device")

    for call in ("fsync", "pwrite"):
        monkeypatch.setattr(os, call, full)


def test_a_start_that_has_nothing_to_write_needs_no_space(tmp_path, full_disk, caplog):
    (tmp_path / "registered").write_text('{"uuid": "u", "name": "h", "machine_id": "m"}')
    state_files.prepare_directory(tmp_path)
    assert "No space is left" in caplog.text
    with state_files.AgentLock(tmp_path):
        identity.write_marker(tmp_path, identity.Marker("u", "h", "m"))


def test_a_write_without_space_ends_with_a_status_after_which_the_service_starts_again(
    tmp_path, full_disk
):
    for write in (
        lambda: identity.write_marker(tmp_path, identity.Marker("u", "h", "m")),
        lambda: identity.write_compute_id(tmp_path, "u"),
        lambda: state_files.StateFile(tmp_path / "claims", Providers, "it").save(Providers()),
    ):
        with pytest.raises(state_files.NoSpace) as caught:
            write()
        assert exit_code_of(caught.value) == 4
    unit = (Path(__file__).parents[3] / "etc" / "compute-agent.service").read_text()
    assert "RestartPreventExitStatus=1 2 5\n" in unit


def test_an_exclusive_create_never_replaces_a_file(tmp_path):
    path = tmp_path / "file"
    state_files.create_exclusively(path, b"first")
    with pytest.raises(FileExistsError):
        state_files.create_exclusively(path, b"second")
    assert path.read_bytes() == b"first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_file_is_on_the_disk_before_its_name_and_the_name_before_the_return(
    tmp_path, monkeypatch
):
    story = []
    real_fsync, real_rename = os.fsync, type(tmp_path).rename

    def fsync(descriptor):
        mode = os.fstat(descriptor).st_mode
        story.append("sync directory" if stat.S_ISDIR(mode) else "sync file")
        real_fsync(descriptor)

    def rename(self, target):
        story.append("rename")
        return real_rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(type(tmp_path), "rename", rename)
    state_files.write_atomically(tmp_path / "file", b"x")
    assert story == ["sync file", "rename", "sync directory"]


def test_a_state_document_comes_back_as_it_was_saved(tmp_path):
    file = StateFile(tmp_path / "ledger.json", Providers, "it")
    assert file.load() is None
    providers = Providers(frozenset(("a", "b")))
    file.save(providers)
    assert json.loads(file.path.read_text())["state"] == {"created": ["a", "b"]}
    assert StateFile(tmp_path / "ledger.json", Providers, "it").load() == providers


def test_a_changed_state_file_is_noticed(tmp_path):
    file = StateFile(tmp_path / "ledger.json", Providers, "it")
    file.save(Providers(frozenset("a")))
    file.path.write_text(file.path.read_text().replace('"a"', '"b"'))
    with pytest.raises(StateUnusable, match="checksum"):
        file.load()


def test_a_state_file_of_a_newer_agent_is_refused(tmp_path):
    file = StateFile(tmp_path / "ledger.json", Providers, "it")
    file.save(Providers())
    file.path.write_text(json.dumps({**json.loads(file.path.read_text()), "version": 2}))
    with pytest.raises(StateUnusable, match="version 2"):
        file.load()


def test_a_state_path_that_is_no_directory_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateUnusable, match="state_path"):
        state_files.prepare_directory(tmp_path / "file")


def test_a_missing_state_directory_is_created(tmp_path):
    state_files.prepare_directory(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_second_process_is_refused_the_lock_and_told_who_holds_it(tmp_path):
    program = (
        "import sys, pathlib; from compute_agent.state.files import AgentLock\n"
        "AgentLock(pathlib.Path(sys.argv[1])).acquire(); print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(AgentRunning, match=f"pid {holder.pid}"):
            AgentLock(tmp_path).acquire()
        holder.kill()
        holder.wait()
    with AgentLock(tmp_path):
        pass


def test_a_lock_that_is_a_link_is_refused_and_what_it_leads_to_is_left_alone(tmp_path):
    # root takes the lock too, and the directory belongs to the agent's user
    target = tmp_path / "of another user"
    target.write_text("content")
    directory = tmp_path / "state"
    directory.mkdir()
    (directory / "agent.lock").symlink_to(target)
    with pytest.raises(StateUnusable, match="is a symbolic link"):
        AgentLock(directory).acquire()
    assert target.read_text() == "content"
    (directory / "agent.lock").unlink()
    (directory / "agent.lock").symlink_to(tmp_path / "new")
    with pytest.raises(StateUnusable, match="is a symbolic link"):
        AgentLock(directory).acquire()
    assert not (tmp_path / "new").exists()


def test_a_write_that_fails_while_a_smaller_one_is_tried_again_stays_known(tmp_path, monkeypatch):
    file = StateFile(tmp_path / "ledger.json", Providers, "it")
    write = state_files.write_atomically

    def full(*_):
        raise OSError(28, "No space left on device")

    def fail_to_save(created):
        monkeypatch.setattr(state_files, "write_atomically", full)
        with pytest.raises(StateUnusable):
            file.save(Providers(frozenset(created)))
        monkeypatch.setattr(state_files, "write_atomically", write)

    fail_to_save(["p1"])
    monkeypatch.setattr(state_files, "probe", lambda *_: fail_to_save(["p1", "p2"]))
    file.try_again()
    assert file.failure is not None
    assert file.failure.tries == 2
