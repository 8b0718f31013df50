"""Devices of a node as `status` prints them."""

from __future__ import annotations

from pathlib import Path

import pytest

from compute_agent.cmd.agent.running import print_status
from compute_agent.conf import new_config
from compute_agent.tracker.status import StatusBoard
from compute_agent.virt.host import HostDriver
from tests.data.machine_builder import MachineBuilder

GPU = "0000:84:00.0"


def cut_gpu() -> MachineBuilder:
    """A GPU with two slices, and room for one more of either profile but not of both."""
    machine = MachineBuilder()
    machine.describe("host1")
    machine.cpus("0-1")
    machine.gpu(GPU)
    machine.nvml(
        GPU,
        uuid="GPU-1",
        mig_enabled=True,
        mig_devices=[
            {
                "uuid": f"MIG-{start}",
                "profile": "1g.10gb",
                "gpu_instance": 9 - start,
                "compute_instance": 0,
                "start": start,
                "size": 1,
            }
            for start in (1, 0)
        ],
        mig_remaining=[["1g.10gb", 2], ["3g.40gb", 1], ["7g.80gb", 0]],
    )
    return machine


def test_slices_and_the_room_for_more_are_shown_and_are_no_inventory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = cut_gpu().write(tmp_path / "machine")
    path = tmp_path / "agent.conf"
    path.write_text(
        f"[DEFAULT]\nhost = host1\n[host]\nsysfs_root = {root}/sys\nprocfs_root = {root}/proc\n"
    )
    driver = HostDriver(new_config([f"--config-file={path}"], default_config_dirs=[]))
    (gpu,) = driver.get_available_resource("host1")["gpus"]
    assert [device["uuid"] for device in gpu["mig_devices"]] == ["MIG-0", "MIG-1"]
    board = StatusBoard("host1")
    board.set_node("host1", "u", gpus=[gpu])
    print_status(board.document(), as_json=False)
    shown = capsys.readouterr().out
    assert f"GPU {GPU}, MIG: 2 x 1g.10gb, room for 2 x 1g.10gb or 1 x 3g.40gb" in shown


def test_broken_devices_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    board = StatusBoard("host1")
    board.set_node("host1", "u", faulty=("host1_GPU0", "host1_GPU1"))
    print_status(board.document(), as_json=False)
    assert "marked as broken: host1_GPU0, host1_GPU1" in capsys.readouterr().out


def test_a_gpu_without_slices_is_not_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    board = StatusBoard("host1")
    board.set_node("host1", "u", gpus=[{"address": GPU, "mig_devices": [], "mig_remaining": {}}])
    print_status(board.document(), as_json=False)
    assert "GPU" not in capsys.readouterr().out


def test_a_clock_that_is_off_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    board = StatusBoard("host1")
    for offset, is_shown in ((4.0, False), (90.0, True)):
        board.count_request("GET", 200, offset)
        print_status(board.document(), as_json=False)
        assert ("clock      is 90 s ahead of placement's" in capsys.readouterr().out) is is_shown
