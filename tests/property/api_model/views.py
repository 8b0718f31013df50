"""Everything that GET shows, and what the model says that it must show."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tests.functional.api.wsgi_client import Client
from tests.property.api_model.model import Model


def expected(model: Model, consumers: list[str], projects: list[str]) -> dict[str, Any]:
    """Path -> what the answer must be, lists without an order as sets."""
    shown: dict[str, Any] = {
        "/resource_providers": sorted(model.providers),
        "/traits?name=startswith:CUSTOM_": {
            name for name in model.traits if name.startswith("CUSTOM_")
        },
        "/resource_classes": model.classes,
    }
    for project in projects:
        shown[f"/usages?project_id={project}"] = model.usages_of_project(project)
    for uuid in consumers:
        shown[f"/allocations/{uuid}"] = _consumer(model, uuid)
    for uuid in model.providers:
        shown |= _provider(model, uuid)
    return shown


def _provider(model: Model, uuid: str) -> dict[str, Any]:
    provider = model.providers[uuid]
    path = f"/resource_providers/{uuid}"
    holders = {
        consumer: {
            "resources": held.allocations[uuid],
            "consumer_generation": held.generation,
        }
        for consumer, held in model.consumers.items()
        if uuid in held.allocations
    }
    generation = {"resource_provider_generation": provider.generation}
    root = model.root(uuid)
    return {
        path: {
            "uuid": uuid,
            "name": provider.name,
            "generation": provider.generation,
            "parent_provider_uuid": provider.parent,
            "root_provider_uuid": root,
        },
        f"/resource_providers?in_tree={uuid}": sorted(model.subtree(root)),
        f"{path}/inventories": {
            **generation,
            "inventories": {name: asdict(one) for name, one in provider.inventories.items()},
        },
        f"{path}/usages": {
            **generation,
            "usages": {name: model.used(uuid, name) for name in provider.inventories},
        },
        f"{path}/traits": {**generation, "traits": provider.traits},
        f"{path}/aggregates": {**generation, "aggregates": provider.aggregates},
        f"{path}/allocations": {**generation, "allocations": holders},
    }


def _consumer(model: Model, uuid: str) -> dict[str, Any]:
    consumer = model.consumers.get(uuid)
    if consumer is None:
        return {"allocations": {}}
    return {
        "allocations": {
            provider: {
                "resources": resources,
                "generation": model.providers[provider].generation,
            }
            for provider, resources in consumer.allocations.items()
        },
        "consumer_generation": consumer.generation,
        "project_id": consumer.project,
        "user_id": consumer.user,
        "consumer_type": consumer.type,
    }


def shown(api: Client, path: str) -> Any:
    """What the service answers, in the form of ``expected``."""
    answer = api.get(path)
    assert answer.status == 200, (path, answer.status, answer.body)
    body = answer.json
    match path.partition("?")[0].split("/")[1:]:
        case ["resource_providers"]:
            return sorted(one["uuid"] for one in body["resource_providers"])
        case ["resource_classes"]:
            return {one["name"] for one in body["resource_classes"]}
        case ["usages"]:
            return body["usages"]
        case ["resource_providers", _]:
            del body["links"]
        case ["traits"]:
            return set(body["traits"])
        case ["resource_providers", _, "traits" | "aggregates" as kind]:
            assert len(body[kind]) == len(set(body[kind])), body
            body[kind] = frozenset(body[kind])
    return body
