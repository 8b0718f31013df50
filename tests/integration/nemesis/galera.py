"""A Galera cluster of three, of which a node is cut off while clients are led to another."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pymysql
import sqlalchemy as sa

from tests.fixtures.databases import Server, migrate
from tests.fixtures.galera import galera_cluster, status
from tests.integration.bank.private_database import PrivateDatabase
from tests.integration.bank.proxy import Proxy
from tests.integration.nemesis.machine import stopped
from tests.integration.nemesis.stage import Fault, Stage, on

_NODES = 3
_WAIT = 300.0
_QUICK = ";evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;evs.keepalive_period=PT0.5S"
_CAUSAL = "--wsrep-sync-wait=7"
"""Statements at a node wait for what other nodes have confirmed."""


class Cluster(PrivateDatabase):
    """Three nodes. Clients use `port`, which leads to one of them."""

    kind = "galera"

    def __init__(self, directory: Path) -> None:
        directory.chmod(0o755)
        self._stack = contextlib.ExitStack()
        cluster = galera_cluster(directory / "nodes", _NODES, _QUICK, (_CAUSAL,))
        self._nodes = self._stack.enter_context(cluster)
        self._used = 0
        with self._nodes[0].administrator() as connection:
            connection.exec_driver_sql("CREATE DATABASE bank")
        migrate(self._nodes[0].url("bank"))
        self._address = Proxy(self._nodes[0].port)
        self._stack.callback(self._address.close)
        self.port = self._address.port

    def url(self, port: int | None = None) -> str:
        return f"mysql+pymysql://root@127.0.0.1:{port or self.port}/bank"

    def close(self) -> None:
        self._stack.close()

    def family(self) -> list[psutil.Process]:
        return [psutil.Process(self._nodes[self._used].pid)]

    def cut_off(self, *, hang: bool, seconds: float) -> None:
        """Cut off the node in use for some seconds, lead clients to another, and let it return.

        :param hang: whether the node stands still, rather than being left alone by the others.
        """
        cut = self._nodes[self._used]
        others = [node for node in self._nodes if node is not cut]
        with stopped([psutil.Process(cut.pid)]) if hang else _isolated(cut):
            for node in others:
                _await(node, "wsrep_cluster_size", str(_NODES - 1))
                _await(node, "wsrep_cluster_status", "Primary")
            time.sleep(seconds)
            self._used = self._nodes.index(others[0])
            self._address.lead_to(others[0].port)
            time.sleep(seconds)
        for node in self._nodes:
            _await(node, "wsrep_cluster_size", str(_NODES))
            _await(node, "wsrep_local_state_comment", "Synced")


@contextlib.contextmanager
def _isolated(node: Server) -> Iterator[None]:
    # a node that lost the others takes this statement, and not the ROLLBACK of an engine
    with pymysql.connect(
        host=node.host, port=node.port, user="root", autocommit=True
    ) as connection:
        cursor = connection.cursor()
        cursor.execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")
        try:
            yield
        finally:
            cursor.execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'")


def _await(node: Server, name: str, value: str) -> None:
    deadline = time.monotonic() + _WAIT
    while (seen := _seen(node, name)) != value:
        assert time.monotonic() < deadline, f"{name} of the node on port {node.port} is {seen}"
        time.sleep(0.1)


def _seen(node: Server, name: str) -> str:
    try:
        with node.administrator() as connection:
            return status(connection, name)
    except sa.exc.DBAPIError as error:
        return str(error.orig)


def isolate_node(stage: Stage) -> str:
    """The node that the server uses loses the others."""
    assert isinstance(stage.database, Cluster)
    hang, seconds = stage.dice.random() < 0.5, stage.dice.uniform(0.0, 2.0)
    stage.database.cut_off(hang=hang, seconds=seconds)
    how = "stood still" if hang else "was isolated"
    return f"a node of three {how}, and clients went to another after {seconds:.1f} s"


CLUSTERS: tuple[Fault, ...] = (Fault(isolate_node, on("galera")),)
