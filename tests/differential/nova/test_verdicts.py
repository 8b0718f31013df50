"""Filters and weighers give nova's verdicts and order on hosts and requests drawn at random.

`NOVA_EXAMPLES` says how many are drawn.
"""

from __future__ import annotations

import sys
import uuid
from collections import Counter
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from compute_agent.errors import ComputeAgentError
from compute_agent.request import spec_reader
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters import registry
from compute_agent.scheduler.filters.host_filter import FilterOptions
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.weighers import order
from tests.differential.nova import hosts
from tests.differential.nova.drawn_requests import document, image, some_of, spec
from tests.differential.nova.hosts import Host
from tests.differential.nova.nova_process import SETTINGS, Nova

OPTIONS: Final = f"""\
[filter_scheduler]
isolated_images = {hosts.IMAGES[0]}
isolated_hosts = h1
max_instances_per_host = 3
max_io_ops_per_host = 2
num_instances_weight_multiplier = 1.0
"""
FILTERS: Final = (
    *("AggregateInstanceExtraSpecsFilter", "AggregateImagePropertiesIsolation"),
    *("AggregateMultiTenancyIsolation", "AggregateTypeAffinityFilter"),
    *("AggregateNumInstancesFilter", "AggregateIoOpsFilter", "NumInstancesFilter"),
    *("IoOpsFilter", "ComputeCapabilitiesFilter", "ImagePropertiesFilter"),
    *("IsolatedHostsFilter", "JsonFilter", "ServerGroupAntiAffinityFilter"),
    *("ServerGroupAffinityFilter", "SameHostFilter", "DifferentHostFilter"),
    "SimpleCIDRAffinityFilter",
)
WEIGHERS: Final = (
    *("RAMWeigher", "CPUWeigher", "DiskWeigher", "IoOpsWeigher", "NumInstancesWeigher"),
    *("HypervisorVersionWeigher", "BuildFailureWeigher", "ServerGroupSoftAffinityWeigher"),
    "ServerGroupSoftAntiAffinityWeigher",
)
VERDICTS: Counter[str] = Counter()


@st.composite
def requests(draw: Any) -> dict[str, Any]:
    group = draw(st.sampled_from(hosts.GROUPS))
    picture = image(**draw(some_of(hosts.PROPERTIES, 3)))
    named = {"uuid": str(uuid.UUID(int=3)), "name": "g"}
    return spec(
        draw(some_of(hosts.EXTRA_SPECS, 2)),
        image={**picture, "id": draw(st.sampled_from(hosts.IMAGES))},
        scheduler_hints=draw(st.sampled_from(hosts.HINTS)),
        instance_uuid=draw(st.sampled_from(hosts.INSTANCES)),
        instance_group=group
        and {"_": "InstanceGroup", **named, "policies": [group["policy"]], **group},
    )


def read(request_spec: dict[str, Any]) -> RequestSpec:
    body = document(request_spec)
    if body["instance_group"]:
        body["instance_group"]["rules"] = body["instance_group"].pop("_rules")
    return spec_reader.read_spec(body)


def verdicts(host: HostState, request: RequestSpec) -> list[bool | None]:
    """Return the verdict of each filter, None for a refusal of the request."""
    options = FilterOptions(
        isolated_images=frozenset(hosts.IMAGES[:1]),
        isolated_hosts=frozenset(["h1"]),
        max_instances_per_host=3,
        max_io_ops_per_host=2,
    )
    found: list[bool | None] = []
    for judge in registry.make(FILTERS, options=options):
        try:
            passes = not judge.concerns(request) or bool(list(judge.filter_all([host], request)))
            found.append(passes)
        except ComputeAgentError:
            found.append(None)
    return found


def name_group_hosts(request: dict[str, Any], drawn_hosts: list[Host]) -> None:
    """Name the hosts of the group's other members, as a conductor does."""
    if group := request["instance_group"]:
        others = {*group["members"]} - {request["instance_uuid"]}
        group["hosts"] = [h["name"] for h in drawn_hosts if others.intersection(h["instances"])]


@SETTINGS
@given(host=hosts.HOSTS, request=requests())
def test_each_filter_gives_novas_verdict(nova: Nova, host: Host, request: dict[str, Any]) -> None:
    name_group_hosts(request, [host])
    theirs = nova("passes", names=FILTERS, hosts=[hosts.novas(host)], spec=request)
    own = verdicts(hosts.ours(host), read(request))
    for name, (verdict,), of_ours in zip(FILTERS, theirs, own, strict=True):
        if isinstance(verdict, str):
            # an error of nova's is a host that does not pass, or a request that is refused
            assert not of_ours, (name, verdict)
        else:
            assert verdict == of_ours, name
        VERDICTS["errors" if isinstance(verdict, str) else "equal"] += 1


@SETTINGS
@given(
    drawn_hosts=st.lists(hosts.HOSTS, min_size=2, max_size=4),
    request=requests(),
    names=st.lists(st.sampled_from(WEIGHERS), min_size=1, max_size=3, unique=True),
)
def test_hosts_are_in_novas_order(
    nova: Nova, drawn_hosts: list[Host], request: dict[str, Any], names: list[str]
) -> None:
    for number, host in enumerate(drawn_hosts):
        host["name"] = f"h{number}"
    name_group_hosts(request, drawn_hosts)
    theirs = nova("order", names=names, hosts=[hosts.novas(h) for h in drawn_hosts], spec=request)
    states = [hosts.ours(host, number) for number, host in enumerate(drawn_hosts)]
    own = order.weights(
        states,
        read(request),
        order.make([f"nova.scheduler.weights.{name}" for name in names]),
        order.WeighingOptions(multipliers={"num_instances": 1.0}),
    )
    weight_of = {state.name: weight for state, weight in zip(states, own, strict=True)}
    gaps = [first[1] - second[1] for first, second in pairwise(theirs)]
    # what differs by a rounding error alone has no order
    assume(all(gap == 0 or gap > 1e-9 for gap in gaps))
    for (first, _), (second, _), gap in zip(theirs, theirs[1:], gaps, strict=False):
        own_gap = weight_of[first] - weight_of[second]
        assert own_gap == pytest.approx(gap, abs=1e-9), (first, second, theirs, weight_of)
    VERDICTS["orders"] += 1


def test_the_number_of_verdicts_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\nverdicts beside nova's: {dict(VERDICTS)}\n")
