"""URLs of other drivers and of none, and the parameters that they carry."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from placement_server.conf import new_config
from placement_server.store.connection.options import (
    StoreOptions,
    connection_url,
    store_options,
)
from placement_server.store.connection.url import connect_arguments, database_url, shown_url
from placement_server.store.engine import create_engines
from placement_server.store.errors import StoreUnavailable

MYSQL = "mysql+pymysql://user:secret@host/placement"
POSTGRESQL = "postgresql+psycopg://user:secret@host/placement"


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("postgresql", "postgresql+psycopg"),
        ("postgresql+psycopg2", "postgresql+psycopg"),
        ("postgresql+psycopg", "postgresql+psycopg"),
        ("mysql", "mysql+pymysql"),
        ("mysql+mysqldb", "mysql+pymysql"),
        ("mariadb+mysqldb", "mariadb+pymysql"),
    ],
)
def test_a_url_of_another_driver_is_read_as_one_of_ours_which_is_logged(
    given: str, driver: str, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip(driver.partition("+")[2])
    caplog.set_level(logging.INFO)
    engines = create_engines(f"{given}://user:secret@host/placement", StoreOptions())
    assert engines.writer.url.render_as_string(False) == f"{driver}://user:secret@host/placement"
    engines.dispose()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == (given != driver)
    assert all(f"{given}://" in line and f"{driver}://" in line for line in lines)
    assert "secret" not in caplog.text


def test_passwords_in_any_part_of_a_url_are_not_shown() -> None:
    query = "?ssl_key_password=secret&passwd=secret&charset=utf8"
    shown = shown_url(MYSQL + query)
    assert "secret" not in shown
    assert shown.startswith("mysql+pymysql://user:***@host/placement?charset=utf8&passwd=")
    assert "secret" not in shown_url("mysql:user:secret@host")


@pytest.mark.parametrize(
    ("url", "reason"),
    [("mysql:user:secret@host", "is not a database URL"), ("oracle://u:secret@h", "not on oracle")],
)
def test_what_is_not_a_url_of_a_known_database_is_refused_without_its_password(
    url: str, reason: str
) -> None:
    with pytest.raises(StoreUnavailable, match=reason) as refused:
        database_url(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "mysql+mysqlconnector"])
def test_a_driver_whose_parameters_mean_something_else_is_refused(driver: str) -> None:
    with pytest.raises(StoreUnavailable, match=r"write (postgresql\+psycopg|mysql\+pymysql)://"):
        database_url(f"{driver}://user@host/placement")


@pytest.mark.parametrize(
    ("url", "package"), [(POSTGRESQL, r"psycopg\[binary\]"), (MYSQL, "PyMySQL")]
)
def test_a_missing_driver_is_named_with_what_installs_it(
    url: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("psycopg", "pymysql"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(StoreUnavailable, match=f"pip install '{package}'"):
        create_engines(url, StoreOptions())


@pytest.mark.parametrize("url", [POSTGRESQL, MYSQL, "sqlite:////x/placement.db"])
def test_a_plugin_that_is_not_installed_is_named(url: str) -> None:
    with pytest.raises(StoreUnavailable, match=r"connection names: .*plugins:none.* Install it"):
        create_engines(f"{url}?plugin=none", StoreOptions())


def test_parameters_of_tls_reach_the_driver_together() -> None:
    query = "?charset=utf8&ssl_ca=/ca.pem&ssl_verify_cert=true&ssl_check_hostname=false"
    url, arguments = connect_arguments(database_url(MYSQL + query))
    assert arguments == {"ssl": {"ca": "/ca.pem", "verify_mode": True, "check_hostname": False}}
    assert dict(url.query) == {"charset": "utf8"}


def test_numbers_and_truths_reach_the_driver_as_such() -> None:
    query = "?connect_timeout=5&ssl_disabled=false&max_allowed_packet=1048576&client_flag=8"
    url, arguments = connect_arguments(database_url(MYSQL + query))
    assert arguments == {
        "connect_timeout": 5,
        "ssl_disabled": False,
        "max_allowed_packet": 1048576,
    }
    assert dict(url.query) == {"client_flag": "8"}, "SQLAlchemy adds a flag of its own"
    url = database_url(MYSQL, "charset=utf8&read_timeout=")
    assert url.query["charset"] == "utf8"
    with pytest.raises(StoreUnavailable, match=r"read_timeout= of .* is not a whole number"):
        connect_arguments(url)


def test_parameters_of_libpq_are_left_to_it() -> None:
    pytest.importorskip("psycopg")
    query = "?sslmode=verify-full&sslrootcert=/ca.pem&connect_timeout=5&application_name=x"
    url = database_url(f"postgresql+psycopg2://host/placement{query}")
    assert connect_arguments(url) == (url, {})


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (f"{MYSQL}?ssl_mode=REQUIRED", "ssl_mode"),
        (f"{MYSQL}?compress=true", "compress"),
        (f"{POSTGRESQL}?charset=utf8", "charset"),
        (f"{POSTGRESQL}?prepare_threshold=5", "prepare_threshold"),
    ],
)
def test_a_parameter_that_the_driver_lacks_is_refused_by_its_name(url: str, name: str) -> None:
    if url.startswith(POSTGRESQL):
        pytest.importorskip("psycopg")
    with pytest.raises(StoreUnavailable, match=f"parameter {name} of"):
        create_engines(url, StoreOptions())


def test_parameters_from_their_own_option_are_checked_too() -> None:
    with pytest.raises(StoreUnavailable, match=r"connect_timeout=soon.*whole number"):
        create_engines(MYSQL, StoreOptions(connection_parameters="connect_timeout=soon"))


@pytest.mark.parametrize("has_file", [True, False])
def test_without_a_database_the_files_that_were_read_are_named(
    tmp_path: Path, has_file: bool
) -> None:
    file = tmp_path / "placement.conf"
    file.write_text("[placement_database]\nconection = sqlite://\n")
    conf = new_config(config_files=[file] if has_file else [])
    where = file if has_file else "the file that --config-file names, as none was read"
    with pytest.raises(StoreUnavailable, match=rf"\[placement_database\]connection in {where}, "):
        connection_url(conf)


@pytest.mark.parametrize(("retries", "tries"), [(-1, -1), (0, 1), (10, 11)])
def test_what_is_tried_again_is_tried_once_before(retries: int, tries: int) -> None:
    conf = new_config([], [])
    conf.set_override("max_retries", retries, "placement_database")
    conf.set_override("allocation_conflict_retry_count", max(0, retries), "placement")
    options = store_options(conf)
    assert (options.connect_tries, options.claim_tries) == (tries, max(1, retries))
