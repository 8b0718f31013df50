"""Claims as they travel: from what a caller sends to a request."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from compute_agent import errors
from compute_agent.claims.checks import ClaimRequest
from compute_agent.programs.whole_numbers import MOST, whole_number
from compute_agent.provider_tree.provider import UNMANAGED, canonical
from compute_agent.provider_tree.tree import ProviderTree
from compute_agent.state.claim import Claim


def request_from(spec: Any, allocations: Any, mappings: Any) -> ClaimRequest:
    """Return the request in a call of `instance_claim`.

    :param spec: `{"instance_uuid": UUID, "node": NAME, "migration_uuid": UUID}`, the last two
        optional; `instance_group`, `force_hosts` and `force_nodes` say from whom the instance
        is to be kept apart; `flavor`, `is_bfv`, `project_id` and `user_id` are read for an
        instance that no scheduler claimed for. Other keys are left alone, so that a request
        specification may be sent whole.
    :param allocations: `{PROVIDER: {"resources": {CLASS: AMOUNT}}}` as placement gave it; empty:
        what placement holds for the instance.
    :param mappings: `{GROUP: [PROVIDER, ...]}` as placement gave it.
    :raises InvalidInput: names the argument that is not of this form.
    """
    fields = mapping("spec", spec or {})
    apart_from, together = _kept_apart(fields)
    return ClaimRequest(
        instance=_uuid("spec.instance_uuid", fields.get("instance_uuid")),
        node=text("spec.node", fields.get("node") or ""),
        migration=_uuid("spec.migration_uuid", fields["migration_uuid"])
        if fields.get("migration_uuid")
        else "",
        amounts={
            _uuid("allocations", uuid): _resources(uuid, record)
            for uuid, record in mapping("allocations", allocations or {}).items()
        },
        providers_of={
            group: [_uuid(f"mappings.{group}", uuid) for uuid in _list(f"mappings.{group}", uuids)]
            for group, uuids in mapping("mappings", mappings or {}).items()
        },
        needs=_needs(fields),
        apart_from=apart_from,
        together=together,
        project=text("spec.project_id", fields.get("project_id") or ""),
        user=text("spec.user_id", fields.get("user_id") or ""),
        spec=fields,
    )


def answer_of(claim: Claim, tree: ProviderTree) -> dict[str, Any]:
    """Return the answer to `instance_claim`.

    A function that the hypervisor must not take from its driver has `"managed": false`.

    :param tree: of the node, with its named units.
    """
    document: dict[str, Any] = to_builtins(claim)
    for unit in document["units"]:
        if not tree.exists(unit["provider_uuid"]):
            continue  # a pass since the claim took it out
        resources = tree.data(unit["provider_uuid"]).resources.get(unit["resource_class"], ())
        if any(r.identifier == unit["name"] and r.metadata == UNMANAGED for r in resources):
            unit["managed"] = False
    return document


def _kept_apart(fields: Mapping[str, Any]) -> tuple[frozenset[str], int]:
    """Return the members of an anti-affinity group, and how many of them a host may have."""
    group = mapping("spec.instance_group", fields.get("instance_group") or {})
    forced_targets = fields.get("force_hosts") or fields.get("force_nodes")
    if group.get("policy") != "anti-affinity" or forced_targets:
        return frozenset(), 1
    name = "spec.instance_group.members"
    members = frozenset(_uuid(name, uuid) for uuid in _list(name, group.get("members") or []))
    name = "spec.instance_group.rules"
    most = mapping(name, group.get("rules") or {}).get("max_server_per_host")
    if most is None:
        return members, 1
    return members, _number(f"{name}.max_server_per_host", most, least=1)


def _needs(fields: Mapping[str, Any]) -> dict[str, int]:
    """Return what a flavor asks of a host, by class: CPUs, memory in MiB, disk in GiB."""
    flavor = mapping("spec.flavor", fields.get("flavor") or {})

    def size(name: str) -> int:
        return _number(f"spec.flavor.{name}", flavor.get(name) or 0, least=0)

    root = 0 if fields.get("is_bfv") else size("root_gb")
    needs = {
        "VCPU": size("vcpus"),
        "MEMORY_MB": size("memory_mb"),
        "DISK_GB": root + size("ephemeral_gb") + math.ceil(size("swap") / 1024),
    }
    return {name: amount for name, amount in needs.items() if amount}


def _resources(uuid: str, record: Any) -> dict[str, int]:
    where = f"allocations.{uuid}.resources"
    resources = mapping(where, mapping(f"allocations.{uuid}", record).get("resources"))
    if not resources:
        raise _unusable(where, resources, "at least one class")
    for resource_class, amount in resources.items():
        if isinstance(amount, str):
            raise _unusable(f"{where}.{resource_class}", amount, "a whole number")
    return {
        resource_class: _number(f"{where}.{resource_class}", amount, least=1)
        for resource_class, amount in resources.items()
    }


def _number(where: str, value: Any, *, least: int) -> int:
    """Return a whole number from `least` on, also where a text has it."""
    number = whole_number(value) if isinstance(value, str) else value
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= MOST:
        raise _unusable(where, value, f"a whole number from {least} to {MOST}")
    return number


def mapping(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _unusable(where, value, "an object")
    return value


def _list(where: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise _unusable(where, value, "a list")
    return value


def text(where: str, value: Any) -> str:
    """Return a value that has to be text.

    :raises InvalidInput: it is not; names the argument.
    """
    if not isinstance(value, str):
        raise _unusable(where, value, "a text")
    return value


def _uuid(where: str, value: Any) -> str:
    try:
        return canonical(text(where, value))
    except ValueError as error:
        raise _unusable(where, value, "a UUID") from error


def _unusable(where: str, value: Any, expectation: str) -> errors.InvalidInput:
    return errors.InvalidInput(f"{where} is {reprlib.repr(value)}, and {expectation} was expected.")
