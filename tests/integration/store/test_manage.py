"""placement-manage and placement-status as an operator runs them."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
import sqlalchemy as sa

from compute_agent.programs.exit_status import Exit
from placement_server.cmd import audit, manage, status
from placement_server.conf import InvalidConfiguration
from placement_server.store import audit as checks
from placement_server.store import data_migrations
from placement_server.store.errors import StoreUnavailable
from placement_server.store.schema import revision
from placement_server.store.store import Store
from tests.fixtures.allocations import new_uuid
from tests.fixtures.databases import Server
from tests.fixtures.ports import free_port
from tests.functional.documentation.shell_blocks import BlocksToRun, commands_of
from tests.integration.store.conftest import OPTIONS, new_provider
from tests.integration.store.published_dumps import load

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(
    database_url: str,
    configured: Callable[[str], list[str]],
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Runs placement-manage on an empty database: its exit status and what it printed."""

    def runner(*arguments: str) -> tuple[int, str]:
        code = manage.main([*configured(database_url), *arguments])
        return code, capsys.readouterr().out

    return runner


@pytest.fixture
def published_url(database_url: str) -> str:
    load(database_url)
    return database_url


def test_the_documented_way_from_openstack_placement_goes_there_and_back(
    published_url: str,
    configured: Callable[[str], list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    page, blocks = "do/openstack-placement", BlocksToRun("with a database of OpenStack Placement")
    file = configured(published_url)[1]
    services, printed = [], []
    programs = {"placement-manage": manage.main, "placement-status": status.main}
    while blocks.left:
        block = blocks.next_of(page).replace("/etc/placement/placement.conf", file)
        for program, *arguments in commands_of(block):
            if program == "systemctl":
                services.append(" ".join(arguments))
            else:
                assert programs[program](arguments) == 0
                printed.append(capsys.readouterr().out)
    assert printed[0] == f"{revision.OPENSTACK_REVISION}\n"
    assert "Nothing is wrong." in printed[3]
    assert services == [
        *("stop apache2", "start placement-server"),
        *("stop placement-server", "start apache2"),
    ]
    assert manage.main([*configured(published_url), "db", "version"]) == 0
    assert capsys.readouterr().out == printed[0]


def test_the_documented_backup_of_mariadb_is_restored(
    mariadb_url: str, configured: Callable[[str], list[str]], tmp_path: Path
) -> None:
    assert manage.main([*configured(mariadb_url), "db", "sync"]) == 0
    url = sa.make_url(mariadb_url)
    (tmp_path / ".my.cnf").write_text(
        f"[client]\nhost = {url.host}\nport = {url.port}\nuser = {url.username}\n"
    )
    blocks = BlocksToRun("with MariaDB")

    def shell(text: str) -> None:
        script = text.replace("--databases placement ", f"--databases {url.database} ")
        environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=environment, check=True)

    shell(blocks.next_of("do/backup"))
    shell(f"mysql --execute='DROP DATABASE {url.database}'")
    shell(blocks.next_of("do/backup"))
    assert not blocks.left
    assert status.main([*configured(mariadb_url), "upgrade", "check"]) == 0


def test_a_documented_database_of_postgresql_is_made_saved_and_restored(
    postgresql_server: Server, configured: Callable[[str], list[str]], tmp_path: Path
) -> None:
    blocks, name = BlocksToRun("with PostgreSQL"), f"p{new_uuid()[:8]}"
    address = {
        "PGHOST": postgresql_server.host,
        "PGPORT": str(postgresql_server.port),
        "PGUSER": "root",
    }
    url = f"postgresql+psycopg://{name}:PASSWORD@{address['PGHOST']}:{address['PGPORT']}/{name}"
    programs = {"placement-manage": manage.main, "placement-status": status.main}

    def shell(text: str) -> None:
        script = re.sub(r"\bplacement\b(?!\.dump)", name, text.replace("sudo -u postgres ", ""))
        environment = {**os.environ, **address}
        passwords = b"PASSWORD\nPASSWORD\n"
        subprocess.run(
            ["setsid", "--wait", "bash", "-ec", script],
            cwd=tmp_path,
            env=environment,
            input=passwords,
            check=True,
        )

    def run(block: str) -> None:
        for program, _, _, *arguments in commands_of(block):
            assert programs[program]([*configured(url), *arguments]) == 0

    try:
        shell(blocks.next_of("do/production"))
        run(blocks.next_of("do/production"))
        shell(blocks.next_of("do/backup"))
        shell(blocks.next_of("do/backup"))
        run(blocks.next_of("do/upgrades"))
        assert not blocks.left
    finally:
        with postgresql_server.administrator() as connection:
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            connection.exec_driver_sql(f"DROP ROLE IF EXISTS {name}")


def test_the_schema_goes_forward_and_back(run: Run) -> None:
    assert run("db", "version") == (0, "None\n")
    assert run("db", "sync")[0] == 0
    assert run("db", "version") == (0, f"{revision.NEWEST_REVISION}\n")
    assert run("db", "sync")[0] == 0
    assert run("audit") == (0, "Nothing is wrong.\n")
    assert run("db", "downgrade")[0] == 0
    assert run("db", "version") == (0, f"{revision.OPENSTACK_REVISION}\n")
    assert run("audit")[0] == Exit.FAILED
    assert run("db", "stamp", "head")[0] == 0
    assert run("db", "version") == (0, f"{revision.NEWEST_REVISION}\n")


def test_old_data_is_repaired_in_batches(run: Run, database_url: str) -> None:
    load(database_url)
    assert run("db", "sync")[0] == 0
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE resource_providers SET root_provider_id = NULL"))
        connection.execute(sa.text("DELETE FROM consumers"))
    engine.dispose()
    code, printed = run("db", "online_data_migrations", "--max-count", "3")
    assert code == 1
    assert "3 rows matched query set_root_provider_ids, 3 migrated" in printed
    code, printed = run("db", "online_data_migrations")
    assert code == 0
    assert "Running batches of 50 until complete" in printed
    assert "6 rows matched query create_incomplete_consumers, 6 migrated" in printed
    assert "| Migration" in printed.replace("|          Migration", "| Migration")
    assert run("db", "online_data_migrations", "--max-count", "3")[0] == 0
    assert run("db", "online_data_migrations", "--max-count", "0") == (
        127,
        "Must supply a positive value for max_count\n",
    )
    assert run("audit") == run("audit", "--repair")


def test_audit_tells_by_its_exit_status_what_is_wrong(run: Run, database_url: str) -> None:
    run("db", "sync")
    store = Store.open(database_url, options=OPTIONS)
    store.synchronise_standard_names()
    new_provider(store, {"VCPU": 1})
    store.close()
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE inventories SET used = 7"))
    code, printed = run("audit")
    assert code == Exit.WOULD_CHANGE
    assert "7 in use by the inventory, 0 by the sum of its allocations" in printed
    assert run("audit", "--repair")[0] == Exit.FINE
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, "
                "used) VALUES (1, :consumer, 5, 1)"
            ),
            {"consumer": new_uuid()},
        )
        connection.execute(sa.text("UPDATE inventories SET used = 7"))
    engine.dispose()
    assert run("audit")[0] == Exit.UNFINISHED
    code, printed = run("audit", "--repair")
    assert code == Exit.UNFINISHED
    assert "Repaired 1 of 3 problem(s)." in printed
    assert "2 problems, 2 of which need a decision." in printed


@pytest.mark.parametrize("arguments", [(), ("--max-count", "5")])
def test_a_repair_of_old_data_that_fails_has_a_status_of_its_own(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    def fail(*_: object) -> int:
        raise StoreUnavailable("away")

    run("db", "sync")
    monkeypatch.setattr(data_migrations, "set_root_provider_ids", fail)
    code, printed = run("db", "online_data_migrations", *arguments)
    assert code == 2
    assert "Some migrations failed unexpectedly. Check log for details." in printed


def test_a_watching_audit_shows_what_is_wrong_as_metrics_and_prints_it_when_it_begins(
    migrated_database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.open(migrated_database_url, options=OPTIONS)
    new_provider(store, {"VCPU": 1})
    bind = f"127.0.0.1:{free_port()}"
    engine = sa.create_engine(migrated_database_url)
    shown: list[str] = []
    checked_at = [time.time()]

    def after_a_check(seconds: float) -> bool:
        assert seconds == 60
        text = requests.get(f"http://{bind}/metrics", timeout=10).text
        counts = re.findall(r'^placement_audit_violations{kind="(\w+)"} (.+)$', text, re.MULTILINE)
        assert {kind for kind, _ in counts} == set(checks.KINDS)
        shown.append(dict(counts)["use"])
        [moment] = re.findall("^placement_audit_last_success.* (.+)$", text, re.MULTILINE)
        checked_at.append(float(moment))
        if len(shown) in (1, 4):
            with engine.begin() as connection:
                connection.execute(sa.text("UPDATE inventories SET used = 7"))
        if len(shown) == 3:
            store.write(checks.repair)
        return len(shown) == 5

    assert audit.watch(store, 60, bind, after_a_check) == Exit.WOULD_CHANGE
    assert shown == ["0.0", "1.0", "1.0", "0.0", "1.0"]
    assert sorted(set(checked_at)) == checked_at
    assert capsys.readouterr().out.count("7 in use by the inventory") == 2
    with pytest.raises(InvalidConfiguration, match="--metrics-bind"):
        audit.watch(store, 60, bind, after_a_check)
    engine.dispose()
    store.close()


def test_a_frequent_audit_reads_the_data_after_a_change_and_otherwise_once_a_minute(
    migrated_database_url: str,
) -> None:
    store = Store.open(migrated_database_url, options=OPTIONS)
    new_provider(store, {"VCPU": 1})
    statements: list[str] = []
    sa.event.listen(
        store.read(lambda tx: tx.connection.engine),
        "before_cursor_execute",
        lambda *a: statements.append(a[2]),
    )
    reads: list[bool] = []

    def after_a_check(_seconds: float) -> bool:
        reads.append(any("FROM resource_providers" in text for text in statements))
        statements.clear()
        if len(reads) == 10:
            new_provider(store, {"VCPU": 1})
        return len(reads) == 75

    audit.watch(store, 1, f"127.0.0.1:{free_port()}", after_a_check)
    assert [number for number, is_read in enumerate(reads) if is_read] == [0, 10, 70]
    store.close()


def test_usage_errors_have_the_exit_status_that_scripts_know(
    configured: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    configuration = configured("sqlite://")
    assert manage.main(configuration) == 1
    assert "{db,audit,prune}" in capsys.readouterr().out
    assert manage.main([*configuration, "db"]) == 0
    assert "online_data_migrations" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        manage.main([*configuration, "db", "nonsense"])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("url", "hint", "checked"),
    [
        ("", "placement_database]connection", 255),
        ("nonsense", "placement_database]connection", 255),
        ("oracle://somewhere/x", "not on oracle", 255),
        ("sqlite:////nonexistent/directory/placement.db", "unable to open", 3),
    ],
)
def test_a_database_that_cannot_be_used_is_named_with_the_option_to_change(
    configured: Callable[[str], list[str]],
    capsys: pytest.CaptureFixture[str],
    url: str,
    hint: str,
    checked: int,
) -> None:
    assert manage.main([*configured(url), "db", "sync"]) == 1
    assert hint in capsys.readouterr().err
    assert status.main([*configured(url), "upgrade", "check"]) == checked
