"""Readings of a node: one for each pass, of its thread, and the facts that flavors compare."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.discovery import capture
from compute_agent.discovery.facts import HostTopology
from compute_agent.provider_tree import ProviderTree
from compute_agent.virt.layout.options import LayoutOptions
from compute_agent.virt.readings import available_resource
from tests.data import machines

from .hosts import NAME, ROOT, OneNodeDriver
from .reshaped_machine import machine


class CountedDriver(OneNodeDriver):
    """Counts how often the node and its options are read; `failing` readings fail first."""

    def __init__(self, failing: int = 0) -> None:
        super().__init__(machine(), LayoutOptions())
        self.failing = failing
        self.readings = 0
        self.lookups = 0

    def topology(self, nodename: str) -> HostTopology:
        self.readings += 1
        if self.readings <= self.failing:
            raise errors.VirtDriverNotReady("not yet")
        return super().topology(nodename)

    def current_options(self) -> LayoutOptions:
        self.lookups += 1
        return super().current_options()


def ask(driver: CountedDriver) -> None:
    """Ask what a pass asks."""
    driver.get_available_resource(NAME)
    tree = ProviderTree()
    tree.new_root(NAME, ROOT, 1)
    driver.update_provider_tree(tree, NAME)


def fail_a_pass_over(driver: CountedDriver) -> None:
    with driver.one_reading(NAME):
        ask(driver)
        raise errors.PlacementUnavailable("away")


def test_every_question_of_a_pass_is_answered_from_one_reading() -> None:
    driver = CountedDriver()
    with driver.one_reading(NAME):
        ask(driver)
        ask(driver)
    assert (driver.readings, driver.lookups) == (1, 1)


def test_the_reading_of_a_pass_is_dropped_after_it_also_when_it_failed() -> None:
    driver = CountedDriver()
    for count in (1, 2):
        with pytest.raises(errors.PlacementUnavailable):
            fail_a_pass_over(driver)
        assert driver.readings == count
    ask(driver)
    assert driver.readings == 4, "outside a pass each question reads"


def test_a_question_of_another_thread_during_a_pass_reads_by_itself() -> None:
    driver = CountedDriver()
    with driver.one_reading(NAME):
        driver.get_available_resource(NAME)
        other = threading.Thread(target=driver.get_available_resource, args=(NAME,))
        other.start()
        other.join()
        driver.get_available_resource(NAME)
    assert driver.readings == 2


def test_a_reading_that_fails_is_made_again_in_the_same_pass() -> None:
    driver = CountedDriver(failing=1)
    with driver.one_reading(NAME):
        with pytest.raises(errors.VirtDriverNotReady):
            driver.get_available_resource(NAME)
        ask(driver)
    assert driver.readings == 2


class FurtherDriver(CountedDriver):
    """A driver from elsewhere that edits the tree by more than its machine."""

    def update_provider_tree(self, provider_tree: ProviderTree, nodename: str, **more: Any) -> None:
        super().update_provider_tree(provider_tree, nodename, **more)


def test_a_node_that_is_as_it_was_has_an_equal_reading() -> None:
    driver = CountedDriver()
    first, second = driver.reading(NAME), driver.reading(NAME)
    assert first is not None
    assert first == second


def test_a_driver_that_edits_the_tree_further_does_not_say_what_it_goes_by() -> None:
    driver = FurtherDriver()
    assert driver.reading(NAME) is None
    assert driver.own_reading(NAME) is not None


def cpu_info(name: str, directory: Path) -> dict[str, Any]:
    topology = capture.replay(machines.make(name, directory))
    info: dict[str, Any] = json.loads(available_resource(topology, LayoutOptions())["cpu_info"])
    return info


def test_the_cpu_is_described_as_libvirt_does(tmp_path: Path) -> None:
    info = cpu_info("two-sockets", tmp_path)
    assert info["vendor"] == "Intel"
    assert info["topology"] == {"cells": 2, "sockets": 1, "cores": 4, "threads": 2}
    assert info["maxphysaddr"] == {"mode": "emulate", "bits": 46}


@pytest.mark.parametrize(
    ("name", "topology"),
    [
        ("milan", {"cells": 8, "sockets": 1, "cores": 8, "threads": 2}),
        ("power8", {"cells": 4, "sockets": 1, "cores": 2, "threads": 8}),
        ("hybrid-cores", {"cells": 1, "sockets": 1, "cores": 12, "threads": 2}),
        ("expanders", {"cells": 5, "sockets": 1, "cores": 4, "threads": 1}),
        ("plain-guest", {"cells": 1, "sockets": 1, "cores": 4, "threads": 1}),
    ],
)
def test_sockets_cores_and_threads_are_the_most_of_any_cell(
    tmp_path: Path, name: str, topology: dict[str, int]
) -> None:
    assert cpu_info(name, tmp_path)["topology"] == topology


def test_an_architecture_without_address_sizes_has_none(tmp_path: Path) -> None:
    assert "maxphysaddr" not in cpu_info("power8", tmp_path)
