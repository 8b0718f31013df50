"""Encrypted guests in a layout."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compute_agent.discovery.facts import MemoryEncryption
from compute_agent.virt.fake.topology import fake_topology
from compute_agent.virt.layout import LayoutOptions, lay_out
from compute_agent.virt.layout.wanted import WantedProvider

from .hosts_with_devices import NOTHING


class TestMemoryEncryption:
    """Contexts for encrypted guests."""

    @staticmethod
    def providers(facts: MemoryEncryption, tdx: int | None = None) -> dict[str, WantedProvider]:
        topology = replace(fake_topology("host1", NOTHING), memory_encryption=facts)
        layout = lay_out("host1", topology, LayoutOptions(tdx_guests=tdx))
        return {p.name: p for p in layout.children}

    def test_each_kind_has_a_provider_with_one_context_per_guest(self) -> None:
        found = self.providers(
            MemoryEncryption(amd_sev=True, amd_sev_es=True, capacity=(("sev", 400), ("sev_es", 99)))
        )
        assert list(found) == ["host1_amd_sev", "host1_amd_sev_es"]
        record = found["host1_amd_sev"].inventory["MEM_ENCRYPTION_CONTEXT"]
        assert (record.total, record.max_unit) == (400, 1)
        assert found["host1_amd_sev_es"].traits == {"HW_CPU_X86_AMD_SEV_ES"}

    @pytest.mark.parametrize(
        ("facts", "tdx", "totals"),
        [
            (MemoryEncryption(amd_sev=True), None, {}),
            (
                MemoryEncryption(amd_sev_es=True, amd_sev_snp=True, capacity=(("sev_es", 99),)),
                None,
                {"host1_amd_sev_snp": 99},
            ),
            (
                MemoryEncryption(intel_tdx=True, capacity=(("tdx", 30),)),
                None,
                {"host1_intel_tdx": 30},
            ),
            (
                MemoryEncryption(intel_tdx=True, capacity=(("tdx", 30),)),
                12,
                {"host1_intel_tdx": 12},
            ),
            (MemoryEncryption(intel_tdx=True), 64, {"host1_intel_tdx": 64}),
        ],
        ids=[
            "a kind without contexts has no provider",
            "where SNP is there ES is not offered",
            "as many guests of TDX as the kernel has keys for",
            "no more of them than the operator says",
            "as many as the operator says where the kernel reports no keys",
        ],
    )
    def test_contexts(
        self, facts: MemoryEncryption, tdx: int | None, totals: dict[str, int]
    ) -> None:
        assert {
            name: provider.inventory["MEM_ENCRYPTION_CONTEXT"].total
            for name, provider in self.providers(facts, tdx).items()
        } == totals

    def test_more_tdx_guests_than_the_kernel_has_keys_for_are_not_reported(self) -> None:
        facts = MemoryEncryption(intel_tdx=True, capacity=(("tdx", 15),))
        topology = replace(fake_topology("host1", NOTHING), memory_encryption=facts)
        layout = lay_out("host1", topology, LayoutOptions(tdx_guests=64))
        (unmet,), (provider,) = layout.unmet_options, layout.children
        assert provider.inventory["MEM_ENCRYPTION_CONTEXT"].total == 15
        assert "num_intel_tdx_guests is 64" in str(unmet)
        assert unmet.value == "15"
