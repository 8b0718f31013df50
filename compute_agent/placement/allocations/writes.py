"""Several consumers' allocations written in one request: all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compute_agent import errors
from compute_agent.placement import responses
from compute_agent.placement.allocations.allocations import (
    MAPPINGS,
    UNTYPED,
    Allocations,
    NoCapacity,
    Record,
    no_capacity,
    repeating_races,
)
from compute_agent.placement.allocations.amounts import as_request, of_entries, of_record
from compute_agent.placement.connection import CONSUMER_TYPE, Connection
from compute_agent.placement.transports.transport import BASE, Microversion, Request, Response


class AllocationExchange:
    """Writes what several consumers hold, at once, over one connection."""

    def __init__(self, connection: Connection, allocations: Allocations) -> None:
        self._connection = connection
        self._allocations = allocations

    def write(self, records: Mapping[str, Record]) -> NoCapacity | None:
        """Let each consumer hold just what is in its record; return what was lacking, if anything.

        An answer that is lost is looked for before the request is repeated, so that calling this
        again with the same records does nothing twice.

        :param records: by consumer: `allocations` (empty takes all from it), `project_id`,
            `user_id`, `consumer_generation` as it was read (None for a new one), and where
            placement can take them `consumer_type` and `mappings`.
        :raises errors.AllocationMoveFailed: another writer changed one of the consumers, or the
            request was refused; nothing was written.
        """
        names = ", ".join(sorted(records))
        doing = f"Writing the allocations of consumers {names} together"
        version = self._version(records)
        body = {consumer: _body_of(record, version) for consumer, record in records.items()}
        request = Request("POST", "/allocations", version, body, doing=doing)

        def attempt() -> Response | None:
            try:
                response = repeating_races(self._connection, request)
            except errors.PlacementUnavailable:
                if self._is_written(records):
                    return None
                raise
            if responses.is_consumer_conflict(response) and self._is_written(records):
                # an earlier try was carried out though its answer was lost
                return None
            return response

        response = self._connection.retries.while_unavailable(attempt)
        if response is None or response.status == 204:
            return None
        conflict = responses.is_conflict(response) or responses.is_consumer_conflict(response)
        if response.status == 409 and not conflict:
            return no_capacity(response)
        raise responses.failure(errors.AllocationMoveFailed, request, response)

    def _version(self, records: Mapping[str, Record]) -> Microversion:
        has_types = all(
            record.get("consumer_type", UNTYPED) != UNTYPED for record in records.values()
        )
        newest = self._connection.newest(CONSUMER_TYPE)
        if newest >= CONSUMER_TYPE and not has_types:
            newest = MAPPINGS
        return max(BASE, newest)

    def _is_written(self, records: Mapping[str, Record]) -> bool:
        return all(
            _is_next(record, self._allocations.get_allocs_for_consumer(consumer))
            for consumer, record in records.items()
        )


def _is_next(record: Record, current: Record) -> bool:
    """Whether a consumer is as `record` leaves it, which nobody has written since."""
    wanted_amounts = of_record(record)
    if of_record(current) != wanted_amounts:
        return False
    # a consumer that holds nothing has no generation; each write of another counts once
    return not wanted_amounts or current.get("consumer_generation") == _after(record)


def _after(record: Record) -> int:
    return int(record.get("consumer_generation") or 0) + 1


def _body_of(record: Mapping[str, Any], version: Microversion) -> Record:
    keys = ["project_id", "user_id"]
    if version >= CONSUMER_TYPE:
        keys.append("consumer_type")
    if version >= MAPPINGS and "mappings" in record:
        keys.append("mappings")
    return {
        "allocations": as_request(of_entries(record["allocations"])),
        "consumer_generation": record.get("consumer_generation"),
        **{key: record[key] for key in keys},
    }
