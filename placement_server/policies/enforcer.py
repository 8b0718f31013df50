"""Enforcement of the policy: scope first, then the rule."""

from __future__ import annotations

import copy
import logging
import os
import stat
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from oslo_config import cfg
from oslo_policy import policy

from compute_agent.programs import yaml_text
from compute_agent.programs.kept_values import LastingConditions
from placement_server import errors
from placement_server.conf import InvalidConfiguration, new_config
from placement_server.policies import checks, operations

LOG = logging.getLogger(__name__)

_UNUSABLE_FILE: Final = (ValueError, TypeError, AttributeError, OSError, cfg.Error)
"""Errors of oslo.policy for a file that cannot be read or is not a policy."""


def list_rules() -> list[policy.RuleDefault]:
    """Return every rule, for oslopolicy-sample-generator and its like."""
    return [*operations.BASE_RULES, *operations.RULES]


def get_enforcer() -> policy.Enforcer:
    """Return the rules with the operator's changes.

    For oslopolicy-policy-generator and oslopolicy-checker.
    """
    conf = new_config()
    enforcer = policy.Enforcer(conf)
    enforcer.register_defaults(list_rules())
    return enforcer


def _missing_file(conf: cfg.ConfigOpts) -> str | None:
    """Return the policy file that the configuration sets, if it does not exist."""
    place = conf.get_location("policy_file", "oslo_policy")
    if place is None or not place.location.is_user_controlled:
        return None
    name: str = conf.oslo_policy.policy_file
    return name if name and conf.find_file(name) is None else None


def file_problem(conf: cfg.ConfigOpts) -> str | None:
    """Return what is to be corrected about a policy file with which a server starts anyway.

    :raises InvalidConfiguration: the file cannot be used.
    """
    if (name := _missing_file(conf)) is not None:
        return (
            f"The file {name} of [oslo_policy]policy_file does not exist: the default rules are in "
            "force. Correct or remove the option."
        )
    enforcer = _loaded_enforcer(conf)
    if unused_rules := checks.unused_rules(enforcer):
        return (
            f"Nothing uses {', '.join(unused_rules)} of the policy file {enforcer.policy_path}. "
            "Correct the name of the rule, or remove it."
        )
    return None


def warn_of_file(conf: cfg.ConfigOpts) -> None:
    """Log a warning if something is to be corrected about the policy file.

    :raises InvalidConfiguration: the file cannot be used.
    """
    if (problem := file_problem(conf)) is not None:
        LOG.warning("%s", problem)


class Caller(Struct, frozen=True, eq=False):
    """The sender of a request, as authenticated in front of the API.

    The same one for all its requests, by which decisions are remembered.
    """

    user_id: str | None
    project_id: str | None = None
    roles: tuple[str, ...] = ()
    system_scope: str | None = None
    domain_id: str | None = None
    details: Mapping[str, Any] = {}
    """Further attributes, for the rules of an operator's policy file."""

    def credentials(self) -> dict[str, Any]:
        """Return the attributes that rules are evaluated against."""
        # oslo.policy looks into lists only.
        details = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.details.items()
        }
        return {
            **details,
            "user_id": self.user_id,
            "project_id": self.project_id,
            "roles": list(self.roles),
            "system_scope": self.system_scope,
            "domain_id": self.domain_id,
        }


MAX_FILE_BYTES: Final = 1024 * 1024
DECISIONS_KEPT: Final = 4096
SECONDS_BETWEEN_SEARCHES: Final = 1.0


class _FileEnforcer(policy.Enforcer):  # type: ignore[misc]
    """An enforcer that reads regular files only, within limits of bytes and of values."""

    def _load_policy_file(self, path: str, *arguments: Any, **keywords: Any) -> bool:
        status = os.stat(path)
        version = (status.st_mtime_ns, status.st_size, status.st_ino)
        versions = self.__dict__.setdefault("_versions", {})
        if versions.get(path) != version:
            _check_file(path, status)
            versions[path] = version
        return bool(super()._load_policy_file(path, *arguments, **keywords))


def _check_file(path: str, status: os.stat_result) -> None:
    """Read a file before the library does, which knows no limit.

    :raises ValueError: it cannot be used.
    """
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is not a regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise ValueError(f"{path} is larger than {MAX_FILE_BYTES // 1024} KiB")
    with open(path, "rb") as file:
        content = file.read(MAX_FILE_BYTES)
    try:
        yaml_text.parse_yaml(content)
    except yaml_text.TooManyValues as error:
        raise ValueError(f"{path} {error}") from error
    except yaml_text.YamlUnusable:
        return  # in words of the library, which reads JSON too


class _Rules:
    """Rules as they were when they were loaded, which any number of threads may evaluate.

    :param enforcer: replaces its rules file by file when one changes.
    :ivar asks_services: whether any of them asks another service.
    """

    def __init__(self, enforcer: policy.Enforcer) -> None:
        self._enforcer = copy.copy(enforcer)
        self._enforcer.rules = copy.copy(enforcer.rules)
        # or the evaluation would check the files once more
        self._enforcer.use_conf = False
        self.asks_services = checks.ask_services(enforcer)
        # The same few services send the same requests all day, and a rule is slow to evaluate.
        self._decisions: dict[tuple[object, ...], bool] = {}

    def allow(self, rule: str, caller: Caller, target: Mapping[str, Any] | None) -> bool:
        """Return whether a rule allows the caller.

        Decisions of the default rules are cached; those of an operator's rules are not, as a rule
        may ask another service.

        :raises errors.ServiceUnavailable: the other service does not answer.
        """
        if self._enforcer.file_rules:
            return self._evaluate(rule, caller, target)
        question = (rule, caller, *(target.items() if target is not None else ()))
        is_allowed = self._decisions.get(question)
        if is_allowed is None:
            if len(self._decisions) >= DECISIONS_KEPT:
                self._decisions.clear()
            is_allowed = self._decisions[question] = self._evaluate(rule, caller, target)
        return is_allowed

    def _evaluate(self, rule: str, caller: Caller, target: Mapping[str, Any] | None) -> bool:
        if target is None:
            target = {"project_id": caller.project_id, "user_id": caller.user_id}
        try:
            return bool(self._enforcer.authorize(rule, target, caller.credentials()))
        except (KeyError, OSError, RuntimeError) as error:
            LOG.error("The rule %s of the policy cannot be evaluated: %s", rule, _line(error))
            raise errors.ServiceUnavailable(
                f"The rule {rule} of the policy cannot be evaluated now: {_line(error)}"
            ) from error


class Enforcer:
    """The rules in force: the defaults, changed by the operator's policy files."""

    def __init__(self, conf: cfg.ConfigOpts, former: Enforcer | None = None) -> None:
        """Load the rules.

        :param former: whose rules are in force while the policy file cannot be used.
        :raises InvalidConfiguration: the policy file cannot be used, and there are none.
        """
        try:
            self._enforcer = _loaded_enforcer(conf)
            self._rules = _Rules(self._enforcer)
        except InvalidConfiguration:
            if former is None:
                raise
            self._enforcer, self._rules = former._enforcer, former._rules
        # Files are followed by one request at a time; rules are evaluated by all of them at once.
        self._turn = threading.Lock()
        self._conditions = LastingConditions()
        self._next_search = 0.0
        self._is_current = True

    @property
    def asks_services(self) -> bool:
        """Whether rules in force ask other services, which may take their time."""
        return self._rules.asks_services

    @property
    def file(self) -> str | None:
        """The policy file; None where there is none."""
        path: str | None = self._enforcer.policy_path
        return path

    def follow(self) -> bool:
        """Load files that have changed; return whether those in force are the present ones."""
        with self._turn:
            self._follow_files()
            # a file that cannot be used raises once, and not again until it has changed
            return self._is_current

    def authorise(self, rule: str, caller: Caller, target: Mapping[str, Any] | None = None) -> None:
        """Return if the rule allows the caller, and raise otherwise.

        :param target: what the rule compares the caller with; the caller itself by default.
        :raises errors.Forbidden: the scope or the rule refuses.
        """
        if caller.system_scope or caller.domain_id:
            # Every rule is of project scope; the published server names only the rule here.
            raise errors.Forbidden(rule)
        if self._enforcer.policy_path is not None or time.monotonic() >= self._next_search:
            self.follow()
        if not self._rules.allow(rule, caller, target):
            raise errors.Forbidden(f"Policy does not allow {rule} to be performed.")

    def _follow_files(self) -> None:
        """Load files that have changed; one that cannot be used leaves the rules in force.

        A file in use is checked for every request. The search for one in all the places where it
        might appear costs more, and is done once a second.
        """
        enforcer = self._enforcer
        self._next_search = time.monotonic() + SECONDS_BETWEEN_SEARCHES
        rules, file_rules = enforcer.rules, enforcer.file_rules
        enforcer.use_conf = True
        try:
            if _load(enforcer):
                self._rules = _Rules(enforcer)
                self._is_current = True
        except _UNUSABLE_FILE as error:
            self._is_current = False
            enforcer.rules, enforcer.file_rules = rules, file_rules
            reason = _line(error)
            if self._conditions.is_new("file", reason):
                LOG.error(
                    "The policy file %s cannot be used any more: %s. The rules loaded before stay "
                    "in force until it is corrected.",
                    enforcer.policy_path,
                    reason,
                )
        else:
            self._conditions.is_over("file")
        finally:
            enforcer.use_conf = False


def _loaded_enforcer(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return the rules in force.

    :raises InvalidConfiguration: the policy file cannot be used.
    """
    enforcer = _FileEnforcer(conf)
    # Every base rule would warn, at every start, that its default has changed.
    enforcer.suppress_deprecation_warnings = True
    enforcer.suppress_default_change_warnings = True
    # register_defaults() copies the checks of each rule too, which are never changed
    enforcer.registered_rules |= {rule.name: copy.copy(rule) for rule in list_rules()}
    try:
        _load(enforcer)
    except _UNUSABLE_FILE as error:
        raise InvalidConfiguration(
            f"The policy file {conf.oslo_policy.policy_file} cannot be used: {_line(error)}"
        ) from error
    return enforcer


def _load(enforcer: policy.Enforcer) -> bool:
    """Read the files that have changed; return whether any has.

    :raises ValueError: a file cannot be used; or another error of `_UNUSABLE_FILE`.
    """
    before = enforcer.file_rules
    try:
        enforcer.load_rules()
    except RecursionError as error:
        raise ValueError("its rules are nested too deeply") from error
    if enforcer.file_rules is before:
        return False
    checks.require_known(enforcer)
    return True


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
