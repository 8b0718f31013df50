"""Hypervisor hosts of a history, and what is done on them besides what their agent does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import libvirt

from tests.fixtures.libvirt_guests import guest_xml
from tests.fixtures.libvirtd import Libvirtd
from tests.functional.agent.processes import AgentProcess
from tests.integration.burst.shapes import Shape
from tests.integration.holders.contents import SMALL_PAGES, content_of_domain, elements_of
from tests.integration.holders.model import Content

DEDICATED: Final = {"hw:cpu_policy": "dedicated"}
PAGES: Final = {"hw:mem_page_size": "2048"}
_SHAPES: Final = (
    Shape("floats", 1, 256),
    Shape("pinned", 2, 256, nodes=1, extra_specs=DEDICATED),
    Shape("cores", 2, 256, nodes=1, extra_specs={**DEDICATED, "hw:cpu_thread_policy": "require"}),
    Shape("two nodes", 4, 512, nodes=2, extra_specs=DEDICATED),
    Shape("pages", 1, 384, nodes=1, extra_specs=PAGES),
    Shape("pinned with pages", 1, 256, nodes=1, extra_specs={**DEDICATED, **PAGES}),
    Shape("large pages", 1, 1024, nodes=1, extra_specs={"hw:mem_page_size": "1048576"}),
    Shape("functions", 1, 256, nodes=1, devices={"SRIOV_NET_VF": 2}, extra_specs=DEDICATED),
    Shape("vgpu", 1, 256, devices={"VGPU": 1}),
)
ONE_CPU: Final = Shape("one CPU", 1, 64, nodes=1, extra_specs=DEDICATED)


class Machine(ABC):
    """A hypervisor host.

    :cvar shapes: of guests for it.
    :cvar shared: CPUs on which guests float, as many on either cell.
    :cvar dedicated: CPUs that guests get.
    :cvar function_class: resource class of the PCI functions that guests get.
    :ivar instances: the file of those that exist, for an agent that heals.
    """

    shapes: ClassVar[Sequence[Shape]]
    shared: ClassVar[Sequence[int]]
    dedicated: ClassVar[Sequence[int]]
    function_class: ClassVar[str]
    agent: AgentProcess

    def __init__(self, name: str, instances: Path) -> None:
        self.name = name
        self.instances = instances
        self.claim_book = f"claim book of {name}"
        self.libvirt = f"libvirt of {name}"
        self.placement = f"placement of {name}"

    def new_agent(self, directory: Path, url: str, **options: Any) -> AgentProcess:
        """Return its agent, which does not run yet."""
        return AgentProcess(directory, url, **options)

    def options(self) -> dict[str, dict[str, Any]]:
        """Return the options of its agent by group."""
        return {
            "DEFAULT": {"compute_driver": "libvirt.LibvirtDriver"},
            "compute": {
                "cpu_shared_set": ",".join(map(str, self.shared)),
                "cpu_dedicated_set": ",".join(map(str, self.dedicated)),
                "enable_numa_reporting_to_placement": True,
            },
            "compute_agent": {
                "audit_interval": 1,
                "audit_grace": 1,
                "heal_orphans": True,
                "instance_source": "file",
                "instance_file": self.instances,
            },
            "libvirt": {"virt_type": "qemu"},
        }

    @abstractmethod
    def totals(self) -> Content:
        """Return what there is of its cells; of everything else there is one."""

    @abstractmethod
    def define(self, instance: str, claim: Mapping[str, Any]) -> None:
        """Make a guest, or make it again with something else."""

    @abstractmethod
    def undefine(self, instance: str) -> None:
        """End a guest, if it is there."""

    @abstractmethod
    def described(self) -> dict[str, str]:
        """Return how libvirt describes each guest, by uuid."""

    @abstractmethod
    def kill_libvirt(self) -> None:
        """Kill its libvirtd, and start it again."""

    def guests(self) -> dict[str, Content]:
        """Return what libvirt shows of each guest."""
        return {
            uuid: content_of_domain(xml, self.shared, self.function_class)
            for uuid, xml in self.described().items()
        }

    def kill_agent(self) -> None:
        """Kill its agent, and start it again; the first pass is not waited for."""
        self.agent.cleanup()
        self.agent.start()


def xml_of(instance: str, claim: Mapping[str, Any]) -> str:
    """Return the description of a guest that has what a claim gives."""
    vcpu, elements, devices = elements_of(claim)
    return guest_xml(instance, *elements, vcpu=vcpu, devices=devices)


class CapturedMachine(Machine):
    """The captured machine two-sockets below a real libvirtd; guests are defined, not started.

    A guest that is shut off keeps what it has, and no machine here has these CPUs and functions.
    """

    shapes = _SHAPES
    # both threads of a core on either cell
    shared = (0, 8, 4, 12)
    dedicated = (*range(1, 4), *range(9, 12), *range(5, 8), *range(13, 16))
    function_class = "SRIOV_NET_VF"

    def __init__(self, name: str, instances: Path, daemon: Libvirtd, *, is_nested: bool) -> None:
        super().__init__(name, instances)
        self._daemon = daemon
        self._is_nested = is_nested

    def options(self) -> dict[str, dict[str, Any]]:
        options, machine = super().options(), self._daemon.machine
        options["DEFAULT"] |= {"instances_path": machine, "update_resources_interval": 3}
        options["compute"]["enable_numa_reporting_to_placement"] = self._is_nested
        options["libvirt"]["connection_uri"] = self._daemon.uri
        options["host"] = {"sysfs_root": f"{machine}/sys", "procfs_root": f"{machine}/proc"}
        options["devices"] = {"enabled_mdev_types": "nvidia-231"}
        return options

    def totals(self) -> Content:
        totals: dict[str, int] = {}
        assert self._daemon.machine is not None
        for node in self._daemon.machine.glob("sys/devices/system/node/node[0-9]*"):
            cell = node.name.removeprefix("node")
            memory = int((node / "meminfo").read_text().split()[3]) // 1024
            totals[f"VCPU of cell {cell}"] = len(self.shared) // 2
            for pages in node.glob("hugepages/hugepages-*kB"):
                size = int(pages.name.removeprefix("hugepages-").removesuffix("kB"))
                mib = size * int((pages / "nr_hugepages").read_text()) // 1024
                totals[f"MiB of cell {cell} in pages of {size} KiB"] = mib
                memory -= mib
            totals[f"MiB of cell {cell} in pages of {SMALL_PAGES} KiB"] = memory
        return totals

    def define(self, instance: str, claim: Mapping[str, Any]) -> None:
        with self._libvirt() as connection:
            connection.defineXML(xml_of(instance, claim))

    def undefine(self, instance: str) -> None:
        with self._libvirt() as connection:
            for domain in connection.listAllDomains():
                if domain.UUIDString() == instance:
                    domain.undefine()

    def described(self) -> dict[str, str]:
        with self._libvirt() as connection:
            return {d.UUIDString(): d.XMLDesc() for d in connection.listAllDomains()}

    def kill_libvirt(self) -> None:
        self._daemon.kill()
        self._daemon.start()

    @contextmanager
    def _libvirt(self) -> Iterator[libvirt.virConnect]:
        with closing(libvirt.open(self._daemon.uri)) as connection:
            yield connection
