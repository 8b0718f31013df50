"""The search for a driver by name, and what is said when there is none."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.virt.driver import Allocations, ComputeDriver
from compute_agent.virt.fake import FakeDriver
from compute_agent.virt.host import HostDriver
from compute_agent.virt.loading import load_driver

from .conftest import MakeConf


class OutOfTreeDriver(ComputeDriver):
    """The least a driver has to be."""

    def update_provider_tree(
        self, provider_tree: ProviderTree, nodename: str, allocations: Allocations | None = None
    ) -> None:
        provider_tree.update_inventory(nodename, {"CUSTOM_THING": {"total": 1}})

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return ["a"]

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        return {"hypervisor_hostname": nodename, "uuid": "u-1"}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("host.HostDriver", HostDriver),
        ("fake.FakeDriver", FakeDriver),
        (f"{__name__}.OutOfTreeDriver", OutOfTreeDriver),
    ],
)
def test_a_driver_is_found_by_its_short_name_or_its_full_path(
    make_conf: MakeConf, name: str, found: type
) -> None:
    assert type(load_driver(name, make_conf())).__name__ == found.__name__


def install(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Have an entry point of a driver named acme."""
    point = importlib.metadata.EntryPoint("acme", value, "compute_agent.drivers")
    installed = importlib.metadata.EntryPoints([point])
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **p: installed.select(**p))


def test_a_driver_is_found_by_its_entry_point(
    make_conf: MakeConf, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "compute_agent.virt.fake:SmallFakeDriver")
    assert type(load_driver("acme", make_conf())).__name__ == "SmallFakeDriver"


def test_an_entry_point_that_cannot_be_imported_is_named(
    make_conf: MakeConf, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "no_such_module:X")
    with pytest.raises(errors.InvalidConfiguration, match="no_such_module"):
        load_driver("acme", make_conf())


@pytest.mark.parametrize(
    "name", ["nonsense", "fake.NoSuchDriver", "host.X", "no.such.Driver", "os.path.join", "", None]
)
def test_an_unknown_driver_is_refused_naming_what_there_is(
    make_conf: MakeConf, name: str | None
) -> None:
    with pytest.raises(errors.InvalidConfiguration, match=r"compute_driver") as caught:
        load_driver(name, make_conf())
    assert "ComputeDriver" in str(caught.value) or "host.HostDriver" in str(caught.value)


def test_defaults_of_the_contract_serve_a_small_driver(make_conf: MakeConf) -> None:
    driver = OutOfTreeDriver(make_conf())
    assert driver.get_nodenames_by_uuid() == {"u-1": "a"}
    assert driver.node_is_available("a")
    assert not driver.is_node_deleted("b")
    assert driver.list_instance_uuids() is None, "it cannot tell, which is not the same as none"
    assert driver.get_instance_devices("x") is None
    assert driver.held("provider") == {}
