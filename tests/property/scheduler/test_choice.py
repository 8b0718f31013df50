"""Hosts in the order in which they are tried, against a slow and plain calculation from JSON."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.scheduler.filters import registry
from compute_agent.scheduler.filters.host_filter import FilterOptions, HostFilter, run_filters
from compute_agent.scheduler.fleet.aggregates import Aggregate, Aggregates, FixedAggregates
from compute_agent.scheduler.fleet.announcements import Announcements
from compute_agent.scheduler.host_state import Hosts, HostState
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions
from compute_agent.scheduler.weighers import order
from compute_agent.scheduler.weighers.order import WeighingOptions
from tests.unit.scheduler.bank import Bank
from tests.unit.scheduler.specs import spec
from tests.unit.scheduler.trees import candidate, summary

NOW, SILENT_FOR = 1000.0, 60.0
DISABLED, SHARING = "COMPUTE_STATUS_DISABLED", "MISC_SHARES_VIA_AGGREGATE"
WEIGHERS = {
    "ram": (1.0, 0.0),
    "cpu": (1.0, 0.0),
    "disk": (1.0, 0.0),
    "io_ops": (-1.0, 0.0),
    "pci": (1.0, None),
    "build_failure": (1000000.0, None),
    "num_instances": (0.0, None),
    "hypervisor_version": (1.0, None),
    "leaves_whole": (0.25, None),
}
"""The weighers that count without server groups and cells: multiplier, and what is scaled to 0."""


@dataclass
class Cloud:
    """Hosts as placement, agents and operators describe them."""

    candidates: list[dict[str, Any]] = field(default_factory=list)
    summaries: dict[str, dict[str, Any]] = field(default_factory=dict)
    announcements: dict[str, tuple[float, dict[str, Any]]] = field(default_factory=dict)
    multipliers: dict[str, dict[str, float]] = field(default_factory=dict)


SMALL = st.integers(0, 3)
HOSTS = st.lists(
    st.fixed_dictionaries(
        {
            "times": st.sampled_from((1, 4)),
            "ram": st.integers(512, 513),
            "cpu": st.sampled_from((2, 2, 0, 3)),
            "lacks": st.sampled_from(((), (), (), ("VCPU",), ("MEMORY_MB", "DISK_GB"))),
            "pinned": st.sampled_from((0, 0, 5)),
            "disk": st.integers(10, 11),
            "used": st.sampled_from((0, 0, 2)),
            "pool": st.booleans(),
            "cards": st.lists(st.tuples(SMALL, SMALL), max_size=2),
            "is_linked": st.booleans(),
            "is_disabled": st.sampled_from((False, False, False, True)),
            "announced": st.none()
            | st.tuples(
                st.sampled_from((1.0, 1.0, 59.0, 60.0, 61.0)),
                st.fixed_dictionaries(
                    {
                        "enabled": st.sampled_from((True, True, True, False)),
                        "instances": st.sampled_from((0, 3)),
                        "io_ops": st.sampled_from((-1, 0, 3)),
                    },
                    optional={
                        "build_failures": st.integers(0, 1),
                        "hypervisor_version": SMALL,
                    },
                ),
            ),
            "multipliers": st.sampled_from(
                ({}, {}, {"num_instances": -9.0, "cpu": math.nan}, {"ram": 0, "build_failure": 0.5})
            ),
        }
    ),
    min_size=1,
    max_size=8,
)
LONE_HOSTS = HOSTS.map(lambda hosts: [{**host, "pool": False, "cards": []} for host in hosts])
"""Hosts of one provider each."""
PLAIN_HOSTS = LONE_HOSTS.map(lambda hosts: [{**host, "multipliers": {}} for host in hosts])
"""And in no aggregate."""
OPTIONS = st.builds(
    WeighingOptions,
    multipliers=st.dictionaries(st.sampled_from([*WEIGHERS]), st.sampled_from((0.0, -1.0, 2.0))),
    spread_equals=st.booleans(),
)


def cloud_of(hosts: list[dict[str, Any]]) -> Cloud:
    cloud = Cloud()
    if any(host["pool"] for host in hosts):
        cloud.summaries["pool"] = summary("pool", {"DISK_GB": (50, 7)}, SHARING)
    for number, host in enumerate(hosts):
        root = f"root{number}"
        # an overcommitted provider has more in use than it has
        counts = {"VCPU": (host["cpu"], 0), "MEMORY_MB": (host["ram"] + 3, host["used"] + 1)}
        counts |= {"PCPU": (host["pinned"], 7)} if host["pinned"] else {}
        counts |= {} if host["pool"] else {"DISK_GB": (host["disk"], 0)}
        counts = {
            name: (host["times"] * has, uses)
            for name, (has, uses) in counts.items()
            if name not in host["lacks"]
        }
        traits = [DISABLED] if host["is_disabled"] else []
        cloud.summaries[root] = summary(root, counts, *traits)
        for card, (has, uses) in enumerate(host["cards"]):
            links = ["CUSTOM_NVLINK_GROUP_0"] if host["is_linked"] else []
            child = summary(root, {"VGPU": (has, uses)}, *links, parent=root)
            cloud.summaries[f"{root}card{card}"] = child
        taken = {root: {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 10}}
        if host["pool"]:
            del taken[root]["DISK_GB"]
            taken["pool"] = {"DISK_GB": 10}
        cloud.candidates.append(candidate(taken))
        if host["announced"] is not None:
            cloud.announcements[root] = host["announced"]
        cloud.multipliers[f"host-{root}"] = host["multipliers"]
    return cloud


def plain_weights(cloud: Cloud, options: WeighingOptions) -> dict[str, float]:
    roots = []
    for offer in cloud.candidates:
        [root] = offer["allocations"].keys() - {"pool"}
        age, announced = cloud.announcements.get(root, (0.0, {"enabled": True}))
        if age < SILENT_FOR and announced["enabled"] and DISABLED not in traits(cloud, root):
            roots.append(root)
    total = dict.fromkeys(roots, 0.0)
    for name, (default, lowest) in WEIGHERS.items():
        raw = {root: plain_weight(cloud, name, root) for root in roots}
        low = min(raw.values(), default=0.0) if lowest is None else lowest
        high = max(raw.values(), default=0.0)
        for root in roots if high > low else ():
            usual = options.multipliers.get(name, default)
            multiplier = cloud.multipliers[f"host-{root}"].get(name, usual)
            multiplier = usual if math.isnan(multiplier) else multiplier
            total[root] += multiplier * ((max(raw[root], low) - low) / (high - low))

    return total


def plain_order(total: dict[str, float], request: str, options: WeighingOptions) -> list[str]:
    def key(root: str) -> tuple[float, bytes]:
        place = hashlib.blake2b(f"{request}/{root}".encode(), digest_size=8).digest()
        return -total[root], place if options.spread_equals else b""

    return sorted(total, key=key)


def traits(cloud: Cloud, uuid: str) -> list[str]:
    return list(cloud.summaries[uuid]["traits"])


def plain_weight(cloud: Cloud, name: str, root: str) -> float:
    _, announced = cloud.announcements.get(root, (0.0, {}))
    [taken] = [c["allocations"] for c in cloud.candidates if root in c["allocations"]]
    tree = [s for s in cloud.summaries.values() if s["root_provider_uuid"] == root]
    classes = {"ram": ["MEMORY_MB"], "cpu": ["VCPU", "PCPU"], "disk": ["DISK_GB"]}
    if name in classes:
        giving = [
            cloud.summaries[uuid]
            for uuid, held in taken.items()
            if set(held["resources"]) & set(classes[name])
        ]
        return float(sum(free(provider, of) for provider in giving for of in classes[name]))
    if name == "pci":
        return -float(sum(free(provider, "VGPU") for provider in tree))
    if name == "leaves_whole":
        # no guest here has devices or cells: it breaks nothing
        return 0.0
    sign = -1 if name == "build_failure" else 1
    key = {"build_failure": "build_failures", "num_instances": "instances"}.get(name, name)
    return float(sign * announced.get(key, 0))


def free(provider: dict[str, Any], name: str) -> int:
    count = provider["resources"].get(name, {"capacity": 0, "used": 0})
    return max(count["capacity"] - count["used"], 0)


def found_hosts(cloud: Cloud, *filters: HostFilter) -> Hosts:
    bank, at = Bank(cloud.candidates, cloud.summaries), [NOW]
    announcements = Announcements(lambda: at[0])
    for root, (age, announced) in cloud.announcements.items():
        at[0] = NOW - age
        announcements.receive({"host": root, "nodes": [{"uuid": root, **announced}]})
    at[0] = NOW
    aggregates = Aggregates(
        tuple(
            Aggregate(
                name,
                hosts=frozenset((name,)),
                metadata={f"{option}_weight_multiplier": str(v) for option, v in given.items()},
            )
            for name, given in cloud.multipliers.items()
            if given
        )
    )
    options = HostSearchOptions(filters=filters, aggregates=FixedAggregates(aggregates))
    return HostSearch(bank.client, options, announcements).find(spec()).hosts


def own_weights(hosts: Sequence[HostState], options: WeighingOptions) -> list[float]:
    return order.weights(hosts, spec(), order.make([order.ALL_WEIGHERS]), options)


def own_order(hosts: Sequence[HostState], request: str, options: WeighingOptions) -> list[str]:
    weighers = order.make([order.ALL_WEIGHERS])
    found = order.in_order(hosts, spec(), weighers, options, random.Random(1), request)
    return [host.uuid for host in found]


@given(HOSTS | LONE_HOSTS | PLAIN_HOSTS, st.uuids().map(str), OPTIONS)
def test_hosts_are_tried_in_the_order_that_a_plain_calculation_gives(
    hosts: list[dict[str, Any]], request: str, options: WeighingOptions
) -> None:
    cloud = cloud_of(hosts)
    found = found_hosts(cloud, *registry.make(["ComputeFilter"]))
    total = plain_weights(cloud, options)
    assert own_weights(found, options) == list(total.values())
    assert own_order(found, request, options) == plain_order(total, request, options)


FILTERS = st.lists(
    st.sampled_from(("ComputeFilter", "IoOpsFilter", "NumInstancesFilter")), max_size=1
)


@given(
    HOSTS | LONE_HOSTS | PLAIN_HOSTS,
    FILTERS,
    OPTIONS,
    st.lists(st.integers(0, 7), min_size=1, max_size=4),
)
def test_verdicts_and_order_are_those_of_hosts_which_were_all_read_claim_after_claim(
    hosts: list[dict[str, Any]], names: list[str], options: WeighingOptions, numbers: list[int]
) -> None:
    limits = FilterOptions(max_io_ops_per_host=3, max_instances_per_host=4)
    filters = registry.make(names, options=limits)
    found = found_hosts(cloud_of(hosts))
    read = Hosts(list(found))
    for number in numbers:
        (found, causes), (read, plain_causes) = (
            run_filters(filters, hosts, spec()) for hosts in (found, read)
        )
        assert (found[:], causes) == (read[:], plain_causes)
        assert own_weights(found, options) == own_weights(read, options)
        assert own_order(found, "r", options) == own_order(read, "r", options)
        if not found:
            break
        host = found[number % len(found)]
        found, read = (
            hosts.after_claim(host, host.candidates[0]).offering for hosts in (found, read)
        )
        assert found[:] == read[:]
