"""Parts of a machine that its layout leaves out, each named once with its option."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from compute_agent.virt.fake.topology import MDEV_TYPE, MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions, lay_out
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions, NicOptions
from compute_agent.virt.layout.unmet_options import unreported
from tests.unit.virt.hosts import NAME, Host

MACHINE = fake_topology(NAME, MachineSize(cells=2, gpus=2, nics=1, vfs_per_pf=4))
CARD = LayoutOptions(
    is_nested=True, gpu=GpuOptions(mdev_types=(MdevTypeOptions(MDEV_TYPE),)), nic=NicOptions()
)
OPTIONS = {
    "enable_numa_reporting_to_placement": replace(CARD, is_nested=False),
    "enabled_mdev_types": replace(CARD, gpu=GpuOptions()),
    "report_vfs": replace(CARD, nic=NicOptions(report_vfs="never")),
}


def said(machine, options) -> list[str]:
    return list(unreported(machine, lay_out(NAME, machine, options), options))


def test_nothing_is_said_of_a_host_that_reports_all_it_has():
    assert said(MACHINE, CARD) == []
    assert said(fake_topology(NAME, MachineSize(cells=1, gpus=0, nics=0)), LayoutOptions()) == []


@pytest.mark.parametrize("option", OPTIONS)
def test_the_option_that_would_report_it_is_named(option):
    sentences = said(MACHINE, OPTIONS[option])
    assert any(option in sentence for sentence in sentences)
    assert all(sentence.endswith(".") for sentence in sentences)


def test_it_is_logged_once(caplog):
    host = Host(MACHINE, LayoutOptions())
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            host.update()
    assert caplog.text.count("enable_numa_reporting_to_placement") == 1
