"""Options of group upgrade_levels: the newest versions of calls on the bus."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

_HELP = """
Maximum version of calls to {what}, such as {version}. Set it while some of them are
older than the caller. Unset or auto: no limit. Names of OpenStack releases are
accepted and set no limit.
"""

OPTIONS: Final[dict[str, list[cfg.Opt]]] = {
    "upgrade_levels": [
        cfg.StrOpt("compute", help=_HELP.format(what="agents", version="1.0")),
        cfg.StrOpt("scheduler", help=_HELP.format(what="schedulers", version="4.5")),
    ]
}
