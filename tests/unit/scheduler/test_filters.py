"""Filters, and the hosts that each lets pass."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent.errors import InvalidConfiguration
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.spec import Flavor, InstanceGroup, RequestSpec
from compute_agent.scheduler.filters import registry
from compute_agent.scheduler.filters.facts import matches
from compute_agent.scheduler.filters.host_filter import FilterOptions, HostFilter, run_filters
from compute_agent.scheduler.fleet.aggregates import Aggregate
from compute_agent.scheduler.fleet.announcements import Announcement
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.placement.candidates import ProviderSummary
from tests.unit.scheduler.specs import spec
from tests.unit.scheduler.trees import counts


def host(
    *traits: str,
    announced: dict[str, Any] | None = None,
    metadata: dict[str, str] | None = None,
    **fields: Any,
) -> HostState:
    provider = ProviderSummary(
        "u", "u", counts=counts({"VCPU": 8, "MEMORY_MB": 4096}), traits=frozenset(traits)
    )
    announcement = None
    if announced is not None:
        announcement = Announcement(
            "service",
            0.0,
            **{k: v for k, v in announced.items() if k in ("instances", "io_ops", "enabled")},
            attributes=announced,
        )
    aggregates = (Aggregate("agg", metadata=metadata),) if metadata is not None else ()
    return HostState(
        "u",
        fields.pop("name", "host"),
        {"u": provider},
        (),
        aggregates=aggregates,
        announcement=announcement,
        **fields,
    )


def passes(name: str, host: HostState, asked: RequestSpec, **options: Any) -> bool:
    [made] = registry.make([name], options=FilterOptions(**options))
    return list(made.filter_all([host], asked)) == [host]


def hinted(**hints: str) -> RequestSpec:
    return spec(scheduler_hints={name: tuple(text.split()) for name, text in hints.items()})


GROUP = InstanceGroup(members=frozenset({"m1", "m2"}))
ANTI = replace(GROUP, policy="anti-affinity")


RUNS_KVM = host(announced={"supported_instances": [["x86_64", "kvm", "hvm"]]})
WITH_M1 = host(instances=frozenset({"m1"}))
WANTS_SSD = spec({"aggregate_instance_extra_specs:ssd": "true"})
WINDOWS = spec(properties={"os_distro": "windows"})
AARCH64 = spec(properties={"hw_architecture": "aarch64"})
ADDRESSED = host(announced={"host_ip": "192.0.2.9"})
NO_M1 = replace(spec(), flavor=Flavor(name="m3"))
CASES = {
    "ComputeFilter": [
        (host(), spec(), True),
    ],
    "ComputeCapabilitiesFilter": [
        (host(), spec({"capabilities:kind": "a"}), False),
        (
            host(announced={"hypervisor": {"kind": "qemu"}}),
            spec({"capabilities:hypervisor:kind": "<or> kvm <or> qemu"}),
            True,
        ),
        (host(announced={"io_ops": 8}), spec({"num_io_ops": "<= 7"}), False),
        (host(), spec({"vcpus_total": ">= 8"}), True),
        (host(), spec({"vcpus_total": ">= 9"}), False),
        (host(), spec({"hw:numa_nodes": "1"}), True),
        (host(), spec({"group_policy": "none"}), True),
    ],
    "ImagePropertiesFilter": [
        (host("HW_ARCH_X86_64"), AARCH64, False),
        (host("HW_ARCH_X86_64", "COMPUTE_ARCH_AARCH64"), AARCH64, True),
        (host(), spec(properties={"hw_architecture": "a"}), True),
        (RUNS_KVM, spec(properties={"img_hv_type": "xen"}), False),
        (RUNS_KVM, spec(properties={"img_hv_type": "kvm", "hw_vm_mode": "hvm"}), True),
    ],
    "ServerGroupAntiAffinityFilter": [
        (host(), spec(instance_group=ANTI), True),
        (WITH_M1, spec(instance_group=ANTI), False),
        (WITH_M1, spec(instance_group=replace(ANTI, rules={"max_server_per_host": 2})), True),
        (WITH_M1, spec(instance_group=replace(GROUP, policy="soft-anti-affinity")), True),
    ],
    "ServerGroupAffinityFilter": [
        (host(), spec(instance_group=InstanceGroup("affinity", hosts=frozenset({"other"}))), False),
        (host(), spec(instance_group=InstanceGroup("affinity")), True),
    ],
    "AllHostsFilter": [
        (host("COMPUTE_STATUS_DISABLED", alive=False), spec(), True),
    ],
    "SameHostFilter": [
        (host(), hinted(same_host="m1"), False),
        (WITH_M1, hinted(same_host="m1 m2"), True),
        (host(), spec(), True),
    ],
    "DifferentHostFilter": [
        (WITH_M1, hinted(different_host="m1"), False),
        (host(), hinted(different_host="m1"), True),
    ],
    "SimpleCIDRAffinityFilter": [
        (ADDRESSED, hinted(build_near_host_ip="192.0.2.1", cidr="/29"), False),
        (ADDRESSED, hinted(build_near_host_ip="192.0.2.1"), True),
        (host(), hinted(build_near_host_ip="192.0.2.1"), False),
    ],
    "NumInstancesFilter": [
        (host(announced={"instances": 50}), spec(), False),
        (host(announced={"instances": 49}), spec(), True),
        (host(), spec(), True),
    ],
    "IoOpsFilter": [
        (host(announced={"io_ops": 8}), spec(), False),
        (host(announced={"io_ops": 7}), spec(), True),
    ],
    "AggregateNumInstancesFilter": [
        (host(announced={"instances": 3}, metadata={"max_instances_per_host": "3"}), spec(), False),
    ],
    "AggregateIoOpsFilter": [
        (host(announced={"io_ops": 9}, metadata={"max_io_ops_per_host": "10"}), spec(), True),
        (host(announced={"io_ops": 7}, metadata={"max_io_ops_per_host": "\u00b2"}), spec(), True),
        (host(announced={"io_ops": 9}, metadata={"max_io_ops_per_host": "9" * 10}), spec(), True),
    ],
    "AggregateInstanceExtraSpecsFilter": [
        (host(metadata={"ssd": "true"}), WANTS_SSD, True),
        (host(), WANTS_SSD, False),
    ],
    "AggregateImagePropertiesIsolation": [
        (host(metadata={"os_distro": "debian"}), WINDOWS, False),
        (host(metadata={"os_distro": "debian,windows"}), WINDOWS, True),
    ],
    "AggregateMultiTenancyIsolation": [
        (host(metadata={"filter_tenant_id": "somebody, else"}), spec(), False),
        (host(metadata={"filter_tenant_id1": "project"}), spec(), True),
    ],
    "AggregateTypeAffinityFilter": [
        (host(metadata={"instance_type": "m1, m2"}), NO_M1, False),
    ],
    "JsonFilter": [
        (host(), hinted(query='["=","$host","host"]'.replace(" ", "")), True),
        (
            host(),
            hinted(query='["and",[">=","$free_ram_mb",4096],["not",["=","$host","host"]]]'),
            False,
        ),
    ],
}


@pytest.mark.parametrize(
    ("name", "one", "asked", "expected"),
    [(name, *case) for name, cases in CASES.items() for case in cases],
)
def test_a_filter_passes_just_the_hosts_it_is_for(
    name: str, one: HostState, asked: RequestSpec, expected: bool
) -> None:
    assert passes(name, one, asked) is expected


@pytest.mark.parametrize(
    ("image", "on", "restrict", "expected"),
    [
        ("secret", "vault", True, True),
        ("secret", "host", True, False),
        ("image", "vault", True, False),
        ("image", "vault", False, True),
        ("secret", "host", False, False),
        ("image", "host", True, True),
    ],
)
def test_isolated_images_and_hosts_belong_together(
    image: str, on: str, restrict: bool, expected: bool
) -> None:
    asked = replace(spec(), image=replace(spec().image, id=image))
    assert (
        passes(
            "IsolatedHostsFilter",
            host(name=on),
            asked,
            isolated_images=frozenset({"secret"}),
            isolated_hosts=frozenset({"vault"}),
            restrict_isolated_hosts_to_isolated_images=restrict,
        )
        is expected
    )


@pytest.mark.parametrize("query", ["[", '["maybe", 1]'])
def test_a_condition_that_is_none_is_refused(query: str) -> None:
    asked = spec(scheduler_hints={"query": (query,)})
    with pytest.raises(InvalidRequest, match="hint query"):
        passes("JsonFilter", host(), asked)


@pytest.mark.parametrize(
    ("fact", "wanted", "expected"),
    [
        (8, "= 8", True),
        (9, "= 8", True),
        (9, "== 8", False),
        (7, "!= 8", True),
        (7, "<= 8", True),
        ("many", ">= 8", False),
        ("abc", "s== abc", True),
        ("abc", "s!= abc", False),
        ("b", "s> a", True),
        ("a", "s>= b", False),
        ("a", "s< b", True),
        ("a", "s<= a", True),
        ("one two", "<in> two", True),
        (["aes", "mmx"], "<all-in> aes mmx", True),
        (["aes"], "<all-in> aes mmx", False),
        (["aes-ni"], "<all-in> aes", False),
        (12, "<all-in> 1 2", True),
        (["8"], "= 8", False),
        ("one two", "one two", True),
        ("kvm", "", False),
        ("kvm", "<or> kvm <or> qemu", True),
        ("xen", "<or> kvm <or> qemu", False),
        ("12", "12", True),
        ("123", "12", False),
    ],
)
def test_a_fact_is_compared_as_the_notation_says(fact: object, wanted: str, expected: bool) -> None:
    assert matches(fact, wanted) is expected


def test_an_unknown_filter_is_named_with_those_there_are_and_a_path_that_leads_nowhere() -> None:
    with pytest.raises(InvalidConfiguration, match="names NoFilter: expected one of Aggregate"):
        registry.make(["NoFilter"])
    with pytest.raises(InvalidConfiguration, match=r"no\.such\.module\.Filter"):
        registry.make(["Filter"], ["no.such.module.Filter"])


def test_a_filter_from_elsewhere_is_loaded_by_its_path_and_novas_are_ours() -> None:
    for path in (f"{__name__}.EvenHostsFilter", "nova.scheduler.filters.host.ComputeFilter"):
        name = path.rpartition(".")[2]
        [made] = registry.make([name], [registry.ALL_FILTERS, path])
        assert made.name == name


def test_filters_run_in_order_and_stop_when_none_is_left() -> None:
    made = registry.make(["ComputeFilter", "NumInstancesFilter", "AllHostsFilter"])
    hosts = [
        host(name="a", alive=False)._replace(uuid="a"),
        host(name="b", announced={"instances": 99})._replace(uuid="b"),
        host(name="c", announced={"enabled": False})._replace(uuid="c"),
        host("COMPUTE_STATUS_DISABLED", name="d", announced={}),
    ]
    left, causes = run_filters(made, hosts, spec())
    assert not left
    assert [
        (cause.name, cause.hosts_before, cause.hosts_left, cause.names_left) for cause in causes
    ] == [
        ("ComputeFilter", 4, 1, ("b",)),
        ("NumInstancesFilter", 1, 0, ()),
    ]
    assert [rejected.reason for cause in causes for rejected in cause.rejected] == [
        "its agent is silent",
        "disabled, as its agent announces",
        "disabled in placement",
        "has 99 of at most 50 instances",
    ]


class EvenHostsFilter(HostFilter):
    """Passes hosts with names of even length."""

    def host_passes(self, host: HostState, _spec: RequestSpec) -> bool:
        return len(host.name) % 2 == 0
