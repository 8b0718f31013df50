"""A database without room: the server's answer, its log, and `placement-status upgrade check`."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from placement_server.cmd import status
from placement_server.direct import DirectSession, direct
from tests.fixtures.databases import (
    end,
    fresh_database,
    mariadb_missing,
    postgresql_missing,
    start_mariadb,
    start_postgresql,
)
from tests.integration.nemesis.small_disk import SmallDisk

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a disk is mounted by root alone"),
]

SERVERS = {
    "sqlite": (2, None, lambda: None),
    "postgresql": (260, start_postgresql, postgresql_missing),
    "mariadb": (260, start_mariadb, mariadb_missing),
}


@pytest.fixture(params=SERVERS)
def full_database(request: pytest.FixtureRequest) -> Iterator[tuple[SmallDisk, str]]:
    """A disk that can be filled, and the URL of a database on it."""
    size, start, missing = SERVERS[request.param]
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        # a path that the database's own user may enter
        disk = SmallDisk(Path(f"/tmp/small-disk-{secrets.token_hex(4)}"), size)
        stack.callback(disk.path.rmdir)
        stack.callback(disk.unmount)
        url = f"sqlite:///{disk.path}/placement.db"
        if start is not None:
            server = start(disk.path / "data")
            stack.callback(end, server)
            url = stack.enter_context(fresh_database(server, migrated=False))
        yield disk, url


def test_without_room_writes_are_refused_in_words_and_the_check_has_the_cause(
    full_database: tuple[SmallDisk, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk, url = full_database
    config = tmp_path / "placement.conf"
    config.write_text(f"[placement_database]\nconnection = {url}\n")

    def write(client: DirectSession) -> tuple[int, str]:
        response = client.post("/resource_providers", json={"name": secrets.token_hex(100)})
        return response.status_code, response.text

    with direct(url) as client:
        with disk.full(), caplog.at_level(logging.ERROR, "placement_server"):
            answers = [write(client) for _ in range(1000)]
            refusals = {text for status_code, text in answers if status_code != 201}
            assert answers[-1][0] == 503
            assert all("The database has no room for it" in text for text in refusals)
            assert client.get("/resource_providers").status_code == 200
            assert len(caplog.records) <= 3
            assert status.main([f"--config-file={config}", "upgrade", "check"]) in (2, 3)
            shown = capsys.readouterr()
            assert "nothing can be written" in shown.out or "has no room" in shown.err
        assert write(client)[0] in (200, 201)
