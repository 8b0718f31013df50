"""Validation of the checks in an operator's policy file, which oslo.policy does not do.

To oslo.policy a misspelt check is one that never matches, so it locks out everybody in silence; or
nobody, behind a ``not``.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final

from oslo_policy import _checks, _parser, policy

# Its parser logs an expression that it cannot parse with a traceback; here that is an error.
logging.getLogger(_parser.__name__).addFilter(lambda _record: False)

_CLOSE_NAME: Final = 0.8

#: Attributes of a caller that this server knows, for rules to compare.
_OF_CALLERS: Final = frozenset(
    {
        *("user_id", "project_id", "domain_id", "system_scope", "roles", "is_admin_project"),
        *("user_domain_id", "project_domain_id"),
        *("service_user_id", "service_user_domain_id", "service_project_id"),
        *("service_project_domain_id", "service_roles"),
    }
)

#: Attributes that other services know; they never match here, and shared policy files use them.
_ELSEWHERE: Final = frozenset(
    {"is_admin", "user", "tenant", "tenant_id", "domain", "user_domain", "project_domain", "token"}
)


def require_known(enforcer: policy.Enforcer) -> None:
    """Check every rule of the policy files.

    :raises ValueError: one of them cannot be parsed, or has a check that does not exist, or refers
        to a rule that does not.
    """
    for name, rule in enforcer.file_rules.items():
        for check in _parts(rule.check):
            problem = _problem(check, str(rule.check_str), enforcer)
            if problem:
                raise ValueError(f'the rule "{name}" is "{rule.check_str}", and {problem}')


def unused_rules(enforcer: policy.Enforcer) -> list[str]:
    """Return the rules of the policy files that nothing uses, each with what may be meant."""
    known_names = {*enforcer.registered_rules, enforcer.default_rule}
    for rule in (*enforcer.registered_rules.values(), *enforcer.file_rules.values()):
        known_names |= {
            part.match for part in _parts(rule.check) if isinstance(part, _checks.RuleCheck)
        }
    return [
        f'"{name}"' + "".join(f' (is "{close}" meant?)' for close in _close(name, enforcer))
        for name in enforcer.file_rules
        if name not in known_names
    ]


def _close(name: str, enforcer: policy.Enforcer) -> list[str]:
    return get_close_matches(name, enforcer.registered_rules, 1, _CLOSE_NAME)


def _parts(check: Any) -> Iterator[Any]:
    yield check
    parts = [*getattr(check, "rules", ()), *filter(None, [getattr(check, "rule", None)])]
    for part in parts:
        yield from _parts(part)


def _problem(check: Any, text: str, enforcer: policy.Enforcer) -> str | None:
    if isinstance(check, _checks.FalseCheck) and "!" not in text:
        return "that is not a policy expression"
    if isinstance(check, _checks.RuleCheck) and not _exists(check.match, enforcer):
        return f'there is no rule "{check.match}"'
    if isinstance(check, _checks.GenericCheck) and not _is_known(check.kind):
        known_attributes = ", ".join(sorted(_OF_CALLERS))
        return (
            f'there is no check "{check.kind}": write role, rule, http or https, a constant, or '
            f"one of {known_attributes}"
        )
    return None


def _exists(name: str, enforcer: policy.Enforcer) -> bool:
    # oslo.policy uses the default rule, if there is one, for a rule that does not exist.
    names = {*enforcer.registered_rules, *enforcer.file_rules}
    return name in names or enforcer.default_rule in names


def _is_known(kind: str) -> bool:
    if kind.partition(".")[0] in _OF_CALLERS | _ELSEWHERE:
        return True
    try:
        ast.literal_eval(kind)
    except (ValueError, SyntaxError):
        return False
    return True
