"""Weighers of what agents announce about their hosts and guests."""

from __future__ import annotations

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.weighers.host_weigher import HostWeigher


class MetricsWeigher(HostWeigher):
    """The sum of metrics times their ratios, as ``[metrics]weight_setting`` names them.

    A host that lacks one weighs ``weight_of_unavailable``. Where the metrics are required such a
    host weighs nothing at all; MetricsFilter drops it before it is weighed.
    """

    option = "metrics"

    def concerns(self, _spec: RequestSpec) -> bool:
        """Return whether any metric counts."""
        return bool(self.options.metric_ratios)

    def weigh(self, host: HostState, _spec: RequestSpec) -> float:
        """Return the sum."""
        ratios, metrics = self.options.metric_ratios, host.metrics
        if not ratios.keys() <= metrics.keys():
            return 0.0 if self.options.metrics_required else self.options.weight_of_unavailable
        return sum(ratio * metrics[name] for name, ratio in ratios.items())


class ImagePropertiesWeigher(HostWeigher):
    """Guests on the host whose images have the same properties as the one asked for.

    Agents announce ``image_properties``: property to value to number of guests. Only properties of
    ``image_props_weight_setting`` count, each with its ratio; where it is empty all do, with 1.
    """

    option = "image_props"
    default_multiplier = 0.0

    def concerns(self, spec: RequestSpec) -> bool:
        """Return whether the image has properties."""
        return bool(spec.image.properties)

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return the number, times the ratios."""
        attributes = host.announcement.attributes if host.announcement else {}
        property_counts = attributes.get("image_properties", {})
        ratios = self.options.image_property_ratios or dict.fromkeys(spec.image.properties, 1.0)
        return sum(
            ratio * int(property_counts.get(name, {}).get(spec.image.properties[name], 0))
            for name, ratio in ratios.items()
            if name in spec.image.properties
        )


class CrossCellMoveWeigher(HostWeigher):
    """Hosts of the cell that a moving instance is in already."""

    option = "cross_cell_move"
    default_multiplier = 1000000.0

    def concerns(self, spec: RequestSpec) -> bool:
        """Return whether an instance moves that is in a cell."""
        return bool(spec.destination.cell)

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return -1 for a move to another cell, else 0."""
        wanted_cell = spec.destination.cell
        return -1.0 if wanted_cell and host.cell != wanted_cell else 0.0
