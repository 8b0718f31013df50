"""Encrypted guests: one provider per kind, each context good for one guest."""

from __future__ import annotations

from collections.abc import Iterator

from compute_agent.discovery.facts import HostTopology, MemoryEncryption
from compute_agent.virt.layout import names
from compute_agent.virt.layout.options import LayoutOptions
from compute_agent.virt.layout.wanted import WantedProvider, WantedRecord

CLASS = "MEM_ENCRYPTION_CONTEXT"
TRAITS = {
    "amd_sev": "HW_CPU_X86_AMD_SEV",
    "amd_sev_es": "HW_CPU_X86_AMD_SEV_ES",
    "amd_sev_snp": "HW_CPU_X86_AMD_SEV_SNP",
    "intel_tdx": "HW_CPU_X86_INTEL_TDX",
}


def encryption_key(model: str) -> str:
    return f"mem_encryption:{model}"


def lay_out_memory_encryption(
    root_name: str, topology: HostTopology, options: LayoutOptions
) -> Iterator[WantedProvider]:
    """Lay out every kind that has contexts.

    SEV-ES and SEV-SNP draw on the same address space identifiers, so where SNP is there, ES is not
    offered.
    """
    for model, contexts in _contexts(topology.memory_encryption, options).items():
        if contexts > 0:
            yield WantedProvider(
                encryption_key(model),
                names.memory_encryption_name(root_name, model),
                inventory={CLASS: WantedRecord(contexts, max_unit=1)},
                traits=frozenset({TRAITS[model]}),
            )


def _contexts(facts: MemoryEncryption, options: LayoutOptions) -> dict[str, int]:
    capacity = dict(facts.capacity)
    contexts = {}
    if facts.amd_sev:
        contexts["amd_sev"] = capacity.get("sev", 0)
    if facts.amd_sev_snp:
        contexts["amd_sev_snp"] = capacity.get("sev_es", 0)
    elif facts.amd_sev_es:
        contexts["amd_sev_es"] = capacity.get("sev_es", 0)
    if facts.intel_tdx:
        keys, wanted_count = capacity.get("tdx"), options.tdx_guests
        counts = [count for count in (keys, wanted_count) if count is not None]
        contexts["intel_tdx"] = min(counts, default=0)
    return contexts
