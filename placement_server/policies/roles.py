"""The base rules that the rules of operations refer to."""

from typing import Final

from oslo_policy import policy

RULE_ADMIN: Final = "rule:admin_api"
RULE_SERVICE: Final = "rule:service_api"
RULE_ADMIN_OR_SERVICE: Final = "rule:admin_or_service_api"
RULE_USAGE_READER: Final = "rule:admin_or_project_reader_or_service_api"

_LEGACY: Final = policy.DeprecatedRule(
    name=RULE_ADMIN,
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

RULES: Final = (
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
