"""Providers that a flush kept although its plan deletes them, each logged once per reason."""

from __future__ import annotations

import logging

from compute_agent.programs.lasting_conditions import LastingConditions
from compute_agent.report.flushing.flush import FlushReport
from compute_agent.report.steps import DeleteProvider

LOG = logging.getLogger(__name__)


class KeptProviders:
    """The providers kept by the flushes so far."""

    def __init__(self) -> None:
        self._conditions = LastingConditions()

    def log(self, report: FlushReport) -> None:
        """Log the providers that this flush kept, and forget those that are deleted now."""
        deleted_uuids = {o.uuid for o in report.steps if isinstance(o, DeleteProvider)}
        for uuid in deleted_uuids - {kept_provider.uuid for kept_provider in report.kept_providers}:
            self._conditions.is_over(uuid)
        for kept_provider in report.kept_providers:
            if self._conditions.is_new(kept_provider.uuid, kept_provider.reason):
                LOG.warning(
                    "Provider %s (%s) is not deleted: %s",
                    kept_provider.name,
                    kept_provider.uuid,
                    kept_provider.reason,
                )
