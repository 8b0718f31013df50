"""A host that reshapes while schedulers claim on it as fast as they can: all real processes."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from typing import Any

import pytest
import requests

from tests.fixtures.allocations import claim_body
from tests.functional.agent.processes import (
    HEADERS,
    AgentProcess,
    PlacementProcess,
    eventually,
    running,
)

pytestmark = pytest.mark.waiting

CLAIMERS = 3
PAUSE = 1 / 50
INSTANCES = 20
"""Of each claimer, at a time."""
AMOUNTS = {"VCPU": 1, "MEMORY_MB": 64}


class Claimer(threading.Thread):
    """A scheduler that claims on one host 50 times a second, wherever placement offers it.

    Instances go again, so that there are not more and more of them.
    """

    def __init__(self, placement: PlacementProcess, root: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._url, self._root, self._stop_asked = placement.url, root, stop
        self._session = requests.Session()
        self._session.headers.update(HEADERS)
        self.instances: list[str] = []
        self.claimed = 0

    def run(self) -> None:
        while not self._stop_asked.wait(PAUSE):
            amounts = ",".join(f"{name}:{amount}" for name, amount in AMOUNTS.items())
            query = f"resources={amounts}&in_tree={self._root}&limit=1"
            path = f"/allocation_candidates?{query}&required=!COMPUTE_STATUS_DISABLED"
            offered = self._session.get(self._url + path, timeout=30).json()
            for candidate in offered["allocation_requests"]:
                self._claim(candidate["allocations"])
            if len(self.instances) > INSTANCES:
                self._allocate("DELETE", self.instances.pop(0))

    def _claim(self, allocations: dict[str, Any]) -> None:
        consumer = str(uuid.uuid4())
        body = claim_body({}, allocations=allocations)
        if self._allocate("PUT", consumer, json=body) == 204:
            self.instances.append(consumer)
            self.claimed += 1

    def _allocate(self, method: str, consumer: str, **body: Any) -> int:
        url = f"{self._url}/allocations/{consumer}"
        answer = self._session.request(method, url, timeout=30, **body)
        assert answer.status_code in (204, 409), answer.text
        return answer.status_code


def test_a_reshape_succeeds_while_three_schedulers_claim(
    placement: PlacementProcess, new_agent: Any, node: str
) -> None:
    agent: AgentProcess = new_agent(
        placement.url,
        DEFAULT={"compute_driver": "fake.FakeReshapeDriver", "host": node},
        fake={"cells": 2, "gpus": 0, "nics": 0},
    )
    with running(agent):
        agent.stop()
    root = placement.tree(node)[node]["uuid"]
    stop = threading.Event()
    claimers = [Claimer(placement, root, stop) for _ in range(CLAIMERS)]
    try:
        for claimer in claimers:
            claimer.start()
        # on a busy machine the reshape may be over before they have claimed so much
        eventually(lambda: sum(c.claimed for c in claimers) > INSTANCES, "the storm")
        with running(agent):
            agent.stop()
    finally:
        stop.set()
        for claimer in claimers:
            claimer.join()
    assert sum(claimer.claimed for claimer in claimers) > INSTANCES
    tree = placement.tree(node)
    assert "VCPU" not in tree[node]["inventories"]
    cells = {tree[f"{node}_NUMA{number}"]["uuid"] for number in range(2)}
    for consumer in (consumer for claimer in claimers for consumer in claimer.instances):
        record = placement.get(f"/allocations/{consumer}")["allocations"]
        assert record.keys() <= cells
        held: Counter[str] = Counter()
        for entry in record.values():
            held.update(entry["resources"])
        assert held == AMOUNTS
