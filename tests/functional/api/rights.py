"""Rights of callers: every operation of the server, its rule, and whom the contract lets do it.

The table is written by hand, from what operators are promised; it is not read off the policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

PAGES: Final = "/-/web"
"""Where the servers of these tests have the pages."""

PROJECT: Final = "project"
"""The project of callers that are of one."""

UNKNOWN: Final = "00000000-0000-0000-0000-00000000dead"
_PLACEHOLDERS: Final = {"{uuid}": UNKNOWN, "{web_path}": PAGES.removeprefix("/")}


class Who(Enum):
    """A group of callers with the same rights."""

    ADMINS_AND_SERVICES = auto()
    """The role admin or service."""
    SERVICES = auto()
    """The role service; under the old defaults also admin."""
    READERS_OF_THE_PROJECT = auto()
    """The role admin or service, and reader for the caller's own project."""


@dataclass(frozen=True)
class Operation:
    """One method of one route.

    :ivar rule: its name in policy files.
    """

    method: str
    template: str
    rule: str
    who: Who = Who.ADMINS_AND_SERVICES

    @property
    def path(self) -> str:
        """A path of the route; nothing that a request to it names exists."""
        segments = self.template.split("/")
        return "/".join(
            _PLACEHOLDERS.get(segment, "x") if segment.startswith("{") else segment
            for segment in segments
        )


_PROVIDER: Final = "/resource_providers/{uuid}"
_INVENTORY: Final = f"{_PROVIDER}/inventories/{{resource_class}}"
_CLASS: Final = "/resource_classes/{name}"
_CONSUMER: Final = "/allocations/{consumer_uuid}"

OPERATIONS: Final = (
    Operation("GET", "/resource_providers", "placement:resource_providers:list"),
    Operation("POST", "/resource_providers", "placement:resource_providers:create"),
    Operation("GET", _PROVIDER, "placement:resource_providers:show"),
    Operation("PUT", _PROVIDER, "placement:resource_providers:update"),
    Operation("DELETE", _PROVIDER, "placement:resource_providers:delete"),
    Operation("GET", "/resource_classes", "placement:resource_classes:list"),
    Operation("POST", "/resource_classes", "placement:resource_classes:create"),
    Operation("GET", _CLASS, "placement:resource_classes:show"),
    Operation("PUT", _CLASS, "placement:resource_classes:update"),
    Operation("DELETE", _CLASS, "placement:resource_classes:delete"),
    Operation("GET", f"{_PROVIDER}/inventories", "placement:resource_providers:inventories:list"),
    Operation(
        "POST", f"{_PROVIDER}/inventories", "placement:resource_providers:inventories:create"
    ),
    Operation("PUT", f"{_PROVIDER}/inventories", "placement:resource_providers:inventories:update"),
    Operation(
        "DELETE", f"{_PROVIDER}/inventories", "placement:resource_providers:inventories:delete"
    ),
    Operation("GET", _INVENTORY, "placement:resource_providers:inventories:show"),
    Operation("PUT", _INVENTORY, "placement:resource_providers:inventories:update"),
    Operation("DELETE", _INVENTORY, "placement:resource_providers:inventories:delete"),
    Operation("GET", f"{_PROVIDER}/aggregates", "placement:resource_providers:aggregates:list"),
    Operation("PUT", f"{_PROVIDER}/aggregates", "placement:resource_providers:aggregates:update"),
    Operation("GET", f"{_PROVIDER}/usages", "placement:resource_providers:usages"),
    Operation("GET", f"{_PROVIDER}/allocations", "placement:resource_providers:allocations:list"),
    Operation("GET", f"{_PROVIDER}/traits", "placement:resource_providers:traits:list"),
    Operation("PUT", f"{_PROVIDER}/traits", "placement:resource_providers:traits:update"),
    Operation("DELETE", f"{_PROVIDER}/traits", "placement:resource_providers:traits:delete"),
    Operation("GET", "/traits", "placement:traits:list"),
    Operation("GET", "/traits/{name}", "placement:traits:show"),
    Operation("PUT", "/traits/{name}", "placement:traits:update"),
    Operation("DELETE", "/traits/{name}", "placement:traits:delete"),
    Operation("GET", "/usages", "placement:usages", Who.READERS_OF_THE_PROJECT),
    Operation("POST", "/allocations", "placement:allocations:manage"),
    Operation("GET", _CONSUMER, "placement:allocations:list"),
    Operation("PUT", _CONSUMER, "placement:allocations:update"),
    Operation("DELETE", _CONSUMER, "placement:allocations:delete"),
    Operation("GET", "/allocation_candidates", "placement:allocation_candidates:list"),
    Operation("POST", "/reshaper", "placement:reshaper:reshape", Who.SERVICES),
    # the extensions
    Operation("GET", "/candidate_explanation", "placement:allocation_candidates:list"),
    Operation("GET", "/changes", "placement:changes:list"),
    Operation("GET", "/provider_trees/{uuid}", "placement:provider_trees:show"),
    Operation("POST", "/what_if", "placement:what_if"),
    Operation("GET", "/agent_reports", "placement:agent_reports:list"),
    Operation("POST", "/make_room", "placement:make_room"),
    Operation("GET", "/capacity", "placement:capacity:show"),
    Operation("GET", "/history", "placement:history:list"),
    Operation("GET", "/fragmentation", "placement:fragmentation:show"),
    # the pages
    Operation("GET", "/{web_path}/fleet", "placement:web:fleet"),
    Operation("GET", "/{web_path}/use", "placement:web:fleet"),
)

PUBLIC: Final = (("GET", "/"),)
"""What needs no token: the version document."""


def may(operation: Operation, roles: frozenset[str], *, project: str, new_defaults: bool) -> bool:
    """Whether a caller of `PROJECT` may.

    :param project: the one that the request is about.
    """
    if "service" in roles:
        return True
    if operation.who is Who.SERVICES:
        return "admin" in roles and not new_defaults
    if operation.who is Who.READERS_OF_THE_PROJECT and project == PROJECT and "reader" in roles:
        return True
    return "admin" in roles
