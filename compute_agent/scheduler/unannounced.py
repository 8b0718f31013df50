"""Facts that filters and weighers compare and compute-agent does not announce."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.filters.metrics import MetricsFilter
from compute_agent.scheduler.filters.pci_passthrough import PciPassthroughFilter
from compute_agent.scheduler.weighers.announced import ImagePropertiesWeigher, MetricsWeigher
from compute_agent.scheduler.weighers.host_weigher import HostWeigher

_OTHER_AGENTS: Final = "compute-agent does not announce them; agents of another make may."


def warnings_of(
    filters: Sequence[HostFilter],
    weighers: Sequence[HostWeigher],
    multipliers: Mapping[str, float],
) -> Iterator[str]:
    """Iterate over warnings about filters and weighers that need facts which no agent may announce.

    :param multipliers: by option of a weigher; one that is missing has its own default.
    """
    for host_filter in filters:
        options = host_filter.options
        if isinstance(host_filter, MetricsFilter) and options.metrics:
            yield (
                f"{host_filter.name} passes only hosts whose agents announce the metrics "
                f"{', '.join(sorted(options.metrics))} ([metrics]weight_setting). {_OTHER_AGENTS}"
            )
        if (
            isinstance(host_filter, PciPassthroughFilter)
            and options.pci_aliases
            and not options.pci_in_placement
        ):
            yield (
                f"{host_filter.name} passes only hosts whose agents announce devices of an "
                f"alias ([pci]alias) in pools. {_OTHER_AGENTS} With [filter_scheduler]"
                "pci_in_placement the devices are those that placement has."
            )
    for weigher in weighers:
        multiplier = multipliers.get(weigher.option, weigher.default_multiplier)
        if not multiplier:
            continue
        if isinstance(weigher, MetricsWeigher) and weigher.options.metric_ratios:
            yield (
                "All hosts weigh the same by metrics ([metrics]weight_setting) unless their agents "
                f"announce them. {_OTHER_AGENTS}"
            )
        if isinstance(weigher, ImagePropertiesWeigher):
            yield (
                "All hosts weigh the same by image properties ([filter_scheduler]"
                "image_props_weight_multiplier) unless their agents announce those of guests. "
                f"{_OTHER_AGENTS}"
            )
