"""Traits of CPUs, architectures and capabilities."""

from __future__ import annotations

import logging

import os_traits
import pytest

from compute_agent.discovery.facts import CpuModel
from compute_agent.virt.traits import (
    CAPABILITY_TRAITS,
    arch_traits,
    capability_traits,
    cpu_traits,
    usable,
)


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
    computed = {*cpu_traits(x86("fpu"), hyperthreading=False), *arch_traits("x86_64")}
    assert computed | set(capability_traits(dict.fromkeys(CAPABILITY_TRAITS, True))) <= standard


def test_exactly_the_own_architecture_is_present() -> None:
    assert [t for t, has in arch_traits("ppc64le").items() if has] == ["HW_ARCH_PPC64LE"]
    assert not any(arch_traits("pdp11").values())


def test_a_name_placement_would_refuse_is_dropped_with_a_debug_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="compute_agent.virt.traits")
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


def guest_cpu(*features: str, arch: str = "x86_64", flags: tuple[str, ...] = ()) -> CpuModel:
    return CpuModel(arch, "Intel", None, flags, tuple(sorted(features)))


@pytest.mark.parametrize(
    ("feature", "traits"),
    [
        ("pni", {"SSE3"}),
        ("sse4.1", {"SSE41"}),
        ("pclmuldq", {"CLMUL"}),
        ("sha-ni", {"SHA"}),
        ("amx-tile", {"AMXTILE"}),
        ("avx512vnni", {"AVX512VNNI"}),
        ("avx512-vpopcntdq", {"AVX512VPOPCNTDQ"}),
        ("gfni", {"AVX512GFNI"}),
        ("fma", {"FMA3"}),
        ("svm", {"SVM", "AMD_SVM"}),
        ("vmx", {"VMX", "INTEL_VMX"}),
        ("spec-ctrl", {"INTEL_SPEC_CTRL"}),
        ("ssbd", {"INTEL_SSBD"}),
        ("md-clear", {"INTEL_MD_CLEAR"}),
        ("pcid", {"INTEL_PCID"}),
        ("amd-ssbd", {"AMD_SSBD"}),
        ("virt-ssbd", {"AMD_VIRT_SSBD"}),
        ("amd-no-ssb", {"AMD_NO_SSB"}),
        ("ibpb", {"AMD_IBPB"}),
        ("sse4_1", set()),
        ("sse3", set()),
    ],
)
def test_a_feature_by_the_name_of_libvirt_becomes_its_traits(
    feature: str, traits: set[str]
) -> None:
    assert present(guest_cpu(feature)) == {f"HW_CPU_X86_{trait}" for trait in traits}


def test_the_cpu_of_guests_counts_and_not_that_of_the_host() -> None:
    assert present(guest_cpu("aes", flags=("avx2", "sse4_1"))) == {"HW_CPU_X86_AESNI"}
    assert present(guest_cpu(flags=("avx2",))) == set()


def test_features_of_arm_guests_have_the_names_of_the_kernel() -> None:
    arm = guest_cpu("sve", "atomics", arch="aarch64")
    assert present(arm) == {"HW_CPU_AARCH64_SVE", "HW_CPU_AARCH64_ATOMICS"}


@pytest.mark.parametrize("arch", ["x86_64", "i686", "aarch64"])
def test_traits_of_a_cpu_whose_features_are_unknown_are_not_named(arch: str) -> None:
    unknown = CpuModel(arch, None, None, ())
    assert cpu_traits(unknown, hyperthreading=True) == {"HW_CPU_HYPERTHREADING": True}


def test_an_architecture_without_named_features_has_none() -> None:
    traits = cpu_traits(CpuModel("riscv64", None, None, ()), hyperthreading=False)
    assert traits["HW_CPU_X86_AVX2"] is False
