"""Machines of the catalogue are read without a warning that is not their lesson."""

from __future__ import annotations

from pathlib import Path

import pytest

from compute_agent.discovery import capture
from compute_agent.discovery.topology import Discovery
from tests.data import figures, machines

README = Path(machines.__file__).with_name("README.md")
LESSONS = {"limited-container": 1, "fake-cells": 3}
"""How many warnings a machine is about."""
EXPECTED = dict(line.split(": ", 1) for line in figures.EXPECTED.read_text().splitlines())


@pytest.mark.parametrize("name", machines.NAMES)
def test_each_machine_is_read_and_described(name: str, tmp_path: Path) -> None:
    machine = machines.make(name, tmp_path)
    topology = Discovery(str(machine / "sys"), str(machine / "proc")).discover()
    assert len(topology.warnings) == LESSONS.get(name, 0), topology.warnings
    assert f"`{name}`" in README.read_text()


@pytest.mark.parametrize("name", machines.NAMES)
def test_each_machine_has_the_figures_that_are_expected(name: str, tmp_path: Path) -> None:
    line = figures.figures(capture.replay(machines.make(name, tmp_path)))
    assert line == EXPECTED[name].partition(" | libvirt")[0]


def test_there_are_figures_of_every_machine_and_no_other() -> None:
    assert list(EXPECTED) == list(machines.NAMES)
