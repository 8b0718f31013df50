"""A claim with alternatives: of several sets of allocations for one consumer, the first that fits.

It is a write of :mod:`allocations` that chooses between its steps 2 and 3: the candidates are
checked in order against what was read, without a lock, and the first that fits is written. When it
does not fit any more as its inventories are locked, another writer was faster: the transaction is
rolled back and begun again, reads the candidates again, and goes on to the next only if this one
is short by then. So a candidate is lost only to a state in which it did not fit.

Of many candidates nearly always one of the first is chosen, so the providers of the others are
read only when it is their turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from placement_server.store.allocations import claim_check, consumers
from placement_server.store.allocations.allocations import carry_out, sum_of_old
from placement_server.store.allocations.claim_check import Key, ProviderRequest, Requested
from placement_server.store.allocations.write_context import (
    WriteContext,
    read_context,
    read_more,
)
from placement_server.store.errors import (
    CapacityExceeded,
    ConstraintViolated,
    LostCandidate,
    NoCandidateLeft,
)
from placement_server.store.records import ConsumerWrite
from placement_server.store.schema.names import known_class_ids
from placement_server.store.transactions.transaction import WriteTransaction

# Candidates whose providers are read at first, and by how much the next reads are larger.
_READ_FIRST: Final = 4
_GROWTH: Final = 8


class Chosen(NamedTuple):
    """The outcome of a claim.

    :ivar position: the position of the candidate that was claimed.
    :ivar generation: that of the consumer now.
    :ivar lost_candidates: the candidates before it, in order.
    """

    position: int
    generation: int
    lost_candidates: tuple[LostCandidate, ...]


def claim(tx: WriteTransaction, candidates: Sequence[ConsumerWrite]) -> Chosen:
    """Give a consumer the first of these sets of allocations that fits, and nothing else.

    :param candidates: alternatives that differ in their allocations only; none of them is empty.
    :raises ConsumerGenerationConflict: the consumer's generation is not the expected one.
    :raises NoCandidateLeft: not one of them fits.
    """
    lost_candidates: list[LostCandidate] = []
    context: WriteContext | None = None
    class_ids: dict[str, int] = {}
    for start, stretch in _stretches(candidates):
        needs: dict[str, Mapping[str, int]] = {}
        for candidate in stretch:
            needs.update(candidate.allocations)
        if context is None:
            context = read_context(tx, [replace(candidates[0], allocations=needs)])
            consumers.check_generations(context.consumers)
        else:
            read_more(tx, context, needs)
        names = {name for candidate in stretch for name in _class_names(candidate)}
        class_ids |= known_class_ids(tx, names - class_ids.keys())
        for position, candidate in enumerate(stretch, start):
            lost_candidate = _claim_if_it_fits(tx, context, class_ids, position, candidate)
            if lost_candidate is None:
                return Chosen(position, context.consumers[0].generation + 1, tuple(lost_candidates))
            lost_candidates.append(lost_candidate)
    raise NoCandidateLeft(candidates[0].uuid, lost_candidates)


def _class_names(candidate: ConsumerWrite) -> set[str]:
    return set().union(*candidate.allocations.values())


def _stretches(
    candidates: Sequence[ConsumerWrite],
) -> Iterator[tuple[int, Sequence[ConsumerWrite]]]:
    """Divide the candidates into stretches, each with the position where it starts."""
    start, size = 0, _READ_FIRST
    while start < len(candidates):
        yield start, candidates[start : start + size]
        start, size = start + size, size * _GROWTH


def _claim_if_it_fits(
    tx: WriteTransaction,
    context: WriteContext,
    class_ids: Mapping[str, int],
    position: int,
    candidate: ConsumerWrite,
) -> LostCandidate | None:
    """Claim a candidate, or return what is in the way; nothing is written then."""
    lost_candidate = _lost_candidate(context, class_ids, position, candidate)
    if lost_candidate is not None:
        return lost_candidate
    parts = [
        ProviderRequest(candidate.uuid, uuid, context.provider_ids[uuid], amounts)
        for uuid, amounts in candidate.allocations.items()
    ]
    requested_use = Requested(parts, class_ids)
    given_back = sum_of_old(context.consumers)
    own_context = _restrict(context, candidate, requested_use, given_back)
    try:
        taken_amounts = claim_check.check(requested_use, own_context.inventories, given_back)
    except CapacityExceeded as error:
        return LostCandidate(
            position, error.uuid, error.resource_class, error.requested_amount, error.free
        )
    except ConstraintViolated as error:
        return LostCandidate(
            position, error.uuid, error.resource_class, error.requested_amount, reason=str(error)
        )
    carry_out(tx, own_context, requested_use, taken_amounts, given_back)
    return None


def _lost_candidate(
    context: WriteContext, class_ids: Mapping[str, int], position: int, candidate: ConsumerWrite
) -> LostCandidate | None:
    """Return the first provider, class or inventory of a candidate that does not exist, if any."""
    for uuid, amounts in candidate.allocations.items():
        provider_id = context.provider_ids.get(uuid)
        if provider_id is None:
            return LostCandidate(position, uuid, reason=f"There is no resource provider {uuid}.")
        for name, amount in amounts.items():
            if name not in class_ids:
                reason = f"There is no resource class {name}."
            elif (provider_id, class_ids[name]) not in context.inventories:
                reason = f"Provider {uuid} has no inventory of class {name}."
            else:
                continue
            return LostCandidate(position, uuid, name, amount, reason=reason)
    return None


def _restrict(
    context: WriteContext,
    candidate: ConsumerWrite,
    requested_use: Requested,
    given_back: Mapping[Key, int],
) -> WriteContext:
    """Return the context of a write of this candidate alone."""
    keys = {*requested_use.amounts, *given_back}
    concerned_ids = {provider_id for provider_id, _ in keys}
    return WriteContext(
        [replace(context.consumers[0], write=candidate)],
        {uuid: context.provider_ids[uuid] for uuid in candidate.allocations},
        # Software of old left allocations whose provider is gone.
        {
            provider_id: context.root_ids[provider_id]
            for provider_id in sorted(concerned_ids & context.root_ids.keys())
        },
        {key: context.inventories[key] for key in keys if key in context.inventories},
    )
