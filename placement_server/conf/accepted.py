"""Options that a placement.conf may hold and that have no effect here.

They parse, so that an existing file stays valid, and the server names those that are set once at
its start. An option that gets an effect leaves this list. ``slave_connection`` has a warning of its
own, because its effect is missed (:mod:`placement_server.store.connection.configuration`).
"""

from __future__ import annotations

import logging
from typing import Final

from oslo_config import cfg

from placement_server.conf import profiler, workarounds

LOG = logging.getLogger(__name__)

#: Group (`None` for the default group) and name.
WITHOUT_EFFECT: Final[tuple[tuple[str | None, str], ...]] = (
    (None, "tempdir"),
    (profiler.GROUP, "enabled"),
    (workarounds.GROUP, "optimize_for_wide_provider_trees"),
)


def warn_of_set(conf: cfg.ConfigOpts) -> None:
    """Log one warning that names the options without effect that the configuration files set."""
    names = [
        f"[{group or 'DEFAULT'}]{name}"
        for group, name in WITHOUT_EFFECT
        if (place := conf.get_location(name, group)) and place.location.is_user_controlled
    ]
    if names:
        LOG.warning(
            "The configuration sets options that have no effect in this version: %s. Remove them, "
            "unless another program reads the same file.",
            ", ".join(names),
        )
