"""Options of group host: sources of this machine's description."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "host"

host_opts = [
    cfg.StrOpt(
        "sysfs_root",
        default="/sys",
        help="""
Directory read as /sys. Point it at a captured machine to report that one instead.
""",
    ),
    cfg.StrOpt(
        "procfs_root",
        default="/proc",
        help="""
Directory read as /proc. Point it at a captured machine to report that one instead.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of group host on `conf`."""
    conf.register_opts(host_opts, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [(GROUP, list(host_opts))]
