"""The feed of a server under load whose workers are killed: nothing missed, nothing twice."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import requests
import sqlalchemy as sa

from placement_server.store.tables import changes
from placement_server.store.transaction import VOID
from tests.functional.api.served import EXTENDED_ADMIN, ServerProcess

WORKERS = 3
KILLS = 4
# Between two kills so many writes are acknowledged.
PACE = 15


@dataclass
class Load:
    """Writers and followers of one server, who go on when a worker is killed under them."""

    url: str
    stopping: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)
    acknowledged: list[str] = field(default_factory=list)
    progress: threading.Condition = field(default_factory=threading.Condition)

    def write(self) -> None:
        while not self.stopping.is_set():
            created = str(uuid.uuid4())
            try:
                answer = requests.post(
                    f"{self.url}/resource_providers",
                    json={"name": created, "uuid": created},
                    headers=EXTENDED_ADMIN,
                    timeout=60,
                )
            except requests.RequestException:
                continue
            assert answer.status_code == 200, answer.text
            with self.progress:
                self.acknowledged.append(created)
                self.progress.notify_all()

    def await_writes(self, more: int) -> None:
        with self.progress:
            goal = len(self.acknowledged) + more
            assert self.progress.wait_for(lambda: len(self.acknowledged) >= goal, 60)

    def follow(self, after: int, patience: int) -> list[tuple[int, str | None]]:
        """All changes behind an id, by many requests, until the writers have stopped."""
        listed: list[tuple[int, str | None]] = []
        while True:
            last_round = self.stopped.is_set()
            try:
                answer = requests.get(
                    f"{self.url}/changes",
                    params={"after": after, "limit": 7, "wait": 0 if last_round else patience},
                    headers=EXTENDED_ADMIN,
                    timeout=60,
                )
            except requests.RequestException:
                continue
            assert answer.status_code == 200, answer.text
            page = answer.json()
            listed += [(row["id"], row["root_provider_uuid"]) for row in page["changes"]]
            after = page["last"]
            if last_round and not page["changes"]:
                return listed


def test_every_follower_sees_every_change_once_while_workers_are_killed(
    migrated_database_url: str, tmp_path: Path
) -> None:
    server = ServerProcess(
        tmp_path,
        *("--workers", str(WORKERS)),
        config=f"[placement_database]\nconnection = {migrated_database_url}\n",
    )
    engine = sa.create_engine(migrated_database_url)
    try:
        load = Load(server.url)
        after = requests.get(f"{server.url}/changes", headers=EXTENDED_ADMIN, timeout=60).json()[
            "last"
        ]
        with ThreadPoolExecutor(8) as pool:
            writers = [pool.submit(load.write) for _ in range(4)]
            followers = [pool.submit(load.follow, after, patience) for patience in (0, 5, 5)]
            try:
                for number in range(KILLS):
                    load.await_writes(PACE)
                    workers = psutil.Process(server.process.pid).children()
                    workers[number % len(workers)].kill()
                load.await_writes(PACE)
            finally:
                load.stopping.set()
                wait(writers, 60)
                load.stopped.set()
            for writer in writers:
                writer.result()
            listings = [follower.result(60) for follower in followers]
        with engine.connect() as connection:
            expected = connection.scalars(
                sa.select(changes.c.id)
                .where(changes.c.id > after, changes.c.kind != VOID)
                .order_by(changes.c.id)
            ).all()
        for listing in listings:
            assert [number for number, _ in listing] == expected
            assert {root for _, root in listing} >= set(load.acknowledged)
    finally:
        engine.dispose()
        server.stop()
