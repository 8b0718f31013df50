"""The rules of the policy: one for each operation of the API, and those that these refer to."""

from typing import Final

from oslo_policy import policy

PROVIDER: Final = "/resource_providers/{uuid}"
INVENTORIES: Final = PROVIDER + "/inventories"
INVENTORY: Final = INVENTORIES + "/{resource_class}"

PROVIDERS_LIST: Final = "placement:resource_providers:list"
PROVIDERS_CREATE: Final = "placement:resource_providers:create"
PROVIDERS_SHOW: Final = "placement:resource_providers:show"
PROVIDERS_UPDATE: Final = "placement:resource_providers:update"
PROVIDERS_DELETE: Final = "placement:resource_providers:delete"
CLASSES_LIST: Final = "placement:resource_classes:list"
CLASSES_CREATE: Final = "placement:resource_classes:create"
CLASSES_SHOW: Final = "placement:resource_classes:show"
CLASSES_UPDATE: Final = "placement:resource_classes:update"
CLASSES_DELETE: Final = "placement:resource_classes:delete"
INVENTORIES_LIST: Final = "placement:resource_providers:inventories:list"
INVENTORIES_CREATE: Final = "placement:resource_providers:inventories:create"
INVENTORIES_SHOW: Final = "placement:resource_providers:inventories:show"
INVENTORIES_UPDATE: Final = "placement:resource_providers:inventories:update"
INVENTORIES_DELETE: Final = "placement:resource_providers:inventories:delete"
AGGREGATES_LIST: Final = "placement:resource_providers:aggregates:list"
AGGREGATES_UPDATE: Final = "placement:resource_providers:aggregates:update"
PROVIDER_USAGES: Final = "placement:resource_providers:usages"
TOTAL_USAGES: Final = "placement:usages"
TRAITS_LIST: Final = "placement:traits:list"
TRAITS_SHOW: Final = "placement:traits:show"
TRAITS_UPDATE: Final = "placement:traits:update"
TRAITS_DELETE: Final = "placement:traits:delete"
PROVIDER_TRAITS_LIST: Final = "placement:resource_providers:traits:list"
PROVIDER_TRAITS_UPDATE: Final = "placement:resource_providers:traits:update"
PROVIDER_TRAITS_DELETE: Final = "placement:resource_providers:traits:delete"
ALLOCATIONS_MANAGE: Final = "placement:allocations:manage"
ALLOCATIONS_LIST: Final = "placement:allocations:list"
ALLOCATIONS_UPDATE: Final = "placement:allocations:update"
ALLOCATIONS_DELETE: Final = "placement:allocations:delete"
PROVIDER_ALLOCATIONS: Final = "placement:resource_providers:allocations:list"
CHANGES_LIST: Final = "placement:changes:list"
AGENT_REPORTS_LIST: Final = "placement:agent_reports:list"
CANDIDATES_LIST: Final = "placement:allocation_candidates:list"
CAPACITY_SHOW: Final = "placement:capacity:show"
FRAGMENTATION_SHOW: Final = "placement:fragmentation:show"
HISTORY_LIST: Final = "placement:history:list"
RESHAPE: Final = "placement:reshaper:reshape"
TREES_SHOW: Final = "placement:provider_trees:show"
WHAT_IF: Final = "placement:what_if"
MAKE_ROOM: Final = "placement:make_room"
WEB_FLEET: Final = "placement:web:fleet"


_LEGACY: Final = policy.DeprecatedRule(
    name="rule:admin_api",
    check_str="role:admin",
    deprecated_reason=(
        "Services call placement, and the service role is enough for them; the reader role is "
        "enough to read the usage of a project."
    ),
    deprecated_since="1.0",
)
"""Before there were other roles than admin, admin was needed for everything. oslo.policy ORs this
in while `[oslo_policy]enforce_new_defaults` is false and the operator has not overridden the
rule."""

BASE_RULES: Final = (
    policy.RuleDefault("admin_api", "role:admin", description="An administrator."),
    policy.RuleDefault(
        "service_api",
        "role:service",
        description="A service, such as a scheduler or a compute host.",
        deprecated_rule=_LEGACY,
    ),
    policy.RuleDefault(
        "admin_or_service_api",
        "role:admin or role:service",
        description="An administrator or a service.",
        deprecated_rule=_LEGACY,
    ),
    policy.RuleDefault(
        "project_reader_api",
        "role:reader and project_id:%(project_id)s",
        description="A reader of the project of the request.",
        deprecated_rule=_LEGACY,
    ),
    policy.RuleDefault(
        "admin_or_project_reader_or_service_api",
        "role:admin or rule:project_reader_api or role:service",
        description="An administrator, a service, or a reader of the project of the request.",
        deprecated_rule=_LEGACY,
    ),
)
"""Those that the rules of operations refer to."""


def _rule(
    name: str, description: str, *operations: str, check: str = "rule:admin_or_service_api"
) -> policy.DocumentedRuleDefault:
    return policy.DocumentedRuleDefault(
        name,
        check,
        description,
        [
            {"method": method, "path": path}
            for method, _, path in (operation.partition(" ") for operation in operations)
        ],
        scope_types=["project"],
    )


RULES: Final = (
    _rule(PROVIDERS_LIST, "List resource providers.", "GET /resource_providers"),
    _rule(PROVIDERS_CREATE, "Create a resource provider.", "POST /resource_providers"),
    _rule(PROVIDERS_SHOW, "Show a resource provider.", f"GET {PROVIDER}"),
    _rule(PROVIDERS_UPDATE, "Rename or move a resource provider.", f"PUT {PROVIDER}"),
    _rule(PROVIDERS_DELETE, "Delete a resource provider.", f"DELETE {PROVIDER}"),
    _rule(CLASSES_LIST, "List resource classes.", "GET /resource_classes"),
    _rule(CLASSES_CREATE, "Create a resource class.", "POST /resource_classes"),
    _rule(CLASSES_SHOW, "Show a resource class.", "GET /resource_classes/{name}"),
    _rule(
        CLASSES_UPDATE,
        "Create a resource class if it does not exist, or rename it.",
        "PUT /resource_classes/{name}",
    ),
    _rule(CLASSES_DELETE, "Delete a resource class.", "DELETE /resource_classes/{name}"),
    _rule(INVENTORIES_LIST, "List the inventories of a provider.", f"GET {INVENTORIES}"),
    _rule(INVENTORIES_CREATE, "Add an inventory to a provider.", f"POST {INVENTORIES}"),
    _rule(INVENTORIES_SHOW, "Show one inventory of a provider.", f"GET {INVENTORY}"),
    _rule(
        INVENTORIES_UPDATE,
        "Replace one or all inventories of a provider.",
        f"PUT {INVENTORIES}",
        f"PUT {INVENTORY}",
    ),
    _rule(
        INVENTORIES_DELETE,
        "Delete one or all inventories of a provider.",
        f"DELETE {INVENTORIES}",
        f"DELETE {INVENTORY}",
    ),
    _rule(AGGREGATES_LIST, "List the aggregates of a provider.", f"GET {PROVIDER}/aggregates"),
    _rule(AGGREGATES_UPDATE, "Replace the aggregates of a provider.", f"PUT {PROVIDER}/aggregates"),
    _rule(PROVIDER_USAGES, "Show the usages of a provider.", f"GET {PROVIDER}/usages"),
    _rule(
        TOTAL_USAGES,
        "Show the usages of a project.",
        "GET /usages",
        check="rule:admin_or_project_reader_or_service_api",
    ),
    _rule(TRAITS_LIST, "List traits.", "GET /traits"),
    _rule(TRAITS_SHOW, "Show a trait.", "GET /traits/{name}"),
    _rule(TRAITS_UPDATE, "Create a trait if it does not exist.", "PUT /traits/{name}"),
    _rule(TRAITS_DELETE, "Delete a trait.", "DELETE /traits/{name}"),
    _rule(PROVIDER_TRAITS_LIST, "List the traits of a provider.", f"GET {PROVIDER}/traits"),
    _rule(PROVIDER_TRAITS_UPDATE, "Replace the traits of a provider.", f"PUT {PROVIDER}/traits"),
    _rule(PROVIDER_TRAITS_DELETE, "Delete the traits of a provider.", f"DELETE {PROVIDER}/traits"),
    _rule(ALLOCATIONS_MANAGE, "Write the allocations of several consumers.", "POST /allocations"),
    _rule(
        ALLOCATIONS_LIST, "List the allocations of a consumer.", "GET /allocations/{consumer_uuid}"
    ),
    _rule(
        ALLOCATIONS_UPDATE,
        "Replace the allocations of a consumer.",
        "PUT /allocations/{consumer_uuid}",
    ),
    _rule(
        ALLOCATIONS_DELETE,
        "Delete the allocations of a consumer.",
        "DELETE /allocations/{consumer_uuid}",
    ),
    _rule(
        PROVIDER_ALLOCATIONS, "List the allocations of a provider.", f"GET {PROVIDER}/allocations"
    ),
    _rule(CHANGES_LIST, "List changes of providers, allocations and names.", "GET /changes"),
    _rule(
        AGENT_REPORTS_LIST,
        "List when the agents of hosts reported last (placement-ext 1.1).",
        "GET /agent_reports",
    ),
    _rule(CANDIDATES_LIST, "List allocation candidates.", "GET /allocation_candidates"),
    _rule(
        CAPACITY_SHOW,
        "Show how many more claims would succeed (placement-ext 1.1).",
        "GET /capacity",
    ),
    _rule(
        FRAGMENTATION_SHOW,
        "Show how much is free, and how much of that is stranded (placement-ext 1.1).",
        "GET /fragmentation",
    ),
    _rule(
        HISTORY_LIST,
        "List past changes of allocations and providers, with who made them (placement-ext 1.1).",
        "GET /history",
    ),
    _rule(
        RESHAPE,
        "Move inventory between providers together with its allocations.",
        "POST /reshaper",
        check="rule:service_api",
    ),
    _rule(TREES_SHOW, "Show a whole provider tree.", "GET /provider_trees/{uuid}"),
    _rule(
        WHAT_IF,
        "Ask questions about the fleet as it would be after changes (placement-ext 1.1). "
        "Each question also needs the rule of its own route.",
        "POST /what_if",
    ),
    _rule(
        MAKE_ROOM,
        "Ask which consumers to move so that a request fits (placement-ext 1.1).",
        "POST /make_room",
    ),
    _rule(
        WEB_FLEET,
        "Show the usage of all hosts, for the pages at [placement_server]web_path.",
        "GET /{web_path}/fleet",
        "GET /{web_path}/use",
    ),
)
