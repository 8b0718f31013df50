"""The store: where transactions begin, end, and are begun anew."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from placement_server.store.changes import changes
from placement_server.store.connection import configuration
from placement_server.store.connection.availability import await_database
from placement_server.store.connection.options import StoreOptions
from placement_server.store.errors import StoreError, StoreUnavailable
from placement_server.store.schema import revision, standard_names
from placement_server.store.schema.names import Names
from placement_server.store.transactions import outcome, retry
from placement_server.store.transactions.engine import Engines, create_engines
from placement_server.store.transactions.known_owners import KnownOwners
from placement_server.store.transactions.transaction import ReadTransaction, WriteTransaction

if TYPE_CHECKING:
    from oslo_config.cfg import ConfigOpts

LOG = logging.getLogger(__name__)

READ_TRIES: Final = 10
"""How often a read is begun in all when the connection breaks."""

NOTED_AGAIN_AFTER: Final = changes.AWAITED_FOR.total_seconds() / 2
"""Seconds that a write may take before its rows of the feed of changes are written once more."""

PRUNE_EVERY: Final = 2000
"""Rows of the feed of changes after which each writer cuts it short."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class _Turn:
    """A lock that a thread waits for no longer than for one of the database.

    It may be taken again by the thread that has it.
    """

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
        self.names = Names()
        self._engines = engines
        self._clock = clock
        self._known_owners = KnownOwners()
        self._stretch: int | None = None
        # SQLite lets one writer in at a time and makes the others poll: here they queue instead.
        # In memory there is one connection only, which readers share too.
        self._turn: contextlib.AbstractContextManager[object] = (
            _Turn(options.lock_timeout)
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
        """The store at ``url`` (an SQLAlchemy URL), its schema made or brought up to date if asked.

        An SQLite database in memory is born with the schema. Raises StoreUnavailable when the
        database cannot be reached or used, and what :func:`schema.refusal` returns.
        """
        options = options or StoreOptions()
        engines = create_engines(url, options)
        store = cls(engines, options, url=url, clock=clock)
        try:
            await_database(engines.writer, options)
            with retry.translated("looking at the schema"):
                if options.sync_on_startup or engines.in_memory:
                    _synchronise(engines, url, options)
                revision.require_newest(engines.writer)
        except BaseException:
            store.close()
            raise
        return store

    def all_engines(self) -> tuple[Engine, ...]:
        """The engines, for whoever listens to their events."""
        engines = self._engines
        return (engines.reader,) if engines.in_memory else (engines.reader, engines.writer)

    @classmethod
    def from_conf(cls, conf: ConfigOpts, *, maintenance: bool = False) -> Store:
        """The store that ``[placement_database]`` describes.

        :param maintenance: without the limits of time that are for requests.
        """
        options = configuration.store_options(conf)
        return cls.open(
            configuration.connection(conf),
            options=options.for_maintenance() if maintenance else options,
        )

    @property
    def engine(self) -> Engine:
        """The engine of writes; its dialect name is ``engine.dialect.name``."""
        return self._engines.writer

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._engines.dispose()

    def read(
        self,
        function: Callable[Concatenate[ReadTransaction, _Arguments], _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        """Run ``function`` on one consistent view of the database.

        Raises what it raises, and StoreUnavailable when the database fails.
        """

        def once() -> _Result:
            with self._readers_turn, self._engines.reader.connect() as connection:
                self._note(connection, function)
                transaction = connection.begin()
                try:
                    result = function(ReadTransaction(connection), *args, **kwargs)
                except BaseException:
                    _roll_back(connection)
                    raise
                # nothing to keep, but COMMIT leaves no failed transaction in the statistics
                transaction.commit()
                return result

        return retry.retrying(
            once, tries=READ_TRIES, doing=_doing(function), patience=self.options.lock_timeout
        )

    def read_single(
        self,
        function: Callable[Concatenate[ReadTransaction, _Arguments], _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        """Run ``function``, which executes one statement and no more.

        A statement by itself is of one moment, so PostgreSQL and SQLite are spared BEGIN and
        COMMIT: one round trip instead of three. Raises what :meth:`read` does.
        """
        engine = self._engines.single
        if engine is None:
            return self.read(function, *args, **kwargs)

        def once() -> _Result:
            with engine.connect() as connection:
                self._note(connection, function)
                return function(ReadTransaction(connection), *args, **kwargs)

        return retry.retrying(
            once, tries=READ_TRIES, doing=_doing(function), patience=self.options.lock_timeout
        )

    def write(
        self,
        function: Callable[Concatenate[WriteTransaction, _Arguments], _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        """Run ``function`` in one transaction: all of it happens, or nothing.

        ``function`` may run several times, each time after a rollback of the time before, when
        the database or another writer made it impossible; it must have no effect but on the
        transaction. Raises what it raises, ConcurrentUpdate when other writers were faster every
        time, StoreUnavailable when the database fails.
        """

        written: WriteTransaction | None = None
        begun = 0.0

        def once() -> _Result:
            nonlocal written, begun
            with self._turn, self._engines.writer.connect() as connection:
                self._note(connection, function)
                transaction = connection.begin()
                begun = self._clock()
                tx = WriteTransaction(connection, self._known_owners)
                try:
                    result = function(tx, *args, **kwargs)
                    tx.append_changes()
                except IntegrityError:
                    # a row that another one refers to is gone: perhaps one that was remembered
                    self._known_owners.forget()
                    _roll_back(connection)
                    raise
                except BaseException:
                    _roll_back(connection)
                    raise
                try:
                    transaction.commit()
                except DBAPIError as error:
                    if not retry.is_disconnect(error):
                        _roll_back(connection)
                        raise
                    LOG.warning("The connection broke during a commit; looking for its outcome.")
                    if not outcome.was_committed(
                        self._engines.writer, tx.change_id, tx.write_id, self.options
                    ):
                        raise
                written = tx
                return result

        result = retry.retrying(
            once,
            tries=self.options.claim_tries,
            doing=_doing(function),
            patience=self.options.lock_timeout,
        )
        if written is not None and written.change_id is not None:
            if self._clock() - begun > NOTED_AGAIN_AFTER:
                self._note_again(written.touched)
            self._prune_when_due(written.change_id)
        return result

    def _note_again(self, touched: Mapping[int, int]) -> None:
        """Make sure that readers look at what a long transaction changed.

        They may have given up the ids of its notes before it committed.
        """
        LOG.warning("A write to %d trees took long; its changes are noted again.", len(touched))
        try:
            self.write(changes.note, touched)
        except StoreError as error:
            raise StoreUnavailable(
                f"The change was made, but it took more than {NOTED_AGAIN_AFTER:.0f} s, and the "
                "database failed when searches were to be told of it again; until the same "
                f"providers change once more, searches may not see it: {error}"
            ) from error

    def _prune_when_due(self, change_id: int) -> None:
        """Cut the feed of changes short when a stretch of it ended since this store's last write.

        It may fail, the next one comes.
        """
        stretch, before = change_id // PRUNE_EVERY, self._stretch
        self._stretch = stretch
        if before in (None, stretch):
            return
        try:
            self.write(changes.prune)
        except StoreError as error:
            LOG.warning("The feed of changes was not cut short, it will be later: %s", error)

    def _note(self, connection: Connection, function: Callable[..., object]) -> None:
        if self.options.connection_trace:
            connection.info["store_function"] = _doing(function).removeprefix("doing ")

    def synchronise_standard_names(self) -> None:
        """Insert the standard resource classes and traits that are missing, and load all names.

        Any number of processes may do this at the same time.
        """
        self.write(standard_names.synchronise)
        self.read(self.names.refresh)


def _roll_back(connection: Connection) -> None:
    """Undo; when even that fails the connection is thrown away, which undoes it as well."""
    try:
        connection.rollback()
    except SQLAlchemyError as error:
        LOG.debug("Throwing away a connection that cannot roll back: %s", error)
        connection.invalidate(error)


def _doing(function: Callable[..., object]) -> str:
    module = getattr(function, "__module__", "").rpartition(".")[2]
    return f"doing {module}.{getattr(function, '__name__', 'work')}"


def _synchronise(engines: Engines, url: str, options: StoreOptions) -> None:
    if revision.current_revision(engines.writer) == revision.NEWEST_REVISION:
        return
    # alembic is needed here only: 10 MiB and a tenth of the start of every worker
    from placement_server.store.schema import migration

    if engines.in_memory:
        migration.upgrade(engines.writer)
        return
    unhurried = create_engines(url, options.for_maintenance())
    try:
        migration.upgrade(unhurried.writer)
    finally:
        unhurried.dispose()
