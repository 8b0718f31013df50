"""In which order hosts, and the candidates on one of them, are taken."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from compute_agent.errors import InvalidConfiguration
from compute_agent.request.spec import Destination, InstanceGroup, RequestSpec
from compute_agent.scheduler.filters import registry
from compute_agent.scheduler.fleet.aggregates import Aggregate
from compute_agent.scheduler.fleet.announcements import Announcement
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.placement.candidates import Candidate, ProviderSummary
from compute_agent.scheduler.weighers import order
from compute_agent.scheduler.weighers.host_weigher import HostWeigher
from compute_agent.scheduler.weighers.order import WeighingOptions
from tests.unit.scheduler.specs import spec
from tests.unit.scheduler.trees import counts

WEIGHERS = order.make([order.ALL_WEIGHERS])


def host(
    name: str,
    free: dict[str, dict[str, int]],
    takes: dict[str, dict[str, int]] | None = None,
    **fields: Any,
) -> HostState:
    """A host whose providers have so much left, and one candidate."""
    providers = {
        f"{name}{uuid}": ProviderSummary(f"{name}{uuid}", name, counts=counts(amounts))
        for uuid, amounts in free.items()
    }
    taken = {f"{name}{uuid}": amounts for uuid, amounts in (takes or {}).items()}
    return HostState(name, name, providers, (Candidate(name, taken, {}),), **fields)


def ordered(hosts: list[HostState], asked: RequestSpec | None = None, **options: Any) -> list[str]:
    chance = options.pop("chance", random.Random(1))
    return [
        host.name
        for host in order.in_order(
            hosts, asked or spec(), WEIGHERS, WeighingOptions(**options), chance
        )
    ]


def test_room_counts_on_the_provider_that_gives_and_not_scattered_over_the_host() -> None:
    scattered = host(
        "s", {"0": {"VCPU": 4}, "1": {"VCPU": 4}, "2": {"VCPU": 4}}, {"0": {"VCPU": 2}}
    )
    together = host("t", {"0": {"VCPU": 8}}, {"0": {"VCPU": 2}})
    assert ordered([scattered, together]) == ["t", "s"]


def test_a_negative_multiplier_packs() -> None:
    hosts = [host("a", {"": {"MEMORY_MB": 9}}), host("b", {"": {"MEMORY_MB": 4}})]
    assert ordered(hosts) == ["a", "b"]
    assert ordered(hosts, multipliers={"ram": -1.0}) == ["b", "a"]


def test_bandwidth_is_not_a_device_that_others_are_kept_away_from() -> None:
    hosts = [
        host("gpus", {"": {"VCPU": 4}, "g": {"VGPU": 8}}, {"": {"VCPU": 1}}),
        host(
            "ports",
            {"": {"VCPU": 4}, "p": {"NET_BW_EGR_KILOBIT_PER_SEC": 10_000_000}},
            {"": {"VCPU": 1}},
        ),
    ]
    assert ordered(hosts) == ["ports", "gpus"]


def test_an_aggregates_multiplier_counts_for_its_hosts_and_of_several_the_smallest() -> None:
    def in_aggregates(name: str, *values: str) -> HostState:
        aggregates = tuple(
            Aggregate(str(i), metadata={"ram_weight_multiplier": value})
            for i, value in enumerate(values)
        )
        return host(name, {"": {"MEMORY_MB": 9}}, aggregates=aggregates)

    poor = host("poor", {"": {"MEMORY_MB": 4}})
    assert ordered([poor, in_aggregates("rich", "5", "0.5")]) == ["rich", "poor"]
    assert ordered([poor, in_aggregates("rich", "5", "-1")]) == ["poor", "rich"]
    for text in ("many", "nan", "-inf"):
        assert ordered([poor, in_aggregates("rich", text)]) == ["rich", "poor"]


def test_equal_hosts_stay_in_placements_order_and_only_the_best_are_shuffled_if_asked_to() -> None:
    hosts = [host(name, {"": {"VCPU": 2 if name in "iz" else 4}}) for name in "hgfedcbaiz"]
    assert "".join(ordered(hosts)) == "hgfedcbaiz"
    found = [ordered(hosts, shuffle_best=True, chance=random.Random(seed)) for seed in range(50)]
    assert len({names[0] for names in found}) > 3
    assert {"".join(names[-2:]) for names in found} == {"iz"}


def test_a_host_is_chosen_among_the_best_n_when_asked_to() -> None:
    hosts = [
        host(name, {"": {"VCPU": free}}) for name, free in zip("abcd", (9, 8, 7, 6), strict=True)
    ]
    seen = {ordered(hosts, subset_size=2, chance=random.Random(seed))[0] for seed in range(50)}
    assert seen == {"a", "b"}


def test_build_failures_outweigh_everything() -> None:
    failed = Announcement("h", 0.0, build_failures=3)
    hosts = [
        host("a", {"": {"VCPU": 99, "MEMORY_MB": 99}}, announcement=failed),
        host("b", {"": {"VCPU": 1}}),
    ]
    assert ordered(hosts) == ["b", "a"]


def test_soft_policies_prefer_and_do_not_demand() -> None:
    hosts = [
        host("with", {"": {"VCPU": 4}}, instances=frozenset({"m"})),
        host("without", {"": {"VCPU": 4}}),
    ]
    members = frozenset({"m"})
    affinity = spec(instance_group=InstanceGroup("soft-affinity", members=members))
    anti = spec(instance_group=InstanceGroup("soft-anti-affinity", members=members))
    assert ordered(hosts, affinity) == ["with", "without"]
    assert ordered(hosts, anti) == ["without", "with"]


class _NameWeigher(HostWeigher):
    def weigh(self, host: HostState, _spec: RequestSpec) -> float:
        """Return the number that the host is named by."""
        return float(host.name)


@pytest.mark.parametrize(
    ("raw", "scaled"), [([2, 4, 3], [0.0, 1.0, 0.5]), ([5, 5], [0.0, 0.0]), ([], [])]
)
def test_weights_are_scaled_to_one_and_equal_ones_do_not_count(
    raw: list[int], scaled: list[float]
) -> None:
    hosts = [host(str(number), {"": {"VCPU": 4}}) for number in raw]
    assert order.weights(hosts, spec(), [_NameWeigher()], WeighingOptions()) == scaled


def test_an_unknown_weigher_is_named_with_those_there_are() -> None:
    with pytest.raises(InvalidConfiguration, match=r"no\.such\.Weigher.*RAMWeigher"):
        order.make(["no.such.Weigher"])


def summary(uuid: str, capacity: dict[str, int], used: dict[str, int]) -> ProviderSummary:
    return ProviderSummary(uuid, "host", counts=counts(capacity, used))


def test_a_card_that_is_broken_into_already_is_used_up_first() -> None:
    providers = {
        "whole": summary("whole", {"VGPU": 4}, {}),
        "small": summary("small", {"VGPU": 1}, {}),
        "begun": summary("begun", {"VGPU": 4}, {"VGPU": 1}),
        "nearly": summary("nearly", {"VGPU": 4}, {"VGPU": 3}),
    }
    offered = [Candidate("host", {name: {"VGPU": 1}}, {}) for name in providers]
    first = order.candidates_in_order(offered, providers)
    names = [next(iter(candidate.allocations)) for candidate in first]
    assert names == ["nearly", "begun", "small", "whole"]


def test_two_devices_from_one_card_go_before_one_from_each_of_two() -> None:
    providers = {name: summary(name, {"VGPU": 4}, {}) for name in "ab"}
    apart = Candidate("host", {"a": {"VGPU": 1}, "b": {"VGPU": 1}}, {})
    together = Candidate("host", {"b": {"VGPU": 2}}, {})
    assert order.candidates_in_order([apart, together], providers) == (together, apart)


def test_the_cell_with_most_left_goes_first() -> None:
    providers = {
        "full": summary("full", {"VCPU": 8}, {"VCPU": 6}),
        "empty": summary("empty", {"VCPU": 8}, {}),
    }
    offered = [Candidate("host", {name: {"VCPU": 1}}, {}) for name in providers]
    assert [next(iter(c.allocations)) for c in order.candidates_in_order(offered, providers)] == [
        "empty",
        "full",
    ]


def announcing(name: str, **attributes: Any) -> HostState:
    announced = Announcement("h", 0.0, attributes=attributes)
    return host(name, {"": {}}, announcement=announced)


def by(weigher: str, hosts: list[HostState], asked: RequestSpec, **multipliers: float) -> list[str]:
    """The order in which one weigher alone puts hosts, with its own multiplier unless given."""
    path = f"nova.scheduler.weights.x.{weigher}"
    made = order.make([path])
    weighing = WeighingOptions(multipliers=multipliers)
    return [host.name for host in order.in_order(hosts, asked, made, weighing, random.Random(1))]


def test_a_move_stays_in_its_cell_where_it_can() -> None:
    hosts = [announcing("far", cell_uuid="c2"), announcing("near", cell_uuid="c1")]
    asked = spec(destination=Destination(cell="c1", allow_cross_cell_move=True))
    assert by("CrossCellMoveWeigher", hosts, asked) == ["near", "far"]
    assert by("CrossCellMoveWeigher", hosts, spec()) == ["far", "near"]


ROW = {"VCPU": 4, "MEMORY_MB": 4, "DISK_GB": 4}


@pytest.mark.parametrize(
    ("option", "better", "worse"),
    [
        ("ram", {"free": {"MEMORY_MB": 8}}, {}),
        ("cpu", {"free": {"VCPU": 8}}, {}),
        ("disk", {"free": {"DISK_GB": 8}}, {}),
        ("io_ops", {}, {"announced": {"io_ops": 3}}),
        ("pci", {}, {"free": {"VGPU": 3}}),
        ("build_failure", {}, {"announced": {"build_failures": 1}}),
        ("hypervisor_version", {"announced": {"hypervisor_version": 9}}, {}),
        *(
            ("hypervisor_version", {"announced": {"hypervisor_version": 9}}, {"announced": other})
            for other in ({"hypervisor_version": value} for value in (math.nan, 10**400, "10"))
        ),
    ],
)
def test_each_weigher_has_its_own_way_with_its_default_multiplier(
    option: str, better: dict[str, Any], worse: dict[str, Any]
) -> None:
    def made(name: str, free: dict[str, int] | None = None, announced: Any = None) -> HostState:
        known = announced or {}
        fields = {k: v for k, v in known.items() if k in ("io_ops", "build_failures")}
        announcement = Announcement("h", 0.0, **fields, attributes=known)
        return host(name, {"": ROW | (free or {})}, {"": {}}, announcement=announcement)

    hosts = [made("worse", **worse), made("better", **better)]
    [weigher] = [known for known in WEIGHERS if known.option == option]
    chance = random.Random(1)
    found = order.in_order(hosts, spec(), [weigher], WeighingOptions(), chance)
    assert [item.name for item in found] == ["better", "worse"]


def test_the_number_of_instances_counts_only_with_a_multiplier() -> None:
    hosts = [
        host("a", {"": {}}, announcement=Announcement("h", 0.0, instances=1)),
        host("b", {"": {}}, announcement=Announcement("h", 0.0, instances=5)),
    ]
    assert by("NumInstancesWeigher", hosts, spec()) == ["a", "b"]
    assert by("NumInstancesWeigher", hosts, spec(), num_instances=1.0) == ["b", "a"]


def test_the_weighers_and_their_multipliers_are_those_that_operators_know() -> None:
    from compute_agent import conf as agent_conf
    from compute_agent.scheduler.assembly import claim_options

    conf = agent_conf.new_config(default_config_files=[], default_config_dirs=[])
    assert dict(claim_options(conf).weighing.multipliers) == {
        "ram": 1,
        "cpu": 1,
        "disk": 1,
        "io_ops": -1,
        "pci": 1,
        "soft_affinity": 1,
        "soft_anti_affinity": 1,
        "build_failure": 1000000,
        "cross_cell_move": 1000000,
        "num_instances": 0,
        "hypervisor_version": 1,
        "leaves_whole": 0.25,
    }


def tree(name: str, *cards: str, used: str = "", takes: str) -> HostState:
    """A host of two cells, with linked cards on the first, of which the guest takes something.

    :param takes: of each candidate, after a bar, the cells and cards; R is the root.
    """
    root = ProviderSummary(name, name, counts=counts({"DISK_GB": 9}))
    cells = [
        ProviderSummary(
            f"{name}{cell}", name, name, counts({"VCPU": 8}), frozenset(("HW_NUMA_ROOT",))
        )
        for cell in "01"
    ]
    gpus = [
        ProviderSummary(
            f"{name}{card}",
            name,
            f"{name}0",
            counts({"VGPU": 1}, {"VGPU": int(card in used)}),
            frozenset((f"CUSTOM_NVLINK_GROUP_{card[0]}",)),
        )
        for card in cards
    ]
    classes = {"0": "VCPU", "1": "VCPU", "R": "DISK_GB"}
    candidates = tuple(
        Candidate(
            name,
            {
                name + uuid.removeprefix("R"): {classes.get(uuid, "VGPU"): 1}
                for uuid in taken.split()
            },
            {},
        )
        for taken in takes.split("|")
    )
    providers = {provider.uuid: provider for provider in (root, *cells, *gpus)}
    return HostState(name, name, providers, candidates)


FOUR = ("5x", "5y", "6x", "6y")
BREAKING, BESIDE = tree("a", *FOUR, takes="0 5x"), tree("a", "5x", takes="0")


@pytest.mark.parametrize(
    ("breaking", "whole"),
    [
        (BREAKING, tree("b", *FOUR, used="5y", takes="0 5x")),
        (BREAKING, tree("b", "5x", "5y", takes="0 5x 5y")),
        (BREAKING, tree("b", *FOUR, "7x", "7y", takes="0 5x 5y")),
        (BESIDE, tree("b", "5x", takes="1")),
        (BESIDE, tree("b", "5x", takes="R 1")),
        (BESIDE, tree("b", "5x", takes="0|1")),
        (BESIDE, tree("b", "5x", used="5x", takes="0")),
    ],
    ids=["broken", "pair", "others", "apart", "disk of the root", "one candidate", "none is free"],
)
def test_hosts_whose_groups_of_links_and_cells_with_devices_stay_whole_come_first(
    breaking: HostState, whole: HostState
) -> None:
    only = {"ram": 0.0, "cpu": 0.0, "pci": 0.0}
    assert ordered([breaking, whole], multipliers=only) == ["b", "a"]
    assert ordered([breaking, whole], multipliers={**only, "leaves_whole": 0.0}) == ["a", "b"]


def announced_cell(cores: list[list[int]], **fields: Any) -> dict[str, Any]:
    """A cell with cores of so many free CPUs, threads, L3 group and number."""
    free = sum(core[0] * core[3] for core in cores)
    return {"pcpu": free, "memory_mb": 9999, "cores": cores, **fields}


def announced_card(uuid: str, *, used: bool = False) -> dict[str, Any]:
    return {
        "provider": uuid,
        "class": "VGPU",
        "free": int(not used),
        "used": used,
        "cell": 0,
        "links": "5",
    }


HALF, WHOLE = [1, 2, 0, 2], [2, 2, 0, 1]


@pytest.mark.parametrize(
    ("breaking", "whole", "takes_card"),
    [
        ({"cells": [announced_cell([WHOLE])]}, {"cells": [announced_cell([HALF])]}, False),
        (
            {"cells": [announced_cell([HALF])], "devices": [announced_card("y")]},
            {
                "cells": [announced_cell([HALF]), announced_cell([HALF], id=1)],
                "devices": [announced_card("y")],
            },
            False,
        ),
        (
            {
                "cells": [announced_cell([HALF])],
                "devices": [announced_card("x"), announced_card("y")],
            },
            {
                "cells": [announced_cell([HALF])],
                "devices": [announced_card("x"), announced_card("y", used=True)],
            },
            True,
        ),
    ],
    ids=["cores", "cells with devices", "links"],
)
def test_flat_hosts_whose_announced_cores_cells_and_links_stay_whole_come_first(
    breaking: dict[str, Any], whole: dict[str, Any], takes_card: bool
) -> None:
    asked = spec({"hw:cpu_policy": "dedicated"}, vcpus=1)
    hosts = []
    for name, attributes in (("a", breaking), ("b", whole)):
        taken = {name: {"PCPU": 1}, **({"x": {"VGPU": 1}} if takes_card else {})}
        mappings = {"": (name,), **({"gpu": ("x",)} if takes_card else {})}
        state = announcing(name, **attributes)
        providers = {
            name: ProviderSummary(name, name, counts=counts({"PCPU": 8})),
            "x": ProviderSummary("x", name, name, counts({"VGPU": 1})),
        }
        candidates = (Candidate(name, taken, mappings),)
        hosts.append(state._replace(providers=providers, candidates=candidates))
    [numa] = registry.make(["NUMATopologyFilter"])
    fitting = list(numa.filter_all(hosts, asked))
    assert by("LeavesWholeWeigher", fitting, asked) == ["b", "a"]
    assert by("LeavesWholeWeigher", fitting, asked, leaves_whole=0.0) == ["a", "b"]


def test_equals_are_spread_by_request_in_the_same_order_each_time_and_the_best_is_first() -> None:
    hosts = [host(name, {"": {"VCPU": 4}}) for name in "abcdefgh"]

    def first(request: str, **options: Any) -> str:
        weighing = WeighingOptions(**options)
        found = order.in_order(hosts, spec(), WEIGHERS, weighing, random.Random(1), request)
        return next(found).name

    requests = [f"request{number}" for number in range(200)]
    firsts = [first(request) for request in requests]
    assert firsts == [first(request) for request in requests]
    assert min(firsts.count(name) for name in "abcdefgh") >= 10
    assert {first(request, spread_equals=False) for request in requests} == {"a"}
    hosts.append(host("best", {"": {"VCPU": 5}}))
    assert {first(request) for request in requests} == {"best"}
