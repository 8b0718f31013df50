"""Everything that GET shows, and what the model says that it must show."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from tests.functional.api.wsgi_client import EXTENDED, Client
from tests.property.api_model.model import Model
from tests.property.api_model.strategies import AGGREGATES, CLASSES, TRAITS


def expected(model: Model, consumers: list[str], projects: list[str]) -> dict[str, Any]:
    """Path -> what the answer must be, lists without an order as sets.

    The status stands for an answer without a body, and for an error.
    """
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
    return shown | _trees(model) | _names(model) | _filtered(model) | _candidates(model)


def _trees(model: Model) -> dict[str, Any]:
    """Whole trees: their providers by uuid, and all that each of their consumers has."""
    return {
        f"/provider_trees/{root}?include=usages,allocations": {
            "root_provider_uuid": root,
            "providers": {uuid: _in_tree(model, uuid) for uuid in model.subtree(root)},
            "allocations": {
                consumer: _consumer(model, consumer)
                for consumer, held in model.consumers.items()
                if held.allocations.keys() & model.subtree(root)
            },
        }
        for root in {model.root(uuid) for uuid in model.providers}
    }


def _in_tree(model: Model, uuid: str) -> dict[str, Any]:
    provider = model.providers[uuid]
    return {
        "uuid": uuid,
        "name": provider.name,
        "parent_provider_uuid": provider.parent,
        "generation": provider.generation,
        "inventories": {name: to_builtins(record) for name, record in provider.inventories.items()},
        "traits": sorted(provider.traits),
        "aggregates": sorted(provider.aggregates),
        "usages": {name: model.used(uuid, name) for name in provider.inventories},
    }


def _names(model: Model) -> dict[str, Any]:
    shown: dict[str, Any] = {
        f"/traits/{name}": 204 if name in model.traits else 404 for name in TRAITS
    }
    for name in CLASSES:
        shown[f"/resource_classes/{name}"] = {"name": name} if name in model.classes else 404
    return shown


def _filtered(model: Model) -> dict[str, Any]:
    """Lists of providers with one filter each, and one with all."""
    providers = model.providers.items()
    trait, aggregate = TRAITS[1], AGGREGATES[0]
    roomy = model.with_room("VCPU", 2)
    known = trait in model.traits
    having = {uuid for uuid, provider in providers if trait in provider.traits}
    members = {uuid for uuid, provider in providers if aggregate in provider.aggregates}
    shown: dict[str, Any] = {
        f"/resource_providers?name={provider.name}": [uuid] for uuid, provider in providers
    }
    return shown | {
        "/resource_providers?resources=VCPU:2": sorted(roomy),
        f"/resource_providers?required={trait}": sorted(having) if known else 400,
        f"/resource_providers?required=!{trait}": (
            sorted(model.providers.keys() - having) if known else 400
        ),
        f"/resource_providers?member_of={aggregate}": sorted(members),
        f"/resource_providers?member_of=!{aggregate}": sorted(model.providers.keys() - members),
        f"/resource_providers?resources=VCPU:2&required={trait}&member_of={aggregate}": (
            sorted(roomy & having & members) if known else 400
        ),
    }


def _candidates(model: Model) -> dict[str, Any]:
    """Nobody shares here, so each provider that has room for one class is a candidate."""
    shown: dict[str, Any] = {}
    for name, amount in (("VCPU", 2), ("MEMORY_MB", 1), ("CUSTOM_GOLD", 1)):
        path = f"/allocation_candidates?resources={name}:{amount}"
        places = model.with_room(name, amount)
        trees = {model.root(uuid) for uuid in places}
        shown[path] = 400
        if name in model.classes:
            shown[path] = {
                "allocation_requests": {uuid: {name: amount} for uuid in places},
                "provider_summaries": {
                    uuid: _summary(model, uuid)
                    for uuid in model.providers
                    if model.root(uuid) in trees
                },
            }
    return shown


def _summary(model: Model, uuid: str) -> dict[str, Any]:
    provider = model.providers[uuid]
    return {
        "resources": {
            name: {"capacity": int(record.capacity), "used": model.used(uuid, name)}
            for name, record in provider.inventories.items()
        },
        "traits": provider.traits,
        "parent_provider_uuid": provider.parent,
        "root_provider_uuid": model.root(uuid),
    }


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
    one_by_one: dict[str, Any] = dict.fromkeys(
        (f"{path}/inventories/{name}" for name in CLASSES), 404
    )
    for name, record in provider.inventories.items():
        one_by_one[f"{path}/inventories/{name}"] = {**generation, **to_builtins(record)}
    return one_by_one | {
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
            "inventories": {name: to_builtins(held) for name, held in provider.inventories.items()},
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
    """What the service answers, in the form of `expected`."""
    answer = api.get(path, version=EXTENDED)
    if answer.status != 200:
        return answer.status
    body = answer.json
    match path.partition("?")[0].split("/")[1:]:
        case ["resource_providers"]:
            return sorted(provider["uuid"] for provider in body["resource_providers"])
        case ["resource_classes"]:
            return {resource_class["name"] for resource_class in body["resource_classes"]}
        case ["usages"]:
            return body["usages"]
        case ["resource_providers" | "resource_classes", _]:
            del body["links"]
        case ["allocation_candidates"]:
            return _shown_candidates(body)
        case ["provider_trees", _]:
            uuids = [None, *(provider["uuid"] for provider in body["providers"])]
            for place, provider in enumerate(body["providers"], 1):
                assert provider["parent_provider_uuid"] in uuids[:place], "a child comes first"
            body["providers"] = {provider["uuid"]: provider for provider in body["providers"]}
            assert len(body["providers"]) == len(uuids) - 1
        case ["traits"]:
            return set(body["traits"])
        case ["resource_providers", _, "traits" | "aggregates" as kind]:
            assert len(body[kind]) == len(set(body[kind])), body
            body[kind] = frozenset(body[kind])
    return body


def _shown_candidates(body: Any) -> Any:
    """Candidates of one provider each, by its uuid."""
    candidates = {}
    for request in body["allocation_requests"]:
        ((uuid, allocation),) = request["allocations"].items()
        assert request["mappings"] == {"": [uuid]}, request
        assert uuid not in candidates, "the same candidate twice"
        candidates[uuid] = allocation["resources"]
    for summary in body["provider_summaries"].values():
        summary["traits"] = frozenset(summary["traits"])
    return {
        "allocation_requests": candidates,
        "provider_summaries": body["provider_summaries"],
    }
