"""A host of a cloud: a real libvirtd on a captured machine, its guests, and an agent beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import libvirt

from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.provider_tree import ProviderTree
from compute_agent.report.client import ReportClient
from tests.fixtures.allocations import amounts_of, claim_body, new_uuid
from tests.fixtures.libvirt_guests import guest_xml
from tests.fixtures.libvirtd import Libvirtd, running_libvirtd
from tests.functional.agent.in_process import Node
from tests.functional.either_placement import ours

Amounts = Mapping[str, Mapping[str, int]]
"""By name of the provider and class."""


class Host:
    """A hypervisor host, and what the rest of the cloud does with it.

    :ivar libvirt: a connection of the test's own.
    :ivar client: a neighbour that uses the same placement.
    """

    def __init__(self, daemon: Libvirtd, directory: Path) -> None:
        self.name = daemon.hostname or ""
        self.daemon = daemon
        self.libvirt = libvirt.open(daemon.uri)
        self._directory = directory
        self._app = ours(directory)
        self.client = ReportClient(InProcessTransport(self._app))
        self.client.connect()
        self._agent: Node | None = None

    def start(self, options: str = "") -> Node:
        """A new process of the agent, which has not passed yet; the one before is ended.

        :param options: sections of its configuration.
        """
        self.stop()
        machine = self.daemon.machine
        seen = f"sysfs_root = {machine}/sys\nprocfs_root = {machine}/proc\n" if machine else ""
        self._agent = Node(
            self._app,
            self._directory,
            name=self.name,
            extra="[DEFAULT]\ncompute_driver = libvirt.LibvirtDriver\n"
            f"instances_path = {self._directory}\n[host]\n{seen}"
            f"[libvirt]\nvirt_type = qemu\nconnection_uri = {self.daemon.uri}\n{options}",
        )
        return self._agent

    def stop(self) -> None:
        if self._agent is not None:
            self._agent.parts.close()
            self._agent = None

    def passes(self, options: str = "") -> Node:
        """Start an agent that completes its first pass."""
        agent = self.start(options)
        result = agent.run()
        assert result.completed, result
        return agent

    def define(self, *elements: str, devices: str = "", vcpu: str = "<vcpu>2</vcpu>") -> str:
        """A guest that is shut off; returns its uuid."""
        uuid = new_uuid()
        self.libvirt.defineXML(guest_xml(uuid, *elements, devices=devices, vcpu=vcpu))
        return uuid

    def run(self, *elements: str, vcpu: str = "<vcpu>2</vcpu>") -> str:
        """A guest that runs; returns its uuid."""
        uuid = new_uuid()
        self.libvirt.createXML(guest_xml(uuid, *elements, vcpu=vcpu))
        return uuid

    def end(self, uuid: str) -> None:
        """Let go of a guest wholly."""
        domain = self.libvirt.lookupByUUIDString(uuid)
        if domain.isActive():
            domain.destroy()
        if uuid in {domain.UUIDString() for domain in self.libvirt.listAllDomains()}:
            domain.undefine()

    def register(self, inventory: Mapping[str, Mapping[str, Any]]) -> None:
        """Make the root provider as somebody left it, before any agent of ours came."""
        root = new_uuid()
        base = self.client.get_provider_tree_and_ensure_root(root, self.name)
        wanted = base.snapshot()
        wanted.update_inventory(root, dict(inventory))
        wanted.add_traits(root, "COMPUTE_NODE", "OWNER_NOVA")
        self.client.update_from_provider_tree(base, wanted)

    def tree(self) -> ProviderTree:
        root = self.client.placement.providers.by_name(self.name)
        assert root is not None, f"placement has no provider {self.name}"
        return self.client.get_provider_tree(root["uuid"], fresh=True)

    def claim(self, consumer: str, amounts: Amounts) -> None:
        """Give a consumer all that it holds, by name of the provider; "" is the root."""
        tree = self.tree()
        self.client.placement.allocations.put_allocations(
            consumer,
            claim_body(
                {
                    tree.data(f"{self.name}{suffix}").uuid: resources
                    for suffix, resources in amounts.items()
                }
            ),
        )

    def held(self, consumer: str) -> dict[str, dict[str, int]]:
        """What a consumer holds, by what follows the root's name in that of the provider."""
        tree = self.tree()
        record = self.client.placement.allocations.get_allocs_for_consumer(consumer)
        return {
            tree.data(uuid).name.removeprefix(self.name): resources
            for uuid, resources in amounts_of(record).items()
        }

    def close(self) -> None:
        self.stop()
        self.libvirt.close()


@contextmanager
def hypervisor_host(
    run_directory: Path, directory: Path, machine: Path | None = None
) -> Iterator[Host]:
    """Run a host for the length of the block.

    :param machine: a captured one; None: this machine.
    """
    name = f"host-{new_uuid()[:8]}"
    with running_libvirtd(run_directory, machine, hostname=name) as daemon:
        host = Host(daemon, directory)
        try:
            yield host
        finally:
            host.close()
