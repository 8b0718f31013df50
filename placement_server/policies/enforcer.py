"""Enforcement: scope first, then the rule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oslo_config import cfg
from oslo_policy import policy

from placement_server import errors
from placement_server.conf import new_config
from placement_server.policies import operations, roles


def list_rules() -> list[policy.RuleDefault]:
    """Every rule, for oslopolicy-sample-generator and its kin."""
    return [*roles.RULES, *operations.RULES]


def get_enforcer() -> policy.Enforcer:
    """The rules with the operator's changes, for oslopolicy-policy-generator and -checker."""
    conf = new_config()
    enforcer = policy.Enforcer(conf)
    enforcer.register_defaults(list_rules())
    return enforcer


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as the authentication in front of the API has found out."""

    user_id: str | None
    project_id: str | None = None
    roles: tuple[str, ...] = ()
    system_scope: str | None = None
    domain_id: str | None = None
    #: What else a rule of an operator's policy file may look at.
    details: Mapping[str, Any] = field(default_factory=dict)

    def credentials(self) -> dict[str, Any]:
        """What rules are evaluated against."""
        return {
            **self.details,
            "user_id": self.user_id,
            "project_id": self.project_id,
            "roles": list(self.roles),
            "system_scope": self.system_scope,
            "domain_id": self.domain_id,
        }


class Enforcer:
    """The rules in force: the defaults, changed by the operator's policy files."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._enforcer = policy.Enforcer(conf)
        # Every base rule would warn, at every start, that its default has changed.
        self._enforcer.suppress_deprecation_warnings = True
        self._enforcer.suppress_default_change_warnings = True
        self._enforcer.register_defaults(list_rules())
        self._enforcer.load_rules()

    def authorise(self, rule: str, caller: Caller, target: Mapping[str, Any] | None = None) -> None:
        """Do nothing when the caller may.

        :param target: what the rule compares the caller with; the caller itself by default.
        :raises errors.Forbidden: the scope or the rule refuses.
        """
        if caller.system_scope or caller.domain_id:
            # Every rule is of project scope; the published server names only the rule here.
            raise errors.Forbidden(rule)
        if target is None:
            target = {"project_id": caller.project_id, "user_id": caller.user_id}
        if not self._enforcer.authorize(rule, target, caller.credentials()):
            raise errors.Forbidden(f"Policy does not allow {rule} to be performed.")
