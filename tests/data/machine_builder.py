"""Builder of a /sys and a /proc as a kernel would show them, for machines nobody has at hand.

A machine is a dictionary of path -> content; a `Link` is a symbolic link, a directory comes with
its first file. The methods add the files of one thing and may be called in any order; single files
are then changed or taken out through `files` to make a machine odd or broken:

    machine = MachineBuilder()
    machine.node(0, cpus="0-3", memory_kib=1 << 20)
    machine.nic("0000:81:00.0", "ens1", vfs=8, numa_node=0)
    machine.files["sys/bus/pci/devices/..."]      # no: write below `machine.device(address)`
    machine.write(tmp_path)                       # tmp_path/sys, tmp_path/proc
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.data.kernel_formats import config_space, cpu_map, numbers, uevent

X86_FLAGS = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat clflush mmx fxsr sse sse2 ht"
    " syscall nx pdpe1gb rdtscp lm pni pclmulqdq vmx ssse3 fma cx16 pcid sse4_1 sse4_2 x2apic movbe"
    " popcnt aes xsave avx f16c rdrand abm bmi1 avx2 bmi2 avx512f avx512dq avx512cd avx512bw"
    " avx512vl sha_ni avx512_vnni"
)


class Link(str):
    """A symbolic link: where it points to, relative to the root of /sys."""

    __slots__ = ()


class MachineBuilder:
    """A machine that grows by one call for each thing in it."""

    def __init__(self) -> None:
        self.files: dict[str, str | bytes | Link] = {}
        self.description: dict[str, Any] = {}
        """What is in neither /sys nor /proc; written as capture.json unless it is empty."""
        self._paths: dict[str, str] = {}
        self._sockets: dict[int, set[int]] = {}
        self._interfaces = 1  # the loopback interface
        self.memory(1 << 20)
        self.cpuinfo()
        self.proc("sys/kernel/hostname", "host.example.org")
        self.proc("sys/kernel/random/boot_id", "6b2a6d06-30a1-4a54-9ad8-2b3e1e1f0c11")

    def describe(self, hostname: str) -> None:
        """Name the machine, and make it a capture that is replayed with a disk of 2 TiB."""
        self.proc("sys/kernel/hostname", hostname)
        self.description = {
            "format": 1,
            "hostname": hostname,
            "disk": {"path": "/var/lib/compute-agent/instances", "size_bytes": 2 * 1024**4},
            "nvml": [],
        }

    def nvml(self, address: str, **facts: Any) -> None:
        """Add what NVML reports of a GPU, in the fields of a capture."""
        self.description["nvml"].append({"address": address, **facts})

    # -- files --------------------------------------------------------------------------

    def sys(self, path: str, content: str | bytes | int) -> None:
        """A file of /sys; text gets the newline that the kernel's values end in."""
        self.files[f"sys/{path}"] = content if isinstance(content, bytes) else f"{content}\n"

    def link(self, path: str, target: str) -> None:
        self.files[f"sys/{path}"] = Link(target)

    def proc(self, path: str, content: str) -> None:
        self.files[f"proc/{path}"] = f"{content}\n"

    def remove(self, path: str) -> None:
        """Take out a file or everything below a directory: `sys/devices/...`."""
        gone = [name for name in self.files if name == path or name.startswith(f"{path}/")]
        assert gone, f"no {path}"
        for name in gone:
            del self.files[name]

    def write(self, directory: Path) -> Path:
        """Write it all below `directory` and return that."""
        for members in self._sockets.values():
            for cpu in members:
                topology = f"devices/system/cpu/cpu{cpu}/topology"
                self.sys(f"{topology}/package_cpus", cpu_map(",".join(map(str, members))))
        for path in self._paths.values():
            node = str(self.files.get(f"sys/{path}/numa_node", "")).strip()
            near = self.files.get(f"sys/devices/system/node/node{node}/cpumap")
            if near is not None:
                self.sys(f"{path}/local_cpus", str(near).strip())
        for kind in ("sys", "proc"):
            (directory / kind).mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Link):
                path.symlink_to(os.path.relpath(directory / "sys" / content, path.parent))
            elif isinstance(content, bytes):
                path.write_bytes(content)
            else:
                path.write_text(content)
        if self.description:
            text = json.dumps(self.description, indent=1)
            (directory / "capture.json").write_text(f"{text}\n")
        return directory

    def product(self, vendor: str, name: str) -> None:
        """What the firmware calls the machine."""
        here = "devices/virtual/dmi/id"
        for attribute, value in {
            "sys_vendor": vendor,
            "product_name": name,
            "product_version": "01",
            "product_serial": "CZ20450ABC",
            "product_uuid": "30373237-3132-4d32-3234-353230304b4e",
            "bios_vendor": vendor,
            "bios_version": "2.14.2",
            "bios_date": "03/21/2023",
            "uevent": "MODALIAS=dmi:",
        }.items():
            self.sys(f"{here}/{attribute}", value)
        self.link(f"{here}/subsystem", "class/dmi")
        self.link("class/dmi/id", here)

    # -- CPUs and memory ----------------------------------------------------------------

    def memory(self, kib: int) -> None:
        self.proc("meminfo", f"MemTotal:       {kib} kB\nMemFree:        {kib // 2} kB")

    def cpuinfo(self, *, count: int = 1) -> None:
        block = (
            "processor\t: {}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n"
            "model name\t: Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz\ncpu MHz\t\t: 2000.000\n"
            "flags\t\t: " + X86_FLAGS + "\naddress sizes\t: 46 bits physical, 57 bits virtual\n"
        )
        self.proc("cpuinfo", "\n".join(block.format(number) for number in range(count)))

    def cpus(self, online: str, present: str | None = None) -> None:
        self.sys("devices/system/cpu/online", online)
        self.sys("devices/system/cpu/present", present or online)
        self.sys("devices/system/cpu/possible", present or online)

    def cpu(self, number: int, *, socket: int, core: int, siblings: str, die: int = 0) -> None:
        here = f"devices/system/cpu/cpu{number}/topology"
        self.sys(f"{here}/physical_package_id", socket)
        self.sys(f"{here}/die_id", die)
        self.sys(f"{here}/core_id", core)
        self.sys(f"{here}/thread_siblings_list", siblings)
        self.sys(f"{here}/core_cpus", cpu_map(siblings))
        self._sockets.setdefault(socket, set()).add(number)

    def l3_cache(self, cpu: int, shared: str, *, number: int) -> None:
        """The last cache of a CPU, which it shares with others."""
        here = f"devices/system/cpu/cpu{cpu}/cache/index3"
        for name, value in {
            "id": number,
            "level": 3,
            "type": "Unified",
            "size": "32768K",
            "shared_cpu_map": cpu_map(shared),
            "shared_cpu_list": shared,
        }.items():
            self.sys(f"{here}/{name}", value)

    def nodes(self, online: str) -> None:
        self.sys("devices/system/node/online", online)
        self.sys("devices/system/node/possible", online)

    def node(self, number: int, *, cpus: str, memory_kib: int, distance: str | None = None) -> None:
        here = f"devices/system/node/node{number}"
        self.sys(f"{here}/cpulist", cpus)
        self.sys(f"{here}/cpumap", cpu_map(cpus))
        for cpu in numbers(cpus):
            self.link(f"{here}/cpu{cpu}", f"devices/system/cpu/cpu{cpu}")
        free = memory_kib // 2
        self.sys(
            f"{here}/meminfo",
            f"Node {number} MemTotal:       {memory_kib} kB\nNode {number} MemFree:  {free} kB",
        )
        if distance is not None:
            self.sys(f"{here}/distance", distance)

    def huge_pages(self, node: int | None, size_kib: int, total: int, free: int) -> None:
        """On a node, or (None) of the whole host."""
        top = "kernel/mm/hugepages" if node is None else f"devices/system/node/node{node}/hugepages"
        self.sys(f"{top}/hugepages-{size_kib}kB/nr_hugepages", total)
        self.sys(f"{top}/hugepages-{size_kib}kB/free_hugepages", free)

    # -- PCI ------------------------------------------------------------------------------

    def device(self, address: str) -> str:
        """Where the files of a PCI function are, without `sys/`."""
        return self._paths[address]

    def pci(
        self,
        address: str,
        *,
        vendor: str,
        product: str,
        class_code: str,
        numa_node: int | None = 0,
        driver: str | None = None,
        iommu_group: int | None = None,
        below: str | None = None,
        local_cpulist: str = "",
    ) -> str:
        """A function; `below` is the address of the bridge it sits behind."""
        domain, bus, _ = address.split(":")
        parent = self._paths[below] if below else f"devices/pci{domain}:{bus}"
        here = self._paths[address] = f"{parent}/{address}"
        self.sys(f"{here}/vendor", f"0x{vendor}")
        self.sys(f"{here}/device", f"0x{product}")
        self.sys(f"{here}/class", f"0x{class_code}")
        self.sys(f"{here}/subsystem_vendor", f"0x{vendor}")
        self.sys(f"{here}/subsystem_device", "0x0001")
        self.sys(f"{here}/revision", "0x02")
        self.sys(f"{here}/local_cpulist", local_cpulist)
        if numa_node is not None:
            self.sys(f"{here}/numa_node", numa_node)
        self.sys(f"{here}/config", config_space(vendor, product, class_code))
        self.sys(f"{here}/uevent", uevent(address, vendor, product, class_code, driver))
        self.link(f"{here}/subsystem", "bus/pci")
        if driver is not None:
            self.link(f"{here}/driver", f"bus/pci/drivers/{driver}")
            self.link(f"bus/pci/drivers/{driver}/{address}", here)
        if iommu_group is not None:
            self.link(f"{here}/iommu_group", f"kernel/iommu_groups/{iommu_group}")
            self.link(f"kernel/iommu_groups/{iommu_group}/devices/{address}", here)
        self.link(f"bus/pci/devices/{address}", here)
        return here

    def root_port(self, address: str, *, numa_node: int | None, iommu_group: int) -> str:
        """A bridge for a card to sit behind; returns its address."""
        self.pci(
            address,
            vendor="8086",
            product="347a",
            class_code="060400",
            numa_node=numa_node,
            driver="pcieport",
            iommu_group=iommu_group,
        )
        return address

    def virtual_function(self, pf: str, index: int, vf: str) -> None:
        """Tie two functions together as PF and VF."""
        self.link(f"{self.device(pf)}/virtfn{index}", self.device(vf))
        self.link(f"{self.device(vf)}/physfn", self.device(pf))

    def sriov(self, pf: str, *, total: int, made: int) -> None:
        here = self.device(pf)
        self.sys(f"{here}/sriov_totalvfs", total)
        self.sys(f"{here}/sriov_numvfs", made)
        self.sys(f"{here}/sriov_drivers_autoprobe", 1)

    def netdev(
        self,
        address: str,
        name: str,
        *,
        mac: str = "b4:96:91:00:00:01",
        up: bool = True,
        speed: str | None = "25000",
        **attributes: str | int,
    ) -> str:
        """An interface of a function; further attributes by their names in /sys."""
        here = f"{self.device(address)}/net/{name}"
        values: dict[str, str | int] = {
            "address": mac,
            "addr_assign_type": 0,
            "carrier": int(up),
            "dev_port": 0,
            "flags": "0x1003" if up else "0x1002",
            "operstate": "up" if up else "down",
            "type": 1,
            **({} if speed is None else {"speed": speed}),
            **attributes,
        }
        for attribute, value in values.items():
            self.sys(f"{here}/{attribute}", value)
        self._interfaces += 1
        self.sys(f"{here}/uevent", f"INTERFACE={name}\nIFINDEX={self._interfaces}")
        self.link(f"{here}/device", self.device(address))
        self.link(f"{here}/subsystem", "class/net")
        self.link(f"class/net/{name}", here)
        return here

    def nic(
        self,
        address: str,
        name: str,
        *,
        vfs: int = 0,
        total_vfs: int = 64,
        numa_node: int = 0,
        mac: str = "b4:96:91:00:00:01",
        below: str | None = None,
        iommu_group: int | None = None,
    ) -> list[str]:
        """An Ethernet port with VFs that have an interface each; returns the VFs' addresses."""
        self.pci(
            address,
            vendor="8086",
            product="1592",
            class_code="020000",
            numa_node=numa_node,
            driver="ice",
            below=below,
            iommu_group=iommu_group,
        )
        self.netdev(address, name, mac=mac)
        self.sriov(address, total=total_vfs, made=vfs)
        return [
            self._nic_vf(address, name, index, numa_node, below, iommu_group)
            for index in range(vfs)
        ]

    def _nic_vf(
        self,
        pf: str,
        name: str,
        index: int,
        numa_node: int,
        below: str | None,
        iommu_group: int | None,
    ) -> str:
        bus, function = pf.rpartition(":")[0], int(pf[-1])
        slot = 1 + function * 8 + index // 8
        vf = f"{bus}:{slot:02x}.{index % 8}"
        self.pci(
            vf,
            vendor="8086",
            product="1889",
            class_code="020000",
            numa_node=numa_node,
            driver="iavf",
            below=below,
            iommu_group=None if iommu_group is None else iommu_group + 1 + index,
        )
        self.virtual_function(pf, index, vf)
        mac = f"02:{int(bus[-2:], 16):02x}:{function:02x}:00:00:{index:02x}"
        self.netdev(vf, f"{name}v{index}", mac=mac, up=False, speed="-1", addr_assign_type=3)
        return vf

    def bind(self, address: str, driver: str) -> None:
        """Give a function to another driver: its interface is gone."""
        here = self.device(address)
        before = self.files.get(f"sys/{here}/driver")
        if isinstance(before, Link):
            self.remove(f"sys/{before}/{address}")
        self.link(f"{here}/driver", f"bus/pci/drivers/{driver}")
        self.link(f"bus/pci/drivers/{driver}/{address}", here)
        interfaces = {
            name.split("/net/")[1].split("/")[0]
            for name in self.files
            if name.startswith(f"sys/{here}/net/")
        }
        for interface in interfaces:
            self.remove(f"sys/{here}/net/{interface}")
            self.remove(f"sys/class/net/{interface}")

    def gpu(
        self,
        address: str,
        *,
        product: str = "1eb8",
        numa_node: int = 0,
        driver: str = "nvidia",
        class_code: str = "030200",
        below: str | None = None,
        iommu_group: int | None = None,
    ) -> str:
        return self.pci(
            address,
            vendor="10de",
            product=product,
            class_code=class_code,
            numa_node=numa_node,
            driver=driver,
            below=below,
            iommu_group=iommu_group,
        )

    def mdev_type(self, address: str, type_id: str, name: str, available: int) -> None:
        here = f"{self.device(address)}/mdev_supported_types/{type_id}"
        self.sys(f"{here}/name", name)
        self.sys(f"{here}/available_instances", available)
        self.sys(f"{here}/device_api", "vfio-pci")
        self.sys(f"{here}/description", "num_heads=4, frl_config=45, framebuffer=1024M")
        self.link(f"class/mdev_bus/{address}", self.device(address))

    def mdev(self, address: str, uuid: str, type_id: str, iommu_group: int | None = None) -> None:
        """A mediated device that exists; the caller sets `available_instances`."""
        here = f"{self.device(address)}/{uuid}"
        self.sys(f"{here}/uevent", "DRIVER=vfio_mdev\nMODALIAS=mdev:")
        self.link(f"{here}/subsystem", "bus/mdev")
        self.link(f"{here}/driver", "bus/mdev/drivers/vfio_mdev")
        self.link(f"bus/mdev/drivers/vfio_mdev/{uuid}", here)
        self.link(f"{here}/mdev_type", f"{self.device(address)}/mdev_supported_types/{type_id}")
        self.link(f"bus/mdev/devices/{uuid}", here)
        if iommu_group is not None:
            self.link(f"{here}/iommu_group", f"kernel/iommu_groups/{iommu_group}")
            self.link(f"kernel/iommu_groups/{iommu_group}/devices/{uuid}", here)
