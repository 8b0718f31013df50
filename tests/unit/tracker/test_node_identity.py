"""Nodes of an agent: the driver is let go, whatever came of its start."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from compute_agent import errors
from compute_agent.report.client import ReportClient
from compute_agent.tracker.node_identity import NodeSetup
from compute_agent.tracker.place import Place
from compute_agent.virt.driver import ComputeDriver


class LateDriver(ComputeDriver):
    """A driver whose hypervisor is not there yet."""

    def __init__(self) -> None:
        self.let_go = 0

    def init_host(self, host: str) -> None:
        raise errors.VirtDriverNotReady(f"{host} has no hypervisor yet.")

    def cleanup_host(self, host: str) -> None:
        self.let_go += 1

    def update_provider_tree(self, *_arguments: Any) -> None:
        raise AssertionError("there is no node to lay out")

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return []

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        raise errors.ComputeHostNotFound(nodename)


def setup_of(driver: ComputeDriver, directory: Path) -> NodeSetup:
    return NodeSetup(
        driver,
        cast("ReportClient", None),
        host="host1",
        state_path=directory,
        places=(),
        place=Place("10.0.0.1", "machine", "boot", str(directory)),
    )


class ListingDriver(LateDriver):
    """A driver of one node that lists none or several."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = list(names)

    def init_host(self, host: str) -> None:
        pass

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return self.names


@pytest.mark.parametrize("names", [(), ("host1", "host2")])
def test_a_driver_of_one_node_that_lists_others_is_to_blame(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    with pytest.raises(errors.InvalidInput, match=f"lists {len(names)} nodes: {', '.join(names)}"):
        setup_of(ListingDriver(*names), tmp_path).nodes()


def test_a_driver_whose_start_failed_is_let_go(tmp_path: Path) -> None:
    driver = LateDriver()
    setup = setup_of(driver, tmp_path)
    setup.release()
    assert driver.let_go == 0
    with pytest.raises(errors.VirtDriverNotReady):
        setup.nodes()
    setup.release()
    setup.release()
    assert driver.let_go == 1
