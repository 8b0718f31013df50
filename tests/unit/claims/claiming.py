"""A machine whose agent takes claims, and a placement that holds what it is told."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from compute_agent import conf as agent_conf
from compute_agent.agent import claim_messages
from compute_agent.claims.assignment import Assigner
from compute_agent.claims.book import ClaimBook
from compute_agent.claims.checks import ClaimRequest
from compute_agent.claims.host_view import CellPolicy
from compute_agent.discovery.facts import HugePages
from compute_agent.placement.connection import OfferedVersions
from compute_agent.placement.responses import NoCapacity
from compute_agent.provider_tree import ProviderTree
from compute_agent.state.claim import Claim
from compute_agent.state.ledger import Ledger
from compute_agent.tracker.node import FairLock
from compute_agent.virt.fake import FakeNumaDriver

ROOT = "00000000-0000-4000-8000-00000000aaaa"
OTHER_HOST = str(uuid.UUID(int=77))
ONE, TWO, MOVE = (str(uuid.UUID(int=number)) for number in (1, 2, 3))


class Report:
    """A placement that holds what it is told, and counts what it is asked."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, dict[str, int]]] = {}
        self.asked: list[str] = []
        self.lacking = ""
        self.placement = SimpleNamespace(allocations=self)

    @contextmanager
    def tracing(self):
        yield SimpleNamespace(requests=1, writes=0, global_request_id="req-1")

    def get_allocs_for_consumer(self, consumer: str) -> dict[str, Any]:
        self.asked.append(f"consumer {consumer}")
        held = self.held.get(consumer, {})
        return {"allocations": {rp: {"resources": dict(r)} for rp, r in held.items()}}

    def connect(self) -> OfferedVersions:
        return OfferedVersions((1, 0), (1, 39))

    def claim_resources(self, consumer, allocation_request, project, user, version):
        self.asked.append(f"claim {consumer} {project} {user} {version}")
        if self.lacking:
            return NoCapacity(ROOT, self.lacking, f"there is too little {self.lacking}")
        wanted = allocation_request["allocations"]
        self.held[consumer] = {uuid: dict(entry["resources"]) for uuid, entry in wanted.items()}
        return None

    def delete_allocation(self, consumer: str) -> bool:
        self.asked.append(f"delete {consumer}")
        return self.held.pop(consumer, None) is not None

    def get_allocations_for_provider(self, provider: str) -> dict[str, Any]:
        self.asked.append(f"provider {provider}")
        return {
            consumer: {"resources": dict(held[provider])}
            for consumer, held in self.held.items()
            if provider in held
        }


class Host:
    """One node of 2 cells with 4 dedicated CPUs each, a GPU of 2 vGPUs, and 4 VFs of one port.

    :param flat: CPUs and memory are on the root, not on the cells.
    :param tags: more of the specification of its functions.
    """

    def __init__(
        self, tmp_path, *, flat: bool = False, policy: CellPolicy | None = None, tags: str = ""
    ) -> None:
        path = tmp_path / "agent.conf"
        path.write_text(
            "[DEFAULT]\nhost = h\n[compute]\ncpu_dedicated_set = 4-7,20-23\n"
            "cpu_shared_set = 0-3,16-19\n[fake]\ngpus = 1\nvgpus_per_gpu = 2\nnics = 1\n"
            "pfs_per_nic = 1\nvfs_per_pf = 4\n"
            '[pci]\nreport_in_placement = true\ndevice_spec = {"address": "*:*:*.*", '
            '"vendor_id": "8086", "product_id": "1889", "resource_class": "CUSTOM_VF"'
            + tags
            + "}\n"
        )
        self.conf = agent_conf.new_config([f"--config-file={path}"])
        self.driver = FakeNumaDriver(self.conf)
        self.driver.options = replace(self.driver.options, is_nested=not flat)
        self.policy = policy or CellPolicy()
        self.report = Report()
        self.state = tmp_path / "state"
        self.state.mkdir()
        self.lock = FairLock()
        self.tree = ProviderTree()
        self.tree.new_root("h", ROOT)
        self.driver.update_provider_tree(self.tree, "h")
        self.restart()

    def restart(self) -> None:
        tracker = SimpleNamespace(
            nodes=lambda: {"h": ROOT},
            started_nodes=lambda: ["h"],
            in_startup=list,
            hold=lambda _name: self.lock,
            reported_tree=lambda _name: (self.tree, ROOT),
            facts=self.driver.get_available_resource,
        )
        self.book = ClaimBook(
            tracker,
            self.report,
            self.driver,
            Ledger(self.state),
        )
        self.assigner = Assigner(self.book, policy=self.policy, clock=lambda: 1000.0)

    def claims_by_itself(self) -> None:
        """From now on allocate where no scheduler did."""
        self.assigner.self_claim = True

    def provider(self, resource_class: str, name: str = "") -> str:
        """Return the first provider that counts a class and whose name ends so."""
        return next(
            uuid
            for uuid in self.tree.get_provider_uuids(ROOT)
            if resource_class in self.tree.data(uuid).inventory
            and self.tree.data(uuid).name.endswith(name)
        )

    def claim(self, consumer: str, *, migration: str = "", **amounts: int) -> list[str]:
        """Allocate in placement and claim here; returns the names of the units given."""
        self.allocate(consumer, **amounts)
        request = ClaimRequest(consumer, self.report.held[consumer], migration=migration)
        return [unit.name for unit in self.assigner.claim(request).units]

    def allocate(self, consumer: str, **amounts: int) -> None:
        held: dict[str, dict[str, int]] = {}
        for resource_class, amount in amounts.items():
            held.setdefault(self.provider(resource_class), {})[resource_class] = amount
        self.report.held[consumer] = held

    def give_pages(self, count: int) -> None:
        """Let each cell have so many huge pages of 2 MiB."""
        pages = (HugePages(2048, count),)
        cells = tuple(replace(cell, huge_pages=pages) for cell in self.driver.machine.cells)
        self.driver.machine = replace(self.driver.machine, cells=cells)
        self.driver.update_provider_tree(self.tree, "h")


def flavor(vcpus: int, memory_mb: int = 1, alias: str = "", **extra_specs: Any) -> dict[str, Any]:
    """Return a specification with this flavor, whose extra specs begin with `hw:`."""
    specs = {f"hw:{name}": str(value) for name, value in extra_specs.items()}
    if alias:
        specs["pci_passthrough:alias"] = alias
    return {"flavor": {"vcpus": vcpus, "memory_mb": memory_mb, "extra_specs": specs}}


def claimed(
    host: Host,
    consumer: str,
    held: dict[str, dict[str, int]],
    spec: dict[str, Any] | None = None,
    mappings: dict[str, list[str]] | None = None,
    migration: str = "",
) -> Claim:
    """Allocate `held` in placement and claim it here, as a caller on the bus does."""
    host.report.held[consumer] = held
    sent = {"instance_uuid": consumer, "migration_uuid": migration, **(spec or {})}
    return host.assigner.claim(claim_messages.request_from(sent, {}, mappings or {}))
