"""Claims of instances on a host under test."""

import uuid as uuidlib

from tests.fixtures.allocations import amounts_of
from tests.functional.report.interference import before_next


def claim(client, provider: str, resources: dict[str, int], consumer: str | None = None) -> str:
    consumer = consumer or str(uuidlib.uuid4())
    request = {"allocations": {provider: {"resources": resources}}}
    client.placement.allocations.claim_resources(consumer, request, "project", "user", "1.39")
    return consumer


def ask(host, consumer: str, request: dict, version="1.39", *generation: int, **options):
    """Claim for the usual project and user; return what became of it."""
    return host.allocations.claim_resources(
        consumer, request, "project", "user", version, *generation, **options
    )


def new_consumer() -> str:
    return str(uuidlib.uuid4())


def held_by(client, consumer: str) -> dict:
    return amounts_of(client.placement.allocations.get_allocs_for_consumer(consumer))


def asking(provider: str, **resources: int) -> dict:
    return {"allocations": {provider: {"resources": resources}}}


def grows_before(host, other, method: str, ending: str, consumer: str) -> None:
    """Somebody else adds to what a consumer holds, just before the next such request goes out."""
    add = other.placement.allocations.add_resources
    before_next(host, method, ending, lambda: add(consumer, {host.root: {"VCPU": 1}}))
