"""Options of group placement: access to placement, under the names of every OpenStack service."""

from __future__ import annotations

from typing import Any, Final

from keystoneauth1 import loading as ka_loading
from oslo_config import cfg

HELP: Final = """
Access of the agent and the scheduler to placement: session, adapter and auth options of
keystoneauth1.

``auth_type`` is any plugin of keystoneauth1 (``password``, ``v3applicationcredential``,
``none``, ``http_basic``, ...) or ``noauth``, which sends the token ``admin`` to a placement
without keystone and needs ``endpoint_override``. The user needs the role ``service`` (``admin``
is not enough to reshape).

If ``timeout`` is unset, a request has 10 seconds to connect and 60 seconds for the whole answer
(300 seconds for a reshape).
"""


def _group() -> cfg.OptGroup:
    """Return a new group: copies of one group share their options, and with them overrides."""
    return cfg.OptGroup("placement", title="Placement service", help=HELP)


def _options() -> list[Any]:
    adapter_opts = ka_loading.get_adapter_conf_options(include_deprecated=False)
    cfg.set_defaults(
        adapter_opts, service_type="placement", valid_interfaces=["internal", "public"]
    )
    return [
        *ka_loading.get_session_conf_options(),
        *ka_loading.get_auth_common_conf_options(),
        *adapter_opts,
    ]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options that do not depend on `auth_type`; plugins add theirs when loaded."""
    conf.register_group(_group())
    conf.register_opts(_options(), group="placement")


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the options by group, for the sample file, with those of the most used plugin."""
    plugin_opts = ka_loading.get_auth_plugin_conf_options("v3password")
    return [(_group(), [*_options(), *plugin_opts])]
