"""Hosts as a conductor needs them: the calls of their agents, and their guests under libvirt."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from compute_agent import errors
from compute_agent.agent import local_socket
from compute_agent.conf import new_config
from compute_agent.daemon import message_bus

TIMEOUT = 60
PCI_ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


class HostFailed(Exception):
    """The agent or the hypervisor of a host did not do what it was asked for."""


class AgentsOnBus:
    """Agents on the message bus of a configuration."""

    def __init__(self, config: Path) -> None:
        transport = message_bus.open_transport(new_config([f"--config-file={config}"]))
        # after that: it would take another kind of threads otherwise
        import oslo_messaging

        target = oslo_messaging.Target(topic="compute-agent", version="1.0")
        self._client = oslo_messaging.get_rpc_client(transport, target, timeout=TIMEOUT)
        self._failures = (oslo_messaging.MessagingException, oslo_messaging.RemoteError)

    def __call__(self, host: str, method: str, **arguments: Any) -> Any:
        try:
            return self._client.prepare(server=host).call({}, method, **arguments)
        except self._failures as error:
            raise HostFailed(f"its agent: {error}") from error


class AgentsOnSockets:
    """Agents whose local sockets are here: a cloud of one host, or of one machine."""

    def __init__(self, path_of: Callable[[str], Path]) -> None:
        self._path_of = path_of

    def __call__(self, host: str, method: str, **arguments: Any) -> Any:
        try:
            return local_socket.ask(self._path_of(host), method, TIMEOUT, **arguments)
        except errors.ComputeAgentError as error:
            raise HostFailed(f"its agent: {error}") from error


class Libvirt:
    """Guests of libvirt.

    :param address: of a connection, with `{host}` for the name of the host.
    """

    def __init__(self, address: str, kind: str = "kvm") -> None:
        import libvirt

        self._libvirt, self._address, self._kind = libvirt, address, kind

    def start(
        self, host: str, instance: str, spec: Mapping[str, Any], given: Mapping[str, Any]
    ) -> None:
        """Start a guest with the units that it was given."""
        xml = domain(instance, spec, given, self._kind)
        with self._connected(host) as connection:
            connection.createXML(xml)

    def end(self, host: str, instance: str) -> None:
        """End a guest, if it is there."""
        with self._connected(host) as connection:
            for guest in connection.listAllDomains():
                if guest.UUIDString() == instance:
                    guest.destroy()

    @contextlib.contextmanager
    def _connected(self, host: str) -> Iterator[Any]:
        try:
            connection = self._libvirt.open(self._address.format(host=host))
            try:
                yield connection
            finally:
                connection.close()
        except self._libvirt.libvirtError as error:
            raise HostFailed(f"its hypervisor: {error}") from error


def domain(instance: str, spec: Mapping[str, Any], given: Mapping[str, Any], kind: str) -> str:
    """Describe a guest that has just the CPUs, cells and devices that it was given.

    :raises HostFailed: it was given something that this program cannot hand to a guest.
    """
    by_class: dict[str, list[Mapping[str, Any]]] = {}
    for unit in given["units"]:
        by_class.setdefault(unit["resource_class"], []).append(unit)
    cpusets = [unit["name"] for unit in by_class.pop("PCPU", ())]
    places, nodes, pages = "", "", ""
    if given["cells"]:
        cpusets = []
    for number, cell in enumerate(given["cells"]):
        first = len(cpusets)
        cpusets += map(str, cell["pinned_cpus"])
        cpusets += [",".join(map(str, cell["shared_cpus"]))] * cell["vcpus"]
        cpus = f"{first}-{len(cpusets) - 1}"
        places += f"<memnode cellid='{number}' mode='strict' nodeset='{cell['cell']}'/>"
        nodes += f"<cell id='{number}' cpus='{cpus}' memory='{cell['memory_mib']}' unit='MiB'/>"
        if cell["page_size_kib"]:
            size = f"size='{cell['page_size_kib']}' unit='KiB'"
            pages += f"<page {size} nodeset='{number}'/>"
    pins = (f"<vcpupin vcpu='{n}' cpuset='{cpus}'/>" for n, cpus in enumerate(cpusets) if cpus)
    devices = (_device(unit) for units in by_class.values() for unit in units)
    return f"""
        <domain type='{kind}'>
          <name>guest-{instance}</name><uuid>{instance}</uuid>
          <memory unit='MiB'>{spec["flavor"]["memory_mb"]}</memory>
          <vcpu>{spec["flavor"]["vcpus"]}</vcpu>
          <cputune>{"".join(pins)}</cputune>
          {f"<memoryBacking><hugepages>{pages}</hugepages></memoryBacking>" if pages else ""}
          {f"<numatune>{places}</numatune><cpu><numa>{nodes}</numa></cpu>" if nodes else ""}
          <os><type arch='x86_64' machine='q35'>hvm</type></os>
          <devices>{"".join(devices)}</devices>
        </domain>"""


def _device(unit: Mapping[str, Any]) -> str:
    address = PCI_ADDRESS.fullmatch(unit["name"])
    if address is None:
        raise HostFailed(f"{unit['resource_class']} {unit['name']} is not a PCI function")
    names = ("domain", "bus", "slot", "function")
    parts = " ".join(f"{n}='0x{part}'" for n, part in zip(names, address.groups(), strict=True))
    managed = "yes" if unit.get("managed", True) else "no"
    return (
        f"<hostdev mode='subsystem' type='pci' managed='{managed}'>"
        f"<source><address {parts}/></source></hostdev>"
    )
