"""The URL of the database, in the form that this server's drivers take, and where its files are.

The drivers are psycopg 3 and PyMySQL. URLs written for psycopg2 or mysqlclient, or without a
driver, mean the same database and are read as if they named ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import sqlalchemy as sa
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.util import asbool

from placement_server.store.errors import StoreUnavailable

LOG = logging.getLogger(__name__)

_OPTION: Final = "[placement_database]connection"

_MEMORY: Final = (None, "", ":memory:")
_HERE: Final = (None, "", "localhost", "127.0.0.1", "::1")
_STATEMENTS: Final = {
    # has no row for the users that servers usually have
    "postgresql": "SELECT setting FROM pg_settings WHERE name = 'data_directory'",
    "mysql": "SELECT @@datadir",
    "mariadb": "SELECT @@datadir",
}

_USUAL_DIRECTORY: Final = "/var/lib/postgresql"
"""Of PostgreSQL on Debian, above those of its versions."""


class _Driver(NamedTuple):
    name: str
    read_as_it: tuple[str, ...]
    """Other drivers, whose URLs mean the same."""
    package: str
    """The package that pip installs it from."""


_PSYCOPG: Final = _Driver("psycopg", ("psycopg2", "psycopg2cffi"), "psycopg[binary]")
_PYMYSQL: Final = _Driver("pymysql", ("mysqldb",), "PyMySQL")
_DRIVERS: Final = {"postgresql": _PSYCOPG, "mysql": _PYMYSQL, "mariadb": _PYMYSQL}


def database_url(connection: str | URL, connection_parameters: str = "") -> URL:
    """Return the URL to connect to, with a driver that this server works with.

    :raises StoreUnavailable: it is not a URL of a database that the store works with.
    """
    try:
        url = make_url(connection)
    except (ArgumentError, ValueError):
        # without the error, which may quote a part of the password
        raise StoreUnavailable(
            f"{_OPTION} is not a database URL such as "
            "sqlite:////var/lib/placement/placement.db or mysql://user:password@host:3306/placement"
            ". Write special characters of a password as %40 for @, %2F for / and %3A for a colon."
        ) from None
    backend = url.get_backend_name()
    if backend not in ("sqlite", *_DRIVERS):
        raise StoreUnavailable(
            f"The store works on SQLite, PostgreSQL, MariaDB and MySQL, not on {backend}; "
            f"change {_OPTION}."
        )
    if backend in _DRIVERS:
        url = _with_driver(url, backend, _DRIVERS[backend])
    return url.update_query_pairs(parse_qsl(connection_parameters, keep_blank_values=True))


def shown_url(connection: str | URL) -> str:
    """Return the URL of a database for a log, without its passwords."""
    try:
        url = make_url(connection)
    except (ArgumentError, ValueError):
        return "of a URL that cannot be read"
    hidden_values = {name: "***" for name in url.query if "password" in name or name == "passwd"}
    return url.update_query_dict(hidden_values).render_as_string(hide_password=True)


def _with_driver(url: URL, backend: str, driver: _Driver) -> URL:
    driver_name = url.drivername.partition("+")[2]
    if driver_name == driver.name:
        return url
    if driver_name and driver_name not in driver.read_as_it:
        raise StoreUnavailable(
            f"The database driver {driver_name} of {_OPTION} is not one that this server works "
            f"with; write {backend}+{driver.name}://."
        )
    return url.set(drivername=f"{backend}+{driver.name}")


def log_driver(connection: str, url: URL) -> None:
    """Log which driver is used instead of the one that the URL names, if it is another."""
    named_driver = make_url(connection).drivername
    if named_driver != url.drivername:
        LOG.info(
            "%s begins with %s://, which is read as %s://.", _OPTION, named_driver, url.drivername
        )


def missing_driver(url: URL, error: ImportError) -> StoreUnavailable:
    """Return the error for a driver that is not installed, with the command that installs it."""
    driver = _DRIVERS[url.get_backend_name()]
    return StoreUnavailable(
        f"The database driver {driver.name} is not installed ({error}): run "
        f"pip install '{driver.package}'."
    )


def connect_arguments(url: URL) -> tuple[URL, dict[str, Any]]:
    """Separate the parameters of a URL that SQLAlchemy cannot pass to the driver.

    :returns: the URL without them, and them as the driver takes them.
    :raises StoreUnavailable: the driver does not have a parameter, or a value is of a wrong type.
    :raises ImportError: the driver is not installed.
    """
    if url.get_backend_name() == "postgresql":
        from psycopg import pq

        names = frozenset(option.keyword.decode() for option in pq.Conninfo.get_defaults())
        _require_names(url, names, _PSYCOPG)
        return url, {}
    _require_names(url, _TEXTS.union(_TYPED, _TLS), _PYMYSQL)
    arguments: dict[str, Any] = {
        name: _converted_value(name, url.query[name], kind)
        for name, kind in _TYPED.items()
        # SQLAlchemy adds a flag of its own to these
        if name in url.query and name != "client_flag"
    }
    tls = {
        key: _converted_value(name, url.query[name], kind)
        for name, (key, kind) in _TLS.items()
        if name in url.query
    }
    if tls:
        arguments["ssl"] = tls
    return url.difference_update_query([*_TLS, *arguments]), arguments


def _require_names(url: URL, names: frozenset[str], driver: _Driver) -> None:
    unknown_names = sorted(url.query.keys() - names - {"plugin"})
    if unknown_names:
        raise StoreUnavailable(
            f"The driver {driver.name} does not have the parameter {', '.join(unknown_names)} of "
            f"{_OPTION} (or connection_parameters); remove it, or use one of "
            f"{', '.join(sorted(names))}."
        )


# The driver's parameters that can be written as text. Those of TLS go into one dictionary:
# SQLAlchemy puts only some of them there, and the driver forgets those when it is given another.
_TLS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "ssl_ca": ("ca", str),
    "ssl_capath": ("capath", str),
    "ssl_cert": ("cert", str),
    "ssl_key": ("key", str),
    "ssl_key_password": ("password", str),
    "ssl_cipher": ("cipher", str),
    "ssl_check_hostname": ("check_hostname", asbool),
    "ssl_verify_identity": ("check_hostname", asbool),
    "ssl_verify_cert": ("verify_mode", asbool),
}
_TYPED: Final[dict[str, Callable[[Any], Any]]] = {
    "connect_timeout": int,
    "read_timeout": int,
    "write_timeout": int,
    "client_flag": int,
    "max_allowed_packet": int,
    "local_infile": asbool,
    "use_unicode": asbool,
    "ssl_disabled": asbool,
}
_TEXTS: Final = frozenset(
    {
        "charset",
        "collation",
        "unix_socket",
        "read_default_file",
        "read_default_group",
        "init_command",
        "bind_address",
        "program_name",
    }
)


def _converted_value(name: str, value: object, kind: Callable[[Any], Any]) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise StoreUnavailable(
            f"The parameter {name}={value} of {_OPTION} is not "
            f"{'a whole number' if kind is int else 'true or false'}."
        ) from error


def data_directory(connection: sa.Connection) -> Path | None:
    """Return the directory, as the server names it; None of one in memory or of another machine."""
    url = connection.engine.url
    if url.get_backend_name() == "sqlite":
        return Path(url.database).parent if url.database not in _MEMORY else None
    host = url.host or url.query.get("host")
    if host not in _HERE and not str(host).startswith("/"):
        return None
    path = connection.exec_driver_sql(_STATEMENTS[connection.dialect.name]).scalar()
    return Path(path or _USUAL_DIRECTORY)
