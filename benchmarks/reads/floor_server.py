"""Answers that cost what is unavoidable: `... DATABASE DIRECTORY PORT`.

A WSGI function on the HTTP server of `placement-server serve`, with its pool and driver: it
executes one prepared SELECT of inventories and returns the bytes of a file. The path `/NAME` is the
file of that name in the directory; `/` is there to see that it answers.
"""

import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from placement_server.http_server.server import HttpServer, Limits

_INVENTORIES = (
    "SELECT c.name, i.total, i.reserved, i.min_unit, i.max_unit, i.step_size, i.allocation_ratio, "
    "p.generation FROM resource_providers p JOIN inventories i ON i.resource_provider_id = p.id "
    "JOIN resource_classes c ON c.id = i.resource_class_id WHERE p.uuid = %s"
)


def application(database: str, directory: Path) -> Callable[..., Iterable[bytes]]:
    """Return the WSGI function."""
    engine = sa.create_engine(database, isolation_level="AUTOCOMMIT", pool_reset_on_return=None)
    bodies = {f"/{path.name}": path.read_bytes() for path in directory.iterdir()}
    with engine.connect() as connection:
        asked_for = connection.execute(sa.text("SELECT uuid FROM resource_providers LIMIT 1"))
        uuid = asked_for.scalar_one()

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = bodies.get(environ["PATH_INFO"], b"")
        if body:
            connection = engine.raw_connection()
            cursor = connection.cursor()
            cursor.execute(_INVENTORIES, (uuid,))
            cursor.fetchall()
            cursor.close()
            connection.close()
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        start_response("200 OK", headers)
        return [body]

    return answer


def main() -> None:
    database, directory, port = sys.argv[1:]
    limits = Limits(
        workers=1,
        threads=1,
        client_timeout=60,
        max_body_size=1,
        unqueued=frozenset(),
        metrics_path="",
    )
    HttpServer(
        socket.create_server(("127.0.0.1", int(port))),
        lambda: application(database, Path(directory)),
        limits,
        tls={},
        when_ready=lambda: None,
    ).run()


if __name__ == "__main__":
    main()
