"""All that the database holds of a scene, with roles instead of names."""

from __future__ import annotations

from typing import Any, Final

from placement_server.store.store import Store
from tests.integration.store.copied_scenes import Scene

_QUERIES: Final = {
    "providers": (
        "SELECT p.uuid, p.generation, parent.uuid, root.uuid FROM resource_providers p "
        "JOIN resource_providers root ON root.id = p.root_provider_id "
        "LEFT JOIN resource_providers parent ON parent.id = p.parent_provider_id WHERE p.uuid "
    ),
    "inventories": (
        "SELECT p.uuid, c.name, i.total, i.capacity, i.used FROM inventories i "
        "JOIN resource_providers p ON p.id = i.resource_provider_id "
        "JOIN resource_classes c ON c.id = i.resource_class_id WHERE p.uuid "
    ),
    "consumers": (
        "SELECT c.uuid, c.generation, p.external_id, u.external_id, t.name FROM consumers c "
        "JOIN projects p ON p.id = c.project_id JOIN users u ON u.id = c.user_id "
        "LEFT JOIN consumer_types t ON t.id = c.consumer_type_id WHERE c.uuid "
    ),
    "allocations": (
        "SELECT a.consumer_id, p.uuid, c.name, a.used FROM allocations a "
        "JOIN resource_providers p ON p.id = a.resource_provider_id "
        "JOIN resource_classes c ON c.id = a.resource_class_id WHERE a.consumer_id "
    ),
    "classes": "SELECT name FROM resource_classes WHERE name ",
    "traits": "SELECT name FROM traits WHERE name ",
    "traits of providers": (
        "SELECT p.uuid, t.name FROM resource_provider_traits l "
        "JOIN resource_providers p ON p.id = l.resource_provider_id "
        "JOIN traits t ON t.id = l.trait_id WHERE p.uuid "
    ),
    "aggregates of providers": (
        "SELECT p.uuid, a.uuid FROM resource_provider_aggregates l "
        "JOIN resource_providers p ON p.id = l.resource_provider_id "
        "JOIN placement_aggregates a ON a.id = l.aggregate_id WHERE p.uuid "
    ),
}
"""Each ends with a column, which is compared with the names of a scene."""


def look(store: Store, scene: Scene, *queries: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of these queries, in an order of their own."""
    roles = {name: role for role, name in scene.items()}

    def rows(query: str) -> list[tuple[Any, ...]]:
        found = store.read(lambda tx: list(tx.rows_among(_QUERIES[query], roles)))
        return sorted((tuple(roles.get(value, value) for value in row) for row in found), key=str)

    return {query: rows(query) for query in queries}
