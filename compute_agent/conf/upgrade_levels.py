"""Options of group upgrade_levels: the newest versions of calls on the bus."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "upgrade_levels"

_HELP = """
Maximum version of calls to {what}, such as {version}. Set it while some of them are
older than the caller. Unset or auto: no limit. Names of OpenStack releases are
accepted and set no limit.
"""


def opts() -> list[cfg.Opt]:
    """Return every option of group upgrade_levels."""
    return [
        cfg.StrOpt("compute", help=_HELP.format(what="agents", version="1.0")),
        cfg.StrOpt("scheduler", help=_HELP.format(what="schedulers", version="4.5")),
    ]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of group upgrade_levels on `conf`."""
    conf.register_group(cfg.OptGroup(GROUP, title="Versions of calls during an upgrade"))
    conf.register_opts(opts(), group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [(GROUP, opts())]
