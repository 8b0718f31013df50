"""Indexes kept in files, and what is refused of such files."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from msgspec.structs import replace

from placement_server.candidates.index.class_columns import GrowableArray
from placement_server.candidates.index.columns import Columns
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.saved.saved_columns import _check_shapes
from placement_server.candidates.index.saved.saved_file import SavedFile
from placement_server.candidates.index.saved.saved_index import SavedIndex, UnusableCopy, totals_of
from placement_server.candidates.index.writer import IndexWriter
from placement_server.store.changes.cursor import Gap, Mark, Position
from placement_server.store.changes.snapshot import NameRows
from tests.unit.candidates.forest import WORLD, names_of, writer_of

POSITION = Position(9, (Gap(3, 5, 1.0),))
MARKS = [Mark(8, 2**62), Mark(9, 17)]


def saved_of(index: Index) -> SavedIndex:
    return SavedIndex.of(index, {1: 7, 3: 2}, POSITION, MARKS)


def names(index: Index) -> NameRows:
    return NameRows(dict(index.names.class_ids), dict(index.names.trait_ids))


def test_an_index_comes_back_from_its_bytes() -> None:
    writer = writer_of(WORLD)
    # So that there are dead slots, and roots in another order than their slots.
    index = writer.apply({1: next(iter(writer.index.trees()))})
    data = b"".join(saved_of(index).encode())
    writer.apply({1: None})
    saved = SavedIndex.decode(data, now=5.0)
    assert (saved.position, saved.marks) == (Position(9, (Gap(3, 5, 5.0),)), MARKS)
    restored = IndexWriter(names(index))
    restored.replace(names(index), saved.columns, saved.roots)
    assert list(restored.index.trees()) == list(index.trees())
    assert restored.index.size == 3
    assert restored.index.has_nested
    assert len(restored.index.links.share) == 1
    assert totals_of(restored.index) == totals_of(index)
    restored.apply({3: None})
    assert [tree.root_id for tree in restored.index.trees()] == [1]


def put(name: str, at: int, value: int) -> Callable[[Columns], None]:
    """Return what changes one number of a column of providers or of inventories."""

    def change(columns: Columns) -> None:
        getattr(columns, name).view()[at] = value

    return change


def put_in_class(name: str, value: float) -> Callable[[Columns], None]:
    def change(columns: Columns) -> None:
        getattr(next(iter(columns.classes.values())), name).view()[0] = value

    return change


def append(name: str) -> Callable[[Columns], None]:
    return lambda columns: getattr(columns, name).extend([0])


def append_to_class(name: str) -> Callable[[Columns], None]:
    return lambda columns: getattr(next(iter(columns.classes.values())), name).extend([0])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put("parent", 1, 7), "columns of providers"),
        (put("parent", 1, 1), "columns of providers"),
        (put("parent", 0, 1), "columns of providers"),
        (put("root", 1, -1), "columns of providers"),
        (append("provider_id"), "columns of providers"),
        (put("shape", 0, 2), "sets and shapes"),
        (put("trait_set", 0, -1), "sets and shapes"),
        (put("aggregate_set", 1, 99), "sets and shapes"),
        (put("end", 0, 1), "trees"),
        (put("end", 1, 3), "trees"),
        (put("end", 2, 9), "trees"),
        (put("end", 2, 2), "trees"),
        (put("shape", 0, 1), "trees"),
        (put("shape", 1, 1), "trees"),
        (put("shape", 2, 0), "trees"),
        (put("inventory_start", 1, 9), "inventories"),
        (put("inventory_start", 1, 0), "inventories"),
        (put("inventory_start", 0, 1), "inventories"),
        (append("inventory_start"), "inventories"),
        (append("inventory_row"), "inventories"),
        (put("inventory_class", 0, 77), "inventories"),
        (put("inventory_row", 0, 1), "inventories"),
        (put_in_class("slot", 2), "inventories"),
        (append_to_class("used"), "inventories"),
        (put("provider_id", 0, 4), "roots"),
        (put("provider_id", 0, 3), "columns of providers"),
        (put("provider_id", 0, -1), "columns of providers"),
        (lambda columns: columns.uuid.__setitem__(0, "pool"), "columns of providers"),
        (lambda columns: columns.uuid.__setitem__(0, 'a"b'), "other characters"),
        (put_in_class("used", 2**63 - 1), "amounts"),
        (put_in_class("capacity", -(2**63)), "amounts"),
        (put_in_class("capacity", 40), "amounts"),
        (put_in_class("shown_capacity", float("nan")), "amounts"),
        (put_in_class("max_unit", -1), "amounts"),
        (lambda columns: setattr(columns, "end", GrowableArray(np.int64)), "expected int32"),
        (lambda columns: columns.shapes.append(columns.shapes[0]), "larger than the trees"),
        (lambda columns: columns.trait_sets.members.append(()), "a set is there twice"),
    ],
)
def test_columns_that_do_not_fit_are_refused_though_nothing_is_damaged(
    change: Callable[[Columns], None], reason: str
) -> None:
    saved = saved_of(writer_of(WORLD).index)
    change(saved.columns)
    with pytest.raises(UnusableCopy, match=reason):
        SavedIndex.decode(b"".join(saved.encode()), now=0.0)


def forged(saved: SavedIndex, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return the bytes of an index with another header, as a program would have written them."""
    data = b"".join(saved.encode())
    begin = data.index(b"\n") + 1
    end = begin + 8 + int.from_bytes(data[begin : begin + 8])
    header = orjson.loads(data[begin + 8 : end])
    changed = change(header)
    text = orjson.dumps(header if changed is None else changed)
    text += b" " * (-(begin + len(text)) % 8)
    content = data[:begin] + len(text).to_bytes(8) + text + data[end:-32]
    return content + blake2b(content, digest_size=32).digest()


def put_in_header(**values: object) -> Callable[[dict[str, Any]], None]:
    return lambda header: header.update(values)


def put_in_values(**values: object) -> Callable[[dict[str, Any]], None]:
    return lambda header: header["values"].update(values)


@pytest.mark.parametrize(
    "change",
    [
        put_in_header(marks=[]),
        put_in_header(marks=[["8", 5], [9, 17]]),
        put_in_header(marks=[[8, None], [9, 17]]),
        put_in_header(marks=[[9, 17], [8, 5]]),
        put_in_header(marks=[[8, 5], [10, 17]]),
        put_in_header(marks=[[8, 2**63]]),
        put_in_header(last="x"),
        put_in_header(last=True),
        put_in_header(last=-1),
        put_in_header(last=2),
        put_in_header(gaps=[["a", "b"]]),
        put_in_header(gaps=[[5, 3]]),
        put_in_header(gaps=[[3, 5], [4, 6]]),
        put_in_header(gaps=[[3]]),
        put_in_header(gaps=None),
        put_in_values(shapes=[[-1] * 10**6]),
        put_in_values(shapes=[[-1, 0], [0]]),
        put_in_values(shapes=[[-1, 0], ["-1"]]),
        put_in_values(shapes=[[-1, 5], [-1]]),
        put_in_values(shapes=[[], [-1, 0], [-1]]),
        put_in_values(trait_sets=[["1"], [], [2]]),
        put_in_values(trait_sets=[[2, 2], [], [1]]),
        put_in_values(aggregate_sets=[[{}], []]),
        put_in_values(aggregate_sets=[[1], []]),
        put_in_values(classes=["0", 1, 2]),
        put_in_values(classes=[0, 1]),
        put_in_header(schema=[]),
        put_in_header(arrays=[["parent", "<i4", 10**12]]),
        put_in_header(arrays=[["parent", "O", 1]]),
        put_in_header(arrays=[["parent", "<i4", -5]]),
        lambda header: header["arrays"].__setitem__(-1, ["generations", "<i8", 1]),
        lambda header: header["arrays"].__setitem__(-1, ["generations", "<f8", 2]),
        lambda header: header.pop("arrays"),
        lambda _header: [],
        lambda _header: 5,
    ],
)
def test_a_header_that_no_program_writes_is_refused_though_its_digest_is_right(
    change: Callable[[dict[str, Any]], object],
) -> None:
    saved = saved_of(writer_of(WORLD).index)
    assert SavedIndex.decode(forged(saved, lambda _header: None), now=0.0).marks == MARKS
    with pytest.raises(UnusableCopy):
        SavedIndex.decode(forged(saved, change), now=0.0)


@pytest.mark.parametrize("size", [3, 5])
def test_a_shape_out_of_order_is_refused(size: int) -> None:
    """The child of the first child comes after the second child."""
    parents = [-1, 0, 0, 1, 1][:size] if size > 3 else [-1, 1, 0]
    with pytest.raises(ValueError, match="a shape is none of a tree"):
        _check_shapes([parents], size)


def test_a_large_file_is_refused_before_it_is_read(
    file: SavedFile, caplog: pytest.LogCaptureFixture
) -> None:
    os.truncate(file.path, 40 << 30)
    assert file.read(0.0) is None
    assert f"it has {40 << 30} bytes" in caplog.text


@pytest.mark.parametrize("roots", [[0], [0, 0], [2, 0], [0, 1], [0, 9], [-1, 0]])
def test_roots_that_do_not_fit_are_refused(roots: list[int]) -> None:
    saved = replace(saved_of(writer_of(WORLD).index), roots=np.array(roots))
    with pytest.raises(UnusableCopy, match="roots"):
        SavedIndex.decode(b"".join(saved.encode()), now=0.0)


def test_an_empty_index_comes_back() -> None:
    index = IndexWriter(names_of([])).index
    saved = SavedIndex.decode(b"".join(saved_of(index).encode()), now=0.0)
    restored = IndexWriter(names(index))
    assert restored.replace(names(index), saved.columns, saved.roots).size == 0


@pytest.fixture
def file(tmp_path: Path) -> SavedFile:
    """A file with an index in it."""
    file = SavedFile(tmp_path)
    file.write(saved_of(writer_of(WORLD).index))
    return file


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (flipped, "damaged or not complete"),
        (lambda data: data[:-1], "damaged or not complete"),
        (lambda data: data[:40], "damaged or not complete"),
        (lambda data: data + b"\0", "damaged or not complete"),
        (lambda data: data.replace(b"version 3", b"version 1"), "another version"),
        (lambda _data: b"", "not a saved index"),
        (lambda _data: b"PK\x03\x04 something else", "not a saved index"),
    ],
)
def test_a_file_that_is_not_as_it_was_written_is_refused_with_one_line(
    file: SavedFile,
    change: Callable[[bytes], bytes],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file.path.write_bytes(change(file.path.read_bytes()))
    assert file.read(0.0) is None
    (record,) = caplog.records
    assert str(file.path) in record.getMessage()
    assert reason in record.getMessage()


def test_a_file_that_others_may_write_is_refused(
    file: SavedFile, caplog: pytest.LogCaptureFixture
) -> None:
    assert file.path.stat().st_mode & 0o777 == 0o600
    file.path.chmod(0o620)
    assert file.read(0.0) is None
    assert "-rw--w----" in caplog.text


def test_a_link_is_not_followed(file: SavedFile, caplog: pytest.LogCaptureFixture) -> None:
    file.path.symlink_to(file.path.rename(file.path.with_suffix(".moved")))
    assert file.read(0.0) is None
    assert str(file.path) in caplog.text


def test_a_pipe_is_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = SavedFile(tmp_path)
    os.mkfifo(file.path, 0o600)
    assert file.read(0.0) is None
    assert "not a regular file" in caplog.text


def test_no_file_is_no_reason_for_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert SavedFile(tmp_path).read(0.0) is None
    assert not caplog.records


def dies_at(byte: int) -> None:
    """Let this process be killed when it writes so many bytes into one file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (byte, byte))


def killed(doing: Callable[[], None]) -> int:
    """Return the signal that ended a process that did something."""
    child = os.fork()
    if not child:
        try:
            doing()
        finally:
            os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
def test_a_writer_that_is_killed_leaves_the_old_file(file: SavedFile, part: float) -> None:
    before = file.path.read_bytes()
    other = saved_of(writer_of(WORLD[2:]).index)
    size = sum(memoryview(some).nbytes for some in other.encode())

    def write() -> None:
        dies_at(int(part * size))
        file.write(other)

    assert killed(write) == signal.SIGXFSZ
    assert file.path.read_bytes() == before
    file.write(other)
    saved = file.read(0.0)
    assert saved is not None
    assert len(saved.roots) == 1


def test_a_writer_that_is_killed_before_the_file_is_replaced_leaves_the_old_file(
    file: SavedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file.path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _file: os.kill(os.getpid(), signal.SIGKILL))
    other = saved_of(writer_of(WORLD[2:]).index)
    assert killed(lambda: file.write(other)) == signal.SIGKILL
    assert file.path.read_bytes() == before


def test_a_disk_without_room_keeps_the_old_file_and_gets_its_room_back(file: SavedFile) -> None:
    other = saved_of(writer_of(WORLD[2:]).index)
    before = file.path.read_bytes()

    def write() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        with pytest.raises(OSError, match="File too large"):
            file.write(other)
        os.kill(os.getpid(), signal.SIGUSR1)

    assert killed(write) == signal.SIGUSR1
    assert [path.read_bytes() for path in file.path.parent.iterdir()] == [before]
