"""Declared providers, and the steps from what placement has to what is declared. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from msgspec import Struct

from compute_agent.cmd.placement.arguments import BadInput

PARTS: Final = ("inventories", "traits", "aggregates")
"""The parts of a provider that a document may declare."""

_DEFAULTS: Final[Mapping[str, float]] = {
    "total": 0,
    "reserved": 0,
    "min_unit": 1,
    "max_unit": 2147483647,
    "step_size": 1,
    "allocation_ratio": 1.0,
}

Provider = Mapping[str, Any]
"""A provider as placement has it, with its parts."""


class Step(Struct, frozen=True):
    """One request of a plan.

    :ivar text: what it does, for people.
    :ivar provider: the uuid of the provider whose generation it needs and raises; None for none.
    """

    text: str
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    provider: str | None = None


def plan(
    declared_entries: Sequence[Mapping[str, Any]],
    absent: Sequence[Provider],
    present: Mapping[str, Provider],
) -> list[Step]:
    """Return the steps in an order in which each can be made.

    :param declared_entries: the providers of the document.
    :param absent: the providers that shall not exist any longer.
    :param present: the providers that exist, by name and by uuid.
    :raises BadInput: a parent is neither declared nor there, parents form a circle, or a provider
        is declared and absent.
    """
    absent_names = {name for provider in absent for name in (provider["name"], provider["uuid"])}
    for entry in declared_entries:
        if not absent_names.isdisjoint((entry["name"], entry.get("uuid"))):
            raise BadInput(
                f"{entry['name']} is both declared and listed as absent: remove one of the two."
            )
    uuids = {entry["name"]: _uuid_of(entry, _present(entry, present)) for entry in declared_entries}
    steps: list[Step] = []
    for entry in _parents_first(declared_entries, present):
        provider = _present(entry, present)
        own = uuids[entry["name"]]
        parent = _parent_uuid(entry, provider, uuids, present)
        steps += _identity(entry, provider, own, parent)
        for part in PARTS:
            if part in entry:
                steps += _part(entry["name"], own, part, entry[part], provider)
    steps += [
        Step(f"delete {provider['name']}", "DELETE", f"/resource_providers/{provider['uuid']}")
        for provider in _children_first(absent)
    ]
    # a trait or class is created once, for the first that needs it
    return list({(step.path, step.text): step for step in steps}.values())


def _children_first(providers: Sequence[Provider]) -> list[Provider]:
    by_uuid = {provider["uuid"]: provider for provider in providers}
    parents = {
        uuid: {provider["parent_provider_uuid"]} & by_uuid.keys()
        for uuid, provider in by_uuid.items()
    }
    return [by_uuid[uuid] for uuid in reversed(list(TopologicalSorter(parents).static_order()))]


def _present(entry: Mapping[str, Any], present: Mapping[str, Provider]) -> Provider | None:
    return present.get(entry["uuid"]) if "uuid" in entry else present.get(entry["name"])


def _uuid_of(entry: Mapping[str, Any], provider: Provider | None) -> str:
    known_uuid = provider["uuid"] if provider is not None else entry.get("uuid")
    return str(known_uuid or uuid.uuid4())


def _parents_first(
    declared_entries: Sequence[Mapping[str, Any]], present: Mapping[str, Provider]
) -> list[Mapping[str, Any]]:
    by_name = {
        name: entry for entry in declared_entries for name in (entry["name"], entry.get("uuid"))
    }
    parents: dict[str, list[str]] = {}
    for entry in declared_entries:
        parent = entry.get("parent")
        is_declared = parent is not None and parent in by_name
        if parent is not None and not is_declared and parent not in present:
            raise BadInput(
                f"{entry['name']}: its parent {parent!r} is neither in the file nor in placement."
            )
        parents[entry["name"]] = [by_name[parent]["name"]] if is_declared else []
    try:
        return [by_name[name] for name in TopologicalSorter(parents).static_order()]
    except CycleError as error:
        names = " -> ".join(reversed(error.args[1]))
        raise BadInput(f"The parents of the file form a circle: {names}.") from error


def _parent_uuid(
    entry: Mapping[str, Any],
    provider: Provider | None,
    uuids: Mapping[str, str],
    present: Mapping[str, Provider],
) -> str | None:
    if "parent" not in entry:
        return provider["parent_provider_uuid"] if provider is not None else None
    parent = entry["parent"]
    if parent is None or parent in uuids:
        return None if parent is None else uuids[parent]
    return str(present[parent]["uuid"]) if parent in present else str(parent)


def _identity(
    entry: Mapping[str, Any], provider: Provider | None, own: str, parent: str | None
) -> list[Step]:
    name = entry["name"]
    body = {"name": name, "parent_provider_uuid": parent}
    if provider is None:
        below = f" below {entry['parent']}" if parent else ""
        text = f"create {name}{below}"
        return [Step(text, "POST", "/resource_providers", {**body, "uuid": own})]
    if (provider["name"], provider["parent_provider_uuid"]) == (name, parent):
        return []
    changes = []
    if provider["name"] != name:
        changes.append(f"rename {provider['name']} to {name}")
    if provider["parent_provider_uuid"] != parent:
        changes.append(f"move {name} below {entry['parent']}" if parent else f"make {name} a root")
    return [Step(", ".join(changes), "PUT", f"/resource_providers/{own}", body, own)]


def _part(name: str, own: str, part: str, content: Any, provider: Provider | None) -> list[Step]:
    new = with_defaults(content) if part == "inventories" else sorted(content)
    old = provider[part] if provider is not None else type(new)()
    if new == (old if part == "inventories" else sorted(old)):
        return []
    kind = {"inventories": "resource_classes", "traits": "traits"}.get(part)
    steps = [
        Step(f"make sure that {custom} exists", "PUT", f"/{kind}/{custom}")
        for custom in new
        if kind and custom.startswith("CUSTOM_") and custom not in old
    ]
    text = f"set the {part} of {name}: {_difference(old, new)}"
    path = f"/resource_providers/{own}/{part}"
    steps.append(Step(text, "PUT", path, {part: new}, own))
    return steps


def with_defaults(inventories: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return whole records of inventories, each given as a total or a record."""
    return {
        name: {**_DEFAULTS, **(record if isinstance(record, Mapping) else {"total": record})}
        for name, record in inventories.items()
    }


def _difference(old: Any, new: Any) -> str:
    if isinstance(new, Mapping):
        return ", ".join(
            f"{name} {_record_difference(old.get(name), new.get(name))}"
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name)
        )
    added_names = [f"+{name}" for name in new if name not in old]
    return ", ".join([*added_names, *(f"-{name}" for name in sorted(old) if name not in new)])


def _record_difference(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    if new is None:
        return "removed"
    before = old or _DEFAULTS
    changed_fields = [name for name in new if new[name] != before.get(name)]
    return " ".join(f"{name} {before.get(name)} -> {new[name]}" for name in changed_fields)
