"""The short view of a provider tree, and the folding of equal devices."""

from __future__ import annotations

import io
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from compute_agent.cmd.agent.main import main
from compute_agent.cmd.trees.drawing import drawing
from compute_agent.cmd.trees.folding import fold, label, natural
from compute_agent.cmd.trees.form import TreeForm, amount_text
from compute_agent.manage.tree_reading import InventoryLine, ProviderLines

ROOT = ProviderLines(
    "root", "host", None, {"DISK_GB": InventoryLine(1000, 10, 1.0, 40)}, note="written 3 s ago"
)
CELLS = [
    ProviderLines(
        f"cell{cell}",
        f"host_NUMA{cell}",
        "root",
        {"VCPU": InventoryLine(32, 0, 4.0, 0)},
        ("HW_NUMA_ROOT",),
    )
    for cell in (0, 10, 2)
]


def gpu(number: int, *traits: str, used: int = 0, total: int = 4, parent: str = "cell0"):
    inventories = {"VGPU": InventoryLine(total, 0, 1.0, used)}
    return ProviderLines(
        f"gpu{number}", f"host_pci_0000:4{number}:00.0", parent, inventories, traits
    )


def shown(providers: list[ProviderLines], width: int = 200, **options: object) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(drawing(providers, TreeForm(**options)))  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def names(providers: list[ProviderLines]) -> list[str]:
    root = fold(providers)
    return [label(branch, root.first) for branch in root.below()][1:]


def test_each_provider_has_a_line_and_the_host_its_sums():
    lines = shown([ROOT, *CELLS])
    assert lines[0].split() == ["used/capacity", "by", "resource", "class"]
    assert lines[1].split(maxsplit=1) == ["host", "DISK_GB 40/990  root  written 3 s ago"]
    assert [line.split()[1] for line in lines[2:5]] == ["NUMA0", "NUMA2", "NUMA10"]
    assert lines[5].split(maxsplit=4)[4] == "DISK_GB 40/990  VCPU 0/384 (ratio 4)"
    assert len(lines) == 6


def test_a_provider_without_inventory_is_its_name_alone():
    lines = shown([ROOT, replace(CELLS[0], inventories={}), *CELLS[1:]])
    assert lines[2] == "├── NUMA0"


@pytest.mark.parametrize(
    ("holders", "words"),
    [
        ((), "gone"),
        (("a",), "gone, held by a"),
        (("a", "b", "c"), "gone, held by a, b and 1 more"),
    ],
)
def test_a_device_that_is_gone_is_named_with_who_holds_it(holders: tuple[str, ...], words: str):
    lost = gpu(7, "CUSTOM_DEVICE_MISSING", used=1, total=0)
    lines = shown([ROOT, *CELLS, gpu(6), replace(lost, holders=holders)])
    assert lines[4].endswith(f"VGPU {words}")
    assert (
        f"{words}\n"
        in "\n".join(shown([ROOT, *CELLS, replace(lost, holders=holders)], full=True)) + "\n"
    )


CPU_TRAITS = ("HW_CPU_X86_AVX", "HW_CPU_X86_AVX2", "HW_NUMA_ROOT")


def test_a_full_tree_shows_every_provider_with_inventory_usage_and_traits():
    cells = [replace(cell, traits=CPU_TRAITS) for cell in CELLS]
    text = shown([ROOT, *cells], full=True, traits=True)
    assert text[0].startswith("host  root")
    assert text[2].split()[-5:] == ["DISK_GB", "1000", "10", "1", "40/990"]
    assert [line.split("host_")[1].split()[0] for line in text if "host_" in line] == [
        *("NUMA0", "NUMA2", "NUMA10"),
    ]
    assert any("HW_CPU_X86_{AVX AVX2} HW_NUMA_ROOT" in line for line in text)
    # as a claim shows what it touched
    part = "\n".join(shown([ROOT, *cells], full=True, tables=["root"]))
    assert "DISK_GB" in part
    assert "host_NUMA0" in part
    assert "VCPU" not in part
    assert "HW_" not in part


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_full_tree_fits_a_narrow_terminal(width: int):
    lines = shown([ROOT, *CELLS], width=width, full=True, traits=True)
    assert max(map(len, lines)) <= width


def test_devices_that_differ_in_use_alone_are_one_line():
    lines = shown([ROOT, *CELLS, *(gpu(number, used=number) for number in range(4))])
    assert "4 x pci" in lines[3]
    assert "VGPU 6/16" in lines[3]


@pytest.mark.parametrize(
    "other", [gpu(9, "HW_X"), gpu(9, total=8), gpu(9, parent="cell2"), gpu(9, parent="gpu0")]
)
def test_devices_that_differ_in_more_have_lines_of_their_own(other: ProviderLines):
    expected = 2 if other.parent != "gpu0" else 3
    lines = [name for name in names([ROOT, *CELLS, gpu(0), gpu(1), other]) if "pci" in name]
    assert len(lines) == expected


def test_gpus_have_their_model_in_place_of_what_their_names_share():
    t4, broken = "CUSTOM_GPU_TESLA_T4", "CUSTOM_GPU_UNHEALTHY"
    devices = [gpu(0, t4), gpu(1, t4), gpu(2, broken, t4), gpu(3, broken)]
    lines = "\n".join(shown([ROOT, *CELLS, *devices]))
    assert "2 x TESLA T4 " in lines
    assert "pci_0000:42:00.0 (TESLA T4)  UNHEALTHY" in lines
    assert "pci_0000:43:00.0  " in lines


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (("VCPU", 3, 8), "3/8"),
        (("VCPU", 3, 8, 4.0), "3/8 (ratio 4)"),
        (("MEMORY_MB", 512, 8192), "512/8192 (0.5/8 GiB)"),
        (("MEMORY_MB", 100, 600), "100/600"),
        (("MEMORY_MB", 2097152, 1048576, 1.5), "2097152/1048576 (2/1 TiB, ratio 1.5)"),
        (("DISK_GB", 40, 990), "40/990"),
        (("DISK_GB", 512, 2048), "512/2048 (0.5/2 TiB)"),
        (("CUSTOM_GPU_MEMORY_MB", 0, 0), "0/0"),
    ],
)
def test_amounts_have_their_size_beside_them(amount: tuple[Any, ...], text: str):
    assert amount_text(*amount) == text


def test_scripts_get_sizes_in_bytes_and_counts_as_they_are():
    assert amount_text("MEMORY_MB", 1, 2, in_bytes=True) == "1048576/2097152"
    assert amount_text("VCPU", 1, 2, in_bytes=True) == "1/2"
    assert "DISK_GB 42949672960/1063004405760" in shown([ROOT], in_bytes=True)[1]


def test_what_is_reserved_beyond_the_total_takes_nothing_from_the_sums():
    gone = ProviderLines("gone", "host_gone", "root", {"DISK_GB": InventoryLine(0, 500, 1.0, 0)})
    assert shown([ROOT, gone])[-1].split(maxsplit=4)[4] == "DISK_GB 40/990"


def test_names_of_all_lines_leave_the_amounts_in_one_column():
    root = ProviderLines("r", "h", None, {"VCPU": InventoryLine(8, 0, 1.0, 1)})
    below = ProviderLines("b", "h_b", "r", {"VCPU": InventoryLine(8, 0, 1.0, 1)})
    lines = shown([root, below])
    assert len({line.index("VCPU") for line in lines[1:]}) == 1


def test_cells_are_never_folded():
    assert names([ROOT, *CELLS]) == ["NUMA0", "NUMA2", "NUMA10"]


@pytest.mark.parametrize(
    ("trait", "word"),
    [("COMPUTE_STATUS_DISABLED", "DISABLED"), ("CUSTOM_GPU_UNHEALTHY", "UNHEALTHY")],
)
def test_what_gives_nothing_new_stands_apart_with_a_word_in_front(trait: str, word: str):
    lines = shown([ROOT, *CELLS, gpu(0), gpu(1), gpu(2, trait), gpu(3, trait)])
    marked = [line for line in lines if word in line]
    assert len(marked) == 2
    assert all(line.index(word) < line.index("VGPU") for line in marked)
    assert any("2 x pci" in line for line in lines)


def test_a_class_shows_what_has_it_and_the_way_to_it():
    lines = shown([ROOT, *CELLS, gpu(0)], resource_class="VGPU")
    assert [line.split("─ ")[-1].split()[0] for line in lines[1:-1]] == [
        "host",
        "NUMA0",
        "pci_0000:40:00.0",
    ]
    assert "VCPU" not in "\n".join(lines)


def test_only_what_is_used_is_shown_when_asked():
    lines = shown([ROOT, *CELLS, gpu(0), gpu(1, used=1)], only_used=True)
    assert not any("0000:40" in line or "NUMA2" in line for line in lines)
    assert any("0000:41" in line for line in lines)


def test_every_provider_has_a_line_with_its_uuid_when_asked():
    lines = shown([ROOT, *CELLS, gpu(0), gpu(1)], apart=True, traits=True)
    assert any("gpu0" in line for line in lines)
    assert any("gpu1" in line for line in lines)
    assert sum("HW_NUMA_ROOT" in line for line in lines) == 3


@pytest.mark.parametrize("width", [20, 60])
def test_nothing_is_cut_off_in_a_narrow_terminal(width: int):
    text = "".join(shown([ROOT, *CELLS, gpu(0)], width=width)).replace(" ", "")
    assert "written3sago" in text
    assert "VGPU0/4" in text


def test_amounts_go_on_in_their_column_and_none_is_broken_in_a_narrow_terminal():
    amounts = {name: InventoryLine(32, 0, 1.0, 0) for name in ("MEMORY_MB", "PCPU", "VCPU")}
    cell = ProviderLines("cell", "host_NUMA0", "root", amounts)
    root = ProviderLines("root", "host", None, {"DISK_GB": InventoryLine(1000, 10, 1.0, 40)})
    lines = shown([root, cell, gpu(0, parent="cell")], width=68, bars=True)
    amount = f"{'░' * 8} 0/32"
    assert lines[2].split(maxsplit=2)[2] == f"MEMORY_MB {amount}"
    assert lines[3].split(maxsplit=1) == ["PCPU", f"{amount}  VCPU {amount}"]
    assert lines[3].index("PCPU") == lines[2].index("MEMORY_MB")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("host_pci_0000_18_00_0", "host_pci_0000_19_00_0", "2 x pci"),
        ("host_0000:17:00.0", "host_0000:17:00.1", "2 x 0000:17:00.*"),
        ("host_gpu_a", "host_gpu_b", "2 x gpu"),
        ("card", "adapter", "2 x provider"),
    ],
)
def test_equal_devices_are_called_by_what_their_names_share(first: str, second: str, expected: str):
    devices = [ProviderLines(name, name, "root") for name in (first, second)]
    assert names([ROOT, *devices]) == [expected]


@pytest.mark.parametrize("everything", ["--details", "--json"])
def test_a_part_of_what_is_shown_whole_is_a_bad_argument(everything: str, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["show", everything, "--used", "--class", "VCPU"])
    assert ended.value.code == 127
    assert f"--class, --used cannot be combined with {everything}" in capsys.readouterr().err


def test_names_are_sorted_by_the_numbers_in_them_and_any_name_has_a_place():
    names = ["h_NUMA10", "h_NUMA2", "\u00b2", "h"]
    assert sorted(names, key=natural) == ["h", "h_NUMA2", "h_NUMA10", "\u00b2"]
