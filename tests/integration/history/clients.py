"""Clients of a running placement, which record each request with its begin and its end."""

from __future__ import annotations

import random
import re
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from tests.fixtures.allocations import claim_body
from tests.fixtures.plain_trees import make_provider
from tests.integration.bank.connection import Connection, UnansweredRequest
from tests.integration.history.model import (
    ABSENT,
    CONFLICT,
    OK,
    SHORT,
    UNANSWERED,
    Operation,
)

CONSUMERS: Final = 4
PROVIDERS: Final = 3
TOTAL: Final = 6
_EXCEEDED: Final = re.compile(r"on resource provider '([0-9a-f-]{36})'.*would exceed the capacity")


def send(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Send one request on a connection of its own, which any worker may take."""
    with closing(Connection(port)) as connection:
        try:
            answer = connection.send(method, path, body)
        except UnansweredRequest as error:
            if error.kind == "500":
                raise AssertionError(str(error)) from error
            raise
    return answer.status, answer.json


@dataclass
class Recorder:
    """The history so far.

    :ivar port: where the service listens now.
    :ivar providers: uuids.
    """

    port: int
    consumers: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    operations: list[Operation] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def make_world(self) -> None:
        """Create providers with inventories; consumers come into being by their claims."""
        self.consumers = tuple(str(uuid.uuid4()) for _ in range(CONSUMERS))
        self.providers = tuple(str(uuid.uuid4()) for _ in range(PROVIDERS))
        must = Connection(self.port).must
        for provider in self.providers:
            make_provider(must, provider, {"VCPU": TOTAL}, uuid=provider)

    def record(
        self,
        kind: str,
        method: str,
        path: str,
        body: object,
        made_of: Callable[[int, Any], dict[str, Any]],
        **fields: Any,
    ) -> Operation | None:
        """Send a request and record it; None where a reading has no answer.

        :param made_of: makes the fields of the operation from status and body of the answer.
        :param fields: those that are known before.
        """
        begin = time.monotonic()
        try:
            status, content = send(self.port, method, path, body)
        except UnansweredRequest:
            if method == "GET":
                return None
            fields["result"] = UNANSWERED
        else:
            fields |= made_of(status, content)
        operation = Operation(kind, begin, time.monotonic(), **fields)
        with self._lock:
            self.operations.append(operation)
        return operation


class Client:
    """Claims, releases, resizes and looks, as its dice say."""

    def __init__(self, recorder: Recorder, seed: str) -> None:
        self._recorder = recorder
        self._dice = random.Random(seed)
        self._generations: dict[str, int | None] = {}

    def act(self) -> None:
        """Do one thing."""
        acts = {self.claim: 8, self.release: 3, self.search: 4, self.use: 2, self.resize: 2}
        (act,) = self._dice.choices(list(acts), list(acts.values()))
        act()

    def claim(self) -> None:
        consumer = self._dice.choice(self._recorder.consumers)
        if self._dice.random() < 0.7:
            # otherwise with what it knew before, which is often old
            self._read(consumer)
        generation = self._generations.get(consumer)
        chosen = self._dice.sample(self._recorder.providers, self._dice.choice((1, 1, 2)))
        amounts = {provider: self._dice.randint(1, 4) for provider in chosen}
        body = claim_body({name: {"VCPU": n} for name, n in amounts.items()}, generation)

        def made_of(status: int, content: Any) -> dict[str, Any]:
            if status == 204:
                return {"result": OK}
            detail = " ".join(content["errors"][0]["detail"].split())
            assert status == 409, (status, detail)
            if short := _EXCEEDED.search(detail):
                return {"result": SHORT, "short": short[1]}
            known = "consumer generation conflict" in detail
            return {"result": CONFLICT if known else "lost race"}

        self._recorder.record(
            "claim",
            "PUT",
            f"/allocations/{consumer}",
            body,
            made_of,
            consumer=consumer,
            amounts=amounts,
            generation=generation,
        )

    def release(self) -> None:
        consumer = self._dice.choice(self._recorder.consumers)

        def made_of(status: int, content: Any) -> dict[str, Any]:
            assert status in (204, 404, 409), (status, content)
            return {"result": {204: OK, 404: ABSENT, 409: "lost race"}[status]}

        path = f"/allocations/{consumer}"
        self._recorder.record("release", "DELETE", path, None, made_of, consumer=consumer)

    def search(self) -> None:
        number = self._dice.randint(1, TOTAL)

        def made_of(status: int, content: Any) -> dict[str, Any]:
            assert status == 200, content
            hosts = {
                host
                for allocation_request in content["allocation_requests"]
                for host in allocation_request["allocations"]
            }
            return {"result": OK, "hosts": frozenset(hosts)}

        path = f"/allocation_candidates?resources=VCPU:{number}"
        self._recorder.record("search", "GET", path, None, made_of, number=number)

    def use(self) -> None:
        provider = self._dice.choice(self._recorder.providers)
        self._recorder.record(
            "use",
            "GET",
            f"/resource_providers/{provider}/usages",
            None,
            lambda _, content: {"result": OK, "number": content["usages"]["VCPU"]},
            provider=provider,
        )

    def resize(self) -> None:
        provider = self._dice.choice(self._recorder.providers)
        path = f"/resource_providers/{provider}/inventories"
        try:
            _, known = send(self._recorder.port, "GET", path)
        except UnansweredRequest:
            return
        generation = known["resource_provider_generation"]
        total = self._dice.randint(TOTAL - 2, TOTAL + 2)

        def made_of(status: int, content: Any) -> dict[str, Any]:
            assert status in (200, 409), content
            return {"result": OK if status == 200 else "lost race"}

        self._recorder.record(
            "resize",
            "PUT",
            f"{path}/VCPU",
            {"resource_provider_generation": generation, "total": total},
            made_of,
            provider=provider,
            number=total,
        )

    def _read(self, consumer: str) -> None:
        def made_of(status: int, content: Any) -> dict[str, Any]:
            assert status == 200, content
            amounts = {
                provider: record["resources"]["VCPU"]
                for provider, record in content["allocations"].items()
            }
            generation = content.get("consumer_generation")
            return {"result": OK, "amounts": amounts, "generation": generation}

        operation = self._recorder.record(
            "read", "GET", f"/allocations/{consumer}", None, made_of, consumer=consumer
        )
        if operation is not None:
            self._generations[consumer] = operation.generation


def act_together(recorder: Recorder, clients: int, seed: str, more: Callable[[], bool]) -> None:
    """Let clients act at the same time, each as long as there is more to do."""

    def run(number: int) -> None:
        client = Client(recorder, f"{seed}/{number}")
        while more():
            client.act()

    with ThreadPoolExecutor(clients, "client") as pool:
        list(pool.map(run, range(clients)))
