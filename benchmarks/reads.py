"""Latency and server CPU of single requests, one client, medians of many.

The data is loaded through the API of each server, so both hold the same: flat hosts, or hosts of 13
providers (root with the disk, two NUMA cells, two GPUs and a card with two PFs below each cell).
"""

import statistics
import time
import uuid
from dataclasses import dataclass

from benchmarks.claims import make_provider
from benchmarks.client import Client
from benchmarks.servers import Server

AGGREGATE = "aa9f0ae4-6ad9-4ab8-a4b5-a1e1f0cd4d1a"
SUBTREE_QUERY = (
    "/allocation_candidates?resources=DISK_GB:10"
    "&resources_C=VCPU:2,MEMORY_MB:1024&resources_G=VGPU:1&resources_N=SRIOV_NET_VF:1"
    "&same_subtree=_C,_G,_N&group_policy=none"
)
FLAT_QUERY = (
    "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512,DISK_GB:5"
    f"&member_of={AGGREGATE}&required=HW_CPU_X86_AVX2"
)


@dataclass(frozen=True)
class Measured:
    scenario: str
    server: str
    median_ms: float
    cpu_ms: float
    body_bytes: int
    runs: int


def measure(server: Server, scenario: str, path: str, runs: int) -> Measured:
    """The median latency of `runs` requests after three unmeasured ones."""
    client = Client(server.url)
    for _ in range(3):
        client.must("GET", path)
    latencies = []
    size = 0
    cpu = server.cpu_seconds()
    for _ in range(runs):
        start = time.monotonic()
        status, raw = client.send("GET", path)
        latencies.append(1000 * (time.monotonic() - start))
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {raw[:300]!r}")
        size = len(raw)
    cpu = server.cpu_seconds() - cpu
    return Measured(
        scenario, server.label, statistics.median(latencies), 1000 * cpu / runs, size, runs
    )


def associate(client: Client, provider: str, traits: list[str], aggregates: list[str]) -> None:
    """Sets traits, then aggregates, of a provider that has just got its first inventory."""
    if traits:
        client.must(
            "PUT",
            f"/resource_providers/{provider}/traits",
            {"resource_provider_generation": 1, "traits": traits},
        )
    if aggregates:
        client.must(
            "PUT",
            f"/resource_providers/{provider}/aggregates",
            {"resource_provider_generation": 2 if traits else 1, "aggregates": aggregates},
        )


def flat_hosts(server: Server, hosts: int) -> list[str]:
    client = Client(server.url)
    made = []
    for number in range(hosts):
        host = make_provider(
            client,
            f"flat-{number:06}",
            {"VCPU": {"total": 64}, "MEMORY_MB": {"total": 65536}, "DISK_GB": {"total": 1000}},
        )
        associate(client, host, ["HW_CPU_X86_AVX2"], [AGGREGATE])
        made.append(host)
    return made


def nested_hosts(server: Server, hosts: int) -> list[str]:
    client = Client(server.url)
    made = []
    for number in range(hosts):
        name = f"nested-{number:06}"
        root = make_provider(client, name, {"DISK_GB": {"total": 1000}})
        for cell in range(2):
            cpus = {"VCPU": {"total": 32}, "MEMORY_MB": {"total": 32768}}
            numa = make_provider(client, f"{name}_NUMA{cell}", cpus, parent=root)
            for gpu in range(2):
                make_provider(client, f"{name}_GPU{cell}{gpu}", {"VGPU": {"total": 8}}, parent=numa)
            card = str(uuid.uuid4())
            client.must(
                "POST",
                "/resource_providers",
                {"uuid": card, "name": f"{name}_NIC{cell}", "parent_provider_uuid": numa},
            )
            for port in range(2):
                vfs = {"SRIOV_NET_VF": {"total": 8}}
                make_provider(client, f"{name}_PF{cell}{port}", vfs, parent=card)
        made.append(root)
    return made


def scenarios(server: Server, quick: bool) -> list[Measured]:
    """Every read against one server, the small data sets first."""
    scale = 10 if quick else 1
    results = []
    nested = nested_hosts(server, 1)[0]
    for scenario, path in (
        ("tree of 13 providers (in_tree)", f"/resource_providers?in_tree={nested}"),
        ("inventories of one provider", f"/resource_providers/{nested}/inventories"),
        ("traits of one provider", f"/resource_providers/{nested}/traits"),
        ("usages of one provider", f"/resource_providers/{nested}/usages"),
    ):
        results.append(measure(server, scenario, path, 200 // scale))
    hosts = len(flat_hosts(server, 1000 // scale))
    for scenario, path, runs in (
        (f"{hosts:,} flat hosts, no limit", FLAT_QUERY, 20),
        (f"{hosts:,} flat hosts, limit=10", f"{FLAT_QUERY}&limit=10", 20),
    ):
        results.append(measure(server, scenario, path, runs))
    return results


def nested_scenarios(server: Server, quick: bool) -> list[Measured]:
    """The NUMA-affine query over nested hosts; loads 13 providers a host."""
    hosts = len(nested_hosts(server, 100 if quick else 1000))
    return [
        measure(
            server,
            f"{hosts:,} nested hosts, limit={limit}",
            f"{SUBTREE_QUERY}&limit={limit}",
            10,
        )
        for limit in (1000, 10)
    ]
