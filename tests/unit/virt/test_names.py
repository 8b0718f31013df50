"""Names of providers: what others recover from them, and which of them are ours."""

from __future__ import annotations

import pytest

from compute_agent import errors
from compute_agent.discovery.facts import PciAddress
from compute_agent.provider_tree import ProviderTree
from compute_agent.virt.fake.topology import MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions, names

from .hosts import ROOT, OneNodeDriver, content

A = PciAddress("0000:af:00.1")


def test_names_have_the_forms_other_services_read() -> None:
    assert names.gpu_name("h", A) == "h_pci_0000_af_00_1"
    assert names.pci_name("h", A) == "h_0000:AF:00.1"
    assert names.card_name("h", A) == "h_NIC_0000:AF:00.1"
    assert names.cell_name("h", 3) == "h_NUMA3"
    assert names.pages_name("h", 3, 2048) == "h_NUMA3_PAGES2048"


@pytest.mark.parametrize("name", ["h_pci_0000_af_00_1", "h_0000:AF:00.1", "h_0000:af:00.1"])
def test_the_device_is_recovered_from_either_form(name: str) -> None:
    assert names.device_address("h", name) == A
    assert names.is_ours("h", name)


@pytest.mark.parametrize(
    "name",
    [
        "h:NIC Switch agent",
        "h_child",
        "h2_NUMA0",
        "h_NUMA0_x",
        "h",
        "h_NUMA",
        "h_amd_sev_x",
        "fpga",
    ],
)
def test_names_of_others_are_not_ours(name: str) -> None:
    assert not names.is_ours("h", name)
    assert names.device_address("h", name) is None


def test_a_host_with_a_very_long_name_is_laid_out_reshaped_and_cleaned_up() -> None:
    node = "n" * 190 + ".example"
    machine = fake_topology(node, MachineSize(gpus=1, nics=1, pages_2mib_per_cell=8))
    driver = OneNodeDriver(machine, LayoutOptions(is_nested=True))
    tree = ProviderTree()
    tree.new_root(node, ROOT, 1)
    driver.update_provider_tree(tree, node)
    assert all(len(p.name) <= 200 for p in content(tree))
    before = content(tree)
    driver.update_provider_tree(tree, node)
    assert content(tree) == before
    driver.options = LayoutOptions()
    with pytest.raises(errors.ReshapeNeeded):
        driver.update_provider_tree(tree, node)
    driver.update_provider_tree(tree, node, allocations={})
    assert len(tree) == 1
