"""Policies of devices: how near to a guest its flavor and their aliases want them."""

from __future__ import annotations

import pytest

from compute_agent.request.guest_numa import policies
from compute_agent.request.pci_aliases import PciAlias
from compute_agent.request.spec import PciRequest
from tests.unit.scheduler.specs import spec


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"hw:numa_nodes": "1"}, {"r-0": "legacy"}),
        ({}, {}),
        (
            {"hw:numa_nodes": "1", "hw:pci_numa_affinity_policy": "preferred"},
            {"r-0": "preferred", "_ACC": "preferred"},
        ),
    ],
)
def test_the_setting_of_the_flavor_is_for_all_devices_and_goes_before_an_alias(
    extra: dict[str, str], expected: dict[str, str]
) -> None:
    asked = spec(extra, pci_requests=(PciRequest("r", "card"),))
    classes = {
        "": ["VCPU"],
        "r-0": ["PGPU"],
        "_ACC": ["FPGA"],
        "port": ["NET_BW_EGR_KILOBIT_PER_SEC"],
    }
    assert policies(asked, {"card": PciAlias("PGPU")}, classes) == expected
