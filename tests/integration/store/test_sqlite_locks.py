"""SQLite: readers never wait nor make others wait, writers wait for each other at their begin."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from placement_server.store.errors import StoreUnavailable
from placement_server.store.providers import providers
from placement_server.store.store import Store
from placement_server.store.transaction import ReadTransaction, WriteTransaction
from tests.integration.store.conftest import OPTIONS, new_provider, opened
from tests.integration.store.held_locks import held
from tests.integration.store.interleaving import DEADLINE, Sessions, listening

pytestmark = pytest.mark.parametrize("module_database_url", ["sqlite"], indirect=True)


def rename(tx: WriteTransaction, host: str, name: str) -> None:
    providers.update(tx, host, name=name, reparenting_allowed=True)


def name_of(store: Store, host: str) -> str:
    return store.read(providers.get, host).name or ""


def writing(store: Store, host: str, name: str) -> AbstractContextManager[None]:
    """Somebody else has renamed the host, and commits at the end."""
    return held(store, partial(rename, name=name), host)


def test_a_reader_reads_the_old_state_while_a_writer_is_at_it(sessions: Sessions) -> None:
    host = new_provider(sessions.first)
    old = name_of(sessions.first, host)
    new = f"new-{host}"
    with writing(sessions.first, host, new):
        # in the process of the writer and in another one
        assert [name_of(store, host) for store in (sessions.first, sessions.second)] == [old, old]
    assert [name_of(store, host) for store in (sessions.first, sessions.second)] == [new, new]


def test_a_writer_commits_while_a_reader_is_at_it_and_the_reader_goes_on_in_its_moment(
    sessions: Sessions,
) -> None:
    host = new_provider(sessions.first)
    old = name_of(sessions.first, host)

    def read(tx: ReadTransaction) -> list[str | None]:
        before = providers.get(tx, host).name
        sessions.second.write(rename, host, f"new-{host}")
        return [before, providers.get(tx, host).name]

    assert sessions.first.read(read) == [old, old]
    assert name_of(sessions.first, host) == f"new-{host}"


def test_a_second_writer_waits_at_its_begin_and_then_sees_what_the_first_did(
    sessions: Sessions,
) -> None:
    host = new_provider(sessions.first)
    sent, entered = threading.Event(), threading.Event()

    def append(tx: WriteTransaction) -> None:
        entered.set()
        rename(tx, host, f"{providers.get(tx, host).name}-second")

    def on_statement(_connection: object, _cursor: object, statement: str, *_: Any) -> None:
        if statement.startswith("BEGIN"):
            sent.set()

    with (
        listening(sessions.second, "before_cursor_execute", on_statement),
        ThreadPoolExecutor(1) as pool,
    ):
        with writing(sessions.first, host, f"{host}-first"):
            second = pool.submit(sessions.second.write, append)
            assert sent.wait(DEADLINE)
            # nothing to wait for: it must not happen
            assert not entered.wait(0.2), "the second writer began beside the first"
        second.result(DEADLINE)
    assert name_of(sessions.first, host) == f"{host}-first-second"


def test_a_second_writer_waits_no_longer_than_the_lock_timeout(
    sessions: Sessions, module_database_url: str
) -> None:
    host = new_provider(sessions.first)
    options = replace(OPTIONS, lock_timeout=0.05, claim_tries=2)
    with opened(module_database_url, options) as hasty:
        with (
            writing(sessions.first, host, f"{host}-first"),
            pytest.raises(StoreUnavailable, match="locked"),
        ):
            hasty.write(rename, host, f"{host}-hasty")
        hasty.write(rename, host, f"{host}-hasty")
    assert name_of(sessions.first, host) == f"{host}-hasty"
