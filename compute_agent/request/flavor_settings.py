"""Settings of a flavor or image (`hw:...`, `os:...`) that stand for resources or traits.

Each function takes a specification and a request and returns the request with the additions of its
settings. `SETTINGS` lists them in the order in which they are applied.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

from oslo_utils import strutils

from compute_agent.programs.whole_numbers import whole_number
from compute_agent.request.candidate_request import UNSUFFIXED, CandidateRequest
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.spec import RequestSpec

Setting = Callable[[RequestSpec, CandidateRequest], CandidateRequest]

MEMORY_ENCRYPTION_TRAITS: Mapping[str, str] = {
    "amd-sev": "HW_CPU_X86_AMD_SEV",
    "amd-sev-es": "HW_CPU_X86_AMD_SEV_ES",
    "amd-sev-snp": "HW_CPU_X86_AMD_SEV_SNP",
    "intel-tdx": "HW_CPU_X86_INTEL_TDX",
}
_TPM_VERSIONS = {"1.2": "COMPUTE_SECURITY_TPM_1_2", "2.0": "COMPUTE_SECURITY_TPM_2_0"}
_TPM_MODELS = {"tpm-tis": "COMPUTE_SECURITY_TPM_TIS", "tpm-crb": "COMPUTE_SECURITY_TPM_CRB"}
_TPM_SECRETS = {
    name: f"COMPUTE_SECURITY_TPM_SECRET_SECURITY_{name.upper()}"
    for name in ("user", "host", "deployment")
}
_ADDRESS_SPACES = {
    "passthrough": "COMPUTE_ADDRESS_SPACE_PASSTHROUGH",
    "emulate": "COMPUTE_ADDRESS_SPACE_EMULATED",
}


def cpu_threads(spec: RequestSpec, request: CandidateRequest) -> CandidateRequest:
    """Apply `hw:cpu_thread_policy`: require or avoid hosts with hyper-threading."""
    policy = _choice(spec, "hw:cpu_thread_policy", ("prefer", "require", "isolate"))
    group = request.group(UNSUFFIXED)
    if policy == "require":
        return request.with_group(UNSUFFIXED, group.requiring("HW_CPU_HYPERTHREADING"))
    if policy == "isolate":
        return request.with_group(UNSUFFIXED, group.forbidding("HW_CPU_HYPERTHREADING"))
    return request


def memory_encryption(spec: RequestSpec, request: CandidateRequest) -> CandidateRequest:
    """Apply `hw:mem_encryption`: one encryption context of the requested model."""
    if not flag(spec, "hw:mem_encryption"):
        return request
    model = _choice(spec, "hw:mem_encryption_model", MEMORY_ENCRYPTION_TRAITS) or "amd-sev"
    group = request.group(UNSUFFIXED).adding({"MEM_ENCRYPTION_CONTEXT": 1})
    return request.with_group(UNSUFFIXED, group.requiring(MEMORY_ENCRYPTION_TRAITS[model]))


def persistent_memory(spec: RequestSpec, request: CandidateRequest) -> CandidateRequest:
    """Apply `hw:pmem`: persistent memory namespaces by label; a repeated label counts twice."""
    labels = spec.flavor.extra_specs.get("hw:pmem")
    if not labels:
        return request
    names = [re.sub(r"[^A-Z0-9_]", "_", label.strip().upper()) for label in labels.split(",")]
    if "" in names:
        raise InvalidRequest("hw:pmem", labels, "labels separated by commas")
    wanted_namespaces = Counter(f"CUSTOM_PMEM_NAMESPACE_{name}" for name in names)
    return request.with_group(UNSUFFIXED, request.group(UNSUFFIXED).adding(wanted_namespaces))


def tpm(spec: RequestSpec, request: CandidateRequest) -> CandidateRequest:
    """Apply `hw:tpm_version`: an emulated TPM (default tpm-tis, with a secret of the user)."""
    version = _choice(spec, "hw:tpm_version", _TPM_VERSIONS)
    model = _choice(spec, "hw:tpm_model", _TPM_MODELS) or "tpm-tis"
    secret = spec.flavor_setting("hw:tpm_secret_security") or "user"
    if secret not in _TPM_SECRETS:
        raise InvalidRequest("hw:tpm_secret_security", secret, " or ".join(_TPM_SECRETS))
    if version is None:
        # flavors and images may prepare for a TPM that only others ask for
        return request
    if (version, model) == ("1.2", "tpm-crb"):
        raise InvalidRequest("hw:tpm_model", model, "tpm-tis with hw:tpm_version 1.2")
    return _requiring(request, _TPM_VERSIONS[version], _TPM_MODELS[model], _TPM_SECRETS[secret])


def firmware(spec: RequestSpec, request: CandidateRequest) -> CandidateRequest:
    """Apply `os:secure_boot` and `hw_firmware_stateless`: abilities of the firmware."""
    if _choice(spec, "os:secure_boot", ("required", "optional", "disabled")) == "required":
        request = _requiring(request, "COMPUTE_SECURITY_UEFI_SECURE_BOOT")
    properties = spec.image.properties
    is_uefi = properties.get("hw_firmware_type") == "uefi"
    if is_uefi and _is_true("hw_firmware_stateless", properties.get("hw_firmware_stateless")):
        request = _requiring(request, "COMPUTE_SECURITY_STATELESS_FIRMWARE")
    return request


def device_affinity(spec: RequestSpec, request: CandidateRequest) -> CandidateRequest:
    """Apply `hw:pci_numa_affinity_policy`: socket affinity needs a host that supports it."""
    policies = ("required", "legacy", "preferred", "socket")
    if _choice(spec, "hw:pci_numa_affinity_policy", policies) == "socket":
        return _requiring(request, "COMPUTE_SOCKET_PCI_NUMA_AFFINITY")
    return request


def address_space(spec: RequestSpec, request: CandidateRequest) -> CandidateRequest:
    """Apply `hw:maxphysaddr_mode`: the size of guest physical addresses."""
    mode = _choice(spec, "hw:maxphysaddr_mode", _ADDRESS_SPACES)
    return _requiring(request, _ADDRESS_SPACES[mode]) if mode else request


SETTINGS: tuple[Setting, ...] = (
    cpu_threads,
    memory_encryption,
    persistent_memory,
    tpm,
    firmware,
    device_affinity,
    address_space,
)


def apply(spec: RequestSpec, request: CandidateRequest) -> CandidateRequest:
    """Return `request` with the additions of all settings of `spec`.

    :raises InvalidRequest: a setting with a value that does not exist.
    """
    for setting in SETTINGS:
        request = setting(spec, request)
    return request


def pinned_cpus(spec: RequestSpec, vcpus: int) -> tuple[int, int]:
    """Return how many shared (VCPU) and pinned (PCPU) CPUs a guest of `vcpus` needs.

    :raises InvalidRequest: a policy or mask that does not exist or fit.
    """
    policy = _choice(spec, "hw:cpu_policy", ("shared", "dedicated", "mixed"))
    threads = spec.flavor_setting("hw:emulator_threads_policy")
    if threads not in (None, "share", "isolate"):
        raise InvalidRequest("hw:emulator_threads_policy", threads, "share or isolate")
    isolated_count = int(threads == "isolate")
    if policy == "dedicated":
        return 0, vcpus + isolated_count
    if policy == "mixed":
        pinned_count = len(dedicated_cpus(spec, vcpus))
        return vcpus - pinned_count, pinned_count + isolated_count
    return vcpus, 0


def dedicated_cpus(spec: RequestSpec, vcpus: int) -> frozenset[int]:
    """Return the numbers of the pinned CPUs of a guest that mixes both kinds.

    :raises InvalidRequest: no mask names them, or it names all or none.
    """
    name, mask = "hw:cpu_dedicated_mask", spec.flavor_setting("hw:cpu_dedicated_mask")
    if mask is None and _is_true("hw:cpu_realtime", spec.flavor_setting("hw:cpu_realtime")):
        name, mask = "hw:cpu_realtime_mask", spec.realtime_mask
    if mask is None:
        raise InvalidRequest(
            name,
            None,
            "the pinned CPUs, as 0-1 or ^0; or hw:cpu_realtime = yes and hw:cpu_realtime_mask",
        )
    cpus = cpu_mask(name, mask, vcpus)
    if not 0 < len(cpus) < vcpus:
        raise InvalidRequest(name, mask, f"some, not all and not none of {vcpus} CPUs")
    return cpus


def cpu_mask(name: str, text: str, vcpus: int) -> frozenset[int]:
    """Return the CPU numbers below `vcpus` that a mask such as `0-3,^1` or `^0` names."""
    named_cpus: set[int] = set()
    dropped_cpus: set[int] = set()
    items = [item.strip() for item in text.split(",")]
    for item in items:
        match = re.fullmatch(r"(\^?)(\d+)(?:-(\d+))?", item)
        if not match:
            raise InvalidRequest(name, text, "CPU numbers such as 0-3,^1")
        first, last = (whole_number(cpu, vcpus - 1) for cpu in (match[2], match[3] or match[2]))
        if first is None or last is None:
            raise InvalidRequest(name, text, f"CPU numbers below {vcpus}, the flavor's vcpus")
        if last < first:
            raise InvalidRequest(name, text, "CPU numbers such as 0-3,^1")
        (dropped_cpus if match[1] else named_cpus).update(range(first, last + 1))
    if not named_cpus:
        named_cpus = set(range(vcpus))
    return frozenset(named_cpus - dropped_cpus)


def _requiring(request: CandidateRequest, *traits: str) -> CandidateRequest:
    return request.with_group(UNSUFFIXED, request.group(UNSUFFIXED).requiring(*traits))


def _choice(
    spec: RequestSpec, name: str, choices: tuple[str, ...] | Mapping[str, str]
) -> str | None:
    value = spec.setting(name)
    if value is not None and value not in choices:
        raise InvalidRequest(name, value, " or ".join(choices))
    return value


def flag(spec: RequestSpec, name: str) -> bool:
    """Return a setting that is true or false, False if absent.

    :raises InvalidRequest: it is neither.
    """
    return _is_true(name, spec.setting(name))


def _is_true(name: str, value: str | None) -> bool:
    if value is None:
        return False
    try:
        return bool(strutils.bool_from_string(value, strict=True))
    except ValueError:
        raise InvalidRequest(name, value, "true or false") from None
