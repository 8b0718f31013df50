"""Commands that read or write files: export, apply, reshape."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from compute_agent.cmd.output import print_json, show
from compute_agent.cmd.placement.arguments import BadInput
from compute_agent.cmd.placement.client import Client, NamedThingMissing
from compute_agent.cmd.placement.commands.allocations import read
from compute_agent.cmd.placement.declared import PARTS, Step, plan, with_defaults
from compute_agent.cmd.placement.parser import Commands
from compute_agent.cmd.screen import progress_bars
from compute_agent.cmd.shared_options import JSON
from compute_agent.placement.allocations.amounts import of_entries, of_record
from compute_agent.placement.connection import RESHAPE_TIMEOUT
from compute_agent.programs.decoding import Misfit, Whole, check_json, convert, matching
from compute_agent.programs.exit_status import Exit
from compute_agent.state.documents import FileUnusable, read_named

_Uuid: TypeAlias = Annotated[
    str, matching("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "a uuid")
]


class _Record(Struct):
    total: Whole


_Inventories: TypeAlias = dict[str, Whole | _Record]


class _DeclaredProvider(Struct, forbid_unknown_fields=True):
    name: str
    uuid: _Uuid | UnsetType = UNSET
    parent: str | None = None
    inventories: _Inventories = {}
    traits: list[str] = []
    aggregates: list[_Uuid] = []


class _DeclaredProviders(Struct, forbid_unknown_fields=True):
    providers: list[_DeclaredProvider] = []
    absent: list[str] = []


class _Resources(Struct):
    resources: dict[str, Any]


class _Consumer(Struct):
    allocations: dict[str, _Resources]


class _Reshape(Struct, forbid_unknown_fields=True):
    inventories: dict[str, dict[str, Any]]
    allocations: dict[str, _Consumer] = {}


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    commands.add(
        "export",
        _export,
        "print provider trees in the format that apply reads",
        "providers PROVIDER *  only the trees of these; default: all",
        output=(JSON,),
    )
    for name, function, help_ in (
        ("apply", _apply, "print a plan, then change providers to what a file declares"),
        ("reshape", _reshape, "move inventories and allocations together, as a file declares"),
    ):
        commands.add(
            name,
            function,
            help_,
            """
            file FILE  YAML or JSON; - for standard input
            --dry-run  print what would be done, and do nothing
            """,
            output=(JSON,),
        )


def _export(namespace: argparse.Namespace, client: Client) -> None:
    import yaml

    providers_by_uuid: dict[str, Mapping[str, Any]] = {}
    for path in [
        f"/resource_providers?in_tree={client.provider(name)['uuid']}"
        for name in namespace.providers
    ] or ["/resource_providers"]:
        for provider in client.get(path, "Listing resource providers")["resource_providers"]:
            providers_by_uuid[provider["uuid"]] = provider
    providers = []
    with progress_bars() as bars:
        for provider in providers_by_uuid.values():
            parent = provider["parent_provider_uuid"]
            shown_provider = {"name": provider["name"], "uuid": provider["uuid"], "parent": None}
            if parent is not None:
                shown_provider["parent"] = providers_by_uuid[parent]["name"]
            parts = {part: client.part(provider, part)[part] for part in PARTS}
            providers.append({**shown_provider, **parts})
            bars.update("reading providers", len(providers), len(providers_by_uuid))
    document = {"providers": providers}
    if namespace.json:
        print_json(document)
    else:
        yaml.safe_dump(document, sys.stdout, sort_keys=False, allow_unicode=True)


def _apply(namespace: argparse.Namespace, client: Client) -> int:
    document = _document(namespace.file, _DeclaredProviders, "providers as they should be")
    declared_entries = document.get("providers", [])
    for name, times in Counter(entry["name"] for entry in declared_entries).items():
        if times > 1:
            raise BadInput(f"{namespace.file}: {name} is declared more than once.")
    present: dict[str, Mapping[str, Any]] = {}
    with progress_bars() as bars:
        for number, entry in enumerate(declared_entries, 1):
            for name in filter(None, (entry.get("uuid", entry["name"]), entry.get("parent"))):
                if name not in present:
                    present.update(_read(client, name))
            bars.update("reading providers", number, len(declared_entries))
    absent = [
        provider
        for name in document.get("absent", ())
        if (provider := _read(client, name).get(name)) is not None
    ]
    steps = plan(declared_entries, absent, present)
    lines = [step.text for step in steps]
    document = {"steps": lines, "dry_run": namespace.dry_run}
    show(namespace, document, *lines or ["Placement is as the file declares it."])
    if steps and namespace.dry_run:
        return Exit.WOULD_CHANGE
    generations = {provider["uuid"]: provider["generation"] for provider in present.values()}
    with progress_bars() as bars:
        for number, step in enumerate(steps, 1):
            _make(client, step, generations)
            bars.update("applying the file", number, len(steps))
    return Exit.FINE


def _read(client: Client, name: str) -> dict[str, Mapping[str, Any]]:
    """Return a provider with its parts under its name and its uuid; nothing if there is none."""
    try:
        provider = dict(client.provider(name))
    except NamedThingMissing:
        return {}
    for part in PARTS:
        # the generation stays the one from before: a change between two reads must not be lost
        provider[part] = client.part(provider, part)[part]
    return {provider["name"]: provider, provider["uuid"]: provider}


def _make(client: Client, step: Step, generations: dict[str, int]) -> None:
    body = dict(step.body) if step.body is not None else None
    if body is not None and step.provider is not None and "name" not in body:
        body["resource_provider_generation"] = generations.get(step.provider, 0)
    answer = client.ask(step.method, step.path, f"Step {step.text!r}", body)
    if not isinstance(answer, Mapping):
        return
    uuid = step.provider or answer.get("uuid")
    generation = answer.get("resource_provider_generation", answer.get("generation"))
    if uuid is not None and generation is not None:
        generations[uuid] = generation


def _reshape(namespace: argparse.Namespace, client: Client) -> int:
    document = _document(namespace.file, _Reshape, "a reshape")
    inventories = {}
    lines: list[str] = []
    for name, entry in document["inventories"].items():
        given_inventories = entry.get("inventories", entry)
        _check(given_inventories, _Inventories, f"{namespace.file}: the inventories of {name}")
        provider = client.provider(name)
        present = client.part(provider, "inventories")
        new_inventories = with_defaults(given_inventories)
        given_generation = entry.get("resource_provider_generation")
        inventories[provider["uuid"]] = {
            "resource_provider_generation": present["resource_provider_generation"]
            if given_generation is None
            else given_generation,
            "inventories": new_inventories,
        }
        lines += _inventory_lines(provider["name"], present["inventories"], new_inventories)
    allocations = {}
    for consumer, entry in document.get("allocations", {}).items():
        record = read(client, consumer)
        new_allocations = {
            client.provider(name)["uuid"]: {"resources": part["resources"]}
            for name, part in entry["allocations"].items()
        }
        keys = ("project_id", "user_id", "consumer_generation", "consumer_type")
        kept_fields = {key: record[key] for key in keys if key in record}
        given_generation = {key: entry[key] for key in keys if key in entry}
        allocations[consumer] = {"consumer_generation": None, **kept_fields, **given_generation}
        allocations[consumer]["allocations"] = new_allocations
        before, after = of_record(record), of_entries(new_allocations)
        if before != after:
            lines.append(f"consumer {consumer}: {json.dumps(before)} -> {json.dumps(after)}")
    body = {"inventories": inventories, "allocations": allocations}
    show(namespace, {"request": body, "dry_run": namespace.dry_run}, *lines)
    if namespace.dry_run:
        return Exit.WOULD_CHANGE
    client.ask("POST", "/reshaper", "Reshaping", body, timeout=RESHAPE_TIMEOUT)
    return Exit.FINE


def _inventory_lines(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}: {resource_class} {old.get(resource_class, {}).get('total', 0)} -> "
        f"{new.get(resource_class, {}).get('total', 0)}"
        for resource_class in sorted({*old, *new})
        if old.get(resource_class) != new.get(resource_class)
    ]


def _document(file: str, kind: type[Struct], words: str) -> dict[str, Any]:
    """Return the content of a file, which has to be of one kind.

    :raises BadInput: it cannot be read, or is of another kind.
    """
    from compute_agent.state.documents import parse_yaml

    try:
        document = parse_yaml(read_named(file))
    except FileUnusable as error:
        raise BadInput(f"{file} {error}.") from error
    _check(document, kind, f"{file} is not {words}")
    return dict(document)


def _check(document: Any, kind: Any, fault: str) -> None:
    try:
        convert(document, kind)
        # its own request would fail on it, after those of earlier steps were sent
        check_json(document)
    except Misfit as error:
        raise BadInput(f"{fault}: {error}.") from error
