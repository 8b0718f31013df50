"""Allocations that the host makes by itself, for the time of an upgrade from old schedulers.

A scheduler that does not claim leaves the instance without allocation. Then what the caller names
is allocated, or what the flavor says, on the root provider as hosts were before they had trees.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from compute_agent import errors
from compute_agent.placement.allocations.amounts import (
    Amounts,
    MutableAmounts,
    as_request,
    of_record,
)
from compute_agent.placement.connection import CONSUMER_TYPE
from compute_agent.provider_tree.provider import SHARING_TRAIT

if TYPE_CHECKING:
    from compute_agent.claims.checks import ClaimRequest
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.report.client import ReportClient

LOG = logging.getLogger(__name__)

DISK: Final = "DISK_GB"
FLAVOR_FIELDS: Final = ("flavor", "image", "is_bfv", "numa_topology")
"""Fields of a request specification that determine what a flavor comes to."""


class InstanceHolding(Struct, frozen=True):
    """What an instance holds, here or elsewhere.

    :ivar by_host: this host has just allocated it, and may take it back.
    """

    amounts: Amounts
    by_host: bool = False


def allocate(
    report: ReportClient, request: ClaimRequest, tree: ProviderTree, root: str
) -> InstanceHolding:
    """Allocate for an instance, unless another caller was faster.

    :raises ComputeResourcesUnavailable: the request does not name what is needed, or there is
        not enough.
    :raises InvalidInput: the flavor cannot be read.
    :raises PlacementError: placement could not be asked, or refused.
    """
    amounts = request.amounts or _on_root(request.instance, needs_of(request), tree, root)
    if not amounts:
        raise errors.ComputeResourcesUnavailable(
            f"Placement holds no allocation for {request.instance}, and the request names "
            "neither allocations nor a flavor that this host could give something of. Send "
            "one of them, or let the scheduler claim."
        )
    try:
        shortage = report.placement.allocations.claim_resources(
            request.instance,
            {"allocations": as_request(amounts)},
            request.project,
            request.user,
            min(report.connect().maximum, CONSUMER_TYPE),
        )
    except errors.HoldsAnother as error:
        # the scheduler was late; what it claimed counts
        return InstanceHolding(of_record(error.record))
    if shortage is not None:
        raise errors.ComputeResourcesUnavailable(
            f"There is not enough for {request.instance}, which came without an allocation: "
            f"{shortage.detail}"
        )
    LOG.info(
        "Instance %s came without an allocation of a scheduler: this host allocated %s.",
        request.instance,
        amounts,
    )
    return InstanceHolding(amounts, by_host=True)


def take_back(report: ReportClient, instance: str) -> None:
    """Remove what was allocated for an instance that the host cannot take after all.

    Otherwise no other host could take it either: it would hold something of this one.
    """
    try:
        report.placement.allocations.delete_allocation(instance)
    except errors.PlacementError as error:
        LOG.error(
            "Instance %s is refused, and what this host allocated for it could not be removed: "
            "%s. Release it with `compute-scheduler release`.",
            instance,
            error,
        )


def needs_of(request: ClaimRequest) -> Mapping[str, int]:
    """Return what the flavor of a request asks for, by class, its extra specs included.

    :raises InvalidInput: the flavor cannot be read.
    """
    if not (request.spec.get("flavor") or {}).get("extra_specs"):
        return request.needs
    # loaded for the time of an upgrade only
    from compute_agent.claims.guest_needs import readable, spec_of
    from compute_agent.request.flavor import RequestOptions, request_of

    with readable(request.instance):
        spec = spec_of(request.spec, FLAVOR_FIELDS)
        return request_of(spec, RequestOptions(is_without_devices=True)).resources


def _on_root(instance: str, needs: Mapping[str, int], tree: ProviderTree, root: str) -> Amounts:
    """Return where a flavor is allocated: on the root, its disk where that is shared.

    :raises ComputeResourcesUnavailable: the root has nothing of a class.
    """
    amounts: MutableAmounts = {}
    missing_classes = []
    for resource_class, amount in needs.items():
        if resource_class in tree.data(root).inventory:
            amounts.setdefault(root, {})[resource_class] = amount
        elif resource_class != DISK:
            missing_classes.append(resource_class)
        elif (pool := _pool_of(tree, root)) is not None:
            amounts.setdefault(pool, {})[resource_class] = amount
    if missing_classes:
        raise errors.ComputeResourcesUnavailable(
            f"{instance} came without an allocation, and the root provider "
            f"{tree.data(root).name} ({root}) has no {', '.join(sorted(missing_classes))} to give: "
            "on a host with NUMA cells or devices of its own the caller must name the allocations."
        )
    return amounts


def _pool_of(tree: ProviderTree, root: str) -> str | None:
    """Return the provider that shares its disk with a root, None where none does."""
    aggregates = tree.data(root).aggregates
    return next(
        (
            provider.uuid
            for provider in tree.roots
            if SHARING_TRAIT in provider.traits
            and DISK in provider.inventory
            and provider.aggregates & aggregates
        ),
        None,
    )
