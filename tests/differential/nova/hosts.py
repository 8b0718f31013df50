"""Hosts drawn at random, as nova's host states and as ours."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

from compute_agent.scheduler.fleet.aggregates import Aggregate
from compute_agent.scheduler.fleet.announcements import Announcement
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.placement.candidates import Candidate, ProviderSummary
from tests.differential.nova.drawn_requests import some_of
from tests.unit.scheduler.trees import counts

IMAGES: Final = tuple(str(uuid.UUID(int=number)) for number in (7, 8))
INSTANCES: Final = tuple(str(uuid.UUID(int=number)) for number in range(20, 24))
CELL: Final = str(uuid.UUID(int=1))

METADATA: Final[Mapping[str, tuple[str, ...]]] = {
    "ssd": ("true", "false", "True", "true,false"),
    "hw_machine_type": ("q35", "pc"),
    "os_type": ("linux", "windows"),
    "instance_type": ("m1.small", "m1.large,m1.small", "42"),
    "filter_tenant_id": ("p", "q", "q,p"),
    "filter_tenant_id2": ("p", "z"),
    "max_instances_per_host": ("1", "5"),
    "max_io_ops_per_host": ("1", "9"),
    "gpu": ("2", "4"),
}
EXTRA_SPECS: Final[Mapping[str, tuple[str, ...]]] = {
    "ssd": ("true", "false"),
    "gpu": ("2", ">= 1"),
    "tier": ("gold",),
    "quota:cpu_shares": ("2",),
    "aggregate_instance_extra_specs:ssd": ("true", "<or> true <or> x", "<in> tru", "s== true"),
    "aggregate_instance_extra_specs:gpu": ("4", "= 2", ">= 3", "== 4", "<= 2", "!= 2"),
    "capabilities:cpu_info:vendor": ("Intel", "<or> AMD <or> X", "s!= AMD"),
    "capabilities:cpu_info:features": ("<in> aes", "<in> avx", "<all-in> aes avx", "aes"),
    "capabilities:cpu_info:topology:cores": ("4", ">= 2", "= 4", "!= 4", "5"),
    "capabilities:hypervisor_version": (">= 8000000", "7002000", "== 8002000", "s< 8"),
    "capabilities:hypervisor_type": ("QEMU",),
    "capabilities:vcpus_total": ("16", ">= 8"),
    "capabilities:free_ram_mb": (">= 2000",),
    "capabilities:nothing": ("x",),
    "hw:maxphysaddr_bits": ("40", "48"),
    "hypervisor_type": ("QEMU", "s== kvm"),
}
PROPERTIES: Final[Mapping[str, tuple[str, ...]]] = {
    "hw_architecture": ("x86_64", "aarch64", "i686", "amd64"),
    "img_hv_type": ("kvm", "qemu", "KVM", "xen"),
    "hw_vm_mode": ("hvm", "exe", "HVM"),
    "img_hv_requested_version": (">=8.0", ">=7.0,<8.0", "==7.2.0"),
    "hw_maxphysaddr_bits": ("40", "48"),
    "hw_machine_type": ("q35", "pc"),
    "os_type": ("linux", "windows"),
}
HINTS: Final[tuple[dict[str, list[str]], ...]] = (
    {},
    {"same_host": [INSTANCES[0]]},
    {"same_host": list(INSTANCES[:2])},
    {"different_host": [INSTANCES[0]]},
    {"different_host": list(INSTANCES[1:3])},
    {"build_near_host_ip": ["192.0.2.0"], "cidr": ["/24"]},
    {"build_near_host_ip": ["198.51.100.1"]},
    *(
        {"query": [text]}
        for text in (
            '["=", "$host", "h1"]',
            '["in", "$host", "h1", "h2"]',
            '["and", [">=", "$free_ram_mb", 1024], [">=", "$vcpus_used", 2]]',
            '["<", "$num_instances", 2]',
            '[">=", "$nothing", 2]',
            '["or", ["=", "$hypervisor_type", "QEMU"], ["<=", "$free_disk_mb", 60000]]',
            '[">=", "$cpu_info.topology.cores", 2]',
            '["=", "$host"]',
            "[]",
            "nonsense",
        )
    ),
)
GROUPS: Final[tuple[dict[str, Any] | None, ...]] = (
    None,
    {"policy": "anti-affinity", "members": list(INSTANCES[:2]), "_rules": {}},
    {
        "policy": "anti-affinity",
        "members": list(INSTANCES[:3]),
        "hosts": ["h1", "h2"],
        "_rules": {"max_server_per_host": "2"},
    },
    {"policy": "affinity", "members": list(INSTANCES[:1]), "_rules": {}},
    {"policy": "affinity", "members": [], "_rules": {}},
    {"policy": "soft-affinity", "members": list(INSTANCES), "_rules": {}},
    {"policy": "soft-anti-affinity", "members": list(INSTANCES), "_rules": {}},
)

Host = dict[str, Any]


HOSTS: Final = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["h1", "h2", "h3"]),
        "aggregates": st.lists(some_of(METADATA, 3), max_size=2),
        "instances": st.lists(st.sampled_from(INSTANCES), max_size=2, unique=True),
        "num_instances": st.integers(0, 4),
        "io_ops": st.integers(0, 3),
        "failures": st.integers(0, 2),
        "vcpus": st.sampled_from([4, 16]),
        "vcpus_used": st.integers(0, 4),
        "ram_used": st.sampled_from([0, 512]),
        "disk_used": st.sampled_from([0, 50]),
        "hypervisor_type": st.sampled_from(["QEMU", "kvm"]),
        "hypervisor_version": st.sampled_from([7002000, 8002000]),
        "cpu_info": st.sampled_from(
            [
                {
                    "arch": "x86_64",
                    "vendor": "Intel",
                    "features": ["aes", "avx"],
                    "topology": {"cores": 4},
                    "maxphysaddr": {"mode": "emulate", "bits": 46},
                },
                {"arch": "x86_64", "vendor": "AMD", "features": ["aes"]},
            ]
        ),
        "supported_instances": st.sampled_from(
            [
                [["x86_64", "kvm", "hvm"]],
                [["x86_64", "kvm", "hvm"], ["i686", "qemu", "hvm"]],
                [["aarch64", "kvm", "hvm"]],
            ]
        ),
    }
)
_RAM, _DISK = 2048, 100


def novas(host: Host) -> dict[str, Any]:
    """The attributes of nova's host state."""
    return {
        "host": host["name"],
        "nodename": host["name"],
        "hypervisor_hostname": host["name"],
        "cell_uuid": CELL,
        "uuid": CELL,
        "updated": None,
        "host_ip": "192.0.2.1",
        "aggregates": [
            {
                "_": "Aggregate",
                "name": "a",
                "uuid": str(uuid.UUID(int=number)),
                "metadata": metadata,
                "hosts": [host["name"]],
            }
            for number, metadata in enumerate(host["aggregates"])
        ],
        "instances": {
            instance: {"_": "Instance", "uuid": instance, "host": host["name"]}
            for instance in host["instances"]
        },
        "num_instances": host["num_instances"],
        "num_io_ops": host["io_ops"],
        "failed_builds": host["failures"],
        "vcpus_total": host["vcpus"],
        "vcpus_used": host["vcpus_used"],
        "total_usable_ram_mb": _RAM,
        "free_ram_mb": _RAM - host["ram_used"],
        "total_usable_disk_gb": _DISK,
        "free_disk_mb": (_DISK - host["disk_used"]) * 1024,
        "disk_mb_used": host["disk_used"] * 1024,
        "cpu_allocation_ratio": 1.0,
        "ram_allocation_ratio": 1.0,
        "disk_allocation_ratio": 1.0,
        **{name: host[name] for name in _ANNOUNCED},
    }


_ANNOUNCED = ("hypervisor_type", "hypervisor_version", "cpu_info", "supported_instances")


def ours(host: Host, number: int = 0) -> HostState:
    """The same host as ours."""
    root = str(uuid.UUID(int=100 + number))
    total = {"VCPU": host["vcpus"], "MEMORY_MB": _RAM, "DISK_GB": _DISK}
    used = {
        "VCPU": host["vcpus_used"],
        "MEMORY_MB": host["ram_used"],
        "DISK_GB": host["disk_used"],
    }
    provider = ProviderSummary(root, root, counts=counts(total, used))
    allocations = {root: dict.fromkeys(total, 1)}
    return HostState(
        root,
        host["name"],
        {root: provider},
        (Candidate(root=root, allocations=allocations, mappings={"": (root,)}),),
        tuple(
            Aggregate(str(uuid.UUID(int=n)), f"a{n}", frozenset([host["name"]]), metadata)
            for n, metadata in enumerate(host["aggregates"])
        ),
        frozenset(host["instances"]),
        Announcement(
            host=host["name"],
            seen_at=0.0,
            instances=host["num_instances"],
            io_ops=host["io_ops"],
            build_failures=host["failures"],
            attributes={"host_ip": "192.0.2.1", **{name: host[name] for name in _ANNOUNCED}},
        ),
        True,
    )
