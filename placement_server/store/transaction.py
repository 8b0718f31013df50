"""Read and write transactions, on which the functions of the store work, retried till they end.

A retry always starts after a rollback, with nothing left of the failed try.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import tenacity
from sqlalchemy import (
    Connection,
    CursorResult,
    Engine,
    Executable,
    Row,
    Select,
    func,
    insert,
    select,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from placement_server.store.connection import failures
from placement_server.store.connection.options import StoreOptions
from placement_server.store.dialects import BATCHES, plain
from placement_server.store.dialects.batches import (
    ChangeRecord,
    InventoryUpdate,
    Rise,
    Settlement,
    among,
    chunks,
)
from placement_server.store.errors import ConcurrentUpdate, StoreError, StoreUnavailable
from placement_server.store.known_owners import KnownOwners
from placement_server.store.past_changes import PastChanges
from placement_server.store.tables import changes, resource_providers

LOG = logging.getLogger(__name__)

# Kinds of change records. A reader that sees STRUCTURE reads the whole tree again.
STRUCTURE: Final = 0
USAGE: Final = 1
NAMES: Final = 2
# Not the record of a write: it holds an id that no write used (see changes.changes).
VOID: Final = 3

# The root id of records that belong to no tree: NAMES and VOID.
NO_ROOT: Final = 0

_Value = TypeVar("_Value", int, str)
_Result = TypeVar("_Result")
AnyRow: TypeAlias = "Row[*tuple[Any, ...]]"
AnyResult: TypeAlias = "CursorResult[*tuple[Any, ...]]"

_P: Final = resource_providers.c
_KNOWN: Final = select(_P.id, _P.uuid, func.coalesce(_P.root_provider_id, _P.id)).where(
    among(_P.id, "ids")
)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ReadTransaction:
    """A consistent view of the database; everything read in it belongs to one moment."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.batches = BATCHES[connection.dialect.name]

    def execute(
        self,
        statement: Executable,
        parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> AnyResult:
        return self.connection.execute(statement, parameters)

    def execute_among(
        self, statement: Select[*tuple[Any, ...]], parameter: str, values: Iterable[_Value]
    ) -> list[Any]:
        """Execute a statement about any number of values, a bounded number at a time.

        :param statement: a constant.
        :param parameter: the name of an expanding parameter, for the values.
        :returns: the rows; in the order of the values, if the statement sorts by them.
        """
        select = plain.select_of(statement)
        return [
            row
            for chunk in chunks(sorted(set(values)))
            for row in select.rows(self.connection, {parameter: self.batches.many(chunk)})
        ]

    def rows_among(self, text: str, values: Iterable[_Value]) -> Iterator[Any]:
        """Execute a text that ends with a column, for any number of values of it.

        SQLAlchemy takes longer to compose such a statement than the driver to execute it.
        """
        for chunk in chunks(sorted(values)):
            condition, parameters = self.batches.among(chunk)
            yield from plain.rows(self.connection, text + condition, parameters)

    def count_among(self, text: str, values: Iterable[_Value], *first_parameters: object) -> int:
        """Execute a text as `rows_among` does, and return how many rows it changed.

        :param first_parameters: those of the text itself.
        """
        count = 0
        for chunk in chunks(sorted(values)):
            condition, parameters = self.batches.among(chunk)
            count += plain.count(self.connection, text + condition, first_parameters + parameters)
        return count


class WriteTransaction(ReadTransaction):
    """A transaction that changes the database, and records which trees it touched.

    :ivar history_days: days for which past changes are kept.
    :ivar past: takes what is changed; None where past changes are not kept.
    :ivar touched_trees: pairs of root id and kind.
    :ivar now: the time that all rows of the transaction carry: UTC, naive as the columns are, whole
        seconds because MySQL would round the rest.
    """

    def __init__(
        self, connection: Connection, known_owners: KnownOwners, history_days: int = 0
    ) -> None:
        super().__init__(connection)
        self.known_owners = known_owners
        self.history_days = history_days
        self.past = PastChanges() if history_days else None
        self.now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
        self.touched_trees: set[tuple[int, int]] = set()
        self._ended_trees: dict[int, str] = {}
        self.write_id = secrets.randbits(63)
        self.change_id: int | None = None

    def touch(self, root_ids: Iterable[int], kind: int) -> None:
        """Record that the trees with these roots changed; `kind` is STRUCTURE or USAGE."""
        self.touched_trees.update((root_id, kind) for root_id in root_ids)

    def end_tree(self, root_id: int, uuid: str) -> None:
        """Record that the provider of a touched tree is no root any more: deleted, or moved away.

        The change records need its uuid from here on, because nothing else may lead from the root
        id to it.
        """
        self._ended_trees[root_id] = uuid

    def touch_names(self) -> None:
        """Record that resource classes or traits were created, renamed or deleted."""
        self.touched_trees.add((NO_ROOT, NAMES))

    def _records(self) -> list[ChangeRecord]:
        return [
            ChangeRecord(root_id, kind, self._ended_trees.get(root_id))
            for root_id, kind in sorted(self.touched_trees)
        ]

    def settle(self, changes: Sequence[InventoryUpdate], rises: Sequence[Rise]) -> Settlement:
        """Change inventories, raise the generations of providers and record that the use changed.

        No tree may be touched after it: it also writes the change records. `Batches.settle`
        describes the rest.
        """
        self.touch((rise.root_id for rise in rises), USAGE)
        settlement = self.batches.settle(
            self.connection, changes, rises, self._records(), self.write_id, self.now
        )
        self.change_id = settlement.change_id
        return settlement

    def append_changes(self) -> None:
        """Write what is to be remembered, and the change records, unless that is done.

        It is the last statement.
        """
        if self.past is not None:
            if unknown_ids := self.past.unknown_providers():
                for provider_id, uuid, root_id in self.execute_among(_KNOWN, "ids", unknown_ids):
                    self.past.know(provider_id, uuid, root_id)
            self.batches.insert(self.connection, [self.past.take(self._ended_trees)], self.now)
        if self.touched_trees and self.change_id is None:
            self.change_id = self.batches.append_changes(
                self.connection, self._records(), self.write_id, self.now
            )


def aware(value: datetime | None) -> datetime:
    """Return a time of the database as an aware one; rows of old databases may have none."""
    return EPOCH if value is None else value.replace(tzinfo=UTC)


class LostRace(StoreError):
    """A change by another writer since this transaction read; it is to be retried from its start.

    :ivar uuids: the uuids of the providers that changed, if it is about providers.
    """

    def __init__(self, detail: str, *, uuids: Sequence[str] = ()) -> None:
        super().__init__(detail)
        self.uuids = tuple(uuids)


def is_worth_retrying(error: BaseException) -> bool:
    """Return whether the failed transaction left nothing and may succeed when it is retried."""
    if isinstance(error, LostRace):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error, IntegrityError):
        # lost the race for a unique key, or a referenced row went away; the next try sees it
        return True
    if error.connection_invalidated:
        return True
    code = failures.code_of(error)
    if code is None:
        # psycopg has no code when there was no session to give one
        return isinstance(error, OperationalError) and not failures.is_lasting(error)
    return code in failures.PASSING


def retrying(
    once: Callable[[], _Result],
    *,
    tries: int,
    doing: str,
    patience: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> _Result:
    """Run `once`, and retry it while its failure is worth it.

    :param tries: how often `once` runs at most.
    :param doing: what `once` does, for errors.
    :param patience: seconds after which a lock that was not available in time is not retried.
    :raises ConcurrentUpdate: the last failure was a lost race.
    :raises StoreUnavailable: the last failure was the database's.
    :raises Exception: any other error of `once`, as it is.
    """
    start = clock()

    def may_succeed(error: BaseException) -> bool:
        if failures.code_of(error) in failures.LOCKED and clock() - start >= patience:
            return False
        return is_worth_retrying(error)

    try:
        # nearly every call ends here, without the cost of tenacity
        return once()
    except Exception as error:  # noqa: BLE001 - all are raised again
        if tries <= 1 or not may_succeed(error):
            _raise_translated(error, doing)
    again = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(tries - 1),
        wait=tenacity.wait_random_exponential(multiplier=0.004, max=0.6),
        retry=tenacity.retry_if_exception(may_succeed),
        before_sleep=tenacity.before_sleep_log(LOG, logging.DEBUG),
        reraise=True,
    )
    try:
        return again(once)
    except Exception as error:  # noqa: BLE001 - all are raised again
        _raise_translated(error, doing)


@contextlib.contextmanager
def translate_failures(doing: str) -> Iterator[None]:
    """Raise failures of the database as `retrying` does, without a retry."""
    try:
        yield
    except DBAPIError as error:
        _raise_translated(error, doing)


def _raise_translated(error: Exception, doing: str) -> NoReturn:
    if isinstance(error, LostRace):
        raise ConcurrentUpdate(
            f"Other writers kept changing the same records while {doing}: {error}",
            uuids=error.uuids,
        ) from error
    if isinstance(error, IntegrityError):
        raise ConcurrentUpdate(
            f"Other writers kept changing the same records while {doing}."
        ) from error
    if isinstance(error, PoolTimeout):
        raise StoreUnavailable(
            f"No database connection became free while {doing}; raise [placement_database]"
            "max_pool_size or max_overflow."
        ) from error
    if isinstance(error, DBAPIError) and (
        failures.is_of_the_database(error) or is_worth_retrying(error)
    ):
        raise StoreUnavailable(
            f"{_reason(error)} while {doing}", cause=failures.reason_of(error)
        ) from error
    raise error


def _reason(error: Exception) -> str:
    code = failures.code_of(error)
    if code in failures.CUT_OFF:
        return (
            "The database ended a statement that took longer than [placement_database]"
            "statement_timeout, and nothing was changed,"
        )
    if code in failures.LOCKED:
        return (
            "The database did not give a lock within [placement_database]lock_timeout, and "
            "nothing was changed,"
        )
    if code in failures.FULL:
        return "The database has no room for it, and nothing was changed,"
    return "The database failed"


def was_committed(
    engine: Engine, change_id: int | None, write_id: int, options: StoreOptions
) -> bool:
    """Return whether the transaction that wrote `changes` row `change_id` was committed.

    A plain read could come too early, while the old session still processes its COMMIT. So this
    inserts a row with the same key: the database makes it wait until the old session is gone,
    and then either refuses it (the old row is there) or takes it (it never will be).

    :raises StoreUnavailable: the database gives no answer.
    """
    if change_id is None:
        return False

    def ask() -> bool:
        with engine.connect() as connection:
            transaction = connection.begin()
            try:
                connection.execute(
                    insert(changes).values(
                        id=change_id,
                        created_at=EPOCH.replace(tzinfo=None),
                        root_provider_id=0,
                        kind=0,
                        write_id=write_id,
                    )
                )
            except IntegrityError:
                transaction.rollback()
                found_write_id = connection.scalar(
                    select(changes.c.write_id).where(changes.c.id == change_id)
                )
                connection.rollback()
                return bool(found_write_id == write_id)
            transaction.rollback()
            return False

    try:
        return tenacity.Retrying(
            stop=tenacity.stop_after_attempt(max(2, options.claim_tries)),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=2.0),
            retry=tenacity.retry_if_exception(is_worth_retrying),
            reraise=True,
        )(ask)
    except (DBAPIError, PoolTimeout) as error:
        raise StoreUnavailable(
            "The connection to the database broke during a commit and there is no other, so it "
            "is not known whether the change was made; read it before repeating it",
            cause=failures.reason_of(error),
        ) from error
