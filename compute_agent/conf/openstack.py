"""Options of groups nova, neutron and glance: access of operators' tools to these services."""

from __future__ import annotations

from typing import Any, Final

from keystoneauth1 import loading as ka_loading
from oslo_config import cfg

SERVICES: Final = (
    (
        "nova",
        "compute",
        """
How `compute-manage` reaches the Compute API where [compute_agent]instance_source is nova, and the
scheduler where [compute_scheduler]aggregate_source is: session, adapter and auth options of
keystoneauth1. The user must be allowed to list the servers and migrations of all projects, or the
aggregates. The agent does not use it.
""",
    ),
    (
        "neutron",
        "network",
        """
How `compute-manage placement heal_allocations` reaches the Networking API, for ports that need
resources: session, adapter and auth options of keystoneauth1. The user must see `resource_request`
and `binding:profile` of ports and be allowed to write the latter.
""",
    ),
    (
        "glance",
        "image",
        """
How `compute-manage placement heal_allocations` reaches the Image API, for the properties of images
where Nova does not tell them (before microversion 2.98): session, adapter and auth options of
keystoneauth1.
""",
    ),
)


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options that do not depend on ``auth_type``; plugins add theirs when loaded."""
    for group, options in list_opts():
        conf.register_group(group)
        conf.register_opts(options, group=group.name)


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the options by group, for the sample file; plugins are in group ``[placement]``."""
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
