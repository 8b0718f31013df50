"""Options of group host: sources of this machine's description."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "host"

host_opts = [
    cfg.StrOpt(
        "sysfs_root",
        default="/sys",
        help="""
Directory that is read as /sys. Set it to a directory of a captured machine to report that
machine.
""",
    ),
    cfg.StrOpt(
        "procfs_root",
        default="/proc",
        help="""
Directory that is read as /proc. Set it to a directory of a captured machine to report that
machine.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of group host on `conf`."""
    conf.register_opts(host_opts, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [(GROUP, list(host_opts))]
