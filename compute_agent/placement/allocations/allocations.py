"""Claims, moves and removals of what consumers hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from compute_agent import errors
from compute_agent.placement import response_schemas, responses
from compute_agent.placement.allocations.amounts import (
    Amounts,
    add,
    as_request,
    of_entries,
    of_record,
    shortfalls,
    subtract,
)
from compute_agent.placement.connection import (
    CONSUMER_TYPE,
    Connection,
    parse_version,
)
from compute_agent.placement.providers import Providers
from compute_agent.placement.responses import age_of
from compute_agent.placement.transports.transport import BASE, Microversion, Request, Response


class _LostRace(errors.ResourceProviderUpdateConflict):
    """Placement lost a race of its own; the very same request may succeed."""

    def __init__(self, request: Request, response: Response) -> None:
        super().__init__(f"{request.doing}: placement lost a race", status=response.status)
        self.response = response


def repeating_races(connection: Connection, request: Request) -> Response:
    """Return the answer to a write of allocations, repeated while placement loses races inside.

    A change of the consumer by another client is not such a race and is answered at once; so is
    the last of the races where all were lost.
    """

    def attempt() -> Response:
        response = connection.call(request)
        if responses.is_conflict(response) and not responses.is_consumer_conflict(response):
            raise _LostRace(request, response)
        return response

    try:
        return connection.retries.while_conflicting(attempt)
    except _LostRace as exc:
        return exc.response


UNTYPED: Final = "unknown"
"""Type that placement shows for a consumer without one; it cannot be written."""

MAPPINGS: Final[Microversion] = (1, 34)

_NO_CAPACITY: Final = re.compile(
    r"(?:allocation for|Inventory for) '(?P<rc>[^']+)' on resource provider '(?P<rp>[^']+)'"
)

Record: TypeAlias = dict[str, Any]
E = TypeVar("E", bound=errors.PlacementError)


class NoCapacity(NamedTuple):
    """There is not enough (any more), though there may be on other providers.

    Provider and class are empty where placement did not name them.
    """

    provider: str = ""
    resource_class: str = ""
    detail: str = ""


class ConsumerNature(NamedTuple):
    """What a consumer is.

    :ivar type: None where it has none, or placement knows no types.
    :ivar age: seconds since its allocations were last written; None where it is not reported.
    """

    type: str | None = None
    age: float | None = None


class Allocations:
    """The calls about consumers' allocations over one connection."""

    def __init__(self, connection: Connection, providers: Providers) -> None:
        self._connection = connection
        self.providers = providers

    # -- claims ------------------------------------------------------------------------------

    def claim_resources(
        self,
        consumer: str,
        allocation_request: Mapping[str, Any],
        project: str,
        user: str,
        version: Microversion | str,
        consumer_generation: int | None = None,
        consumer_type: str = "INSTANCE",
        *,
        mode: Literal["new", "add_to"] = "new",
    ) -> NoCapacity | None:
        """Give a consumer what an allocation request of placement names: one request for a new one.

        :param allocation_request: as `GET /allocation_candidates` gave it, with `mappings`.
        :param version: the microversion it was given at.
        :param mode: `new`: the consumer must hold nothing yet; a consumer that holds exactly this
            is our own earlier claim whose answer was lost.  `add_to`: add to what it holds, which
            must still be at `consumer_generation`.
        :returns: `None` where the consumer holds it now.
        :raises errors.HoldsAnother: the consumer holds something else already.
        :raises errors.AllocationUpdateFailed: another writer changed the consumer, or the request
            was refused.
        """
        at = max(parse_version(version) if isinstance(version, str) else version, BASE)
        record: Record = {
            "allocations": as_request(of_record(allocation_request)),
            "project_id": project,
            "user_id": user,
            "consumer_generation": None if mode == "new" else consumer_generation,
        }
        if at >= MAPPINGS and "mappings" in allocation_request:
            record["mappings"] = allocation_request["mappings"]
        if at >= CONSUMER_TYPE:
            record["consumer_type"] = consumer_type
        if mode == "add_to":
            current_record = self.get_allocs_for_consumer(consumer)
            if current_record.get("consumer_generation") != consumer_generation:
                raise errors.AllocationUpdateFailed(
                    f"Adding to the allocations of {consumer} failed: they are at generation "
                    f"{current_record.get('consumer_generation')}, not {consumer_generation}. "
                    "Read them again"
                )
            record["allocations"] = as_request(add(of_record(current_record), of_record(record)))
        return self._claim(consumer, record, at, mode)

    def _claim(
        self, consumer: str, record: Record, at: Microversion, mode: str, *, last: bool = False
    ) -> NoCapacity | None:
        request = _write_of(consumer, record, at, f"Claiming for consumer {consumer}")
        response = repeating_races(self._connection, request)
        if response.status == 204:
            return None
        if responses.is_consumer_conflict(response):
            if mode == "new":
                current_record = self.get_allocs_for_consumer(consumer)
                if current_record["allocations"]:
                    if of_record(current_record) == of_record(record):
                        return None
                    raise errors.HoldsAnother(consumer, current_record)
                if not last:
                    # It was there and is gone again: now it is new.
                    return self._claim(consumer, record, at, mode, last=True)
        elif response.status == 409 and not responses.is_conflict(response):
            return no_capacity(response)
        raise responses.failure(errors.AllocationUpdateFailed, request, response)

    # -- one consumer ------------------------------------------------------------------------

    def get_allocs_for_consumer(self, consumer: str) -> Record:
        """Read the consumer's record; just `{"allocations": {}}` when it holds nothing.

        :raises errors.ConsumerAllocationRetrievalFailed: it could not be read.
        """
        return self.read_consumer(consumer)[0]

    def nature_of_consumer(self, consumer: str) -> ConsumerNature:
        """Read what a consumer is and how old its allocations are.

        :raises errors.ConsumerAllocationRetrievalFailed: it could not be read.
        """
        return self.read_consumer(consumer)[1]

    def read_consumer(self, consumer: str) -> tuple[Record, ConsumerNature]:
        """Read a consumer's record, and what it is.

        :raises errors.ConsumerAllocationRetrievalFailed: it could not be read.
        """
        request = Request(
            "GET",
            _path(consumer),
            self._connection.newest(CONSUMER_TYPE),
            doing=f"Reading the allocations of consumer {consumer}",
            shape=response_schemas.CONSUMER,
            error=errors.ConsumerAllocationRetrievalFailed,
        )
        response = self._connection.call(request)
        record: Record = response.json
        kind = record.get("consumer_type", UNTYPED)
        nature = ConsumerNature(None if kind == UNTYPED else kind, age_of(response.headers))
        return record, nature

    def put_allocations(self, consumer: str, record: Mapping[str, Any]) -> NoCapacity | None:
        """Write a consumer's whole record, as it was read or with `consumer_generation` None.

        :raises errors.AllocationUpdateFailed: another writer changed it, or it is refused.
        """
        body, version = self._writable([record])
        doing = f"Writing the allocations of consumer {consumer}"
        request = _write_of(consumer, body[0], version, doing)
        response = repeating_races(self._connection, request)
        if response.status == 204:
            return None
        conflict = responses.is_conflict(response) or responses.is_consumer_conflict(response)
        if response.status == 409 and not conflict:
            return no_capacity(response)
        raise responses.failure(errors.AllocationUpdateFailed, request, response)

    def add_resources(self, consumer: str, resources: Amounts) -> None:
        """Add to what a consumer holds.

        :param resources: provider uuid -> class -> amount.
        :raises errors.AllocationUpdateFailed: it holds nothing, there is not enough, or it changed.
        """
        self._change(consumer, "Adding to", lambda held_amounts: add(held_amounts, resources))

    def remove_resources(self, consumer: str, resources: Amounts) -> None:
        """Take from what a consumer holds.

        :raises errors.AllocationUpdateFailed: it holds less than that, or it changed.
        """

        def take(held_amounts: Amounts) -> Amounts:
            for shortfall in shortfalls(held_amounts, resources):
                raise errors.AllocationUpdateFailed(
                    f"Taking {shortfall.amount} {shortfall.resource_class} on provider "
                    f"{shortfall.provider} from consumer {consumer} failed: it holds "
                    f"{shortfall.held_amount} there"
                )
            return subtract(held_amounts, resources)

        self._change(consumer, "Taking from", take)

    def remove_provider_tree(self, consumer: str, root: str) -> None:
        """Take from a consumer all it holds on the providers of one tree.

        :raises errors.AllocationUpdateFailed: it changed meanwhile.
        """
        members = {provider["uuid"] for provider in self.providers.in_tree(root)}
        if not members.intersection(self.get_allocs_for_consumer(consumer)["allocations"]):
            return
        self._change(
            consumer,
            "Taking from",
            lambda held_amounts: {p: own for p, own in held_amounts.items() if p not in members},
        )

    def delete_allocation(self, consumer: str, force: bool = False) -> bool:
        """Take everything from a consumer; whether it held anything.

        :param force: do not look at who else changes it.
        :raises errors.AllocationDeleteFailed: another writer changed it meanwhile.
        """
        doing = f"Removing the allocations of consumer {consumer}"
        kind = errors.AllocationDeleteFailed
        if force:
            deletion = Request("DELETE", _path(consumer), doing=doing, good=(204, 404), error=kind)
            return self._connection.call(deletion).status == 204
        current_record = self.get_allocs_for_consumer(consumer)
        if not current_record["allocations"]:
            return False
        body, version = self._writable([{**current_record, "allocations": {}}])
        request = _write_of(consumer, body[0], version, doing)
        response = repeating_races(self._connection, request)
        if response.status == 204:
            return True
        conflict = responses.is_consumer_conflict(response)
        if conflict and not self.get_allocs_for_consumer(consumer)["allocations"]:
            # The answer to our own first try was lost, or another writer did the same.
            return True
        raise responses.failure(kind, request, response)

    # -- two consumers -----------------------------------------------------------------------

    def move_allocations(self, source: str, target: str) -> bool:
        """Give all that `source` holds to `target` in place of what that holds, atomically.

        True also when `target` holds something and `source` nothing: it was moved before.

        :raises errors.AllocationMoveFailed: neither holds anything, one of them changed meanwhile,
            or the request was refused.
        """
        doing = f"Moving the allocations of consumer {source} to {target}"
        kind = errors.AllocationMoveFailed
        source_record = self.get_allocs_for_consumer(source)
        target_record = self.get_allocs_for_consumer(target)
        if not source_record["allocations"]:
            if target_record["allocations"]:
                return True
            raise kind(f"{doing} failed: neither of them holds anything")
        to_target = {
            **source_record,
            "consumer_generation": target_record.get("consumer_generation"),
        }
        bodies, version = self._writable([{**source_record, "allocations": {}}, to_target])
        body = {source: bodies[0], target: bodies[1]}
        request = Request("POST", "/allocations", version, body, doing=doing)

        def attempt() -> Response | None:
            try:
                return repeating_races(self._connection, request)
            except errors.PlacementUnavailable:
                # The answer may have been lost after the work was done: look before repeating.
                if self._was_moved(source, target, source_record):
                    return None
                raise

        response = self._connection.retries.while_unavailable(attempt)
        if response is None or response.status == 204:
            return True
        raise responses.failure(kind, request, response)

    def _was_moved(self, source: str, target: str, record: Record) -> bool:
        if self.get_allocs_for_consumer(source)["allocations"]:
            return False
        return of_record(self.get_allocs_for_consumer(target)) == of_record(record)

    # -- inside ------------------------------------------------------------------------------

    def _change(self, consumer: str, verb: str, change: Callable[[Amounts], Amounts]) -> None:
        doing = f"{verb} the allocations of consumer {consumer}"
        current_record = self.get_allocs_for_consumer(consumer)
        if not current_record["allocations"]:
            raise errors.AllocationUpdateFailed(f"{doing} failed: it holds nothing")
        new_amounts = change(of_record(current_record))
        bodies, version = self._writable(
            [{**current_record, "allocations": as_request(new_amounts)}]
        )
        request = _write_of(consumer, bodies[0], version, doing)
        response = repeating_races(self._connection, request)
        if response.status == 204:
            return
        conflict = responses.is_consumer_conflict(response)
        if conflict and of_record(self.get_allocs_for_consumer(consumer)) == new_amounts:
            return
        raise responses.failure(errors.AllocationUpdateFailed, request, response)

    def _writable(self, records: list[Mapping[str, Any]]) -> tuple[list[Record], Microversion]:
        """Return records in the form of a write, and the microversion for it.

        Types are written only when every record has one that can be: older writes keep them.
        """
        has_types = all(record.get("consumer_type", UNTYPED) != UNTYPED for record in records)
        version = CONSUMER_TYPE if has_types else BASE
        keys = ["project_id", "user_id", *(["consumer_type"] if has_types else [])]
        return [
            {
                "allocations": as_request(of_entries(record["allocations"])),
                "consumer_generation": record.get("consumer_generation"),
                **{key: record[key] for key in keys},
            }
            for record in records
        ], version


def no_capacity(response: Response) -> NoCapacity:
    """Read provider and class from a 409 that is not a conflict."""
    detail = responses.explanation(response)
    match = _NO_CAPACITY.search(detail)
    return NoCapacity(match["rp"] if match else "", match["rc"] if match else "", detail)


def _write_of(consumer: str, body: Record, version: Microversion, doing: str) -> Request:
    return Request("PUT", _path(consumer), version, body, doing=doing)


def _path(consumer: str) -> str:
    return f"/allocations/{consumer}"
