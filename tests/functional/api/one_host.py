"""A host with 10 VCPU and 10 DISK_GB, and consumers that may hold some of it."""

from __future__ import annotations

from typing import Any

from tests.fixtures.allocations import claim_body

from .wsgi_client import Client

RP = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
RP2 = "9d3f0f5f-7a59-4a0b-9a4a-2f7a1a6f0b11"
UNKNOWN = "00000000-0000-0000-0000-00000000dead"
A = "aaaaaaaa-0000-4000-8000-0000000000cc"
B = "bbbbbbbb-0000-4000-8000-0000000000cc"
C = "cccccccc-0000-4000-8000-0000000000cc"

EMPTY: dict[str, Any] = {"allocations": {}}
"""What is answered for a consumer that holds nothing."""


def new_host(api: Client) -> str:
    """Make the host; its path. It is at generation 1."""
    provider = api.provider("host", uuid=RP)
    api.inventory(provider, VCPU=10, DISK_GB=10)
    return provider


def held(api: Client, consumer: str, version: str = "1.39") -> dict[str, Any]:
    """What a consumer holds, as placement answers."""
    answer = api.get(f"/allocations/{consumer}", version=version)
    assert answer.status == 200
    body = answer.json
    assert isinstance(body, dict)
    return body


def entry(vcpu: int = 1, generation: int | None = None, **more: Any) -> dict[str, Any]:
    """The body of a write that gives a consumer so many VCPU of the host."""
    return claim_body({RP: {"VCPU": vcpu}}, generation, **more)
