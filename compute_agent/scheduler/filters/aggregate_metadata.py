"""Filters by the metadata of the aggregates that a host is in."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from compute_agent.programs.whole_numbers import whole_number
from compute_agent.request.extra_specs import is_for_placement
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.compute import IoOpsFilter, LimitFilter, NumInstancesFilter
from compute_agent.scheduler.filters.facts import matches
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState

_EXTRA_SPECS_SCOPE = "aggregate_instance_extra_specs"


class AggregateInstanceExtraSpecsFilter(HostFilter):
    """Extra specs `aggregate_instance_extra_specs:<key>`, and unscoped ones, match metadata."""

    run_filter_once_per_request = True

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether some aggregate has each value asked for."""
        return all(
            any(matches(value, wanted_value) for value in _values(host, key))
            for key, wanted_value in _aggregate_keys(spec)
        )


class AggregateImagePropertiesIsolation(HostFilter):
    """An image property that is also a key of an aggregate's metadata must have its value."""

    run_filter_once_per_request = True
    RUN_ON_REBUILD = True

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether no aggregate contradicts the image."""
        namespace = self.options.image_properties_namespace
        prefix = f"{namespace}{self.options.image_properties_separator}" if namespace else ""
        for key, wanted_value in spec.image.properties.items():
            values = _values(host, key) if key.startswith(prefix) else ()
            if values and _flag_text(wanted_value) not in map(_flag_text, values):
                return False
        return True


class AggregateMultiTenancyIsolation(HostFilter):
    """Hosts of aggregates with `filter_tenant_id*` are for these projects only."""

    run_filter_once_per_request = True

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether the host is the project's or nobody's."""
        tenants = {
            tenant
            for aggregate in host.aggregates
            for key, value in aggregate.metadata.items()
            if key.startswith("filter_tenant_id")
            for tenant in _split(value)
        }
        return not tenants or spec.project_id in tenants


class AggregateTypeAffinityFilter(HostFilter):
    """Metadata `instance_type` names the flavors that an aggregate is for."""

    run_filter_once_per_request = True

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether the flavor is one of the aggregate's."""
        types = _values(host, "instance_type")
        return not types or spec.flavor.name in types


class _SmallestLimit(LimitFilter):
    """A limit of which aggregates may have smaller ones, in metadata of its name."""

    def limit(self, host: HostState) -> int:
        """Return the smallest limit of the host."""
        # one that nothing reaches is a limit too
        limits = (whole_number(value, sys.maxsize) for value in host.metadata(self.option))
        numbers = (number for number in limits if number is not None)
        return min(numbers, default=super().limit(host))


class AggregateNumInstancesFilter(_SmallestLimit, NumInstancesFilter):
    """NumInstancesFilter with the smallest `max_instances_per_host` of the aggregates."""


class AggregateIoOpsFilter(_SmallestLimit, IoOpsFilter):
    """IoOpsFilter with the smallest `max_io_ops_per_host` of the aggregates."""


def _aggregate_keys(spec: RequestSpec) -> Iterator[tuple[str, str]]:
    for key, value in spec.flavor.extra_specs.items():
        scope, _, name = key.rpartition(":")
        if scope == _EXTRA_SPECS_SCOPE or (not scope and not is_for_placement(key)):
            yield name, value


def _flag_text(value: str) -> str:
    """Return a flag in one spelling: images have true or yes, nova's operators write True."""
    return value.lower() if value.lower() in ("true", "false") else value


def _values(host: HostState, key: str) -> frozenset[str]:
    return frozenset(part for value in host.metadata(key) for part in _split(value))


def _split(value: str) -> list[str]:
    return [part.strip() for part in value.split(",")]
