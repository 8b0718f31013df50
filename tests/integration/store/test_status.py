"""placement-status upgrade check, as an operator runs it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from placement_server.cmd import manage, programs, status, upgrade_check
from placement_server.store.engine import create_engines
from placement_server.store.errors import StoreError
from placement_server.store.schema import migration
from placement_server.store.store import Store
from tests.fixtures.ports import free_port
from tests.integration.store.conftest import OPTIONS
from tests.integration.store.published_dumps import load


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    """The words of the table that was printed."""
    return " ".join(capsys.readouterr().out.replace("|", " ").split())


def test_the_upgrade_check_of_a_database_that_refuses_ends_soon(
    configured: Callable[[str], list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", waits.append)
    url = f"postgresql+psycopg://u:p@127.0.0.1:{free_port()}/placement"
    arguments = configured(url)
    with Path(arguments[1]).open("a") as file:
        file.write("max_retries = 20\n")
    assert status.main([*arguments, "upgrade", "check"]) == 3
    assert "Cannot connect to" in capsys.readouterr().err
    assert sum(waits) <= 5


def test_a_defect_of_the_upgrade_check_is_not_taken_for_a_warning(
    sqlite_url: str,
    configured: Callable[[str], list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upgrade_check, "_disk", lambda _tx: 1 // 0)
    words = ["placement-status", *configured(sqlite_url), "upgrade", "check"]
    monkeypatch.setattr(sys, "argv", words)
    assert programs.placement_status() == 255
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_upgrade_check_prints_a_table(
    sqlite_url: str, configured: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status.main([*configured(sqlite_url), "upgrade", "check"]) == 2
    (width,) = {len(line) for line in capsys.readouterr().out.splitlines()}
    assert width <= 64


def test_the_upgrade_check_tells_failures_warnings_and_success_apart(
    database_url: str,
    configured: Callable[[str], list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load(database_url)
    assert manage.main([*configured(database_url), "db", "sync"]) == 0
    arguments = [*configured(database_url), "upgrade", "check"]
    assert status.main(arguments) == 0
    table = printed(capsys)
    disk = r"Check: Disk of the Database Result: Success Details: \S*/.* has \d+ MiB free"
    assert re.search(disk, table)
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda _: os.statvfs_result([4096, 4096, *[0] * 8]))
        assert status.main(arguments) == 2
    assert "nothing can be written" in printed(capsys)
    with monkeypatch.context() as patched:
        # as where the server runs in a container of this machine, or is not open to this user
        patched.setattr(upgrade_check, "data_directory", lambda _: Path("/nowhere/data"))
        assert status.main(arguments) == 0
    assert "It is not seen from here." in capsys.readouterr().out
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM consumers"))
    assert status.main(arguments) == 1
    table = printed(capsys)
    assert "There are 6 incomplete consumers table records for existing allocations." in table
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE resource_providers SET root_provider_id = NULL"))
    engine.dispose()
    assert status.main(arguments) == 2


def _leave_empty(_url: str) -> None:
    """Nobody has made a schema."""


def _load_and_stamp(url: str) -> None:
    load(url)
    engines = create_engines(url, OPTIONS)
    migration.stamp(engines.writer, "head")
    engines.dispose()


def _load_older(url: str) -> None:
    load(url)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '422ece571366'")
    engine.dispose()


def _load_and_sync(url: str) -> None:
    load(url)
    Store.open(url, options=replace(OPTIONS, sync_on_startup=True)).close()


@pytest.mark.parametrize(
    ("prepare", "remedy"),
    [
        (_leave_empty, "has no schema yet.* 'placement-manage db sync'"),
        (load, "revision a082b8bb98d0, .* 'placement-manage db sync'"),
        (
            _load_and_stamp,
            r"lacks agent_reports, changes, inventories\.capacity, inventories\.used, "
            r"past_changes, use_samples",
        ),
        (_load_older, "revision 422ece571366.* must be at its newest revision"),
        (_load_and_sync, None),
    ],
    ids=["empty", "OpenStack's", "stamped", "older OpenStack's", "ours"],
)
def test_the_upgrade_check_fails_on_a_schema_that_a_server_refuses(
    database_url: str,
    configured: Callable[[str], list[str]],
    capsys: pytest.CaptureFixture[str],
    prepare: Callable[[str], None],
    remedy: str | None,
) -> None:
    prepare(database_url)
    checked = status.main([*configured(database_url), "upgrade", "check", "--json"])
    output, errors = capsys.readouterr()
    first = json.loads(output)["checks"][0]
    assert first["check"] == "Database Schema"
    assert errors == ""
    if remedy is None:
        assert checked == 0
        Store.open(database_url, options=OPTIONS).close()
        return
    assert (checked, first["result"]) == (2, 2)
    assert re.search(remedy, first["details"])
    with pytest.raises(StoreError, match=remedy) as refused:
        Store.open(database_url, options=OPTIONS)
    assert str(refused.value) == first["details"]


def test_the_upgrade_check_leaves_it_to_the_servers_to_take_the_schema_forward(
    sqlite_url: str, configured: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = configured(sqlite_url)
    with Path(arguments[1]).open("a") as file:
        file.write("sync_on_startup = true\n")
    assert status.main([*arguments, "upgrade", "check"]) == 0
    assert "takes the schema forward" in printed(capsys)


def test_a_policy_file_in_json_fails_the_upgrade_check(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(sqlite_url)
    (tmp_path / "policy.json").write_text("{}")
    file = tmp_path / "placement.conf"
    file.write_text(
        f"[placement_database]\nconnection = {sqlite_url}\n"
        "[oslo_policy]\npolicy_file = policy.json\n"
    )
    arguments = ["--config-file", str(file), "--config-dir", str(tmp_path), "upgrade", "check"]
    assert status.main(arguments) == 2
    assert "policy.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rules", "result", "details"),
    [
        ('"placement:usage": "role:admin"', 1, 'is "placement:usages" meant?'),
        ('"admin_apis": "role:admin"\n"placement:usages": "rule:admin_apis"', 0, ""),
        ('"placement:usages": "rolle:admin"', 2, 'there is no check "rolle"'),
    ],
    ids=["misspelt", "used by another", "unusable"],
)
def test_rules_that_nothing_uses_are_warnings_and_an_unusable_file_fails(
    sqlite_url: str,
    configured: Callable[[str], list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rules: str,
    result: int,
    details: str,
) -> None:
    arguments = configured(sqlite_url)
    assert manage.main([*arguments, "db", "sync"]) == 0
    capsys.readouterr()
    (tmp_path / "policy.yaml").write_text(rules)
    with Path(arguments[1]).open("a") as file:
        file.write(f"[oslo_policy]\npolicy_file = {tmp_path / 'policy.yaml'}\n")
    assert status.main([*arguments, "upgrade", "check", "--json"]) == result
    checks = json.loads(capsys.readouterr().out)["checks"]
    (check,) = [check for check in checks if check["check"] == "Policy File"]
    assert check["result"] == result
    assert details in (check["details"] or "")


def test_unknown_options_and_a_missing_policy_file_are_warnings_of_the_upgrade_check(
    sqlite_url: str, configured: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = configured(sqlite_url)
    assert manage.main([*arguments, "db", "sync"]) == 0
    capsys.readouterr()
    with Path(arguments[1]).open("a") as file:
        file.write("max_retires = 3\n[oslo_policy]\npolicy_file = /nowhere/policy.yaml\n")
    assert status.main([*arguments, "upgrade", "check", "--json"]) == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    details = {check["check"]: check["details"] for check in checks if check["result"] == 1}
    assert "/nowhere/policy.yaml" in details["Policy File"]
    assert "probably max_retries is meant" in details["Unknown Options"]
