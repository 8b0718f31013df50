"""Traits of CPUs, architectures and capabilities."""

from __future__ import annotations

import logging

import os_traits
import pytest

from compute_agent.discovery.facts import CpuModel
from compute_agent.virt.capabilities import CAPABILITY_TRAITS, capability_traits
from compute_agent.virt.cpu_traits import arch_traits, cpu_traits, usable


def present(model: CpuModel, hyperthreading: bool = False) -> set[str]:
    traits = cpu_traits(model, hyperthreading=hyperthreading)
    return {trait for trait, has in traits.items() if has}


def x86(*flags: str, vendor: str = "GenuineIntel") -> CpuModel:
    return CpuModel("x86_64", vendor, None, flags)


@pytest.mark.parametrize(
    ("flag", "traits"),
    [
        ("pni", {"HW_CPU_X86_SSE3"}),
        ("sha_ni", {"HW_CPU_X86_SHA"}),
        ("avx512_vnni", {"HW_CPU_X86_AVX512VNNI"}),
        ("pclmulqdq", {"HW_CPU_X86_CLMUL"}),
        ("vmx", {"HW_CPU_X86_VMX", "HW_CPU_X86_INTEL_VMX"}),
        ("svm", {"HW_CPU_X86_SVM", "HW_CPU_X86_AMD_SVM"}),
        ("no_such_flag", set()),
    ],
)
def test_a_kernel_flag_becomes_its_traits(flag: str, traits: set[str]) -> None:
    assert present(x86(flag)) == traits


def test_transactional_memory_needs_both_of_its_flags() -> None:
    assert present(x86("hle")) == set()
    assert present(x86("hle", "rtm")) == {"HW_CPU_X86_TSX"}


def test_a_mitigation_flag_is_told_apart_by_vendor() -> None:
    assert present(x86("ssbd")) == {"HW_CPU_X86_INTEL_SSBD"}
    assert present(x86("ssbd", vendor="AuthenticAMD")) == {"HW_CPU_X86_AMD_SSBD"}


def test_arm_features_become_arm_traits_only_on_arm() -> None:
    arm = CpuModel("aarch64", None, None, ("aes", "asimd", "sve"))
    assert present(arm) == {
        "HW_CPU_AARCH64_AES",
        "HW_CPU_AARCH64_ASIMD",
        "HW_CPU_AARCH64_SVE",
    }
    assert present(x86("aes")) == {"HW_CPU_X86_AESNI"}


def test_hyperthreading_is_a_trait_of_its_own() -> None:
    assert present(x86(), hyperthreading=True) == {"HW_CPU_HYPERTHREADING"}


def test_every_trait_that_is_computed_is_one_placement_knows() -> None:
    standard = set(os_traits.get_traits())
    computed = {*cpu_traits(x86(), hyperthreading=False), *arch_traits("x86_64")}
    assert computed | set(capability_traits(dict.fromkeys(CAPABILITY_TRAITS, True))) <= standard


def test_exactly_the_own_architecture_is_present() -> None:
    assert [t for t, has in arch_traits("ppc64le").items() if has] == ["HW_ARCH_PPC64LE"]
    assert not any(arch_traits("pdp11").values())


def test_a_name_placement_would_refuse_is_dropped_with_a_debug_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="compute_agent.virt.cpu_traits")
    assert usable(["HW_NIC_ROOT", "CUSTOM_NIC_ROOT", "HW_NUMA_ROOT"]) == {
        "CUSTOM_NIC_ROOT",
        "HW_NUMA_ROOT",
    }
    assert "HW_NIC_ROOT" in caplog.text


def test_capabilities_are_told_both_ways_and_those_not_named_are_left_alone() -> None:
    traits = capability_traits({"supports_multiattach": True, "supports_virtio_fs": False})
    assert traits["COMPUTE_VOLUME_MULTI_ATTACH"] is True
    assert traits["COMPUTE_STORAGE_VIRTIO_FS"] is False
    assert len(traits) == 2
    assert capability_traits({}) == {}


def test_an_excluded_image_type_is_denied_by_a_driver_that_does_not_name_it_too() -> None:
    assert capability_traits({}, {"raw"}) == {"COMPUTE_IMAGE_TYPE_RAW": False}


def test_an_excluded_image_type_is_not_announced() -> None:
    capabilities = {"supports_image_type_raw": True, "supports_image_type_qcow2": True}
    traits = capability_traits(capabilities, excluded_image_types={"raw"})
    assert not traits["COMPUTE_IMAGE_TYPE_RAW"]
    assert traits["COMPUTE_IMAGE_TYPE_QCOW2"]
