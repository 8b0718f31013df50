"""The contract with drivers, of every driver there is and of the one of the documentation."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from compute_agent.testing.driver_contract import DriverContract
from compute_agent.virt import fake
from compute_agent.virt.driver import ComputeDriver
from compute_agent.virt.loading import load_driver

from .conftest import MakeConf

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "writing-drivers.md"
NAMES = ["host.HostDriver", *(f"fake.{name}" for name in fake.__all__)]
EXTRA = {
    "host.HostDriver": """
        [host]
        sysfs_root = tests/data/two-cells/sys
        procfs_root = tests/data/two-cells/proc
        [compute]
        enable_numa_reporting_to_placement = True
        [devices]
        enabled_mdev_types = nvidia-222
        """,
    # a node that fails has tests of their own
    "fake.FakeMisbehavingDriver": "[fake]\nfailing_call = 1000\n",
    "fake.FakeDriverWithPciResources": """
        [pci]
        report_in_placement = True
        device_spec = {"product_id": "1889"}
        """,
}


class TestEveryDriver(DriverContract):
    @pytest.fixture(autouse=True, params=NAMES)
    def _name_and_options(self, request: pytest.FixtureRequest, make_conf: MakeConf) -> None:
        self._name, self._make_conf = request.param, make_conf

    def make_driver(self) -> ComputeDriver:
        driver = load_driver(self._name, self._make_conf(EXTRA.get(self._name, "")))
        driver.init_host("host1")
        return driver


class TestTheExample(DriverContract):
    """The first program of the page on writing drivers, as a module of another project."""

    driver = "example_of_a_driver.Driver"

    @pytest.fixture(autouse=True)
    def _module(self, monkeypatch: pytest.MonkeyPatch) -> None:
        program = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        assert program
        module = ModuleType("example_of_a_driver")
        exec(compile(program[1], str(PAGE), "exec"), module.__dict__)
        monkeypatch.setitem(sys.modules, module.__name__, module)
