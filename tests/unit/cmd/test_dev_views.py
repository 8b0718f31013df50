"""Views of `compute-agent dev`, and the place of its state."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from compute_agent.cmd.dev.claim_view import print_claim
from compute_agent.cmd.dev.errors import DevFailed
from compute_agent.cmd.dev.next_steps import next_steps
from compute_agent.cmd.dev.sample import sample_resources
from compute_agent.cmd.dev.state_directory import StateDirectory, default_path
from compute_agent.cmd.trees.full_view import provider_tree
from compute_agent.conf import new_config
from compute_agent.manage.tree_reading import InventoryLine, ProviderLines

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


def shown(width: int, **options: object) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(provider_tree((ROOT, *CELLS), **options))  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_tree_shows_every_provider_with_inventory_usage_and_traits() -> None:
    text = shown(100)
    assert text[0].startswith("host  11111111")
    assert "DISK_GB    100        10      1     7    83" in text[2]
    assert [line.split("host_")[1].split()[0] for line in text if "host_" in line] == [
        "NUMA0",
        "NUMA2",
        "NUMA10",
    ]
    assert any("HW_CPU_X86_{AVX AVX2} HW_NUMA_ROOT" in line for line in text)


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_tree_fits_a_narrow_terminal(width: int) -> None:
    assert max(len(line) for line in shown(width)) <= width


def test_a_tree_can_be_narrowed_to_what_a_claim_touched() -> None:
    text = "\n".join(shown(100, traits=False, only=[ROOT.uuid]))
    assert "DISK_GB" in text
    assert "host_NUMA0" in text
    assert "VCPU" not in text
    assert "HW_" not in text


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
    assert sample_resources((ROOT, *CELLS)) == {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}


def test_the_sample_of_a_small_machine_is_smaller() -> None:
    small = ProviderLines(
        "u",
        "host",
        None,
        {"VCPU": InventoryLine(1, 0, 1.0, 0), "MEMORY_MB": InventoryLine(600, 512, 1.0, 0)},
    )
    assert sample_resources([small]) == {"VCPU": 1, "MEMORY_MB": 64}


def test_a_machine_with_nothing_free_has_no_sample() -> None:
    full = ProviderLines("u", "host", None, {"VCPU": InventoryLine(1, 0, 1.0, 1)})
    assert sample_resources([full]) == {}


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


def test_the_configuration_it_writes_means_what_it_says(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "a home of one")
    state.prepare()
    state.write_agent_config("http://127.0.0.1:1", 7, nested=True)
    conf = new_config([f"--config-file={state.agent_config}"])
    assert conf.state_path == str(state.agent_state)
    assert conf.compute_scheduler.journal_path == str(state.path / "scheduler-journal")
    assert conf.update_resources_interval == 7
    assert conf.compute.enable_numa_reporting_to_placement is True
    assert conf.placement.endpoint_override == "http://127.0.0.1:1"


def test_a_path_too_long_for_a_socket_means_no_socket(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / ("x" * 110))
    state.prepare()
    state.write_agent_config("http://127.0.0.1:1", 7, nested=True)
    conf = new_config([f"--config-file={state.agent_config}"])
    assert conf.compute_agent.status_socket == ""
    steps = [typed for _, typed in next_steps(state, "http://u", "r", {"VCPU": 1})]
    assert not any(" status " in typed for typed in steps)


def test_a_state_directory_in_use_names_the_process(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    with state.locked(), pytest.raises(DevFailed, match=r"process \d+"), state.locked():
        pass


@pytest.mark.parametrize("name", ["what?", "$HOME", "100%", "two\nlines"])
def test_a_state_directory_that_no_configuration_can_hold_is_refused(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(DevFailed, match="--state-dir"):
        StateDirectory(tmp_path / name).prepare()


def test_what_to_type_survives_a_shell(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "with a space")
    steps = next_steps(state, "http://127.0.0.1:1", "root", {"VCPU": 1})
    for _, typed in steps:
        words = shlex.split(typed)
        if words[0] != "curl":
            assert str(state.agent_config) in words
