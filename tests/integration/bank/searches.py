"""Searches compared with the database: what each worker's index says is free."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from tests.integration.bank.connection import Connection
from tests.integration.bank.observer import Look, look

_ROUNDS = 6
"""Each with connections of its own, so that every worker is asked."""
_TRIES = 5


def wrong_searches(port: int, engine: sa.Engine) -> list[str]:
    """Return what searches say is free and is not, or the reverse, while nobody writes."""
    problems: list[str] = []
    for _ in range(_TRIES):
        before = look(engine)
        problems = [problem for _ in range(_ROUNDS) for problem in _wrong(port, before)]
        # a request that nobody waits for any more may still have come
        if not problems or look(engine) == before:
            break
    return sorted(set(problems))


def _wrong(port: int, seen: Look) -> Iterator[str]:
    connection = Connection(port)
    for (provider, name), stock in seen.stock.items():
        free = stock.capacity - seen.sums.get((provider, name), 0)
        if free > 0 and provider not in _hosts(connection, name, free):
            yield f"{free} {name} of {provider} are free, and a search does not find them"
        if provider in _hosts(connection, name, max(free, 0) + 1):
            yield f"a search finds {max(free, 0) + 1} {name} of {provider}, and {free} are free"


def _hosts(connection: Connection, name: str, amount: int) -> set[str]:
    found = connection.must("GET", f"/allocation_candidates?resources={name}:{amount}")
    return {
        provider for request in found["allocation_requests"] for provider in request["allocations"]
    }
