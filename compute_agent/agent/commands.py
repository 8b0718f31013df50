"""Commands to a running agent, over the bus, the local socket or by a signal."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from compute_agent import errors
from compute_agent.agent import claim_messages
from compute_agent.agent.node_list import NODE_LIST
from compute_agent.claims.checks import told_of_waiting
from compute_agent.claims.guests import cannot_tell, presence
from compute_agent.claims.host_cells import cells_of
from compute_agent.claims.units import core_holders
from compute_agent.provider_tree.trait_names import CUSTOM_GPU_UNHEALTHY
from compute_agent.report.steps import describe

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.agent.assembly import AgentParts
    from compute_agent.agent.availability import Availability
    from compute_agent.claims.assignment import Assigner
    from compute_agent.claims.book import ClaimBook
    from compute_agent.provider_tree.provider import ProviderData
    from compute_agent.tracker.pass_schedule import PassSchedule
    from compute_agent.tracker.resource_tracker import ResourceTracker

LOG = logging.getLogger(__name__)

REPORT_TIMEOUT = 300.0
SERVICE_VERSION = 1
"""Rises when what an agent can do for a scheduler changes."""

ANNOUNCED_FACTS = ("hypervisor_hostname", "hypervisor_type", "hypervisor_version")
PARSED_FACTS = ("cpu_info", "supported_instances")
"""Facts of a driver that schedulers compare with flavors and images; the latter may be JSON."""


class AgentCommands(Struct, eq=False):
    """The questions and orders; each may come from any thread.

    :ivar wake: makes the loop of passes look at what is due.
    """

    conf: cfg.ConfigOpts
    parts: AgentParts
    tracker: ResourceTracker
    schedule: PassSchedule
    wake: Callable[[], None]
    book: ClaimBook
    availability: Availability
    _assigner: Assigner | None = None

    @property
    def assigner(self) -> Assigner:
        """What gives instances what is free."""
        if self._assigner is None:
            self._assigner = self.parts.assigner(self.book)
        return self._assigner

    def status(self, node: str | None = None) -> dict[str, Any]:
        """Return the status document, with one node or all.

        :raises ComputeHostNotFound: the node is not managed here.
        """
        document = self.parts.board.document()
        document["running_claims"] = self.book.running.long()
        if node is not None:
            self._check_node(node)
            document["nodes"] = [entry for entry in document["nodes"] if entry["name"] == node]
        for entry in document["nodes"]:
            entry["cells"] = self.cores(entry["name"])
        return document

    def cores(self, node: str) -> list[dict[str, Any]]:
        """Return the cores with dedicated CPUs of a node, by cell, with their guests."""
        facts = self.tracker.facts(node) if node in self.tracker.nodes() else {}
        claims = [claim for claim in self.book.claims() if claim.node == node]
        return core_holders(cells_of(facts), claims)

    def report_now(self, node: str | None = None, wait: bool = True) -> dict[str, Any]:
        """Run a pass of one node, or of all, and return the status document.

        :param wait: return when the passes have ended.
        :raises ComputeHostNotFound: the node is not managed here.
        :raises ComputeNodeBusy: they did not end within `REPORT_TIMEOUT` seconds, or the agent
            stops.
        """
        if node is not None:
            self._check_node(node)
        if node is None and not self.tracker.nodes():
            self._run_passes([NODE_LIST], wait)
        # those too that were found just now
        self._run_passes(list(self.tracker.nodes()) if node is None else [node], wait)
        return self.status(node)

    def _run_passes(self, nodes: Sequence[str], wait: bool) -> None:
        for name in nodes:
            self.parts.report.written_elsewhere(self.tracker.nodes().get(name, ""))
        requests = [self.schedule.request_pass("report", name) for name in nodes]
        self.wake()
        if wait and not self.schedule.wait_for_passes([*filter(None, requests)], REPORT_TIMEOUT):
            raise errors.ComputeNodeBusy(
                f"The passes have not ended for {REPORT_TIMEOUT:g} s, or the agent is being "
                "stopped. `compute-agent status` shows what they wait for."
            )

    def plan(self, node: str) -> list[str]:
        """Return what a pass would change now, one line for each step.

        :raises ComputeAgentError: it cannot be found out.
        """
        self._check_node(node)
        return [describe(step) for step in self.tracker.plan(node)]

    def list_instances(self, node: str | None = None) -> list[str]:
        """Return the uuids of all instances that run here, or were claimed to be built here.

        :raises ComputeHostNotFound: the node is not managed here.
        :raises InstancesUnknown: the driver cannot list them. An empty list would mean that
            nothing runs here.
        """
        if node is not None:
            self._check_node(node)
        claims = self.book.claims()
        here = presence(self.parts.driver, claims, time.time())
        if here.running_guests is None:
            raise errors.InstancesUnknown(
                f"{cannot_tell(self.parts.driver)}. Ask Nova or a file of instances instead "
                "([compute_agent]instance_source), or use a driver that lists its guests."
            )
        moving = {claim.consumer for claim in claims if claim.consumer != claim.instance}
        return sorted(here.known_consumers - moving)

    def instance_devices(self, instance: str) -> dict[str, Any] | None:
        """Return what of the host a guest really holds, in JSON types; None: no such guest.

        :raises InvalidInput: the instance is not text.
        """
        claim_messages.text("instance", instance)
        devices = self.parts.driver.get_instance_devices(instance)
        document: dict[str, Any] | None = to_builtins(devices)
        return document

    def set_host_enabled(self, enabled: Any, reason: str = "") -> None:
        """Enable or disable the host, over restarts, and write it to placement at once.

        :param enabled: a truth value, or a word for one ("false", "off", "0", ...).
        :raises InvalidInput: it is neither, or the reason is not text.
        """
        # here, because it compiles regular expressions for a quarter of the CPU of a start
        from oslo_utils import strutils

        claim_messages.text("reason", reason)
        try:
            enable = strutils.bool_from_string(enabled, strict=True)
        except ValueError as error:
            raise errors.InvalidInput(
                f"enabled is {enabled!r}, and true or false was expected."
            ) from error
        self.availability.set_by_operator(enable, reason)
        self._ask_for_a_pass("enabled" if enable else "disabled")

    def instance_claim(
        self, spec: Any, allocations: Any = None, mappings: Any = None
    ) -> dict[str, Any]:
        """Give an instance what was allocated for it on this host; see `request_from`.

        :returns: the claim, with the named units that the instance gets; see `answer_of`.
        :raises ComputeAgentError: as `Assigner.claim`, or an argument cannot be read.
        """
        claim = self.assigner.claim(claim_messages.request_from(spec, allocations, mappings))
        self._ask_for_a_pass("claim", claim.node)
        return claim_messages.answer_of(claim, self.tracker.reported_tree(claim.node)[0])

    def fit(self, spec: Any, node: str | None = None) -> dict[str, Any]:
        """Return what a request would get of a node now, drawn on it; nothing is given.

        :param spec: as that of `instance_claim`, without an instance.
        :raises ComputeAgentError: it cannot be read, or the node is not there.
        """
        # loaded for this command only
        from compute_agent.fitting.drawing import draw
        from compute_agent.fitting.plan import Plan

        names = self.tracker.started_nodes()
        if node is not None:
            self._check_node(node)
        elif len(names) != 1:
            raise errors.InvalidInput(
                f"node is not given, and this agent has {len(names)} nodes: {', '.join(names)}."
            )
        host, answer = self.assigner.try_out(claim_messages.mapping("spec", spec), node or names[0])
        return {"fits": isinstance(answer, Plan), "lines": draw(host, answer)}

    def drop_claim(self, instance: str, error: str = "", image: str = "") -> bool:
        """Forget what an instance, or a migration, holds here.

        :param error: the build failed with it, which counts against the host.
        :param image: what the instance was built from.
        :returns: False if it held nothing.
        :raises InvalidInput: one of them is not text.
        """
        for name, value in {"instance": instance, "error": error, "image": image}.items():
            claim_messages.text(name, value)
        node = next((c.node for c in self.book.claims() if c.consumer == instance), None)
        was_dropped = self.book.drop(instance)
        if error:
            self.availability.build_failed(instance, image, error)
        if node is not None:
            self._ask_for_a_pass("claim dropped", node)
        return was_dropped

    def claims(self) -> list[dict[str, Any]]:
        """Return what instances hold here."""
        return [to_builtins(claim) for claim in self.book.claims()]

    def clear_fault(self, provider: str) -> bool:
        """Offer a device that was marked as broken again, in the next pass.

        :param provider: uuid or name of the device's provider.
        :returns: False if it is not marked as broken.
        :raises ComputeHostNotFound: no node of this agent has such a provider.
        :raises InvalidInput: it is not text.
        """
        claim_messages.text("provider", provider)
        node, device = self._find_provider(provider)
        if CUSTOM_GPU_UNHEALTHY not in device.traits:
            return False
        self.parts.driver.clear_fault(device.uuid)
        self.parts.ledger.change_faults(cleared_providers=[device.uuid])
        self._ask_for_a_pass("fault cleared", node)
        return True

    def announcement(self, sequence: int) -> dict[str, Any]:
        """Return what is announced on the bus."""
        document = self.parts.board.document()
        status_keys = (
            *("uuid", "name", "enabled", "disabled_reason"),
            *("last_pass", "last_success", "reshape_pending", "trouble"),
        )
        is_nested = self.conf.compute.enable_numa_reporting_to_placement
        running_guests = self._running_guests()
        host_troubles = filter(None, map(document.get, ("trouble", "state", "reload")))
        host_caveats = [trouble["message"] for trouble in host_troubles]
        common_facts = {
            "instances": None if running_guests is None else len(running_guests),
            "layout": "nested" if is_nested else "flat",
            "build_failures": self.availability.failed_builds,
            "cell_uuid": self.conf.compute_agent.cell_uuid,
        }
        return {
            "host": document["host"],
            "nodes": [
                {key: node[key] for key in status_keys}
                | {"caveats": [*node["caveats"], *host_caveats]}
                | common_facts
                | {"io_ops": self._under_way(node["name"], running_guests)}
                | self._announced_facts(node["name"])
                for node in document["nodes"]
            ],
            "service_version": SERVICE_VERSION,
            "placement_max_version": document["placement"]["max_version"],
            "seq": sequence,
        }

    def _announced_facts(self, node: str) -> dict[str, Any]:
        """Return what schedulers compare besides: the hypervisor, its address, the NUMA cells."""
        announced_facts: dict[str, Any] = {"host_ip": self.conf.my_ip}
        try:
            facts = self.tracker.facts(node)
            announced_facts |= {name: facts[name] for name in ANNOUNCED_FACTS if name in facts}
            for name in PARSED_FACTS:
                if fact := facts.get(name):
                    # drivers give it as JSON, or as what that stands for
                    announced_facts[name] = json.loads(fact) if isinstance(fact, str) else fact
            announced_facts |= self.assigner.free(node)
        except (errors.HypervisorUnavailable, errors.VirtDriverNotReady):
            LOG.debug("Node %s: its cells are not announced: they cannot be read now.", node)
        except (errors.ComputeHostNotFound, errors.ComputeResourcesUnavailable) as error:
            LOG.debug("Node %s is announced without its facts: %s", node, error)
        return announced_facts

    def _running_guests(self) -> frozenset[str] | None:
        """Return the instances here; None: unknown, as while the hypervisor is away."""
        try:
            guest_uuids = self.parts.driver.list_instance_uuids()
        except (errors.HypervisorUnavailable, errors.VirtDriverNotReady):
            return None
        return None if guest_uuids is None else frozenset(guest_uuids)

    def _under_way(self, node: str, running_guests: frozenset[str] | None) -> int:
        """Return how many builds, resizes and migrations a node has to do.

        They are the claims of instances that are not here yet, as far as that is known, and
        those that migrations keep for instances on the move.
        """
        return sum(
            claim.consumer != claim.instance
            or (running_guests is not None and claim.instance not in running_guests)
            for claim in self.book.claims()
            if claim.node == node
        )

    def dump_state(self) -> None:
        """Write what is going on to stderr."""
        from compute_agent.daemon import state_dump

        details = {
            "running passes": self.schedule.running_nodes(),
            "seconds to the next pass": self.schedule.seconds_to_next(),
        }
        state_dump.write("compute-agent", self.parts.board.document(), details, self.conf)

    def _ask_for_a_pass(self, reason: str, node: str | None = None) -> None:
        self.schedule.trigger(reason, node)
        self.wake()

    def _find_provider(self, name_or_uuid: str) -> tuple[str, ProviderData]:
        for node in self.tracker.started_nodes():
            tree, root = self.tracker.reported_tree(node)
            if tree.exists(name_or_uuid):
                data = tree.data(name_or_uuid)
                if data.uuid in tree.get_provider_uuids(root):
                    return node, data
        raise errors.ComputeHostNotFound(
            f"No node of this agent has a provider {name_or_uuid}; `compute-agent show` lists them."
            f"{told_of_waiting(self.tracker.in_startup())}"
        )

    def _check_node(self, node: str) -> None:
        claim_messages.text("node", node)
        if node not in self.tracker.nodes():
            raise errors.ComputeHostNotFound(
                f"Node {node} is not managed by this agent; it manages: "
                f"{', '.join(self.tracker.nodes()) or 'none yet'}."
            )
