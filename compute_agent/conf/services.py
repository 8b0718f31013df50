"""Options of groups placement, nova and neutron: access to services of OpenStack."""

from __future__ import annotations

import contextlib
from typing import Any, Final
from urllib.parse import urlsplit

from keystoneauth1 import loading as ka_loading
from keystoneauth1.exceptions import NoMatchingPlugin
from oslo_config import cfg

SERVICES: Final = (
    (
        "placement",
        "placement",
        """
Access of the agent and the scheduler to placement: session, adapter and auth options of
keystoneauth1.

``auth_type`` is any plugin of keystoneauth1 (``password``, ``v3applicationcredential``,
``none``, ``http_basic``, ...) or ``noauth``, which sends the token ``admin`` to a placement
without keystone and needs ``endpoint_override``. The user needs the role ``service`` (``admin``
is not enough to reshape).

If ``timeout`` is unset, a request has 10 seconds to connect and 60 seconds for the whole answer
(300 seconds for a reshape).
""",
    ),
    (
        "nova",
        "compute",
        """
Access to the Compute API: session, adapter and auth options of keystoneauth1. Used if
[compute_agent]instance_source is nova, by `compute-manage`, and by the agent with heal_orphans
or heal_missing; and if [compute_scheduler]aggregate_source is nova, by the scheduler and
`compute-manage placement sync_aggregates`. The user must be allowed to list the servers and
migrations of all projects, or the aggregates.
""",
    ),
    (
        "neutron",
        "network",
        """
Access to the Networking API, for ports that need resources: session, adapter and auth options of
keystoneauth1. `compute-manage placement heal_allocations`, and the agent with heal_missing, use
it. The user must be allowed to read `resource_request` and `binding:profile` of ports, and to
write `binding:profile`.
""",
    ),
)

NOAUTH: Final = "noauth"
"""The `auth_type` that is ours, and has no options of its own."""


def register_opts(conf: cfg.ConfigOpts, *names: str) -> None:
    """Register the options that do not depend on `auth_type`; plugins add theirs when loaded.

    :param names: of groups; by default all.
    """
    for group, options in _options():
        if not names or group.name in names:
            conf.register_group(group)
            conf.register_opts(options, group=group.name)


def list_opts(auth_type: str | None = "v3password") -> list[tuple[cfg.OptGroup, list[Any]]]:
    """Return the options by group, those of placement with the ones of a plugin.

    :param auth_type: the plugin, by default the most used one; one that does not exist has none.
    """
    plugin_options = []
    if auth_type and auth_type != NOAUTH:
        with contextlib.suppress(NoMatchingPlugin):
            plugin_options = ka_loading.get_auth_plugin_conf_options(auth_type)
    return [
        (group, [*options, *(plugin_options if group.name == "placement" else ())])
        for group, options in _options()
    ]


def _options() -> list[tuple[cfg.OptGroup, list[Any]]]:
    """Return new groups: copies of one group share their options, and with them overrides."""
    return [
        (cfg.OptGroup(name, title=f"{kind.capitalize()} service", help=text), _of_service(kind))
        for name, kind, text in SERVICES
    ]


def _of_service(service_type: str) -> list[Any]:
    adapter_opts = ka_loading.get_adapter_conf_options(include_deprecated=False)
    cfg.set_defaults(
        adapter_opts, service_type=service_type, valid_interfaces=["internal", "public"]
    )
    return [
        *ka_loading.get_session_conf_options(),
        *ka_loading.get_auth_common_conf_options(),
        *adapter_opts,
    ]


def url_fault(url: str) -> str:
    """Return what is wrong with the URL of a service, and what to do; empty: nothing.

    Those of services have no @ but behind a user, and where a password has a slash it is behind
    the host.
    """
    if "@" in url:
        return (
            "has a user or a password in its URL, which errors and logs would show. Take them out; "
            "for HTTP Basic there is auth_type = http_basic with username and password"
        )
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_url = False
    return "" if is_url else f"is {url!r}: expected a URL, such as http://127.0.0.1:8778"
