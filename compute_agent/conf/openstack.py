"""Options of groups nova and neutron: access of operators' tools to these services."""

from __future__ import annotations

from typing import Any, Final

from keystoneauth1 import loading as ka_loading
from oslo_config import cfg

SERVICES: Final = (
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


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options that do not depend on `auth_type`; plugins add theirs when loaded."""
    for group, options in list_opts():
        conf.register_group(group)
        conf.register_opts(options, group=group.name)


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the options by group, for the sample file; plugins are in group `[placement]`."""
    return [
        (cfg.OptGroup(name, title=f"{kind.capitalize()} service", help=text), _options(kind))
        for name, kind, text in SERVICES
    ]


def _options(service_type: str) -> list[Any]:
    adapter_opts = ka_loading.get_adapter_conf_options(include_deprecated=False)
    cfg.set_defaults(
        adapter_opts, service_type=service_type, valid_interfaces=["internal", "public"]
    )
    return [
        *ka_loading.get_session_conf_options(),
        *ka_loading.get_auth_common_conf_options(),
        *adapter_opts,
    ]
