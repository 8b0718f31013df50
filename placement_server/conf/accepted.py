"""Options that a placement.conf may hold and that have no effect here.

They parse, so that an existing file stays valid, and the server names those that are set once at
its start. An option that gets an effect leaves this list. `slave_connection` has a warning of its
own, because its effect is missed (`placement_server.store.connection.configuration`).
"""

from __future__ import annotations

from typing import Final

from placement_server.conf import profiler, workarounds

WITHOUT_EFFECT: Final[tuple[tuple[str | None, str], ...]] = (
    (None, "tempdir"),
    (profiler.GROUP, "enabled"),
    (workarounds.GROUP, "optimize_for_wide_provider_trees"),
)
"""Group (`None` for the default group) and name."""
