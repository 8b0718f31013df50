"""Consumers as placement has them: what each holds, since when, and of which type."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from compute_agent import errors
from compute_agent.placement.allocations.amounts import Amounts, of_record
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.connection import Connection
from compute_agent.placement.responses import age_of
from compute_agent.placement.transports.request_pool import RequestPool
from compute_agent.placement.transports.transport import Request, Transport

T = TypeVar("T")

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""

BATCH = 64
"""Requests between two tellings of progress."""


class Consumer(Struct, frozen=True):
    """A consumer at one moment.

    :ivar type: None where it has none.
    :ivar resources: provider uuid to class to amount.
    :ivar age: seconds since its allocations were last written; None where it is not reported.
    :ivar record: as placement gave it, to be written back.
    """

    uuid: str
    type: str | None
    resources: Amounts
    age: float | None
    record: Mapping[str, Any]

    @property
    def generation(self) -> int:
        return int(self.record["consumer_generation"])


class Consumers:
    """Reads consumers, several at a time, and deletes what they hold. To be closed."""

    def __init__(
        self,
        transport: Transport,
        *,
        connections: int = 4,
        progress: Progress = lambda _what, _done_count, _total: None,
    ) -> None:
        self.placement = PlacementApi(Connection(transport))
        self._workers = RequestPool(connections)
        self._progress = progress

    def close(self) -> None:
        """End the threads."""
        self._workers.close()

    def on(self, providers: Collection[str]) -> dict[str, frozenset[str]]:
        """Return consumer uuid to those of `providers` that it holds something of.

        :raises PlacementError: they cannot be read.
        """
        ordered_uuids = sorted(providers)
        consumers_by_provider = self._all(
            "reading allocations of providers",
            [partial(self._on_one, uuid) for uuid in ordered_uuids],
        )
        holders: dict[str, set[str]] = {}
        for uuid, consumers in zip(ordered_uuids, consumers_by_provider, strict=True):
            for consumer in consumers:
                holders.setdefault(consumer, set()).add(uuid)
        return {consumer: frozenset(uuids) for consumer, uuids in sorted(holders.items())}

    def read(self, uuids: Iterable[str]) -> list[Consumer]:
        """Read the consumers that still hold something.

        :raises PlacementError: they cannot be read.
        """
        # asked once here and not by every thread
        self.placement.connection.versions()
        answers = self._all("reading consumers", [partial(self._read_one, uuid) for uuid in uuids])
        return [consumer for consumer in answers if consumer is not None]

    def last_written(self, provider: str) -> float | None:
        """Return the seconds since a provider was last written; None where it is not reported."""
        path = f"/resource_providers/{provider}"
        request = Request("GET", path, doing=f"Reading provider {provider}")
        response = self.placement.connection.call(request)
        return age_of(response.headers)

    def delete(self, consumer: Consumer) -> None:
        """Take everything from a consumer, which must still be as it was read.

        :raises AllocationUpdateFailed: another writer changed it meanwhile; it is left alone.
        """
        nothing = {**consumer.record, "allocations": {}}
        answer = self.placement.allocations.put_allocations(consumer.uuid, nothing)
        if answer is not None:
            raise errors.AllocationUpdateFailed(
                f"Removing the allocations of consumer {consumer.uuid} failed: {answer.detail}"
            )

    def _on_one(self, provider: str) -> frozenset[str]:
        try:
            return frozenset(self.placement.providers.allocations(provider, provider))
        except errors.ResourceProviderAllocationRetrievalFailed as error:
            if error.status != 404:
                raise
            # deleted since the listing: nobody holds anything of it
            return frozenset()

    def _read_one(self, uuid: str) -> Consumer | None:
        record, nature = self.placement.allocations.read_consumer(uuid)
        if not record["allocations"]:
            return None
        return Consumer(
            uuid=uuid,
            type=nature.type,
            resources=of_record(record),
            age=nature.age,
            record=record,
        )

    def _all(self, what: str, tasks: Sequence[Callable[[], T]]) -> list[T]:
        results: list[T] = []
        for start in range(0, len(tasks), BATCH):
            self._progress(what, start, len(tasks))
            results.extend(self._workers.results(tasks[start : start + BATCH]))
        if tasks:
            self._progress(what, len(tasks), len(tasks))
        return results
