"""Answers that cost what is unavoidable: `... DATABASE DIRECTORY PORT`.

A WSGI function on the HTTP server of `placement-server serve`, with its pool and driver: it
executes one prepared SELECT of inventories and returns the bytes of a file. The path `/NAME` is the
file of that name in the directory; `/` is there to see that it answers. Where the directory has
recorded claims, each PUT executes the statements of one of them, for a new consumer.
"""

import pickle
import random
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson
import sqlalchemy as sa

from placement_server.http_server.server import HttpServer
from placement_server.http_server.turns import Turns

CLAIMS: Final = "claims"
"""The file of recorded claims: for each its statements with their parameters, pickled."""
CONSUMER: Final = "the consumer"
"""The parameter in whose place each claim has its consumer."""
SEARCH: Final = "/search"
"""The path of the bytes that a search returned."""

_INVENTORIES = (
    "SELECT c.name, i.total, i.reserved, i.min_unit, i.max_unit, i.step_size, i.allocation_ratio, "
    "p.generation FROM resource_providers p JOIN inventories i ON i.resource_provider_id = p.id "
    "JOIN resource_classes c ON c.id = i.resource_class_id WHERE p.uuid = %s"
)


def application(database: str, directory: Path) -> Callable[..., Iterable[bytes]]:
    """Return the WSGI function."""
    engine = sa.create_engine(database, isolation_level="AUTOCOMMIT", pool_reset_on_return=None)
    bodies = {f"/{path.name}": path.read_bytes() for path in directory.iterdir()}
    claims = pickle.loads(bodies.pop(f"/{CLAIMS}", pickle.dumps([])))
    writer = sa.create_engine(database, pool_reset_on_return=None)
    with engine.connect() as connection:
        asked_for = connection.execute(sa.text("SELECT uuid FROM resource_providers LIMIT 1"))
        uuid = asked_for.scalar_one()

    def write() -> None:
        consumer = str(uuid4())
        connection = writer.raw_connection()
        cursor = connection.cursor()
        for statement, parameters in random.choice(claims):
            cursor.execute(statement, substitute(parameters, CONSUMER, consumer))
        cursor.close()
        connection.commit()
        connection.close()

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT":
            orjson.loads(environ["wsgi.input"].read())
            write()
            start_response("204 No Content", [])
            return []
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


def substitute(values: Any, old: str, new: str) -> Any:
    """Return parameters of a statement with one text in the place of another, at any depth."""
    if isinstance(values, dict):
        return {name: substitute(value, old, new) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(substitute(value, old, new) for value in values)
    return new if values == old else values


def main() -> None:
    database, directory, port = sys.argv[1:]
    listener = socket.socket()
    listener.bind(("127.0.0.1", int(port)))
    HttpServer(
        listener,
        lambda: Turns(application(database, Path(directory)), 1, 65_536, ""),
        workers=1,
        client_timeout=60,
    ).run(Path(directory))


if __name__ == "__main__":
    main()
