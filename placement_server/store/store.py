"""The store, in which transactions begin, end, and are retried."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, RootTransaction, event
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import Pool

from placement_server.store.changes import changes
from placement_server.store.connection.failures import await_database, reason_of
from placement_server.store.connection.options import StoreOptions, connection_url, store_options
from placement_server.store.engine import Engines, KeptConnection, create_engines
from placement_server.store.errors import StoreError, StoreUnavailable
from placement_server.store.known_owners import KnownOwners
from placement_server.store.schema import names, revision
from placement_server.store.transaction import (
    ReadTransaction,
    WriteTransaction,
    retrying,
    translate_failures,
    was_committed,
)

if TYPE_CHECKING:
    from oslo_config.cfg import ConfigOpts

LOG = logging.getLogger(__name__)

READ_TRIES: Final = 10
"""Most tries of a read when the connection breaks."""

_READING: Final = "reading data"

RECORDED_AGAIN_AFTER: Final = changes.AWAITED_FOR.total_seconds() / 2
"""Seconds that a write may take before its change records are written again."""

PRUNE_EVERY: Final = 2000
"""Change records after which each writer prunes the feed of changes."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class _WriterLock:
    """A reentrant lock of threads, with the timeout of the database's locks."""

    def __init__(self, timeout: float) -> None:
        self._lock = threading.RLock()
        self._timeout = timeout

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._timeout):
            raise StoreUnavailable(
                f"Other writes of this process kept the database for {self._timeout:g} s "
                "([placement_database]lock_timeout), and nothing was changed; try again."
            )

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


class Store:
    """One database. Thread safe; a forked process must open its own."""

    def __init__(
        self,
        engines: Engines,
        options: StoreOptions,
        *,
        url: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.url = url
        self._engines = engines
        recycle_time = options.connection_recycle_time
        self._kept_connection = (
            KeptConnection(engines.single, recycle_time) if engines.single else None
        )
        self._write_connection = KeptConnection(engines.writer, recycle_time)
        self._clock = clock
        owners = self._known_owners = KnownOwners()
        for engine in self.all_engines():
            # A connection broke: a standby may take over that lacks the cached ids. No method of
            # the store, which SQLAlchemy would then keep for as long as a connection is in use.
            event.listen(engine, "invalidate", lambda *_: owners.forget())
        self._stretch: int | None = None
        # SQLite lets one writer in at a time and makes the others poll: here they queue instead.
        # In memory there is one connection only, which readers share too.
        self._turn: contextlib.AbstractContextManager[object] = (
            _WriterLock(options.lock_timeout)
            if engines.writer.dialect.name == "sqlite"
            else contextlib.nullcontext()
        )
        self._readers_turn = self._turn if engines.in_memory else contextlib.nullcontext()

    @classmethod
    def open(
        cls,
        url: str,
        *,
        options: StoreOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Store:
        """Open the store at `url` (an SQLAlchemy URL), and bring its schema up to date if asked.

        An SQLite database in memory always gets the schema.

        :raises StoreUnavailable: the database cannot be reached or used.
        :raises StoreError: the schema is not usable; the error is that of `revision.refusal`.
        """
        options = options or StoreOptions()
        engines = create_engines(url, options)
        store = cls(engines, options, url=url, clock=clock)
        try:
            if options.sync_on_startup or engines.in_memory:
                await_database(engines.writer, options)
                with translate_failures("bringing the schema up to date"):
                    _synchronise(engines, url, options)

            def require_newest() -> None:
                # a database that went away meanwhile is waited for
                await_database(engines.writer, options)
                revision.require_newest(engines.writer)

            retrying(require_newest, tries=READ_TRIES, doing="reading the revision of the schema")
        except BaseException:
            store.close()
            raise
        return store

    def all_engines(self) -> tuple[Engine, ...]:
        """Return the engines that have connections of their own, for listeners to their events."""
        # Those of SQLite are one engine with several options: all of them raise its events.
        engines: dict[Pool, Engine] = {}
        for engine in (self._engines.reader, self._engines.writer, self._engines.single):
            if engine is not None:
                engines.setdefault(engine.pool, engine)
        return tuple(engines.values())

    @classmethod
    def from_conf(cls, conf: ConfigOpts, *, maintenance: bool = False) -> Store:
        """Open the store that `[placement_database]` describes.

        :param maintenance: without the time limits that are for requests.
        :raises StoreError: as `open` does.
        """
        options = store_options(conf)
        return cls.open(
            connection_url(conf),
            options=options.for_maintenance() if maintenance else options,
        )

    @property
    def engine(self) -> Engine:
        """The engine of writes; its dialect name is `engine.dialect.name`."""
        return self._engines.writer

    def close(self) -> None:
        """Close all connections. Idempotent."""
        for kept_connection in (self._kept_connection, self._write_connection):
            if kept_connection is not None:
                kept_connection.close()
        self._engines.dispose()

    def read(
        self,
        function: Callable[Concatenate[ReadTransaction, _Arguments], _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        """Run `function` on one consistent view of the database.

        Its errors are raised as they are.

        :raises StoreUnavailable: the database failed.
        """

        def once() -> _Result:
            with self._readers_turn, self._engines.reader.connect() as connection:
                self._label(connection, function)
                transaction = connection.begin()
                try:
                    result = function(ReadTransaction(connection), *args, **kwargs)
                except BaseException:
                    _roll_back(connection)
                    raise
                # nothing to keep, but COMMIT leaves no failed transaction in the statistics
                transaction.commit()
                return result

        return retrying(once, tries=READ_TRIES, doing=_READING, patience=self.options.lock_timeout)

    def read_single(
        self,
        function: Callable[Concatenate[ReadTransaction, _Arguments], _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        """Run `function`, whose statements need not see the same moment.

        Nearly always it is one statement, which by itself is of one moment, so PostgreSQL and
        SQLite need no BEGIN and COMMIT: one round trip instead of three.

        :raises StoreUnavailable: the database failed.
        """
        kept_connection = self._kept_connection
        if kept_connection is None:
            return self.read(function, *args, **kwargs)

        def work(connection: Connection) -> _Result:
            self._label(connection, function)
            return function(ReadTransaction(connection), *args, **kwargs)

        return retrying(
            lambda: kept_connection.run(work),
            tries=READ_TRIES,
            doing=_READING,
            patience=self.options.lock_timeout,
        )

    def write(
        self,
        function: Callable[Concatenate[WriteTransaction, _Arguments], _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        """Run `function` in one transaction: all of it happens, or nothing.

        `function` is retried, after a rollback, when the database or another writer made the
        transaction fail; it must have no effect but on the transaction. Its errors are raised as
        they are.

        :raises ConcurrentUpdate: other writers were faster every time.
        :raises StoreUnavailable: the database failed.
        """

        def work(connection: Connection) -> tuple[_Result, WriteTransaction, float]:
            self._label(connection, function)
            transaction = connection.begin()
            start = self._clock()
            tx = WriteTransaction(connection, self._known_owners, self.options.history_days)
            try:
                result = function(tx, *args, **kwargs)
                tx.append_changes()
            except IntegrityError:
                # a row that another one refers to is gone: perhaps one of a cached id
                self._known_owners.forget()
                _roll_back(connection)
                raise
            except BaseException:
                _roll_back(connection)
                raise
            self._commit(transaction, tx)
            return result, tx, start

        def once() -> tuple[_Result, WriteTransaction, float]:
            with self._turn:
                return self._write_connection.run(work)

        result, tx, start = retrying(
            once,
            tries=self.options.claim_tries,
            doing="writing data",
            patience=self.options.lock_timeout,
        )
        if tx.change_id is not None:
            if self._clock() - start > RECORDED_AGAIN_AFTER:
                self._record_again(tx.touched_trees)
            self._prune_when_due(tx.change_id)
        return result

    def _commit(self, transaction: RootTransaction, tx: WriteTransaction) -> None:
        """Commit; where the connection breaks meanwhile, find out whether that happened."""
        try:
            transaction.commit()
        except DBAPIError as error:
            if not error.connection_invalidated:
                _roll_back(transaction.connection)
                raise
            LOG.warning(
                "The connection to the database broke during a commit; checking whether it was "
                "committed: %s",
                reason_of(error),
            )
            if not was_committed(self._engines.writer, tx.change_id, tx.write_id, self.options):
                raise

    def _record_again(self, touched_roots: Collection[tuple[int, int]]) -> None:
        """Make sure that readers see what a long transaction changed.

        They may have given up the ids of its change records before it committed.
        """
        LOG.warning(
            "A write with %d change records took more than %.0f s; they are written again, so that "
            "searches see it.",
            len(touched_roots),
            RECORDED_AGAIN_AFTER,
        )
        try:
            self.write(changes.record, touched_roots)
        except StoreError as error:
            raise StoreUnavailable(
                f"The change was made, but it took more than {RECORDED_AGAIN_AFTER:.0f} s, and the "
                "database failed when its change records were written again; until the same "
                f"providers change once more, searches may not see it: {error}"
            ) from error

    def _prune_when_due(self, change_id: int) -> None:
        """Prune the feed of changes when a stretch of it ended since this store's last write.

        A failure is logged only: the next stretch follows.
        """
        stretch, before = change_id // PRUNE_EVERY, self._stretch
        self._stretch = stretch
        if before in (None, stretch):
            return
        try:
            self.write(changes.prune)
        except StoreError as error:
            LOG.warning(
                "Old change records could not be deleted; the next try is after %d new ones: %s",
                PRUNE_EVERY,
                error,
            )

    def _label(self, connection: Connection, function: Callable[..., object]) -> None:
        if self.options.connection_trace:
            module = getattr(function, "__module__", "").rpartition(".")[2]
            connection.info["store_function"] = f"{module}.{getattr(function, '__name__', 'work')}"

    def synchronise_standard_names(self) -> None:
        """Insert the standard resource classes and traits that are missing.

        Any number of processes may do this at the same time.
        """
        self.write(names.insert_standard_names)


def _roll_back(connection: Connection) -> None:
    """Roll back; when that fails, discard the connection, which rolls back as well."""
    try:
        connection.rollback()
    except SQLAlchemyError as error:
        LOG.debug("Discarding a connection that cannot roll back: %s", error)
        connection.invalidate(error)


def _synchronise(engines: Engines, url: str, options: StoreOptions) -> None:
    if revision.current_revision(engines.writer) == revision.NEWEST_REVISION:
        return
    # alembic is needed here only: 10 MiB and a tenth of the start of every worker
    from placement_server.store.schema import migration

    if engines.in_memory:
        migration.upgrade(engines.writer)
        return
    patient_engines = create_engines(url, options.for_maintenance())
    try:
        migration.upgrade(patient_engines.writer)
    finally:
        patient_engines.dispose()
