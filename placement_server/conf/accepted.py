"""Options that a placement.conf may hold and that have no effect here.

They parse, so that an existing file stays valid, and the server names those that are set once at
its start. An option that gets an effect leaves this list. `slave_connection` has a warning of its
own, because its effect is missed (`placement_server.store.connection.options`).
"""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

PROFILER: Final = "profiler"
WORKAROUNDS: Final = "workarounds"

OPTS: Final[dict[str | None, list[cfg.Opt]]] = {
    WORKAROUNDS: [
        cfg.BoolOpt(
            "optimize_for_wide_provider_trees",
            default=False,
            help="""
No effect; accepted so that an existing configuration stays valid. The
search always drops combinations that cannot fit.
""",
        )
    ],
    PROFILER: [
        cfg.BoolOpt(
            "enabled",
            default=False,
            help="""
No effect, like all others of this group; accepted so that an existing
configuration stays valid. Group `tracing` has what traces requests.
""",
        )
    ],
}

WITHOUT_EFFECT: Final[tuple[tuple[str | None, str], ...]] = (
    (None, "tempdir"),
    (PROFILER, "enabled"),
    (WORKAROUNDS, "optimize_for_wide_provider_trees"),
)
"""Group (`None` for the default group) and name."""
