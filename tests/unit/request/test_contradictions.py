"""Settings that exclude one another are refused by name; tests/differential/nova compares more."""

from __future__ import annotations

import pytest

from compute_agent.request.errors import InvalidRequest
from tests.unit.scheduler.specs import request_of, spec

PINNED = {"hw:cpu_policy": "dedicated"}
MIXED = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0"}
REQUIRE = {"hw:cpu_thread_policy": "require"}
ENCRYPTED = {"hw:ephemeral_encryption": "true", "hw:ephemeral_encryption_format": "luks"}


@pytest.mark.parametrize(
    ("extra_specs", "properties", "names"),
    [
        ({"hw:tpm_version": "1.2"}, {"hw_tpm_version": "2.0"}, ["hw_tpm_version", "'1.2'"]),
        ({"hw:cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}, ["hw_cpu_policy"]),
        ({"hw:cpu_thread_policy": "prefer"}, {}, ["hw:cpu_thread_policy", "hw:cpu_policy"]),
        ({"hw:emulator_threads_policy": "isolate"}, {}, ["hw:emulator_threads_policy"]),
        ({"hw:cpu_dedicated_mask": "0"}, {}, ["hw:cpu_dedicated_mask", "mixed"]),
        (PINNED | {"hw:cpu_realtime": "yes"}, {}, ["hw:cpu_realtime", "hw:cpu_realtime_mask"]),
        (MIXED | {"hw:cpu_realtime": "yes"}, {}, ["hw:cpu_realtime", "hw:cpu_realtime_mask"]),
        ({"resources:PCPU": "2", "hw:cpu_realtime": "yes"}, {}, ["hw:cpu_realtime_mask"]),
        (PINNED | {"resources:PCPU": "2"}, {}, ["resources:PCPU", "hw:cpu_policy"]),
        ({"resources:PCPU": "1", "resources:VCPU": "1"}, {}, ["resources:VCPU", "resources:PCPU"]),
        ({"resources1:PCPU": "5"}, {}, ["resources:PCPU is 5", "2, the CPUs of the flavor"]),
        (MIXED | REQUIRE, {}, ["hw:cpu_thread_policy", "even number", "which are 1"]),
        (MIXED, {"hw_cpu_thread_policy": "require"}, ["hw:cpu_thread_policy", "which are 1"]),
        ({}, {"hw_mem_page_size": "2048"}, ["hw_mem_page_size", "not set"]),
        ({"hw:locked_memory": "true"}, {}, ["hw:locked_memory", "hw:mem_page_size"]),
        ({"hw:mem_encryption": "true"}, {}, ["hw:mem_encryption", "hw_firmware_type"]),
        ({"hw:numa_nodes": "2"}, {"hw_numa_nodes": "2"}, ["hw_numa_nodes", "hw:numa_nodes"]),
        ({"hw:virtio_packed_ring": "no"}, {"hw_virtio_packed_ring": "true"}, ["is 'true'", "'no'"]),
        ({"hw:sound_model": "ich6"}, {"hw_sound_model": "usb"}, ["is 'usb'", "'ich6'"]),
        (ENCRYPTED, {"hw_ephemeral_encryption": "false"}, ["is 'false'", "which is 'true'"]),
        (ENCRYPTED, {"hw_ephemeral_encryption_format": "plain"}, ["is 'plain'", "'luks'"]),
    ],
)
def test_both_settings_are_named(
    extra_specs: dict[str, str], properties: dict[str, str], names: list[str]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        request_of(spec(extra_specs, properties=properties))
    assert all(name in str(caught.value) for name in names), caught.value


@pytest.mark.parametrize(
    ("extra_specs", "properties"),
    [
        (PINNED, {"hw_cpu_policy": "shared"}),
        (PINNED | {"hw:cpu_thread_policy": "prefer"}, {"hw_cpu_thread_policy": "require"}),
        ({"resources:PCPU": "2", "hw:cpu_thread_policy": "require"}, {}),
        ({"hw:mem_page_size": "large"}, {"hw_mem_page_size": "2048"}),
        ({}, {"hw_emulator_threads_policy": "isolate"}),
    ],
)
def test_what_agrees_is_taken(extra_specs: dict[str, str], properties: dict[str, str]) -> None:
    assert request_of(spec(extra_specs, properties=properties)).resources["MEMORY_MB"] == 512


@pytest.mark.parametrize(
    "extra_specs", [PINNED, PINNED | {"hw:emulator_threads_policy": "isolate"}]
)
@pytest.mark.parametrize("properties", [{}, {"hw_cpu_thread_policy": "require"}])
def test_whole_cores_are_an_even_number_of_cpus_without_that_of_the_emulator(
    extra_specs: dict[str, str], properties: dict[str, str]
) -> None:
    own = extra_specs if properties else extra_specs | REQUIRE
    request_of(spec(own, properties=properties, vcpus=2))
    with pytest.raises(InvalidRequest, match="even number of pinned CPUs beside it, which are 3"):
        request_of(spec(own, properties=properties, vcpus=3))
