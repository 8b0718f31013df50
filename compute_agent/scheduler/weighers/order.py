"""Order of hosts, and of the candidates within one.

Hosts: weights scaled to 0..1, times multiplier, summed; equals are spread by request. Candidates:
pack devices, keep whole cards and free cells.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby, islice

from msgspec import Struct

from compute_agent.errors import InvalidConfiguration
from compute_agent.request.guest_numa import is_special
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.host_state import Hosts, HostState
from compute_agent.scheduler.placement.candidates import Candidate, ProviderSummary
from compute_agent.scheduler.weighers import host_weigher
from compute_agent.scheduler.weighers.host_weigher import HostWeigher


def candidates_in_order(
    candidates: Sequence[Candidate],
    providers: Mapping[str, ProviderSummary],
) -> tuple[Candidate, ...]:
    """Return the candidates with the best first; equals stay in placement's order.

    Best is who breaks into the fewest untouched devices, then leaves the least of the devices it
    touches, then takes from the fewest providers, then from the cells with the most left. What a
    host gives best of all is planned when it is about to be claimed.
    """
    if len(candidates) < 2:
        return tuple(candidates)
    return tuple(sorted(candidates, key=lambda candidate: _cost(candidate, providers)))


def _cost(
    candidate: Candidate, providers: Mapping[str, ProviderSummary]
) -> tuple[int, int, int, float]:
    untouched_count = left_over = 0
    emptiest = 1.0
    for uuid, resources in candidate.allocations.items():
        provider = providers[uuid]
        for name, amount in resources.items():
            remainder = provider.free(name) - amount
            if is_special(name):
                untouched_count += provider.used(name) == 0
                left_over += remainder
            else:
                emptiest = min(emptiest, remainder / max(provider.capacity(name), 1))
    return untouched_count, left_over, len(candidate.allocations), -emptiest


ALL_WEIGHERS = "nova.scheduler.weights.all_weighers"
_REFERENCE_PREFIX = "nova.scheduler.weights."

BUILT_IN: tuple[type[HostWeigher], ...] = (
    host_weigher.RAMWeigher,
    host_weigher.CPUWeigher,
    host_weigher.DiskWeigher,
    host_weigher.IoOpsWeigher,
    host_weigher.PCIWeigher,
    host_weigher.ServerGroupSoftAffinityWeigher,
    host_weigher.ServerGroupSoftAntiAffinityWeigher,
    host_weigher.BuildFailureWeigher,
    host_weigher.CrossCellMoveWeigher,
    host_weigher.NumInstancesWeigher,
    host_weigher.HypervisorVersionWeigher,
    host_weigher.LeavesWholeWeigher,
)


class WeighingOptions(Struct, frozen=True):
    """Multipliers by the weigher's option name, and how equals and near-equals are treated.

    `spread_equals`: hosts of the same weight are in another order for each request.
    """

    multipliers: Mapping[str, float] = {}
    subset_size: int = 1
    shuffle_best: bool = False
    spread_equals: bool = True


def make(paths: Sequence[str]) -> tuple[HostWeigher, ...]:
    """Return the weighers that `paths` name.

    :raises InvalidConfiguration: a path that cannot be imported or that no weigher has.
    """
    weighers: list[HostWeigher] = []
    for path in paths:
        if path == ALL_WEIGHERS:
            weighers += [weigher_class() for weigher_class in BUILT_IN]
            continue
        module_name, _, name = path.rpartition(".")
        matching_classes = [
            weigher_class for weigher_class in BUILT_IN if weigher_class.__name__ == name
        ]
        try:
            if path.startswith(_REFERENCE_PREFIX):
                weighers.append(matching_classes[0]())
            else:
                weighers.append(getattr(importlib.import_module(module_name), name)())
        except (ImportError, AttributeError, ValueError, IndexError) as error:
            raise InvalidConfiguration(
                f"Option [filter_scheduler]weight_classes names {path}: expected {ALL_WEIGHERS}, "
                f"or the path of a class; these come with the scheduler: "
                f"{', '.join(weigher_class.__name__ for weigher_class in BUILT_IN)}."
            ) from error
    return tuple(weighers)


def weights(
    hosts: Sequence[HostState],
    spec: RequestSpec,
    weighers: Sequence[HostWeigher],
    options: WeighingOptions,
) -> list[float]:
    """Return the weight of each host, in the order of `hosts`.

    What a weigher returns is scaled to 0..1, from its `lowest`, or else the least of all hosts, to
    the highest; where all are at the lowest, it does not count.
    """
    total = [0.0] * len(hosts)
    hosts = Hosts.of(hosts)
    has_aggregates = hosts.has_aggregates
    for weigher in weighers:
        default = options.multipliers.get(weigher.option, weigher.default_multiplier)
        if not (weigher.concerns(spec) and (default or has_aggregates)):
            continue
        raw = weigher.weigh_all(hosts, spec)
        least, high = min(raw, default=0.0), max(raw, default=0.0)
        low = least if weigher.lowest is None else weigher.lowest
        if low >= high:
            continue
        if least < low:
            raw = [max(value, low) for value in raw]
        span = high - low
        if has_aggregates:
            multipliers = (_multiplier(weigher, host, default) for host in hosts)
            total = [
                weight + multiplier * ((value - low) / span)
                for weight, multiplier, value in zip(total, multipliers, raw, strict=True)
            ]
        else:
            total = [
                weight + default * ((value - low) / span)
                for weight, value in zip(total, raw, strict=True)
            ]
    return total


def in_order(
    hosts: Sequence[HostState],
    spec: RequestSpec,
    weighers: Sequence[HostWeigher],
    options: WeighingOptions,
    chance: random.Random,
    request: str = "",
) -> Iterator[HostState]:
    """Yield the hosts with the best first.

    Equals are in the order of `request`, which schedulers that work on different requests do not
    share; or in placement's, where they are not to be spread.

    :param request: what distinguishes this request from others, the same each time it is made.
    """
    hosts = Hosts.of(hosts)
    total = weights(hosts, spec, weighers, options)
    ordered_places = _equals_in_order(hosts.uuids, total, options, chance, request)
    ordered_hosts = map(hosts.__getitem__, ordered_places)
    subset = list(islice(ordered_hosts, options.subset_size))
    if subset:
        yield subset.pop(chance.randrange(len(subset)))
    yield from chain(subset, ordered_hosts)


def _equals_in_order(
    uuids: Sequence[str],
    total: Sequence[float],
    options: WeighingOptions,
    chance: random.Random,
    request: str,
) -> Iterator[int]:
    is_shuffled = options.shuffle_best
    places = sorted(range(len(total)), key=total.__getitem__, reverse=True)
    for _, equal_places in groupby(places, total.__getitem__):
        equals = list(equal_places)
        if options.spread_equals and request and len(equals) > 1:
            equals.sort(key=lambda place: _spread_key(request, uuids[place]))
        if is_shuffled:
            chance.shuffle(equals)
            is_shuffled = False
        yield from equals


def _spread_key(request: str, uuid: str) -> bytes:
    """Return the place of a host among equals, by rendezvous hashing.

    It depends on nothing but these two, so a host that comes or goes does not reorder the others.
    """
    return hashlib.blake2b(f"{request}/{uuid}".encode(), digest_size=8).digest()


def _multiplier(weigher: HostWeigher, host: HostState, default: float) -> float:
    values = []
    for text in host.metadata(f"{weigher.option}_weight_multiplier"):
        # metadata is free text: what is not a number overrides nothing
        with suppress(ValueError):
            values.append(float(text))
    return min(filter(math.isfinite, values), default=default)
