"""Authentication of callers, by one of two strategies.

`noauth2` believes the token, which is the user's name: for tests and for a server that only its
own machine can reach. `keystone` asks Keystone through keystonemiddleware. Both set the same
headers, from which the caller is made that the policy is enforced for.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from oslo_config import cfg
from oslo_context import context

from placement_server import errors
from placement_server.api.request import CALLER_KEY
from placement_server.middleware.keystone import PUBLIC, Keystone
from placement_server.policies.enforcer import Caller

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_DETAILS: Final = {
    "user_domain_id": "HTTP_X_USER_DOMAIN_ID",
    "project_domain_id": "HTTP_X_PROJECT_DOMAIN_ID",
    "service_user_id": "HTTP_X_SERVICE_USER_ID",
    "service_user_domain_id": "HTTP_X_SERVICE_USER_DOMAIN_ID",
    "service_project_id": "HTTP_X_SERVICE_PROJECT_ID",
    "service_project_domain_id": "HTTP_X_SERVICE_PROJECT_DOMAIN_ID",
}
"""Further headers of keystonemiddleware, under the names that rules of policy files use."""

_HEADERS: Final = (
    "HTTP_X_USER_ID",
    "HTTP_X_PROJECT_ID",
    "HTTP_X_ROLES",
    "HTTP_OPENSTACK_SYSTEM_SCOPE",
    "HTTP_X_DOMAIN_ID",
    "HTTP_X_SERVICE_ROLES",
    "HTTP_X_IS_ADMIN_PROJECT",
    *_DETAILS.values(),
)
"""All that a caller is made from."""

_CALLERS_KEPT: Final = 256
"""Callers that are remembered: the same few services send nearly all requests."""


def wrap(application: WSGIApplication, conf: cfg.ConfigOpts, strategy: str) -> WSGIApplication:
    """Put the application behind an authentication strategy, a value of `[api]auth_strategy`."""
    identified_application = _with_caller(application)
    if strategy == "noauth2":
        return _without_keystone(identified_application)
    protected_application: WSGIApplication = Keystone(identified_application, conf)
    return protected_application


def _without_keystone(application: WSGIApplication) -> WSGIApplication:
    """Take `user` or `user:project` from the token as it is.

    The user `admin` has the role admin, unless the client names roles itself.
    """

    def identify(environ: errors.Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO", "") == "/":
            return application(environ, start_response)
        token = environ.get("HTTP_X_AUTH_TOKEN")
        if token is None:
            return _refuse(environ, start_response)
        user_id, _, project_id = token.partition(":")
        environ["HTTP_X_USER_ID"] = user_id
        environ.setdefault("HTTP_X_ROLES", "admin" if user_id == "admin" else "")
        if not environ.get("HTTP_OPENSTACK_SYSTEM_SCOPE"):
            environ.setdefault("HTTP_X_PROJECT_ID", project_id or user_id)
        return application(environ, start_response)

    return identify


def _with_caller(application: WSGIApplication) -> WSGIApplication:
    """Make the caller from the headers that the strategy set; a request without a user is 401."""

    def call(environ: errors.Environ, start_response: StartResponse) -> Iterable[bytes]:
        get = environ.get
        user_id = get("HTTP_X_USER_ID")
        if user_id is None and get("PATH_INFO", "") not in PUBLIC:
            return _refuse(environ, start_response)
        caller = environ[CALLER_KEY] = _caller(*map(get, _HEADERS))
        log_context = context.get_current()
        if log_context is not None:
            log_context.user_id, log_context.project_id = caller.user_id, caller.project_id
        return application(environ, start_response)

    return call


@functools.lru_cache(maxsize=_CALLERS_KEPT)
def _caller(*values: str | None) -> Caller:
    """Return the caller whom the values of `_HEADERS` describe."""
    get = dict(zip(_HEADERS, values, strict=True)).get
    is_admin_project = get("HTTP_X_IS_ADMIN_PROJECT")
    return Caller(
        user_id=get("HTTP_X_USER_ID"),
        project_id=get("HTTP_X_PROJECT_ID"),
        roles=_split(get("HTTP_X_ROLES")),
        system_scope=get("HTTP_OPENSTACK_SYSTEM_SCOPE"),
        domain_id=get("HTTP_X_DOMAIN_ID"),
        details={
            **{name: get(header) for name, header in _DETAILS.items()},
            "service_roles": _split(get("HTTP_X_SERVICE_ROLES")),
            "is_admin_project": is_admin_project is None or is_admin_project.lower() == "true",
        },
    )


def _split(roles: str | None) -> tuple[str, ...]:
    return tuple(role.strip() for role in roles.split(",") if role.strip()) if roles else ()


def _refuse(environ: errors.Environ, start_response: StartResponse) -> Iterable[bytes]:
    status, headers, body = errors.unauthorized_response(environ)
    start_response(status, headers)
    return [body]
