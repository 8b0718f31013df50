"""Nova's driver and ours report the same tree of a host, on a real libvirtd of a captured machine.

`NOVA_EXAMPLES` says how many sets of options are drawn; beyond those of each run of the tests they
are drawn for every machine.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compute_agent.conf import new_config
from compute_agent.errors import ComputeAgentError
from compute_agent.provider_tree import ProviderTree
from compute_agent.virt.libvirt.driver import LibvirtDriver
from tests.data import machines
from tests.differential.nova.nova_process import EXAMPLES, Nova
from tests.fixtures.libvirtd import running_libvirtd

libvirt = pytest.importorskip("libvirt")

Options = dict[tuple[str, str], str]
Tree = dict[str, dict[str, Any]]

NOT_COMPARED: Final = {
    "emulated-numa": "the capture has no file system of guests",
    "limited-container": "the memory is that of the limit here, and of libvirt in nova",
    "no-numa": "nova counts the memory of cells alone, and there are none",
    "old-kernel": "the memory is what the kernel has in all here, and of the modules in nova",
    "power9-gpus": "nova counts the memory of the GPUs",
    "riscv": "nova counts the memory of cells alone, and there are none",
    "vendor-vgpus": "nova knows no vGPUs of the vendor's own interface",
}
"""Machines that nova reports otherwise, and why."""
MACHINES: Final = (
    [name for name in machines.NAMES if name not in NOT_COMPARED]
    if EXAMPLES > 400
    else ["two-sockets"]
)
SETS: Final = 25 if EXAMPLES > 400 else 8
OPTIONS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("DEFAULT", "reserved_host_memory_mb"): ("0", "1024"),
    ("DEFAULT", "reserved_host_cpus"): ("0", "1"),
    ("DEFAULT", "reserved_host_disk_mb"): ("0", "2048"),
    ("DEFAULT", "cpu_allocation_ratio"): ("1.0", "2.5"),
    ("DEFAULT", "ram_allocation_ratio"): ("1.5",),
    ("DEFAULT", "disk_allocation_ratio"): ("2.0",),
    ("DEFAULT", "initial_cpu_allocation_ratio"): ("8.0",),
    ("DEFAULT", "reserved_huge_pages"): ("node:0,size:2048,count:8", "node:0,size:4,count:8"),
    ("compute", "cpu_shared_set"): ("0-1", "0,2", "^1,0-3"),
    ("compute", "cpu_dedicated_set"): ("2-3", "3", "1"),
    ("compute", "image_type_exclude_list"): ("raw", "iso,vmdk"),
    ("libvirt", "cpu_mode"): ("none", "host-model", "host-passthrough"),
    ("libvirt", "cpu_model_extra_flags"): ("avx", "-avx2,aes"),
    ("libvirt", "images_type"): ("raw", "qcow2", "flat"),
    ("libvirt", "swtpm_enabled"): ("true", "false"),
    ("libvirt", "file_backed_memory"): ("4096",),
    ("libvirt", "virt_type"): ("qemu", "kvm"),
    ("devices", "enabled_mdev_types"): ("nvidia-222", "nvidia-563"),
}
DRAWN: Final = st.lists(
    st.sampled_from([(name, value) for name, values in OPTIONS.items() for value in values]),
    max_size=5,
).map(dict)
ONLY_NOVA: Final = {(("libvirt", "swtpm_enabled"), "true")}
"""Options that nova refuses where libvirt can emulate no TPM; ours warns and reports none."""
ONLY_OURS: Final = {
    (("DEFAULT", "reserved_huge_pages"), value)
    for value in OPTIONS["DEFAULT", "reserved_huge_pages"]
}
"""Options that ours refuses by name where the machine has no pages of the size."""
COUNTS: Counter[str] = Counter()


class BothDrivers:
    """Nova's driver and ours on one daemon."""

    def __init__(self, daemon: Any, directory: Path, nova: Nova) -> None:
        self._nova = nova
        self._file = directory / "agent.conf"
        instances = directory / "instances"
        instances.mkdir()
        connection = libvirt.openReadOnly(daemon.uri)
        self._node = connection.getHostname()
        connection.close()
        self._common = {
            ("DEFAULT", "host"): "h",
            ("DEFAULT", "instances_path"): str(instances),
            ("libvirt", "virt_type"): "qemu",
            ("libvirt", "connection_uri"): daemon.uri,
        }
        self._own = {
            ("DEFAULT", "state_path"): str(directory / "agent"),
            ("host", "sysfs_root"): f"{daemon.machine}/sys",
            ("host", "procfs_root"): f"{daemon.machine}/proc",
            ("gpu", "nvml"): "never",
            ("nic", "report_vfs"): "never",
        }

    def trees(self, options: Options) -> tuple[Tree, Tree]:
        """Return the tree of nova's driver and of ours, empty where the options are refused."""
        text = _text(self._common | options)
        theirs = self._nova("tree", options=text, node=self._node)
        self._file.write_text(_text(self._common | options | self._own))
        tree = ProviderTree()
        tree.new_root(self._node, "11111111-1111-4111-8111-111111111111", 1)
        try:
            driver = LibvirtDriver(
                new_config([f"--config-file={self._file}"], default_config_dirs=[])
            )
            try:
                driver.init_host("h")
                driver.update_provider_tree(tree, self._node)
                abilities = driver.capabilities_as_traits()
            finally:
                driver.cleanup_host("h")
        except ComputeAgentError as error:
            return theirs, {"refused": {"reason": str(error)}}
        tree.add_traits(self._node, *(name for name, is_able in abilities.items() if is_able))
        found = [tree.data(uuid) for uuid in tree.get_provider_uuids(self._node)]
        ours = {p.name: {"inventory": p.inventory, "traits": sorted(p.traits)} for p in found}
        return theirs, ours


def _text(options: Options) -> str:
    groups: dict[str, list[str]] = {}
    for (group, name), value in options.items():
        groups.setdefault(group, []).append(f"{name} = {value}\n")
    return "".join(f"[{group}]\n{''.join(lines)}" for group, lines in groups.items())


@pytest.fixture(scope="module")
def libvirt_binding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the binding of libvirt alone, which nova's environment lacks."""
    directory = tmp_path_factory.mktemp("binding")
    import libvirtmod

    for module in (libvirt, libvirtmod):
        file = Path(module.__file__)
        (directory / file.name).symlink_to(file)
    return directory


@pytest.fixture(scope="module", params=MACHINES)
def drivers(
    request: pytest.FixtureRequest,
    libvirt_run_directory: Path,
    libvirt_binding: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BothDrivers]:
    directory = tmp_path_factory.mktemp(str(request.param))
    machine = machines.make(str(request.param), directory / "machine")
    database = f"[database]\nconnection = sqlite:///{directory}/main.db\n"
    with (
        running_libvirtd(libvirt_run_directory, machine) as daemon,
        closing(Nova(directory, database, libvirt_binding)) as nova,
    ):
        yield BothDrivers(daemon, directory, nova)
    sys.__stdout__.write(f"\ntrees beside nova's: {dict(COUNTS)}\n")


@settings(
    max_examples=SETS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
@given(options=DRAWN)
def test_the_tree_is_novas(drivers: BothDrivers, options: Options) -> None:
    theirs, ours = drivers.trees(options)
    if ("refused" in theirs) != ("refused" in ours):
        side, reasons = ("nova", ONLY_NOVA) if "refused" in theirs else ("ours", ONLY_OURS)
        assert reasons & {*options.items()}, (theirs.get("refused"), ours.get("refused"))
        COUNTS[f"only {side} refuses"] += 1
        return
    assert comparable(ours) == comparable(theirs)
    COUNTS["refused" if "refused" in theirs else "equal"] += 1


_OF_THE_DAEMON: Final = ("HW_ARCH_", "HW_CPU_X86_", "HW_CPU_AARCH64_", "CUSTOM_MDEV_")
_OF_ONE_SIDE: Final = frozenset(("COMPUTE_REMOTE_MANAGED_PORTS", "COMPUTE_FIRMWARE_BIOS"))


def comparable(tree: Tree) -> Any:
    """Return a tree without the differences that are meant.

    - Ports are managed remotely here only where a card for it is; BIOS as a firmware has a trait.
    - A type of mediated devices has a trait of its own here.
    - The size of the disk is that of the captured machine here, and of this one in nova.
    - Without KVM the CPU of guests is the emulator's here, and the host's in nova, which takes that
      of the daemon, also where the machine has another architecture.
    - The virtual functions of a GPU are one provider here, and one each in nova.
    """
    if "refused" in tree:
        return "refused"
    nothing = {"total": 0, "max_unit": 0}
    inventories: dict[str, Counter[Any]] = {}
    traits: dict[str, set[str]] = {}
    for name, provider in tree.items():
        card = name.rsplit("_", 2)[0] if "_pci_" in name else name
        if not provider["inventory"]:
            # a GPU that offers no type that is enabled
            continue
        for resource_class, record in provider["inventory"].items():
            amounts = {**record, **(nothing if resource_class == "DISK_GB" else {})}
            if card == name:
                key = resource_class, frozenset(amounts.items())
                inventories.setdefault(card, Counter())[key] += 1
            else:
                inventories.setdefault(card, Counter())[resource_class] += amounts["total"]
        traits.setdefault(card, set()).update(
            trait
            for trait in provider["traits"]
            if not trait.startswith(_OF_THE_DAEMON) and trait not in _OF_ONE_SIDE
        )
    return inventories, traits
