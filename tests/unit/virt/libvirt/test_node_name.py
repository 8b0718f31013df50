"""The name of a node is that which its hypervisor gives the host."""

from __future__ import annotations

from typing import Any

import pytest

from compute_agent import errors
from compute_agent.virt.libvirt.driver import LibvirtDriver
from tests.unit.virt.conftest import MakeConf

pytest.importorskip("libvirt")


@pytest.mark.parametrize("name", ["", "h" * 201])
def test_a_name_that_no_node_can_have_is_named(
    make_conf: MakeConf, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    driver = LibvirtDriver(make_conf("[libvirt]\nconnection_uri = test:///default\n"))

    def call(_name: str, _function: Any) -> str:
        return name

    monkeypatch.setattr(driver.connection, "call", call)
    with pytest.raises(errors.VirtDriverNotReady, match=f"{len(name)} characters") as caught:
        driver.get_available_nodes()
    assert "test:///default" in str(caught.value)
