"""Claims of instances on a host under test."""

import uuid as uuidlib


def claim(client, provider: str, resources: dict[str, int], consumer: str | None = None) -> str:
    consumer = consumer or str(uuidlib.uuid4())
    request = {"allocations": {provider: {"resources": resources}}}
    client.placement.allocations.claim_resources(consumer, request, "project", "user", "1.39")
    return consumer
