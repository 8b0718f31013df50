"""Claims of the floors: hosts, and the statements that a server in this process executes."""

import uuid
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from benchmarks.claims.clients import OWNER, make_provider
from benchmarks.parts.client import Client
from benchmarks.reads.floor_server import CONSUMER, substitute
from placement_server.direct import DirectSession, direct

_HEADERS: Final = {"OpenStack-API-Version": "placement 1.39"}

HOSTS: Final = 64
AMOUNTS: Final = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 5}
QUERY: Final = "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512,DISK_GB:5&limit=5"

Statements = list[tuple[str, Any]]


def make_hosts(client: Client) -> tuple[list[str], str]:
    """Create hosts that no claim fills, and one with CPUs alone."""
    stock = {name: {"total": 10_000_000} for name in AMOUNTS}
    hosts = [make_provider(client, f"host-{number}", stock) for number in range(HOSTS)]
    return hosts, make_provider(client, "one", {"VCPU": {"total": 10_000_000}})


def recorded_claims(
    connection: str, hosts: Sequence[str], amounts: dict[str, int], query: str = ""
) -> list[Statements]:
    """Return the statements of a claim on each host, with a mark for the consumer.

    :param query: the path of a search before each claim; its statements come first.
    """
    claims: list[Statements] = []

    @sa.event.listens_for(sa.Engine, "before_cursor_execute")
    def record(
        _connection: object, _cursor: object, statement: str, parameters: Any, *_: object
    ) -> None:
        if claims:
            claims[-1].append((statement, parameters))

    try:
        with direct(connection) as session:
            if query:
                # the first search loads the index
                session.get(query, headers=_HEADERS).raise_for_status()
            # one before, as the first claim of an owner writes more than others
            for host in (hosts[0], *hosts):
                claims.append([])
                if query:
                    session.get(query, headers=_HEADERS).raise_for_status()
                consumer = _claim(session, host, amounts)
                claims[-1] = [
                    (text, substitute(values, consumer, CONSUMER)) for text, values in claims[-1]
                ]
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", record)
    return claims[1:]


def _claim(session: DirectSession, host: str, amounts: dict[str, int]) -> str:
    consumer = str(uuid.uuid4())
    body = {
        "allocations": {host: {"resources": amounts}},
        "consumer_generation": None,
        **OWNER,
    }
    session.put(f"/allocations/{consumer}", json=body, headers=_HEADERS).raise_for_status()
    return consumer
