"""Requests drawn at random, as nova's objects and as our own documents."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

CPUS: Final = 4
MEMORY: Final = 64

EXTRA_SPECS: Final[Mapping[str, tuple[str, ...]]] = {
    "hw:cpu_policy": ("shared", "dedicated", "mixed", "bad"),
    "hw:cpu_thread_policy": ("prefer", "require", "isolate"),
    "hw:cpu_dedicated_mask": ("0-1", "^0", "0-3", "9"),
    "hw:cpu_realtime": ("yes", "no"),
    "hw:cpu_realtime_mask": ("0-1", "^0-1", "2-3"),
    "hw:emulator_threads_policy": ("share", "isolate"),
    "hw:numa_nodes": ("1", "2", "3", "0"),
    "hw:numa_cpus.0": ("0-1", "0-3"),
    "hw:numa_cpus.1": ("2-3",),
    "hw:numa_mem.0": ("32", "64"),
    "hw:numa_mem.1": ("32",),
    "hw:mem_page_size": (
        *("small", "large", "any", "2048", "2MB", "1GB", "4", "4KB", "x", "2.5MB", "1TB", "2Mb"),
    ),
    "hw:mem_encryption": ("true", "false"),
    "hw:mem_encryption_model": ("amd-sev", "amd-sev-es"),
    "hw:pmem": ("A", "a,b", "A, A"),
    "hw:tpm_version": ("1.2", "2.0", "x"),
    "hw:tpm_model": ("tpm-tis", "tpm-crb"),
    "hw:tpm_secret_security": ("user", "host", "deployment"),
    "os:secure_boot": ("required", "optional", "disabled"),
    "hw:firmware_stateless": ("true",),
    "hw:pci_numa_affinity_policy": ("required", "preferred", "legacy", "socket"),
    "hw:maxphysaddr_mode": ("passthrough", "emulate"),
    "hw:maxphysaddr_bits": ("42",),
    "hw:locked_memory": ("true", "false"),
    "hw:virtio_packed_ring": ("true", "false"),
    "hw:ephemeral_encryption": ("true", "false"),
    "hw:ephemeral_encryption_format": ("luks", "plain"),
    "hw:sound_model": ("ich6", "virtio"),
    "pci_passthrough:alias": ("gpu:1", "gpu:2", "nic:1,gpu:1", "none:1", "gpu:1,gpu:1", " gpu : 1"),
    "resources:VCPU": ("0", "2"),
    "resources:PCPU": ("2", "4"),
    "resources:MEMORY_MB": ("0", "128"),
    "resources:DISK_GB": ("0",),
    "resources:VGPU": ("1",),
    "resources:CUSTOM_A": ("1", "2"),
    "resources1:CUSTOM_A": ("1",),
    "resources2:CUSTOM_B": ("1",),
    "resources_A:CUSTOM_B": ("2",),
    "trait:CUSTOM_A": ("required", "forbidden"),
    "trait:HW_CPU_X86_AVX": ("required",),
    "group_policy": ("none", "isolate"),
    "accel:device_profile": ("gold",),
    "ssd": ("true",),
}
PROPERTIES: Final[Mapping[str, tuple[str, ...]]] = {
    "hw_cpu_policy": ("shared", "dedicated", "mixed"),
    "hw_cpu_thread_policy": ("prefer", "require", "isolate"),
    "hw_cpu_realtime_mask": ("0-1", "2-3"),
    "hw_emulator_threads_policy": ("isolate",),
    "hw_numa_nodes": ("1", "2"),
    "hw_mem_page_size": ("small", "large", "any", "2048"),
    "hw_mem_encryption": ("true", "false"),
    "hw_mem_encryption_model": ("amd-sev-es",),
    "hw_locked_memory": ("true",),
    "hw_firmware_type": ("uefi", "bios"),
    "hw_firmware_stateless": ("true", "false"),
    "hw_machine_type": ("q35",),
    "hw_tpm_version": ("1.2", "2.0"),
    "hw_tpm_model": ("tpm-tis", "tpm-crb"),
    "hw_maxphysaddr_mode": ("emulate",),
    "hw_pci_numa_affinity_policy": ("socket", "required"),
    "os_secure_boot": ("required", "optional"),
    "trait:CUSTOM_C": ("required",),
    "hw_vif_model": ("virtio", "e1000", "vmxnet3"),
    "hw_disk_bus": ("virtio", "scsi", "usb"),
    "hw_video_model": ("qxl", "vga", "none"),
    "hw_architecture": ("x86_64", "aarch64"),
    "hw_emulation_architecture": ("aarch64",),
    "hw_virtio_packed_ring": ("true",),
    "hw_sound_model": ("ich6", "virtio"),
    "hw_ephemeral_encryption": ("true",),
    "hw_ephemeral_encryption_format": ("luks",),
    "img_hide_hypervisor_id": ("true",),
    "os_type": ("linux", "windows"),
}
FORMATS: Final = ("raw", "qcow2", "iso", "vmdk", "ami", "docker")


def some_of(
    vocabulary: Mapping[str, tuple[str, ...]], most: int
) -> st.SearchStrategy[dict[str, str]]:
    """Some keys of a vocabulary, each with one of its values."""
    pairs = [(name, value) for name, values in vocabulary.items() for value in values]
    return st.lists(st.sampled_from(pairs), max_size=most).map(dict)


HOST: Final = ("h1", str(uuid.UUID(int=0x10)))
"""Name and uuid of the only host."""
AGGREGATES: Final[tuple[dict[str, Any], ...]] = (
    {"name": "a0", "metadata": {"availability_zone": "z1"}},
    {"name": "a1", "metadata": {"availability_zone": "z2", "filter_tenant_id": "p"}},
    {"name": "a2", "metadata": {"availability_zone": "z1", "filter_tenant_id_2": "p"}},
    {"name": "a3", "metadata": {"trait:CUSTOM_A": "required"}},
    {"name": "a4", "metadata": {"trait:HW_CPU_X86_AVX": "required", "trait:CUSTOM_C": "required"}},
)
for _number, _aggregate in enumerate(AGGREGATES):
    _aggregate["uuid"] = str(uuid.UUID(int=0xA0 + _number))

_PORTS: Final = tuple(str(uuid.UUID(int=0xB0 + number)) for number in range(3))
_GROUPS: Final = tuple(str(uuid.UUID(int=0xC0 + number)) for number in range(4))


def _port_group(identity: str) -> st.SearchStrategy[dict[str, Any]]:
    amounts = {"NET_BW_EGR_KILOBIT_PER_SEC": 5, "NET_PACKET_RATE_KILOPACKET_PER_SEC": 1}
    return st.fixed_dictionaries(
        {
            "id": st.just(identity),
            "resources": st.sampled_from(sorted(amounts)).map(lambda name: {name: amounts[name]}),
            "required": st.sampled_from([[], ["CUSTOM_PHYSNET_P"], ["CUSTOM_P", "CUSTOM_VNIC"]]),
        }
    )


def _port(number: int) -> st.SearchStrategy[dict[str, Any]]:
    """A port that asks for one group, for several in the extended form, or for nothing."""
    first, second = _GROUPS[number], _GROUPS[number + 1] if number == 2 else _PORTS[number]
    old_form = _port_group(_PORTS[number]).map(
        lambda group: {name: value for name, value in group.items() if name != "id"}
    )
    extended = st.builds(
        lambda one, two, together: {"request_groups": [one, *two], "same_subtree": together},
        _port_group(first),
        st.lists(_port_group(second), max_size=1),
        st.sampled_from([[first], []]),
    )
    requests = st.one_of(old_form, extended)
    return requests.map(lambda asked: {"port_id": _PORTS[number], "resource_request": asked})


_UUIDS: Final = tuple(aggregate["uuid"] for aggregate in AGGREGATES)
_DESTINATIONS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"host": HOST[0]},
    {"host": HOST[0], "node": HOST[0]},
    {"host": "gone", "node": "gone"},
    {"aggregates": [_UUIDS[0]]},
    {"aggregates": [f"{_UUIDS[0]},{_UUIDS[1]}", _UUIDS[3]]},
    {"forbidden_aggregates": {"_": "set", "items": [_UUIDS[2], _UUIDS[3]]}},
    {"aggregates": [_UUIDS[2]], "forbidden_aggregates": {"_": "set", "items": [_UUIDS[3]]}},
)
PLACES: Final = st.fixed_dictionaries(
    {
        "requested_destination": st.sampled_from(_DESTINATIONS).map(
            lambda fields: {"_": "Destination", **fields} if fields else None
        ),
        "availability_zone": st.sampled_from([None, None, "z1", "z2", "nowhere"]),
        "project_id": st.sampled_from(["p", "q"]),
        "force_hosts": st.sampled_from([None, None, None, [HOST[0]], ["gone"]]),
        "force_nodes": st.sampled_from([None, None, None, [HOST[0]]]),
        "ignore_hosts": st.sampled_from([None, [HOST[0]]]),
        "scheduler_hints": st.sampled_from(
            [{}, {"same_host": [str(uuid.UUID(int=20))]}, {"query": ['["=", "$host", "h1"]']}]
        ),
    }
)


REQUESTS: Final = st.builds(
    dict,
    ports=st.sampled_from([(), (), (0,), (0, 1), (2,)]).flatmap(
        lambda numbers: st.tuples(*map(_port, numbers)).map(list)
    ),
    places=st.one_of(st.just({}), PLACES),
    extra_specs=some_of(EXTRA_SPECS, 4),
    properties=some_of(PROPERTIES, 4),
    disk_format=st.sampled_from(FORMATS),
    is_bfv=st.booleans(),
)


def image(disk_format: str = "raw", **properties: Any) -> dict[str, Any]:
    """An image as nova makes it from what the image service has."""
    return {
        "_": "ImageMeta",
        "id": str(uuid.uuid4()),
        "name": "i",
        "status": "active",
        "disk_format": disk_format,
        "container_format": "bare",
        "min_ram": 0,
        "min_disk": 0,
        "properties": properties,
    }


def spec(extra_specs: Mapping[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """A RequestSpec as a conductor has it.

    :param fields: in the place of the usual ones; `ABSENT` leaves one out.
    """
    flavor = {
        "_": "Flavor",
        "id": 1,
        "flavorid": "42",
        "name": "m1.small",
        "vcpus": CPUS,
        "memory_mb": MEMORY,
        "root_gb": 1,
        "ephemeral_gb": 0,
        "swap": 0,
        "rxtx_factor": 1.0,
        "vcpu_weight": 0,
        "disabled": False,
        "is_public": True,
        "description": None,
        "extra_specs": dict(extra_specs or {}),
    }
    usual: dict[str, Any] = {
        "_": "RequestSpec",
        "project_id": "p",
        "user_id": "u",
        "flavor": flavor,
        "num_instances": 1,
        "availability_zone": None,
        "is_bfv": False,
        "ignore_hosts": None,
        "force_hosts": None,
        "force_nodes": None,
        "retry": None,
        "numa_topology": None,
        "instance_group": None,
        "requested_destination": None,
        "scheduler_hints": {},
        "requested_resources": [],
        "limits": {"_": "SchedulerLimits"},
        "image": image(),
        "pci_requests": {"_": "InstancePCIRequests", "requests": []},
        "requested_networks": {"_": "NetworkRequestList", "objects": []},
        "security_groups": {"_": "SecurityGroupList", "objects": []},
        "request_level_params": {"_": "RequestLevelParams"},
    }
    return {name: value for name, value in (usual | fields).items() if value is not ABSENT}


ABSENT: Final = object()


def document(request_spec: Mapping[str, Any]) -> dict[str, Any]:
    """The same request as a document of ours: flavor and image, of which all else is made."""
    left_out = ("pci_requests", "requested_networks", "security_groups", "limits")
    return {
        name: _without_kinds(value)
        for name, value in request_spec.items()
        if name not in left_out and name != "_"
    }


def _without_kinds(value: Any) -> Any:
    if isinstance(value, Mapping) and value.get("_") == "set":
        return value["items"]
    if isinstance(value, Mapping):
        return {name: _without_kinds(item) for name, item in value.items() if name != "_"}
    return value
