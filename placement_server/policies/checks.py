"""Validation of the checks in an operator's policy file, which oslo.policy does not do.

To oslo.policy a misspelt check is one that never matches, so it locks out everybody in silence; or
nobody, behind a `not`.
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

_REMOTE: Final = ("http", "https")

# Python calls two functions for each, and gives up at a thousand.
_MOST_LEVELS: Final = 100

_OF_CALLERS: Final = frozenset(
    {
        *("user_id", "project_id", "domain_id", "system_scope", "roles", "is_admin_project"),
        *("user_domain_id", "project_domain_id"),
        *("service_user_id", "service_user_domain_id", "service_project_id"),
        *("service_project_domain_id", "service_roles"),
    }
)
"""Attributes of a caller that this server knows, for rules to compare."""

_OF_TARGETS: Final = frozenset({"project_id", "user_id"})

_ELSEWHERE: Final = frozenset(
    {"is_admin", "user", "tenant", "tenant_id", "domain", "user_domain", "project_domain", "token"}
)
"""Attributes that other services know; they never match here, and shared policy files use them."""


def require_known(enforcer: policy.Enforcer) -> None:
    """Check every rule of the policy files.

    :raises ValueError: one of them cannot be parsed or evaluated, has a check that does not exist,
        refers to a rule that does not, or refers to itself.
    """
    levels = _Levels(enforcer)
    for name, rule in enforcer.file_rules.items():
        problem = levels.problem(name) or next(
            filter(
                None, [_problem(part, str(rule.check_str), enforcer) for part in _parts(rule.check)]
            ),
            None,
        )
        if problem:
            raise ValueError(f'the rule "{name}" is "{rule.check_str}", and {problem}')


class _Levels:
    """How deep the evaluation of rules goes: through checks, and the rules that they refer to."""

    def __init__(self, enforcer: policy.Enforcer) -> None:
        self._enforcer = enforcer
        self._known_levels: dict[str, int] = {}

    def problem(self, name: str) -> str | None:
        """Return why a rule cannot be evaluated; None if it can."""
        try:
            self._of_rule(name, ())
        except ValueError as error:
            return str(error)
        return None

    def _of_rule(self, name: str, path: tuple[str, ...]) -> int:
        if name in path:
            circle = " -> ".join((*path[path.index(name) :], name))
            raise ValueError(f"rules refer to each other in a circle: {circle}")
        if name not in self._known_levels:
            self._known_levels[name] = self._of_check(self._enforcer.rules[name], (*path, name), 1)
        return self._known_levels[name]

    def _of_check(self, check: Any, path: tuple[str, ...], level: int) -> int:
        deepest = 0
        if isinstance(check, _checks.RuleCheck):
            # For a rule that does not exist oslo.policy uses the default rule, if there is one.
            names = [
                name
                for name in (check.match, self._enforcer.default_rule)
                if name in self._enforcer.rules
            ]
            deepest = self._of_rule(names[0], path) if names else 0
        elif level <= _MOST_LEVELS:
            deepest = max(
                (self._of_check(part, path, level + 1) for part in _within(check)), default=0
            )
        if level + deepest > _MOST_LEVELS:
            raise ValueError(f"it is nested more than {_MOST_LEVELS} checks and rules deep")
        return 1 + deepest


def ask_services(enforcer: policy.Enforcer) -> bool:
    """Check whether any rule of the policy files asks another service."""
    parts = (part for rule in enforcer.file_rules.values() for part in _parts(rule.check))
    return any(getattr(part, "kind", None) in _REMOTE for part in parts)


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
    for part in _within(check):
        yield from _parts(part)


def _within(check: Any) -> list[Any]:
    return [*getattr(check, "rules", ()), *filter(None, [getattr(check, "rule", None)])]


def _problem(check: Any, text: str, enforcer: policy.Enforcer) -> str | None:
    if isinstance(check, _checks.FalseCheck) and "!" not in text:
        return "that is not a policy expression"
    if isinstance(check, _checks.RuleCheck):
        return None if _exists(check.match, enforcer) else f'there is no rule "{check.match}"'
    if isinstance(check, _checks.GenericCheck) and not _is_known(check.kind):
        known_attributes = ", ".join(sorted(_OF_CALLERS))
        return (
            f'there is no check "{check.kind}": write role, rule, http or https, a constant, or '
            f"one of {known_attributes}"
        )
    return _template_problem(check) if isinstance(check, _checks.Check) else None


def _template_problem(check: _checks.Check) -> str | None:
    target = _AnyTarget()
    try:
        check.match % target
    except (TypeError, ValueError) as error:
        return (
            f'"{check.match}" cannot be filled in ({error}): write %(project_id)s for the project '
            "of what is asked for, and %% for a percent sign"
        )
    if check.kind in _REMOTE and (unknown_names := target.keys() - _OF_TARGETS):
        return (
            f'"{check}" needs {", ".join(sorted(unknown_names))}, and requests have only '
            f"{' and '.join(sorted(_OF_TARGETS))}"
        )
    return None


class _AnyTarget(dict[str, str]):
    """A target with whatever a rule looks up."""

    def __missing__(self, key: str) -> str:
        self[key] = "text"
        return self[key]


def _exists(name: str, enforcer: policy.Enforcer) -> bool:
    # oslo.policy uses the default rule, if there is one, for a rule that does not exist.
    names = {*enforcer.registered_rules, *enforcer.file_rules}
    return name in names or enforcer.default_rule in names


def _is_known(kind: str) -> bool:
    try:
        ast.literal_eval(kind)
    except ValueError:
        # What this server knows of callers has no parts.
        return kind in _OF_CALLERS or kind.partition(".")[0] in _ELSEWHERE
    except SyntaxError:
        return False
    return True
