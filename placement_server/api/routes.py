"""Routes of the whole API in one table.

A path is literals and placeholders in turn, a placeholder at every even place; a request matches
it segment by segment, and a placeholder does not match an empty one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from placement_server.api.extensions import (
    candidate_explanation,
    capacity,
    changes,
    provider_trees,
    what_if,
)
from placement_server.api.request import Request
from placement_server.api.resources import (
    aggregates,
    allocation_candidates,
    allocations,
    inventories,
    provider_traits,
    reshaper,
    resource_classes,
    resource_providers,
    traits,
    usages,
    version_document,
)
from placement_server.api.response import Response
from placement_server.microversion import Microversion

Handler = Callable[[Request], Response]

ROUTES: Final[dict[str, dict[str, Handler]]] = {
    "/": {"GET": version_document.show},
    "/resource_classes": {
        "GET": resource_classes.list_,
        "POST": resource_classes.create,
    },
    "/resource_classes/{name}": {
        "GET": resource_classes.show,
        "PUT": resource_classes.update,
        "DELETE": resource_classes.delete,
    },
    "/resource_providers": {
        "GET": resource_providers.list_,
        "POST": resource_providers.create,
    },
    "/resource_providers/{uuid}": {
        "GET": resource_providers.show,
        "DELETE": resource_providers.delete,
        "PUT": resource_providers.update,
    },
    "/resource_providers/{uuid}/inventories": {
        "GET": inventories.list_,
        "POST": inventories.create,
        "PUT": inventories.replace,
        "DELETE": inventories.delete_all,
    },
    "/resource_providers/{uuid}/inventories/{resource_class}": {
        "GET": inventories.show,
        "PUT": inventories.update,
        "DELETE": inventories.delete,
    },
    "/resource_providers/{uuid}/usages": {"GET": usages.of_provider},
    "/resource_providers/{uuid}/aggregates": {
        "GET": aggregates.list_,
        "PUT": aggregates.replace,
    },
    "/resource_providers/{uuid}/allocations": {"GET": allocations.of_provider},
    "/resource_providers/{uuid}/traits": {
        "GET": provider_traits.list_,
        "PUT": provider_traits.replace,
        "DELETE": provider_traits.delete,
    },
    "/allocations": {"POST": allocations.replace_many},
    "/allocations/{consumer_uuid}": {
        "GET": allocations.of_consumer,
        "PUT": allocations.replace,
        "DELETE": allocations.delete,
    },
    "/allocation_candidates": {"GET": allocation_candidates.list_},
    "/traits": {"GET": traits.list_},
    "/traits/{name}": {
        "GET": traits.show,
        "PUT": traits.ensure,
        "DELETE": traits.delete,
    },
    "/usages": {"GET": usages.of_project},
    "/reshaper": {"POST": reshaper.apply},
}


EXTENSION_ROUTES: Final[dict[Microversion, dict[str, dict[str, Handler]]]] = {
    Microversion(1, 0): {
        "/candidate_explanation": {"GET": candidate_explanation.show},
    },
    Microversion(1, 1): {
        "/changes": {"GET": changes.list_},
        "/provider_trees/{uuid}": {"GET": provider_trees.show, "PUT": provider_trees.replace},
        "/what_if": {"POST": what_if.answer},
        "/capacity": {"GET": capacity.show},
        "/fragmentation": {"GET": capacity.show_fragmentation},
    },
}
"""The routes that each version of the extensions brought; unknown paths to clients without it."""


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the table.

    :ivar template: its name in logs and metrics.
    :ivar extension: the version of the extensions that brought it; None in the plain API.
    """

    template: str
    methods: dict[str, Handler]
    extension: Microversion | None = None

    @property
    def allowed_methods(self) -> tuple[str, ...]:
        return tuple(self.methods)


def _literals(segments: list[str]) -> tuple[int, tuple[str, ...]]:
    return len(segments), tuple(segments[0::2])


ALL_ROUTES: Final = tuple(
    Route(template, methods, version)
    for version, table in ((None, ROUTES), *EXTENSION_ROUTES.items())
    for template, methods in table.items()
)

_TABLE: Final = {_literals(route.template.split("/")[1:]): route for route in ALL_ROUTES}


def find(path: str, *, extensions: Microversion | None) -> tuple[Route | None, list[str]]:
    """Return the route of a path, None when there is none, and the values of its placeholders.

    :param extensions: the version of the extensions that the client asked for, if it did.

    A trailing or doubled slash makes another, unknown path. The empty path, which is what a
    mount point without its slash yields, is the version document.
    """
    segments = (path or "/").split("/")[1:]
    values = segments[1::2]
    route = _TABLE.get(_literals(segments)) if all(values) and path[:1] in ("", "/") else None
    if route is not None and route.extension is not None:
        route = route if extensions is not None and extensions >= route.extension else None
    # PostgreSQL has no text with U+0000, so no name that has one is ever found.
    return route, [value.replace("\0", "\N{REPLACEMENT CHARACTER}") for value in values]
