"""placement-status upgrade check: what an upgrade needs of the database and the configuration."""

from __future__ import annotations

import contextlib
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace
from oslo_config import cfg
from sqlalchemy.exc import SQLAlchemyError

from compute_agent.programs.disk_space import space_of
from compute_agent.programs.exit_status import Exit
from placement_server import conf as configuration
from placement_server.policies.enforcer import file_problem
from placement_server.store import data_migrations
from placement_server.store.connection.failures import FULL, await_database, code_of, reason_of
from placement_server.store.connection.options import connection_url, store_options
from placement_server.store.connection.url import data_directory
from placement_server.store.engine import create_engines
from placement_server.store.errors import SchemaOutOfDate, StoreError, StoreUnavailable
from placement_server.store.schema import revision
from placement_server.store.transaction import ReadTransaction

_CONNECT_TRIES: Final = 2
_CONNECT_INTERVAL: Final = 2.0
_REMEDY: Final = 'Run the "placement-manage db online_data_migrations" command.'


class Code(IntEnum):
    """The result of a check; the worst one is the exit status."""

    SUCCESS = 0
    WARNING = 1
    FAILURE = 2


Finding = tuple[Code, str | None]
_FINE: Final = (Code.SUCCESS, None)


class DatabaseAway(StoreError):
    """A database that a check could not connect to."""


class Result(NamedTuple):
    check: str
    code: Code
    details: str | None = None


def run(conf: cfg.ConfigOpts) -> int:
    """Run all checks, print their results, and return the exit status."""
    try:
        results = _check(conf)
    except DatabaseAway as error:
        print(f"placement-status: {error}", file=sys.stderr)
        return Exit.PLACEMENT
    except (StoreError, SQLAlchemyError) as error:
        if code_of(error) in FULL:
            print(
                f"placement-status: the database has no room, and refuses writes: make some on "
                f"its disk (df, df --inodes): {reason_of(error)}",
                file=sys.stderr,
            )
            return Exit.PLACEMENT
        print(f"placement-status: {reason_of(error)}", file=sys.stderr)
        return Exit.DEFECT
    if conf.command.json:
        print(_as_json(results))
    else:
        print("\n".join(_as_table(results)))
    return max(result.code for result in results)


def _check(conf: cfg.ConfigOpts) -> list[Result]:
    with _transaction(conf) as tx:
        findings = {"Database Schema": _schema(tx, conf)}
        if revision.revision_of(tx.connection) in revision.REVISIONS:
            findings["Missing Root Provider IDs"] = _roots(tx)
            findings["Incomplete Consumers"] = _consumers(tx)
        findings["Disk of the Database"] = _disk(tx)
        findings["Policy File JSON to YAML Migration"] = _policy_file(conf)
        findings["Policy File"] = _rules(conf)
        findings["Unknown Options"] = _options(conf)
    return [Result(check, *finding) for check, finding in findings.items()]


@contextlib.contextmanager
def _transaction(conf: cfg.ConfigOpts) -> Iterator[ReadTransaction]:
    """Read the database at whatever revision it is: the checks also run before a sync."""
    # who asks wants to know now, and does not wait for a database as a server does
    options = store_options(conf).for_maintenance()
    options = replace(
        options,
        connect_tries=_CONNECT_TRIES,
        connect_interval=min(options.connect_interval, _CONNECT_INTERVAL),
    )
    engines = create_engines(connection_url(conf), options)
    try:
        try:
            await_database(engines.reader, options)
        except StoreUnavailable as error:
            raise DatabaseAway(str(error)) from error
        with engines.reader.connect() as database, database.begin():
            yield ReadTransaction(database)
    finally:
        engines.dispose()


def _schema(tx: ReadTransaction, conf: cfg.ConfigOpts) -> Finding:
    """Check whether a server would start on the schema, by the check of the server itself."""
    refusal = revision.refusal(tx.connection)
    if refusal is None:
        return _FINE
    if isinstance(refusal, SchemaOutOfDate) and conf.placement_database.sync_on_startup:
        return (
            Code.SUCCESS,
            "The first server that starts takes the schema forward, as [placement_database]"
            "sync_on_startup is set.",
        )
    return Code.FAILURE, str(refusal)


def _roots(tx: ReadTransaction) -> Finding:
    if not data_migrations.count_rootless(tx):
        return _FINE
    return (
        Code.FAILURE,
        "There is at least one resource provider table record which misses its root provider "
        f"id. {_REMEDY}",
    )


def _consumers(tx: ReadTransaction) -> Finding:
    number = data_migrations.count_incomplete_consumers(tx)
    if not number:
        return _FINE
    return (
        Code.WARNING,
        f"There are {number} incomplete consumers table records for existing allocations. "
        f"{_REMEDY}",
    )


def _disk(tx: ReadTransaction) -> Finding:
    if (directory := data_directory(tx.connection)) is not None:
        with contextlib.suppress(OSError):  # of a container, or not open to this user
            space, text = space_of(directory, str(directory))
            return Code(space), f"{text}."
    return Code.SUCCESS, "It is not seen from here. Look at it where the database runs."


def _policy_file(conf: cfg.ConfigOpts) -> Finding:
    name = conf.oslo_policy.policy_file
    path = conf.find_file(name) if name else None
    if path is None or not _is_json(Path(path)):
        return _FINE
    return (
        Code.FAILURE,
        f"The policy file {path} is JSON, which is no longer read. Convert it with "
        "oslopolicy-convert-json-to-yaml and name the new file in [oslo_policy]policy_file.",
    )


def _rules(conf: cfg.ConfigOpts) -> Finding:
    try:
        problem = file_problem(conf)
    except configuration.InvalidConfiguration as error:
        return Code.FAILURE, str(error)
    return _FINE if problem is None else (Code.WARNING, problem)


def _options(conf: cfg.ConfigOpts) -> Finding:
    unread_lines = configuration.unread_options(conf)
    if not unread_lines:
        return _FINE
    return Code.WARNING, f"Nothing reads {'; '.join(unread_lines)}. Correct or remove it."


def _is_json(path: Path) -> bool:
    """Return whether a policy file was written as JSON.

    JSON is YAML too, so the test is whether a JSON parser takes it.
    """
    try:
        json.loads(path.read_text())
    except (ValueError, OSError):
        return False
    return True


def _as_json(results: Sequence[Result]) -> str:
    return json.dumps(
        {
            "name": "Upgrade Check Results",
            "checks": [
                {"check": check, "result": int(code), "details": details}
                for check, code, details in results
            ],
        }
    )


def _as_table(results: Sequence[Result]) -> Iterator[str]:
    blocks = [["Upgrade Check Results"]]
    for check, code, details in results:
        text = f"Details: {details}"
        blocks.append([f"Check: {check}", f"Result: {code.name.title()}", *textwrap.wrap(text, 60)])
    width = max(len(line) for block in blocks for line in block)
    rule = f"+{'-' * (width + 2)}+"
    yield rule
    for block in blocks:
        yield from (f"| {line.ljust(width)} |" for line in block)
        yield rule
