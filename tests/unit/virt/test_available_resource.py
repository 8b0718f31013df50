"""Facts of a node in the words in which flavors compare them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compute_agent.discovery import capture
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.readings import available_resource
from tests.data import machines


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
