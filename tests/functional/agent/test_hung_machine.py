"""An agent on a machine of which a file does not answer, as that of a dead device."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.functional.agent.processes import AgentProcess, PlacementProcess, eventually

pytestmark = pytest.mark.waiting

MEMORY = "sys/devices/system/node/node0/meminfo"
SOON = 30.0
"""Seconds: more than a stop takes, and far less than a pass may take (60)."""


def test_a_file_that_hangs_is_named_disables_the_host_and_does_not_hold_a_stop_up(
    placement: PlacementProcess,
    new_agent: Callable[..., AgentProcess],
    tmp_path: Path,
    node: str,
) -> None:
    machine = Path(shutil.copytree("tests/data/two-cells", tmp_path / "machine", symlinks=True))
    agent = new_agent(
        placement.url,
        DEFAULT={
            "compute_driver": "host.HostDriver",
            "host": node,
            "update_resources_interval": 3600,
        },
        host={"sysfs_root": machine / "sys", "procfs_root": machine / "proc"},
        compute_agent={"call_timeout": 1},
    )
    agent.start()
    agent.started()
    text = (machine / MEMORY).read_bytes()
    (machine / MEMORY).unlink()
    os.mkfifo(machine / MEMORY)
    trouble = agent.report()["trouble"]
    assert trouble["what"] == "the driver is not ready"
    assert f"this machine: {machine / MEMORY} has not returned since" in trouble["message"]
    status = agent.status()
    assert status is not None
    assert [call["call"] for call in status["hung_calls"]] == [str(machine / MEMORY)]
    assert agent.node()["disabled_reason"].startswith("AUTO: ")

    # the read that hangs gets the text; later reads get a file, which cannot hang
    hung, file = machine / "hung", machine / "file"
    hung.hardlink_to(machine / MEMORY)
    file.write_bytes(text)
    file.replace(machine / MEMORY)
    hung.write_bytes(text)
    # the first may come before what hung is over
    eventually(lambda: agent.report()["trouble"] is None, "a pass that completed")
    # by what comes after the pass
    eventually(lambda: agent.node()["enabled"], "a host that is enabled again")

    (machine / MEMORY).unlink()
    os.mkfifo(machine / MEMORY)
    agent.report()
    began = time.monotonic()
    assert agent.stop() == 0
    assert time.monotonic() - began < SOON
