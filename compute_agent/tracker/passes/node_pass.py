"""One pass over one node: from what the driver sees to what placement holds.

    facts -> tree placement has -> tree wanted -> flush

A pass either completes or raises; what a failure means is decided by the tracker. Faults that leave
the rest of the tree usable are collected and handed back with the pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.provider import SHARING_TRAIT
from compute_agent.report.steps import KeepProvider, Step
from compute_agent.state import identity
from compute_agent.state.identity import RootFacts
from compute_agent.tracker.node import Grounds, PassTarget, Proposal
from compute_agent.tracker.passes.corrections import is_marked, normalise, synchronise_traits

if TYPE_CHECKING:
    from compute_agent.provider_config.merger import ProviderConfigMerger
    from compute_agent.report.client import ReportClient
    from compute_agent.state.ledger import Ledger
    from compute_agent.tracker.node_identity import NodeSetup
    from compute_agent.tracker.passes.device_faults import DeviceFaults
    from compute_agent.tracker.status import StatusBoard
    from compute_agent.virt.driver import Allocations, ClassChange, ComputeDriver

LOG = logging.getLogger(__name__)

MANDATORY_FACTS = (
    "hypervisor_hostname",
    "hypervisor_type",
    "hypervisor_version",
    "vcpus",
    "vcpus_used",
    "memory_mb",
    "memory_mb_used",
    "local_gb",
    "local_gb_used",
    "cpu_info",
    "numa_topology",
)
"""Facts that every driver reports about a node, out-of-tree drivers too."""


class ReshapeNeededAgain(errors.ComputeAgentError):
    """A driver asked for a reshape while it was doing one: a defect of the driver."""


class NodePass(Struct, eq=False):
    """Makes proposals for nodes and carries them out.

    :ivar merger: what puts provider config files into the tree.
    :ivar faults: the marks on broken devices.
    :ivar board: measures the stages of a pass: discover, read, layout and flush.
    :ivar setup: names the file that the uuid of a node comes from; None: nobody does.
    :ivar read_only: a root that placement lacks is proposed and not created.
    """

    driver: ComputeDriver
    report: ReportClient
    ledger: Ledger
    merger: ProviderConfigMerger
    faults: DeviceFaults
    board: StatusBoard
    setup: NodeSetup | None = None
    read_only: bool = False
    check_alone: Callable[[str], None] = lambda _root: None

    def one_reading(self, node: str) -> AbstractContextManager[None]:
        """Cover all proposals of one pass: the driver reads the machine once for them."""
        return self.driver.one_reading(node)

    def propose(
        self, target: PassTarget, last: Proposal | None = None, *, reshape: bool = False
    ) -> Proposal:
        """Find out what the node's tree should be.

        :param last: the node's last proposal, which is returned again where it is settled and
            nothing that it follows from has changed; none for a reshape.
        :param reshape: fetch the allocations and let the driver move them.
        :raises ReshapeNeeded: the driver asks to be called with `reshape`.
        :raises ReshapeNeededAgain: it asked while it was.
        :raises ReshapeFailed: what it did would lose or overbook something.
        """
        self.check_alone(target.uuid)
        facts = self._read_facts(target.name)
        # once, and again after an outage: the placement that answers then may be older
        with self.board.stage("read"):
            self.report.connect()
            base = self._base(target, fresh=reshape)
        settled = last if last is not None and last.is_settled else None
        reading = self.driver.reading(target.name)
        if settled is not None and reading is not None:
            with self.board.stage("layout"):
                nothing_changed = settled.grounds == self._grounds(target, base, reading)
            if nothing_changed:
                settled.facts = facts
                return settled
        self._check_root(base, target)
        wanted_tree = base.snapshot()
        if not wanted_tree.exists(target.uuid):
            wanted_tree.new_root(target.name, target.uuid)
        self._follow_name(wanted_tree, target)
        over = self.faults.take_off(wanted_tree, target.uuid)
        before, allocations = None, None
        if reshape:
            # loaded for a pass that moves something, as hardly any does
            from compute_agent.tracker.passes import reshape_check

            before = self.report.get_allocations_for_provider_tree(target.uuid)
            allocations = reshape_check.editable(before)
        with self.board.stage("layout"):
            self._ask_driver(wanted_tree, target, allocations)
            caveats = self.driver.caveats(target.name)
            # what a driver that does not say goes by shows in what it makes of the tree
            basis = wanted_tree.snapshot() if reading is None else reading
            grounds = self._grounds(target, base, basis)
            if settled is not None and settled.grounds == grounds:
                settled.facts, settled.caveats = facts, caveats
                return settled
            self._add_what_is_ours(base, wanted_tree, grounds)
            merge_result = self.merger.merge(base, wanted_tree, target.uuid)
            problems = [*merge_result.problems, *self._normalise(wanted_tree, target)]
        class_changes: tuple[ClassChange, ...] = ()
        declared = self.driver.class_changes(target.name)
        if before is not None and allocations is not None:
            class_changes = reshape_check.check(
                base, wanted_tree, before, allocations, target.uuid, declared
            )
        return Proposal(
            base,
            wanted_tree,
            allocations,
            before,
            merge_result,
            target.uuid,
            problems,
            faults_over=over,
            facts=facts,
            caveats=caveats,
            grounds=grounds,
            class_changes=class_changes,
            guesses=tuple(c for c in class_changes if c.factor != 1 and c not in declared),
        )

    def _read_facts(self, node: str) -> Mapping[str, Any]:
        with self.board.stage("discover"):
            facts = self.driver.get_available_resource(node)
        missing_keys = [key for key in MANDATORY_FACTS if key not in facts]
        if missing_keys:
            raise errors.InvalidInput(
                f"The driver's facts about node {node} lack {', '.join(missing_keys)}. This "
                "is a defect of the driver; nothing is reported for the node."
            )
        return facts

    def flush(self, proposal: Proposal) -> list[Step]:
        """Bring placement to the wanted tree and return the steps done.

        :raises ResourceProviderUpdateFailed: placement rejected some of them.
        :raises ReshapeFailed: it rejected the reshape.
        """
        uuids_before = set(proposal.base.get_provider_uuids())
        has = set(proposal.wanted_tree.get_provider_uuids())
        self.ledger.remember_providers(additions=has - uuids_before)
        self.merger.before_flush(proposal.merge_result)
        self.faults.before_flush(proposal.base, proposal.wanted_tree, proposal.root_uuid)
        with self.board.stage("flush"):
            report = self.report.update_from_provider_tree(
                proposal.base,
                proposal.wanted_tree,
                proposal.allocations,
                is_ours=self._owner_of(proposal.base),
                original_allocations=proposal.original_allocations,
            )
        if proposal.guesses:
            LOG.warning(
                "The reshape changed the size of units by what the amounts of all consumers show: "
                "%s. A driver that declares it in class_changes() is taken at its word.",
                "; ".join(map(str, proposal.guesses)),
            )
        self.merger.after_flush(proposal.merge_result)
        self.faults.remember(proposal.wanted_tree, proposal.root_uuid, proposal.faults_over)
        kept_uuids = {provider.uuid for provider in report.kept_providers}
        self.ledger.remember_providers(additions=(), removals=uuids_before - has - kept_uuids)
        proposal.is_settled = not (report.steps or proposal.merge_result.kept_sentences)
        return changes(report.steps)

    def steps(self, proposal: Proposal) -> list[Step]:
        """Return what `flush` would do, doing nothing."""
        return self.report.plan(
            proposal.base,
            proposal.wanted_tree,
            proposal.allocations,
            is_ours=self._owner_of(proposal.base),
            original_allocations=proposal.original_allocations,
        )

    def _owner_of(self, base: ProviderTree) -> Callable[[str], bool]:
        """Whether this agent made a provider or took it over: only then may it delete it."""
        return lambda uuid: self.ledger.owns(uuid) or is_marked(base.data(uuid))

    def _base(self, target: PassTarget, *, fresh: bool) -> ProviderTree:
        if self.read_only:
            return self.report.get_provider_tree(target.uuid, fresh=fresh)
        self.ledger.remember_providers(additions=[target.uuid])
        try:
            return self.report.get_provider_tree_and_ensure_root(
                target.uuid, target.name, fresh=fresh
            )
        except errors.ResourceProviderCreationFailed as error:
            if error.name_conflict_uuid is None:
                raise
            raise self._name_taken(target.name, target.uuid, error.name_conflict_uuid) from error

    def _check_root(self, base: ProviderTree, target: PassTarget) -> None:
        if not base.exists(target.uuid):
            return
        root = base.data(target.uuid)
        try:
            identity.check_root(
                RootFacts(root.uuid, root.name, root.traits, root.parent_uuid),
                self.setup.identity_file() if self.setup is not None else None,
            )
        except errors.InvalidNodeConfiguration:
            # not a tree of this agent, and not a provider that it may ever delete
            self.report.drop_cache(target.uuid)
            self.ledger.remember_providers(additions=(), removals=[target.uuid])
            raise

    def _follow_name(self, wanted_tree: ProviderTree, target: PassTarget) -> None:
        """Rename the root and what is named after it when the host has another name now."""
        known_as = wanted_tree.data(target.uuid).name
        if known_as == target.name:
            return
        if not target.rename_allowed:
            raise errors.InvalidNodeConfiguration(
                f"This host is named {target.name!r}, but its root resource provider "
                f"{target.uuid} is named {known_as!r}, and [compute_agent]on_hostname_change is "
                "refuse. Give the host its name back, or set that option to rename."
            )
        holder = self.report.find_provider_by_name(target.name)
        if holder is not None:
            # placement would refuse the root and take its children, whose names are free
            raise self._name_taken(target.name, target.uuid, holder.uuid)
        names = {
            uuid: wanted_tree.data(uuid).name
            for uuid in wanted_tree.get_provider_uuids(target.uuid)
        }
        LOG.info(
            "The host %s is named %s now; its resource providers are renamed.",
            known_as,
            target.name,
        )
        for uuid, name in identity.new_names(names, known_as, target.name).items():
            wanted_tree.rename(uuid, name)

    def _ask_driver(
        self,
        wanted_tree: ProviderTree,
        target: PassTarget,
        allocations: Allocations | None,
    ) -> None:
        try:
            if allocations is None:
                # an out-of-tree driver may not know the third argument
                self.driver.update_provider_tree(wanted_tree, target.name)
            else:
                self.driver.update_provider_tree(wanted_tree, target.name, allocations=allocations)
        except errors.ReshapeNeeded as error:
            if allocations is None:
                raise
            raise ReshapeNeededAgain(
                f"The driver asked for a reshape of node {target.name} while it was doing one: "
                f"{error}. This is a defect of the driver; nothing was sent to placement."
            ) from error
        if not wanted_tree.exists(target.uuid) or wanted_tree.data(target.uuid).name != target.name:
            raise errors.InvalidInput(
                f"The driver removed or renamed the root of node {target.name}, which is not its "
                "to change. This is a defect of the driver; nothing was sent to placement."
            )

    def _grounds(self, target: PassTarget, base: ProviderTree, reading: object) -> Grounds:
        # a copy: a driver may return the same mapping each time, and change it
        capabilities = dict(self.driver.capabilities_as_traits())
        ledger, config_files = self.ledger.revision, self.merger.refresh()
        return Grounds(target, base, reading, capabilities, ledger, config_files)

    def _add_what_is_ours(
        self, base: ProviderTree, wanted_tree: ProviderTree, grounds: Grounds
    ) -> None:
        target = grounds.target
        is_ours = self._owner_of(base)
        new_uuids = {uuid for uuid in wanted_tree.get_provider_uuids() if not base.exists(uuid)}
        kept_uuids = {
            uuid
            for uuid in wanted_tree.get_provider_uuids(target.uuid)
            if base.exists(uuid) and is_ours(uuid)
        }
        synchronise_traits(
            wanted_tree,
            target.uuid,
            capabilities=grounds.capabilities,
            is_enabled=self.ledger.service_state(default_enabled=True).enabled,
            owned_uuids=new_uuids | kept_uuids | {target.uuid},
        )

    def _normalise(self, wanted_tree: ProviderTree, target: PassTarget) -> list[Exception]:
        own = [
            uuid
            for uuid in wanted_tree.get_provider_uuids(target.uuid)
            if SHARING_TRAIT not in wanted_tree.data(uuid).traits
        ]
        corrections = normalise(wanted_tree, own)
        for sentence in corrections.capped:
            LOG.warning("%s", sentence)
        return [errors.InvalidConfiguration(sentence) for sentence in corrections.clamped]

    def _name_taken(
        self, name: str, uuid: str, holder_uuid: str
    ) -> errors.InvalidNodeConfiguration:
        """Return the error for a root whose name another provider has, and what that one has."""
        holder = self.report.find_provider(holder_uuid)
        consumers = self.report.get_allocations_for_provider_tree(holder_uuid) if holder else {}
        self.report.drop_cache(holder_uuid)  # not a tree of this agent
        classes = len(holder.inventory) if holder else 0
        has = (
            f"{f'inventory of {classes} classes' if classes else 'no inventory'} and "
            f"{f'allocations of {len(consumers)} consumer(s)' if consumers else 'no allocations'}"
        )
        other = (
            "Otherwise give one of the two hosts another name"
            if consumers
            else "If it is a leftover, delete it; otherwise give one of the two hosts another name"
        )
        own = (
            f"give the node the uuid {holder_uuid} again"
            if self.driver.several_nodes
            else f"put {holder_uuid} into the file compute_id of the state directory"
        )
        return errors.InvalidNodeConfiguration(
            f"The name {name!r} of this host ({uuid}) belongs to another resource "
            f"provider, {holder_uuid}, which has {has}. If that is this host, {own}. {other}."
        )


def changes(steps: Iterable[Step]) -> list[Step]:
    """Return the steps that change something in placement."""
    return [op for op in steps if not isinstance(op, KeepProvider)]
