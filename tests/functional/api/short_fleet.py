"""A small fleet of nearly full hosts: that of the documentation of the closest changes."""

from __future__ import annotations

from typing import Any

from .wsgi_client import Client

NAMES = ["compute-01", "gpu-01", "gpu-01_A40", "gpu-02", "gpu-02_A40", "gpu-03", "gpu-03_L40S"]
UUID = {name: f"{number:08}-0000-4000-8000-0000000000cc" for number, name in enumerate(NAMES, 1)}
TRAITS = {
    "gpu-01_A40": "CUSTOM_NVIDIA_A40",
    "gpu-02_A40": "CUSTOM_NVIDIA_A40",
    "gpu-03_L40S": "CUSTOM_NVIDIA_L40S",
}
# By host: how many VCPUs each of its guests has. Every guest has 8 GiB.
GUESTS = {"gpu-01": [6] * 8 + [4], "gpu-02": [12] * 5, "gpu-03": [4] * 4}

QUERY = (
    "resources=VCPU:16,MEMORY_MB:65536&resources_GPU=VGPU:1&required_GPU=CUSTOM_NVIDIA_A40"
    "&group_policy=none"
)


def path_of(name: str) -> str:
    return f"/resource_providers/{UUID[name]}"


def build_fleet(api: Client) -> Client:
    for name in NAMES:
        host, _, card = name.partition("_")
        parent = {"parent_provider_uuid": UUID[host]} if card else {}
        api.provider(name, uuid=UUID[name], **parent)
        stock: dict[str, Any] = {"VGPU": 4} if card else {"VCPU": 64, "MEMORY_MB": 262144}
        if name == "compute-01":
            stock["DISK_GB"] = {"total": 1000, "max_unit": 500}
        api.inventory(path_of(name), **stock)
        if card:
            api.traits(path_of(name), TRAITS[name])
    api.traits(path_of("gpu-03"), "COMPUTE_STATUS_DISABLED")
    for host, guests in GUESTS.items():
        for number, cpus in enumerate(guests):
            hold(api, guest(host, number), {host: {"VCPU": cpus, "MEMORY_MB": 8192}})
    return api


def guest(host: str, number: int) -> str:
    return f"{number:08}-{NAMES.index(host):04}-4000-8000-0000000000dd"


def hold(api: Client, consumer: str, amounts: dict[str, Any]) -> None:
    answer = api.claim(consumer, held={path_of(name): held for name, held in amounts.items()})
    assert answer.status == 204, answer.body
