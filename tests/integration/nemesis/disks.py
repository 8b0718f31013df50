"""Full disks: that of the database, and that of the server's temporary files."""

from __future__ import annotations

import json
import time

from tests.integration.bank.connection import Connection, UnansweredRequest
from tests.integration.nemesis.stage import Fault, Stage

_LARGE = 3_000_000


def fill_database(stage: Stage) -> str:
    """Writes are refused, or the database ends; when there is room again it goes on."""
    assert stage.disk is not None
    seconds = stage.pause()
    with stage.disk.full():
        time.sleep(seconds)
    ended = stage.database.ended()
    if ended:
        stage.database.start()
    return f"disk of the database full for {seconds:.1f} s{', it ended' * ended}"


def fill_temporary(stage: Stage) -> str:
    """Large bodies need no place on it; requests are answered, by a new worker too."""
    assert stage.temporary is not None
    with stage.temporary.full():
        answer = large_request(stage.to_service.port)
        stage.service.kill_worker(stage.dice)
        stage.await_writes(5)
    # the server has read it, and says what is wrong with it
    assert answer.startswith("400"), answer
    return f"disk of temporary files full: {answer[:60]}"


def large_request(port: int) -> str:
    """Send a claim of three megabytes that names nothing there is; return what came of it."""
    body = {"allocations": {}, "padding": "x" * _LARGE}
    try:
        answer = Connection(port).send("POST", "/allocations", body)
    except UnansweredRequest as error:
        return str(error)
    return f"{answer.status} {json.dumps(answer.error)}"


DISKS: tuple[Fault, ...] = (
    Fault(fill_database, lambda stage: stage.disk is not None),
    Fault(fill_temporary, lambda stage: stage.temporary is not None),
)
