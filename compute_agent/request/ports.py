"""Resource requests of ports, old and extended form, and the providers of their groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compute_agent.request.candidate_request import RequestGroup
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.extra_specs import amount
from compute_agent.request.spec import RequestedGroup


def groups_of_port(
    port_id: str, resource_request: Mapping[str, Any]
) -> tuple[tuple[RequestedGroup, ...], frozenset[frozenset[str]]]:
    """Return the groups of one port and the subtrees that bind them.

    Old form `{"resources": {...}, "required": [...]}`: one group named after the port. Extended
    form `{"request_groups": [{"id", "resources", "required"}], "same_subtree": [id, ...]}`: one
    group per id.

    :raises InvalidRequest: neither form.
    """
    if "request_groups" not in resource_request:
        return (_group(port_id, resource_request),), frozenset()
    groups = tuple(_group(str(group["id"]), group) for group in resource_request["request_groups"])
    together = frozenset(str(name) for name in resource_request.get("same_subtree", ()))
    return groups, frozenset((together,)) if together else frozenset()


def binding_allocation(
    port_id: str, resource_request: Mapping[str, Any], mappings: Mapping[str, Sequence[str]]
) -> str | dict[str, str]:
    """Return the `allocation` of the port's binding profile after a claim.

    The uuid of the provider for the old form, group id to uuid for the extended one.

    :raises InvalidRequest: the claim has no provider for one of the port's groups.
    """
    try:
        if "request_groups" not in resource_request:
            return mappings[port_id][0]
        ids = [str(group["id"]) for group in resource_request["request_groups"]]
        return {group_id: mappings[group_id][0] for group_id in ids}
    except (KeyError, IndexError):
        raise InvalidRequest(
            "mappings", sorted(mappings), f"a provider for every group of port {port_id}"
        ) from None


def _group(requester_id: str, request: Mapping[str, Any]) -> RequestedGroup:
    resources = request.get("resources")
    if not isinstance(resources, Mapping):
        raise InvalidRequest(
            f"resource_request of port {requester_id}", request, "resources with amounts"
        )
    amounts = {
        str(name): amount(f"resource_request of port {requester_id}: {name}", value)
        for name, value in resources.items()
    }
    required_traits = frozenset(
        frozenset(str(name).removeprefix("in:").split(",")) for name in request.get("required", ())
    )
    group = RequestGroup({name: n for name, n in amounts.items() if n}, required_traits)
    return RequestedGroup(requester_id, group)
