"""The checks in an operator's policy file, which the library takes as they come.

A misspelt check is one that never matches to the library, so it locks out everybody in silence; or
nobody, behind a ``not``.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from typing import Any, Final

from oslo_policy import _checks, _parser, policy

# What it logs of an expression that it cannot parse, with a traceback, is reported here instead.
logging.getLogger(_parser.__name__).addFilter(lambda _record: False)

#: What rules compare that this server knows of its callers.
_OF_CALLERS: Final = frozenset(
    {
        *("user_id", "project_id", "domain_id", "system_scope", "roles", "is_admin_project"),
        *("user_domain_id", "project_domain_id"),
        *("service_user_id", "service_user_domain_id", "service_project_id"),
        *("service_project_domain_id", "service_roles"),
    }
)

#: What other services know of theirs. Here it never matches, and files that are shared have it.
_ELSEWHERE: Final = frozenset(
    {"is_admin", "user", "tenant", "tenant_id", "domain", "user_domain", "project_domain", "token"}
)


def require_known(enforcer: policy.Enforcer) -> None:
    """Look at every rule of the policy files.

    :raises ValueError: one of them cannot be parsed, or has a check that does not exist, or refers
        to a rule that does not.
    """
    for name, rule in enforcer.file_rules.items():
        for check in _parts(rule.check):
            problem = _problem(check, str(rule.check_str), enforcer)
            if problem:
                raise ValueError(f'the rule "{name}" is "{rule.check_str}", and {problem}')


def _parts(check: Any) -> Iterator[Any]:
    yield check
    inner = [*getattr(check, "rules", ()), *filter(None, [getattr(check, "rule", None)])]
    for part in inner:
        yield from _parts(part)


def _problem(check: Any, text: str, enforcer: policy.Enforcer) -> str | None:
    if isinstance(check, _checks.FalseCheck) and "!" not in text:
        return "that is not a policy expression"
    if isinstance(check, _checks.RuleCheck) and not _exists(check.match, enforcer):
        return f'there is no rule "{check.match}"'
    if isinstance(check, _checks.GenericCheck) and not _is_known(check.kind):
        known = ", ".join(sorted(_OF_CALLERS))
        return (
            f'there is no check "{check.kind}": write role, rule, http or https, a constant, or '
            f"one of {known}"
        )
    return None


def _exists(name: str, enforcer: policy.Enforcer) -> bool:
    # The default rule stands for those that are not there, where there is one.
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
