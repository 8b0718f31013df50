"""The database as the commands of placement-manage open it, and its failures in their words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from oslo_config import cfg
from sqlalchemy.exc import SQLAlchemyError

from placement_server.store.connection.failures import await_database, reason_of
from placement_server.store.connection.options import connection_url, store_options
from placement_server.store.engine import Engines, create_engines
from placement_server.store.errors import StoreError
from placement_server.store.store import Store


@contextlib.contextmanager
def open_engines(conf: cfg.ConfigOpts) -> Iterator[Engines]:
    """Open a database whatever revision its schema has.

    :raises StoreError: the database cannot be used, or failed.
    """
    with _translate_failures():
        options = store_options(conf).for_maintenance()
        engines = create_engines(connection_url(conf), options)
        try:
            await_database(engines.writer, options)
            yield engines
        finally:
            engines.dispose()


@contextlib.contextmanager
def open_store(conf: cfg.ConfigOpts) -> Iterator[Store]:
    """Open a database of the newest revision.

    :raises StoreError: the database cannot be used, or failed.
    """
    with (
        _translate_failures(),
        contextlib.closing(Store.from_conf(conf, maintenance=True)) as store,
    ):
        yield store


@contextlib.contextmanager
def _translate_failures() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreError(f"the database failed: {reason_of(error)}") from error
