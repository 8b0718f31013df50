"""Claims, moves and removals of what consumers hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

from msgspec import Raw, Struct

from compute_agent import errors
from compute_agent.placement import responses
from compute_agent.placement.allocations.amounts import (
    Amounts,
    add,
    as_request,
    of_entries,
    of_record,
    shortfalls,
    subtract,
)
from compute_agent.placement.answers import ConsumerRecord, Holders
from compute_agent.placement.connection import CONSUMER_TYPE, Connection, parse_version
from compute_agent.placement.providers import Providers
from compute_agent.placement.responses import NoCapacity, age_of, shortage_in
from compute_agent.placement.transports.transport import BASE, Microversion, Request, Response

INSTANCE: Final = "INSTANCE"
MIGRATION: Final = "MIGRATION"
"""Types of consumers: guests, and what holds the other place of one that moves."""
UNTYPED: Final = "unknown"
"""Type that placement shows for a consumer without one; it cannot be written."""

MAPPINGS: Final[Microversion] = (1, 34)

Record: TypeAlias = dict[str, Any]


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


class ConsumerNature(Struct, frozen=True):
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
        consumer_type: str = INSTANCE,
        *,
        mode: Literal["new", "add_to"] = "new",
    ) -> NoCapacity | None:
        """Give a consumer what an allocation request of placement names: one request for a new one.

        :param allocation_request: as `GET /allocation_candidates` writes it, with `mappings`.
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
        record = _body_of(
            {
                **allocation_request,
                "project_id": project,
                "user_id": user,
                "consumer_generation": None if mode == "new" else consumer_generation,
                "consumer_type": consumer_type,
            },
            at,
        )
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
        doing = f"Claiming for consumer {consumer}"
        request = Request("PUT", _path(consumer), at, record, doing=doing)
        response = repeating_races(self._connection, request)
        if responses.is_consumer_conflict(response) and mode == "new":
            current_record = self.get_allocs_for_consumer(consumer)
            if current_record["allocations"]:
                if of_record(current_record) == of_record(record):
                    return None
                raise errors.HoldsAnother(consumer, current_record)
            if not last:
                # It was there and is gone again: now it is new.
                return self._claim(consumer, record, at, mode, last=True)
        return shortage_in(errors.AllocationUpdateFailed, request, response)

    # -- one consumer ------------------------------------------------------------------------

    def get_allocs_for_consumer(self, consumer: str) -> Record:
        """Read the consumer's record; just `{"allocations": {}}` when it holds nothing.

        :raises errors.ConsumerAllocationRetrievalFailed: it could not be read.
        """
        return self.read_consumer(consumer)[0]

    def read_consumer(self, consumer: str) -> tuple[Record, ConsumerNature]:
        """Read a consumer's record, and what it is.

        :raises errors.ConsumerAllocationRetrievalFailed: it could not be read.
        """
        request = Request(
            "GET",
            _path(consumer),
            self._connection.newest(CONSUMER_TYPE),
            doing=f"Reading the allocations of consumer {consumer}",
            good=(200,),
            error=errors.ConsumerAllocationRetrievalFailed,
        )
        response = self._connection.call(request)
        if not responses.body_of(request, response, Holders[Raw]).allocations:
            # of a consumer that it does not know, placement returns nothing else
            return {"allocations": {}}, ConsumerNature(None, age_of(response.headers))
        record = cast(Record, responses.body_of(request, response, ConsumerRecord))
        kind = record.get("consumer_type", UNTYPED)
        nature = ConsumerNature(None if kind == UNTYPED else kind, age_of(response.headers))
        return record, nature

    def put_allocations(self, consumer: str, record: Mapping[str, Any]) -> NoCapacity | None:
        """Write a consumer's whole record, as it was read or with `consumer_generation` None.

        :raises errors.AllocationUpdateFailed: another writer changed it, or it is refused.
        """
        doing = f"Writing the allocations of consumer {consumer}"
        request = self._write_of(consumer, record, doing)
        response = repeating_races(self._connection, request)
        return shortage_in(errors.AllocationUpdateFailed, request, response)

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
        self._put(consumer, current_record, {}, doing, kind)
        return True

    # -- several consumers -------------------------------------------------------------------

    def move_allocations(self, source: str, target: str) -> bool:
        """Give all that `source` holds to `target` in place of what that holds, atomically.

        True also when `target` holds something and `source` nothing: it was moved before.

        :raises errors.AllocationMoveFailed: neither holds anything, one of them changed meanwhile,
            or the request was refused.
        """
        doing = f"Moving the allocations of consumer {source} to {target}"
        source_record = self.get_allocs_for_consumer(source)
        target_record = self.get_allocs_for_consumer(target)
        if not source_record["allocations"]:
            if target_record["allocations"]:
                return True
            raise errors.AllocationMoveFailed(f"{doing} failed: neither of them holds anything")
        generation = target_record.get("consumer_generation")
        shortage = self.write(
            {
                source: {**source_record, "allocations": {}},
                target: {**source_record, "consumer_generation": generation},
            },
            doing,
        )
        if shortage is not None:
            raise errors.AllocationMoveFailed(f"{doing} failed: {shortage.detail}")
        return True

    def write(self, records: Mapping[str, Record], doing: str = "") -> NoCapacity | None:
        """Let each consumer hold just what is in its record; return what was lacking, if anything.

        All of them or none. An answer that is lost is looked for before the request is repeated, so
        that calling this again with the same records does nothing twice.

        :param records: by consumer: `allocations` (empty takes all from it), `project_id`,
            `user_id`, `consumer_generation` as it was read (None for a new one), and where
            placement can take them `consumer_type` and `mappings`.
        :param doing: what this is for, as the beginning of a sentence.
        :raises errors.AllocationMoveFailed: another writer changed one of the consumers, or the
            request was refused; nothing was written.
        """
        names = ", ".join(sorted(records))
        doing = doing or f"Writing the allocations of consumers {names} together"
        bodies, version = self._writable(records)
        request = Request("POST", "/allocations", version, bodies, doing=doing)

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
        if response is None:
            return None
        return shortage_in(errors.AllocationMoveFailed, request, response)

    def _is_written(self, records: Mapping[str, Record]) -> bool:
        return all(
            _is_next(record, self.get_allocs_for_consumer(consumer))
            for consumer, record in records.items()
        )

    # -- inside ------------------------------------------------------------------------------

    def _change(self, consumer: str, verb: str, change: Callable[[Amounts], Amounts]) -> None:
        doing = f"{verb} the allocations of consumer {consumer}"
        current_record = self.get_allocs_for_consumer(consumer)
        if not current_record["allocations"]:
            raise errors.AllocationUpdateFailed(f"{doing} failed: it holds nothing")
        new_amounts = change(of_record(current_record))
        self._put(consumer, current_record, new_amounts, doing, errors.AllocationUpdateFailed)

    def _put(
        self,
        consumer: str,
        current_record: Record,
        amounts: Amounts,
        doing: str,
        kind: type[errors.PlacementError],
    ) -> None:
        """Let a consumer hold other amounts; a conflict is none where it holds them already.

        Then the answer to our own first try was lost, or another writer did the same.
        """
        record = {**current_record, "allocations": as_request(amounts)}
        request = self._write_of(consumer, record, doing)
        response = repeating_races(self._connection, request)
        if response.status == 204:
            return
        conflict = responses.is_consumer_conflict(response)
        if conflict and of_record(self.get_allocs_for_consumer(consumer)) == amounts:
            return
        raise responses.failure(kind, request, response)

    def _write_of(self, consumer: str, record: Mapping[str, Any], doing: str) -> Request:
        bodies, version = self._writable({consumer: record})
        return Request("PUT", _path(consumer), version, bodies[consumer], doing=doing)

    def _writable(
        self, records: Mapping[str, Mapping[str, Any]]
    ) -> tuple[dict[str, Record], Microversion]:
        """Return records in the form of a write, and the microversion for it.

        Types are written only when every record has one that can be: older writes keep them.
        """
        has_types = all(
            record.get("consumer_type", UNTYPED) != UNTYPED for record in records.values()
        )
        newest = self._connection.newest(CONSUMER_TYPE)
        version = max(BASE, newest if has_types else min(newest, MAPPINGS))
        return {
            consumer: _body_of(record, version) for consumer, record in records.items()
        }, version


def _is_next(record: Record, current: Record) -> bool:
    """Whether a consumer is as `record` leaves it, which nobody has written since."""
    wanted_amounts = of_record(record)
    if of_record(current) != wanted_amounts:
        return False
    # a consumer that holds nothing has no generation; each write of another counts once
    generation = int(record.get("consumer_generation") or 0) + 1
    return not wanted_amounts or current.get("consumer_generation") == generation


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


def _path(consumer: str) -> str:
    return f"/allocations/{consumer}"
