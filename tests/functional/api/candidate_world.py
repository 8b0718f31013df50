"""A world of hosts and pools to ask for candidates, and how answers are read."""

from typing import Any

from tests.fixtures.plain_trees import make_provider

from .wsgi_client import Client

NAMES = ["hostA", "cellA0", "nicA0", "cellA1", "nicA1", "hostB", "pool1", "pool2"]
UUID = {name: f"{number:08}-0000-4000-8000-0000000000bb" for number, name in enumerate(NAMES)}
A1 = "11111111-0000-4000-8000-0000000000aa"
A2 = "22222222-0000-4000-8000-0000000000aa"
UNKNOWN = "00000000-0000-0000-0000-00000000dead"
PATH = "/allocation_candidates"


def path_of(uuid: str) -> str:
    return f"/resource_providers/{uuid}"


def build_world(api: Client) -> Client:
    """Two hosts and two pools.

    hostA  MEMORY_MB 4096          aggs a1      traits CUSTOM_RACK
      cellA0  VCPU 8               traits HW_NUMA_ROOT
        nicA0   SRIOV_NET_VF 4     traits CUSTOM_NET1
      cellA1  VCPU 8               traits HW_NUMA_ROOT, CUSTOM_FAST
        nicA1   SRIOV_NET_VF 4     traits CUSTOM_NET1, CUSTOM_NET2
    hostB  VCPU 8, MEMORY_MB 4096, DISK_GB 100    aggs a1, a2   traits CUSTOM_FAST
    pool1  DISK_GB 1000            aggs a1      traits MISC_SHARES_VIA_AGGREGATE, STORAGE_DISK_SSD
    pool2  DISK_GB 1000            aggs a2      traits MISC_SHARES_VIA_AGGREGATE
    """
    parents = {"cellA0": "hostA", "nicA0": "cellA0", "cellA1": "hostA", "nicA1": "cellA1"}
    stock: dict[str, dict[str, Any]] = {
        "hostA": {"MEMORY_MB": 4096},
        "cellA0": {"VCPU": 8},
        "nicA0": {"SRIOV_NET_VF": 4},
        "cellA1": {"VCPU": 8},
        "nicA1": {"SRIOV_NET_VF": 4},
        "hostB": {"VCPU": 8, "MEMORY_MB": 4096, "DISK_GB": 100},
        "pool1": {"DISK_GB": 1000},
        "pool2": {"DISK_GB": 1000},
    }
    traits = {
        "hostA": ["CUSTOM_RACK"],
        "cellA0": ["HW_NUMA_ROOT"],
        "nicA0": ["CUSTOM_NET1"],
        "cellA1": ["HW_NUMA_ROOT", "CUSTOM_FAST"],
        "nicA1": ["CUSTOM_NET1", "CUSTOM_NET2"],
        "hostB": ["CUSTOM_FAST"],
        "pool1": ["MISC_SHARES_VIA_AGGREGATE", "STORAGE_DISK_SSD"],
        "pool2": ["MISC_SHARES_VIA_AGGREGATE"],
    }
    aggregates = {"hostA": [A1], "hostB": [A1, A2], "pool1": [A1], "pool2": [A2]}
    for name in NAMES:
        make_provider(
            api.must,
            name,
            stock[name],
            traits[name],
            uuid=UUID[name],
            parent=UUID.get(parents.get(name, "")),
            aggregates=aggregates.get(name, ()),
        )
    return api


def ask(api: Client, query: str, version: str = "1.39") -> Any:
    answer = api.get(f"{PATH}?{query}", version=version)
    assert answer.status == 200, answer.body
    return answer.json


def found(api: Client, query: str, version: str = "1.39") -> set[str]:
    """The candidates, each as `name(CLASS:n,...) name(...)`, sorted."""
    names = {uuid: name for name, uuid in UUID.items()}
    shown = []
    for request in ask(api, query, version)["allocation_requests"]:
        parts = []
        for uuid, entry in request["allocations"].items():
            resources = sorted(entry["resources"].items())
            amounts = ",".join(f"{name}:{amount}" for name, amount in resources)
            parts.append(f"{names.get(uuid, uuid)}({amounts})")
        shown.append(" ".join(sorted(parts)))
    assert len(shown) == len(set(shown))
    return set(shown)


def error(api: Client, query: str, version: str = "1.39") -> tuple[str, str | None]:
    answer = api.get(f"{PATH}?{query}", version=version)
    assert answer.status == 400, answer.body
    return answer.detail, answer.code
