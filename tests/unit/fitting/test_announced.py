"""Announcements of what is free: read back as the host that they are of, and bounded in size."""

from __future__ import annotations

import json

import pytest

from compute_agent.fitting.announced import MOST_CELLS, MOST_DEVICES, document, host_of
from compute_agent.fitting.host import Host
from tests.unit.fitting.hosts import cell, device

HOST = Host(
    (
        cell(0, "01", "0-", per_group=1, distances={0: 10, 1: 21}, package=0),
        cell(1, "01", "01", pages_mib={2048: 512}, physnets=frozenset("a"), tunneled=True),
    ),
    (device("gpu", 1, link_group="0", pcie_root="root"), device("nic", None, "VF", used=True)),
    1500,
)


def test_an_announcement_is_bounded():
    many = Host(HOST.cells, tuple(device(str(i), 0) for i in range(MOST_DEVICES + 1)))
    assert "devices" not in document(many)
    large = Host(tuple(cell(number) for number in range(MOST_CELLS + 1)))
    assert document(large) == {}
    cells = tuple(
        cell(number, *["01"] * 64, distances=dict.fromkeys(range(MOST_CELLS), 21))
        for number in range(MOST_CELLS)
    )
    devices = tuple(device(f"{i:036}", 0) for i in range(MOST_DEVICES))
    assert len(json.dumps(document(Host(cells, devices)))) < 100_000


@pytest.mark.parametrize(
    "announced",
    [{}, {"cells": None}, {"cells": 5}, {"cells": [5]}, {"cells": [{"cores": [[1]]}]}],
)
def test_what_cannot_be_read_is_no_host(announced):
    assert host_of(announced) is None
