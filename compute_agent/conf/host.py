"""Options of group host: sources of this machine's description."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

OPTIONS: Final[dict[str, list[cfg.Opt]]] = {
    "host": [
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
}
