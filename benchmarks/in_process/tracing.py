"""Cost of tracing: processor time of requests in one process, off and on.

Client and server are in this process, as scheduler and server are two: both make spans. A collector
that only reads takes them in a process of its own. `off` is measured twice, so that the noise is
seen beside the ratio.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection as PipeEnd

from rich.console import Console
from rich.table import Table

from compute_agent import conf as agent_conf
from compute_agent.daemon import tracing
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.transport import Request
from placement_server.app import build_app
from placement_server.conf import new_config
from placement_server.middleware import telemetry
from placement_server.store.connection.options import StoreOptions
from placement_server.store.store import Store

HOSTS = 100
BATCHES = 15
BATCH = 40

Ask = Callable[[Connection], object]


def show(console: Console, quick: bool) -> bool:
    receiving, sending = Pipe(duplex=False)
    collector = Process(target=_collect, args=(sending,), daemon=True)
    collector.start()
    endpoint = f"http://127.0.0.1:{receiving.recv()}/v1/traces"
    with tempfile.TemporaryDirectory() as directory:
        store = Store.open(
            f"sqlite:///{directory}/placement.db",
            options=StoreOptions(sqlite_synchronous=False, sync_on_startup=True),
        )
        hosts = _load(_connection(store, ""), HOSTS)
        asks = {
            "read a provider": lambda connection: connection.call(
                Request("GET", f"/resource_providers/{hosts[0]}")
            ),
            "search, limit 10": lambda connection: connection.call(
                Request("GET", "/allocation_candidates?resources=VCPU:1&limit=10")
            ),
            "claim": lambda connection: _claim(connection, hosts[0]),
        }
        off = _measure(store, "", asks, quick)
        again = _measure(store, "", asks, quick)
        on = _measure(store, endpoint, asks, quick)
    table = Table("request", "off, ms", "off again", "on, ms", "ratio", title="Tracing")
    for name in asks:
        table.add_row(
            name,
            *(f"{times[name]:.3f}" for times in (off, again, on)),
            f"{on[name] / min(off[name], again[name]):.2f}",
        )
    console.print(table)
    return True


def _measure(store: Store, endpoint: str, asks: dict[str, Ask], quick: bool) -> dict[str, float]:
    """Milliseconds of processor time for one request of each kind."""
    connection = _connection(store, endpoint)
    medians = {}
    for name, ask in asks.items():
        ask(connection)
        batches = []
        for _ in range(3 if quick else BATCHES):
            began = time.process_time()
            for _ in range(BATCH):
                ask(connection)
            batches.append(1000 * (time.process_time() - began) / BATCH)
        medians[name] = statistics.median(batches)
    telemetry.send_all()
    return medians


def _connection(store: Store, endpoint: str) -> Connection:
    conf = new_config(config_files=[])
    conf.set_override("auth_strategy", "noauth2", group="api")
    conf.set_override("enforce_new_defaults", False, group="oslo_policy")
    conf.set_override("otlp_endpoint", endpoint, group="tracing")
    own = agent_conf.new_config([], default_config_files=[], default_config_dirs=[])
    own.set_override("otlp_endpoint", endpoint, group="tracing")
    tracing.start(own, "compute-scheduler")
    return Connection(InProcessTransport(build_app(conf, store)))


def _load(connection: Connection, count: int) -> list[str]:
    hosts = [str(uuid.uuid4()) for _ in range(count)]
    for number, host in enumerate(hosts):
        body = {"name": f"host{number}", "uuid": host}
        connection.call(Request("POST", "/resource_providers", json=body))
        inventory = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 10**6}}}
        path = f"/resource_providers/{host}/inventories"
        connection.call(Request("PUT", path, json=inventory))
    return hosts


def _claim(connection: Connection, host: str) -> None:
    body = {
        "allocations": {host: {"resources": {"VCPU": 1}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
    }
    connection.call(Request("PUT", f"/allocations/{uuid.uuid4()}", json=body))


def _collect(port: PipeEnd) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port.send(server.server_port)
    server.serve_forever()
