"""Requests for claims, and their checks against what placement holds and this host has. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from compute_agent import errors
from compute_agent.placement.allocations.amounts import Amounts, of_record, shortfalls
from compute_agent.programs.printable import first_of
from compute_agent.provider_tree.trait_names import CUSTOM_DEVICE_MISSING
from compute_agent.state.claim import Claim

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree

NAMED = 5
"""Nodes named in a message, of those that may be thousands."""


class ClaimRequest(Struct, frozen=True):
    """What the host is asked to give to an instance.

    :param amounts: what was allocated for it, on this host and elsewhere; empty: whatever
        placement holds for it here.
    :param providers_of: request group to the providers that serve it.
    :param node: empty: the node that the providers belong to.
    :param migration: consumer under which what the instance has here is kept meanwhile.
    :param apart_from: members of its anti-affinity group, of which a host may have `together`.
    :param needs: what its flavor says, by class, without extra specs; with `project`, `user` and
        the specification as it was sent, for an instance that comes without an allocation.
    """

    instance: str
    amounts: Amounts = {}
    providers_of: Mapping[str, Sequence[str]] = {}
    node: str = ""
    migration: str = ""
    apart_from: frozenset[str] = frozenset()
    together: int = 1
    needs: Mapping[str, int] = {}
    project: str = ""
    user: str = ""
    spec: Mapping[str, Any] = {}


def told_of_waiting(nodes: Sequence[str]) -> str:
    """Return, after something was not found, on which nodes it may still be; "" = on none.

    :param nodes: those whose first pass has not completed.
    """
    if not nodes:
        return ""
    return (
        f" It may be on {first_of(nodes, NAMED)}, of which the first pass has not "
        "completed; `compute-agent status` says what is waited for."
    )


def stale(
    suspects: Iterable[Claim],
    records: Mapping[str, Mapping[str, Mapping[str, Any]]],
    others: Collection[str],
) -> list[Claim]:
    """Return the claims behind which nobody stands any more.

    :param suspects: claims of instances that do not run here.
    :param records: provider uuid to consumers with their `resources` there, as placement has it.
    :param others: consumers that are known for themselves: they are not unknown migrations.
    """

    def stands_behind(consumer: str, claim: Claim) -> bool:
        if consumer in (claim.consumer, claim.instance):
            return any(consumer in records.get(uuid, {}) for uuid in claim.amounts)
        return consumer not in others and all(
            records.get(uuid, {}).get(consumer, {}).get("resources") == dict(amounts)
            for uuid, amounts in claim.amounts.items()
        )

    consumers = {consumer for per in records.values() for consumer in per}
    return [
        claim
        for claim in suspects
        if not any(stands_behind(consumer, claim) for consumer in consumers)
    ]


def has_moved(claim: Claim, record: Mapping[str, Any], own: Collection[str]) -> bool:
    """Whether the instance of a claim holds on another host what it was given here.

    Shared resources alone prove nothing: they are not part of a claim.

    :param record: of the instance, as placement has it.
    :param own: the providers of this node.
    """
    given_classes = {
        resource_class for amounts in claim.amounts.values() for resource_class in amounts
    }
    held_amounts = of_record(record)
    return held_amounts.keys().isdisjoint(own) and any(
        given_classes & classes.keys() for classes in held_amounts.values()
    )


def on_node(request: ClaimRequest, held_amounts: Amounts, tree: ProviderTree, root: str) -> Amounts:
    """Return the amounts on this node, checked against what placement holds."""
    amounts = request.amounts or held_amounts
    shortages = [
        f"{short.amount} {short.resource_class} on provider {short.provider}"
        for short in shortfalls(held_amounts, amounts)
    ]
    if shortages:
        raise errors.ComputeResourcesUnavailable(
            f"Placement does not hold for {request.instance} what the host was told: "
            f"{', '.join(shortages)}. Schedule the instance again."
        )
    members = set(tree.get_provider_uuids(root))
    own = {uuid: dict(classes) for uuid, classes in amounts.items() if uuid in members}
    for uuid, classes in own.items():
        provider = tree.data(uuid)
        missing_classes = sorted(classes.keys() - provider.inventory.keys())
        if CUSTOM_DEVICE_MISSING in provider.traits or missing_classes:
            raise errors.AssignedResourceNotFound(
                f"{', '.join(missing_classes or sorted(classes))} of provider {provider.name} "
                f"({uuid}) was allocated for {request.instance}, and this host does not have it "
                "any more. Schedule the instance again."
            )
    return own


def check_groups(request: ClaimRequest, held_amounts: Amounts, tree: ProviderTree) -> None:
    """Check that every group is served by providers that the instance holds something of.

    A group that asks for no resources is served by a provider of the host anyway.
    """
    unfit_groups = sorted(
        f"{uuid} (group {group!r})"
        for group, uuids in request.providers_of.items()
        for uuid in uuids
        if uuid not in held_amounts and not tree.exists(uuid)
    )
    if unfit_groups:
        raise errors.AssignedResourceNotFound(
            f"Request groups of {request.instance} are mapped to providers of which it holds "
            f"nothing: {', '.join(unfit_groups)}. Schedule the instance again."
        )


def check_apart(request: ClaimRequest, staying: Collection[str], node: str) -> None:
    """Check that an instance meets no more members of its anti-affinity group than it may.

    :param staying: those on the node.
    """
    if len(staying) >= request.together:
        raise errors.ComputeResourcesUnavailable(
            f"{request.instance} cannot be with {', '.join(staying)} on node {node}: their group "
            f"has the policy anti-affinity, with at most {request.together} on a host. Schedule "
            "the instance again."
        )
