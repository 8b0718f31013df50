"""Views of `compute-agent dev`, and the place of its state."""

from __future__ import annotations

import io
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg
from rich.console import Console

from compute_agent.cmd.dev.child import DevFailed
from compute_agent.cmd.dev.machine import SHIPPED, ReportedMachine, unpack
from compute_agent.cmd.dev.sample import Sample, next_steps, sample_of
from compute_agent.cmd.dev.state_directory import StateDirectory, default_path
from compute_agent.cmd.scheduler.views import print_claim
from compute_agent.conf import new_config
from compute_agent.manage.tree_reading import InventoryLine, ProviderLines
from tests.data import machines

ROOT = ProviderLines(
    "11111111-1111-1111-1111-111111111111",
    "host",
    None,
    {"DISK_GB": InventoryLine(100, 10, 1.0, 7)},
    ("COMPUTE_NODE", "HW_ARCH_X86_64"),
)
CELLS = tuple(
    ProviderLines(
        f"22222222-2222-2222-2222-2222222222{cell:02}",
        f"host_NUMA{cell}",
        ROOT.uuid,
        {"VCPU": InventoryLine(8, 0, 4.0, 0), "MEMORY_MB": InventoryLine(1024, 512, 1.0, 0)},
        ("HW_CPU_X86_AVX", "HW_CPU_X86_AVX2", "HW_NUMA_ROOT"),
    )
    for cell in (0, 10, 2)
)


def test_a_claim_shows_consumer_host_and_amounts() -> None:
    console = Console(file=io.StringIO(), width=40, highlight=False)
    print_claim(
        {
            "consumer": "c" * 36,
            "host": "host",
            "root_provider": "r" * 36,
            "allocations": {"u": {"name": "host[0]", "resources": {"VCPU": 2}}},
            "mappings": {"": ["u"]},
        },
        console,
    )
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert f"Consumer {'c' * 36}\n" in text
    assert "host[0]" in text
    assert "VCPU=2" in text


def test_the_sample_is_a_little_of_what_is_free() -> None:
    sample = Sample({"": {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}})
    assert sample_of((ROOT, *CELLS)) == sample
    assert sample.options == "--resources VCPU=1,MEMORY_MB=512,DISK_GB=1"


def test_the_sample_of_a_machine_with_devices_is_of_the_cell_that_has_them() -> None:
    gpu = ProviderLines("g", "host_gpu", CELLS[1].uuid, {"VGPU": InventoryLine(8, 0, 1.0, 0)})
    sample = sample_of((ROOT, *CELLS, gpu), most_of_a_cell=True)
    assert sample is not None
    assert sample.groups == {"CELL": {"VCPU": 4, "MEMORY_MB": 320}, "GPU": {"VGPU": 1}}
    assert sample.extra_specs()["same_subtree"] == "_CELL,_GPU"
    assert sample.options.endswith("--group GPU:VGPU=1 --same-subtree CELL,GPU")


def test_the_sample_of_a_small_machine_is_smaller() -> None:
    small = ProviderLines(
        "u",
        "host",
        None,
        {"VCPU": InventoryLine(1, 0, 1.0, 0), "MEMORY_MB": InventoryLine(600, 512, 1.0, 0)},
    )
    assert sample_of([small]) == Sample({"": {"VCPU": 1, "MEMORY_MB": 64}})


def test_a_machine_with_nothing_free_has_no_sample() -> None:
    full = ProviderLines("u", "host", None, {"VCPU": InventoryLine(1, 0, 1.0, 1)})
    assert sample_of([full]) is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/compute-agent"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/compute-agent"),
        ({"XDG_STATE_HOME": "", "HOME": "/h"}, "/h/.local/state/compute-agent"),
        ({"HOME": "/h"}, "/h/.local/state/compute-agent"),
    ],
)
def test_state_is_kept_where_the_xdg_specification_says(
    environment: dict[str, str], expected: str
) -> None:
    assert default_path(environment) == Path(expected)


def test_a_fleet_of_another_kind_has_a_directory_of_its_own() -> None:
    places = {
        default_path({"HOME": "/h"}, machine, hosts)
        for machine in (None, "fake", "gpu-server")
        for hosts in (1, 3)
    }
    assert len(places) == 6
    assert {place.is_relative_to("/h/.local/state/compute-agent") for place in places} == {True}


def written(state: StateDirectory, number: int = 1, **options: Any) -> cfg.ConfigOpts:
    """The configuration of an agent, as the program reads it."""
    state.prepare(number)
    machine = ReportedMachine()
    state.write_agent_config(
        number,
        "http://127.0.0.1:1",
        7,
        is_nested=True,
        options=machine.options,
        host=None,
        **options,
    )
    return new_config([f"--config-file={state.agent(number).config}"])


def test_the_configuration_it_writes_means_what_it_says(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "a home of one")
    conf = written(state)
    assert conf.compute_driver == "host.HostDriver"
    assert conf.state_path == str(state.agent().state)
    assert conf.compute_scheduler.journal_path == str(state.path / "scheduler-journal")
    assert conf.update_resources_interval == 7
    assert conf.compute.enable_numa_reporting_to_placement is True
    assert conf.placement.endpoint_override == "http://127.0.0.1:1"
    assert written(state, 2).state_path != conf.state_path


def test_a_path_too_long_for_a_socket_means_no_socket(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / ("x" * 110))
    assert written(state).compute_agent.status_socket == ""
    steps = next_steps(state.environment, "/h", ["host"], None, answers=False)
    assert not any(" status" in typed for _, typed in steps)


def test_a_state_directory_in_use_names_the_process(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    with state.lock(), pytest.raises(DevFailed, match=r"process \d+"), state.lock():
        pass


@pytest.mark.parametrize("name", ["what?", "$HOME", "100%", "two\nlines"])
def test_a_state_directory_that_no_configuration_can_hold_is_refused(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(DevFailed, match="--state-dir"):
        StateDirectory(tmp_path / name).prepare()


def test_what_to_type_survives_a_shell(tmp_path: Path) -> None:
    environment = tmp_path / "with a space" / "env"
    sample = Sample({"": {"VCPU": 1}})
    (_, first), *others = next_steps(environment, "/h", ["a host"], sample, answers=True)
    assert shlex.split(first) == [".", str(environment)]
    assert ["placement", "tree", "a host"] in [shlex.split(typed) for _, typed in others]
    (_, first), *_ = next_steps(environment, str(tmp_path), ["host"], sample, answers=True)
    assert first == ". ~/'with a space/env'"


def test_programs_use_the_run_unless_another_is_named(tmp_path: Path) -> None:
    programs = tmp_path / "programs of one"
    programs.mkdir()
    for name in ("compute-agent", "compute-manage", "compute-scheduler", "placement"):
        (programs / name).write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
        (programs / name).chmod(0o755)
    state = StateDirectory(tmp_path / "state of one")
    state.prepare()
    state.write_environment("http://127.0.0.1:1", programs)

    def typed(line: str) -> list[str]:
        script = f". {shlex.quote(str(state.environment))}\n{line}"
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    config = f"--config-file={state.agent().config}"
    assert typed("compute-agent plan") == [config, "plan"]
    assert typed("compute-agent dev --once") == ["dev", "--once"]
    assert typed("compute-scheduler claim 'a b'") == [config, "claim", "a b"]
    assert typed("compute-manage host list --config-file x") == [
        *("host", "list", "--config-file", "x"),
    ]
    assert typed("placement tree x") == ["--url=http://127.0.0.1:1", "tree", "x"]
    assert typed("placement --url=y tree x") == ["--url=y", "tree", "x"]


@pytest.mark.parametrize("name", SHIPPED)
def test_each_machine_of_the_package_is_that_of_the_catalogue(name: str, tmp_path: Path) -> None:
    unpack(name, tmp_path / "package")
    machines.SHIPPED[name]().write(tmp_path / "catalogue" / name)

    def contents(kind: str) -> dict[str, object]:
        root = tmp_path / kind / name
        return {
            str(path.relative_to(root)): str(path.readlink())
            if path.is_symlink()
            else path.read_bytes()
            for path in root.rglob("*")
            if path.is_symlink() or path.is_file()
        }

    # to pack them again: python -m tests.data.pack_machines
    assert contents("package") == contents("catalogue")
