"""Registry of the filters, and the construction of those that the options enable."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from compute_agent.errors import InvalidConfiguration
from compute_agent.scheduler.filters import (
    affinity,
    aggregate_metadata,
    compute,
    json_query,
    numa_topology,
)
from compute_agent.scheduler.filters.host_filter import FilterOptions, HostFilter

ALL_FILTERS = "nova.scheduler.filters.all_filters"
_REFERENCE_PREFIX = "nova.scheduler.filters."

BUILT_IN: tuple[type[HostFilter], ...] = (
    compute.ComputeFilter,
    compute.ComputeCapabilitiesFilter,
    compute.ImagePropertiesFilter,
    affinity.ServerGroupAntiAffinityFilter,
    affinity.ServerGroupAffinityFilter,
    aggregate_metadata.AggregateImagePropertiesIsolation,
    aggregate_metadata.AggregateInstanceExtraSpecsFilter,
    aggregate_metadata.AggregateIoOpsFilter,
    aggregate_metadata.AggregateMultiTenancyIsolation,
    aggregate_metadata.AggregateNumInstancesFilter,
    aggregate_metadata.AggregateTypeAffinityFilter,
    compute.AllHostsFilter,
    affinity.DifferentHostFilter,
    affinity.SameHostFilter,
    affinity.SimpleCIDRAffinityFilter,
    compute.IoOpsFilter,
    compute.IsolatedHostsFilter,
    json_query.JsonFilter,
    compute.NumInstancesFilter,
    numa_topology.NUMATopologyFilter,
    numa_topology.PciPassthroughFilter,
)


def make(
    enabled_names: Sequence[str],
    available: Iterable[str] = (ALL_FILTERS,),
    options: FilterOptions | None = None,
) -> tuple[HostFilter, ...]:
    """Return the filters named in `enabled_names`, in that order.

    :param enabled_names: class names.
    :param available: where they may come from: `ALL_FILTERS`, paths of classes, or paths of
        functions that return classes.
    :raises InvalidConfiguration: a path that cannot be imported or a name that no filter has.
    """
    classes: dict[str, type[HostFilter]] = {}
    for path in available:
        classes.update((filter_class.__name__, filter_class) for filter_class in _classes(path))
    unknown_names = [name for name in enabled_names if name not in classes]
    if unknown_names:
        raise InvalidConfiguration(
            f"Option [filter_scheduler]enabled_filters names {unknown_names[0]}: expected one of "
            f"{', '.join(sorted(classes))}."
        )
    return tuple(classes[name](options) for name in enabled_names)


def _classes(path: str) -> Sequence[type[HostFilter]]:
    if path == ALL_FILTERS:
        return BUILT_IN
    if path.startswith(_REFERENCE_PREFIX):
        name = path.rpartition(".")[2]
        return [filter_class for filter_class in BUILT_IN if filter_class.__name__ == name]
    module_name, _, attribute = path.rpartition(".")
    try:
        loaded_object: Any = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidConfiguration(
            f"Option [filter_scheduler]available_filters names {path}, which cannot be imported: "
            f"{error}"
        ) from error
    if isinstance(loaded_object, type) and issubclass(loaded_object, HostFilter):
        return [loaded_object]
    classes: Sequence[type[HostFilter]] = loaded_object()
    return classes
