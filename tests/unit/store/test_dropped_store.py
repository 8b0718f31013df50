"""A store that is dropped without being closed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from placement_server.store import resource_classes
from placement_server.store.connection.options import StoreOptions
from placement_server.store.store import Store


def open_files() -> Iterator[Path]:
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            yield descriptor.readlink()


def test_a_store_that_was_dropped_leaves_no_connection_open(tmp_path: Path) -> None:
    path = tmp_path / "placement.db"
    store = Store.open(f"sqlite:///{path}", options=StoreOptions(sync_on_startup=True))
    store.read_single(resource_classes.list_all)
    assert path in open_files()
    del store
    gc.collect()  # returns its connections to their pool
    gc.collect()  # closes the pool
    assert path not in open_files()
