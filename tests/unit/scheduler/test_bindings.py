"""Bindings of devices and ports to providers after a claim."""

from __future__ import annotations

import pytest

from compute_agent.request.errors import InvalidRequest
from compute_agent.request.spec import PciRequest
from compute_agent.scheduler.claiming.bindings import (
    accelerator_providers,
    device_providers,
    parent_interface,
)
from tests.unit.scheduler.specs import spec


def test_a_port_with_bandwidth_gets_a_vf_of_the_interface_that_neutron_names() -> None:
    assert parent_interface("host1:NIC Switch agent:ens5") == "ens5"
    assert parent_interface("host1:NIC Switch agent:a:b") == "a:b"


@pytest.mark.parametrize("name", ["host1", "host1:NIC Switch agent", "a:b:", "::"])
def test_a_provider_without_an_interface_in_its_name_fails_the_build(name: str) -> None:
    with pytest.raises(InvalidRequest, match="<host>:<agent>:<interface>"):
        parent_interface(name)


def test_each_pci_request_gets_the_providers_of_its_devices() -> None:
    asked = spec(pci_requests=(PciRequest("r-1", "gpu", 2), PciRequest("r-2", "nic")))
    mappings = {"r-1-0": ["a"], "r-1-1": ["b"], "r-2-0": ["c"], "": ["root"]}
    assert device_providers(asked, mappings) == {"r-1": ("a", "b"), "r-2": ("c",)}


def test_each_accelerator_request_gets_its_provider() -> None:
    mappings = {"device_profile_0": ["fpga"], "device_profile_1_port_7": ["nic"]}
    assert accelerator_providers(list(mappings), mappings) == {
        "device_profile_0": "fpga",
        "device_profile_1_port_7": "nic",
    }


def test_a_claim_that_lacks_a_device_is_named() -> None:
    asked = spec(pci_requests=(PciRequest("r", "gpu"),))
    with pytest.raises(InvalidRequest, match="one provider for group r-0"):
        device_providers(asked, {"": ["root"]})
