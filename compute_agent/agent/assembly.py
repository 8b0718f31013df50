"""Assembly of an agent from its configuration: the one place where the parts meet."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from compute_agent import errors
from compute_agent.claims.book import ClaimBook
from compute_agent.conf.compute import provider_config_location
from compute_agent.conf.networks import physnet_group
from compute_agent.conf.places import naming_places
from compute_agent.drift.audit import Auditor
from compute_agent.drift.instances.source import check_healing
from compute_agent.drift.repair import HealedKinds
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import ReadOnlyTransport
from compute_agent.provider_config.merger import ProviderConfigMerger
from compute_agent.report.client import ReportClient
from compute_agent.report.usage import holders_of, usage_of
from compute_agent.state import files as state_files
from compute_agent.state import identity
from compute_agent.state.files import AgentLock
from compute_agent.state.ledger import Ledger
from compute_agent.tracker.change_log import ChangeHistory
from compute_agent.tracker.node_identity import NodeSetup
from compute_agent.tracker.pass_schedule import NEVER
from compute_agent.tracker.passes.device_faults import DeviceFaults
from compute_agent.tracker.passes.node_pass import NodePass
from compute_agent.tracker.place import UNKNOWN, own_place
from compute_agent.tracker.removed_nodes import Departures
from compute_agent.tracker.resource_tracker import ResourceTracker, TrackerOptions
from compute_agent.tracker.status import FeedState, StatusBoard
from compute_agent.tracker.write_contest import WriteContest
from compute_agent.virt.loading import load_driver

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.agent.change_follower import ChangeFollower
    from compute_agent.claims.assignment import Assigner
    from compute_agent.claims.host_view import CellPolicy
    from compute_agent.placement.transports.transport import Transport
    from compute_agent.tracker.shared_disk import SharedDisk
    from compute_agent.virt.driver import ComputeDriver

DEFAULT_PERIOD = 60.0
CACHE = "placement-cache.json"


class AgentParts(Struct, frozen=True):
    """What an agent consists of.

    `lock` is held as long as the parts live, None for parts that only look.
    """

    conf: cfg.ConfigOpts
    driver: ComputeDriver
    report: ReportClient
    ledger: Ledger
    merger: ProviderConfigMerger
    setup: NodeSetup
    node_pass: NodePass
    board: StatusBoard
    lock: AgentLock | None
    shared_disk: SharedDisk | None = None

    @property
    def socket_path(self) -> Path | None:
        """Where the agent is asked for its status, None for nowhere."""
        path = self.conf.compute_agent.status_socket
        return Path(path) if path else None

    def options(self) -> TrackerOptions:
        """Return what is configured for passes now."""
        return tracker_options(self.conf)

    def tracker(self, *, wait: Callable[[float], bool]) -> ResourceTracker:
        """Return a tracker of these parts."""
        return ResourceTracker(
            self.node_pass,
            self.report,
            self.board,
            self.options(),
            WriteContest(self.report, self.setup.place),
            wait=wait,
            turns=threading.Semaphore(self.conf.compute.update_resources_max_workers),
            rng=random.Random(),
        )

    def claims(self, tracker: ResourceTracker) -> ClaimBook:
        """Return the claims on the nodes of a tracker."""
        return ClaimBook(
            tracker,
            self.report,
            self.driver,
            self.ledger,
        )

    def assigner(self, claims: ClaimBook) -> Assigner:
        """Return what gives instances what is free."""
        # loaded by an agent that is asked for it
        from compute_agent.claims.assignment import Assigner

        return Assigner(
            claims,
            self_claim=self.conf.compute_agent.legacy_self_claim == "auto",
            policy=cell_policy(self.conf),
            on_undecided=self.board.count_undecided_claim,
        )

    def follower(
        self, tracker: ResourceTracker, on_change: Callable[[str], None]
    ) -> ChangeFollower | None:
        """Return what follows changes in placement; None where that is not wanted."""
        if not self.conf.compute_agent.follow_changes:
            return None
        from compute_agent.agent.change_follower import WAIT, ChangeFollower
        from compute_agent.placement.changes import ChangeFeed

        self.board.feed_is(FeedState.STARTING)
        limit = self.conf.placement.timeout
        return ChangeFollower(
            ChangeFeed(Connection(self.report.placement.connection.transport)),
            tracker.nodes,
            on_change,
            self.board,
            wait=max(1, min(WAIT, int(limit / 2))) if limit else WAIT,
        )

    def departures(self) -> Departures:
        """Return what looks after the providers of nodes that went away."""
        return Departures(
            self.driver,
            self.report,
            self.ledger,
            interval=lambda: float(self.conf.compute_agent.audit_interval),
        )

    def auditor(self, claims: ClaimBook) -> Auditor:
        """Return what compares the instances of these parts with their allocations."""
        ours = self.conf.compute_agent
        return Auditor(
            self.report,
            self.driver,
            self.board,
            claims,
            interval=lambda: float(ours.audit_interval),
            grace=lambda: float(ours.audit_grace),
        )

    def wanted_healing(self) -> HealedKinds:
        """Return which kinds of drift are healed now."""
        ours = self.conf.compute_agent
        return HealedKinds(orphans=ours.heal_orphans, missing_consumers=ours.heal_missing)

    def reload(self) -> None:
        """Read provider config files again, and forget what is known of placement.

        :raises InvalidConfiguration: the files cannot be used, so that what was read before stays
            in force; or what was switched on cannot heal anything.
        """
        self.report.association_refresh = refresh_seconds(self.conf)
        self.report.drop_cache()
        self.merger.load()
        check_healing(self.conf)

    def close(self) -> None:
        """Let the driver, the connections and the state directory go."""
        self.setup.release()
        self.report.close()
        if self.lock is not None:
            self.lock.release()


def build(
    conf: cfg.ConfigOpts,
    *,
    adopt_asked: bool = False,
    read_only: bool = False,
    transport: Transport | None = None,
) -> AgentParts:
    """Put an agent together and check what can be checked without asking anybody.

    :param read_only: nothing is written, neither to placement nor to the state directory.
    :param transport: how placement is reached, instead of what is configured.
    :raises InvalidConfiguration: an option, a file or the state directory cannot be used.
    :raises InvalidNodeConfiguration: the identity of this node is lost or contradictory.
    """
    check_healing(conf)
    check_following(conf)
    state_path = Path(conf.state_path)
    lock = None if read_only else _take_state_directory(conf, state_path)
    history = ChangeHistory(None if read_only else state_path)
    board = StatusBoard(conf.DEFAULT.host, history)
    with naming_places(conf):
        driver = load_driver(conf.compute_driver, conf)
        if conf.pci.alias:
            from compute_agent.request.pci_aliases import read_aliases

            read_aliases(conf.pci.alias)  # only to refuse what the scheduler could not use
    report = _report_client(
        conf, transport or KeystoneTransport.from_conf(conf), board, read_only=read_only
    )
    ledger = Ledger(state_path, read_only=read_only)
    if history.file is not None:
        board.state_files = (*ledger.files, history.file)
    _set_sources(driver, report, ledger, read_only=read_only)
    merger = ProviderConfigMerger(
        provider_config_location(conf), ledger, lambda uuid: usage_of(report, uuid)
    )
    merger.load()
    place = own_place(conf)
    setup = NodeSetup(
        driver,
        report,
        host=conf.DEFAULT.host,
        state_path=state_path,
        places=identity.directories(conf.config_file or (), state_path),
        place=place,
        adopt_asked=adopt_asked,
        write=not read_only,
        checking=lambda: naming_places(conf),
    )
    setup.check_files()
    shared_disk = shared_disk_of(conf, report)
    node_pass = NodePass(
        driver,
        report,
        ledger,
        merger,
        DeviceFaults(ledger, UNKNOWN if driver.several_nodes else place.boot_id),
        board,
        setup,
        read_only=read_only,
    )
    return AgentParts(
        conf, driver, report, ledger, merger, setup, node_pass, board, lock, shared_disk
    )


def _take_state_directory(conf: cfg.ConfigOpts, state_path: Path) -> AgentLock:
    """Make the directories of an agent that lack, and keep other agents out."""
    state_files.prepare_directory(state_path)
    instances = Path(conf.instances_path)
    if instances.parent == state_path:
        # the default: without it a new host would report no disk
        state_files.make_directory(instances, "[DEFAULT]instances_path")
    lock = AgentLock(state_path)
    lock.acquire()
    return lock


def _report_client(
    conf: cfg.ConfigOpts, transport: Transport, board: StatusBoard, *, read_only: bool
) -> ReportClient:
    return ReportClient(
        ReadOnlyTransport(transport) if read_only else transport,
        cache_path=None if read_only else Path(conf.state_path) / CACHE,
        connections=conf.compute_agent.placement_connections,
        association_refresh=refresh_seconds(conf),
        max_listed=conf.compute.sharing_providers_max_uuids_per_request,
        bulk_inventories=conf.compute_agent.bulk_inventory == "auto",
        use_extensions=conf.compute_agent.use_placement_extensions == "auto",
        on_request=board.count_request,
    )


def _set_sources(
    driver: ComputeDriver, report: ReportClient, ledger: Ledger, *, read_only: bool
) -> None:
    """Give the driver what it may ask of placement and of the claims of this host."""
    driver.usage_source = lambda uuid: usage_of(report, uuid)
    driver.holder_source = lambda uuid: holders_of(report, uuid)
    if not read_only:
        driver.unit_source = lambda instance: [
            unit.name
            for claim in ledger.claims().values()
            if claim.instance == instance
            for unit in claim.units
        ]


def shared_disk_of(conf: cfg.ConfigOpts, report: ReportClient) -> SharedDisk | None:
    """Return what keeps the total of a shared pool; None where none is configured."""
    uuid = conf.compute_agent.shared_disk_provider
    if uuid is None:
        return None
    from compute_agent.tracker.shared_disk import SharedDisk

    return SharedDisk(report, uuid.lower(), spread=tracker_options(conf).limits().period)


def check_following(conf: cfg.ConfigOpts) -> None:
    """Check that changes are followed only where extensions may be used.

    :raises InvalidConfiguration: names what contradicts it.
    """
    ours = conf.compute_agent
    if ours.follow_changes and ours.use_placement_extensions == "never":
        raise errors.InvalidConfiguration(
            "[compute_agent]follow_changes with use_placement_extensions = never: the feed of "
            "changes is an extension. Set use_placement_extensions to auto, or leave "
            "follow_changes off."
        )


def tracker_options(conf: cfg.ConfigOpts) -> TrackerOptions:
    """Return what is configured for passes."""
    interval = conf.update_resources_interval
    period = float(interval) if interval > 0 else DEFAULT_PERIOD
    if interval < 0 or not conf.periodic_enable:
        period = NEVER
    return TrackerOptions(
        period=period,
        startup_placement_timeout=float(conf.compute_agent.startup_placement_timeout),
        rename_allowed=conf.compute_agent.on_hostname_change == "rename",
        fuzzy_delay=float(conf.periodic_fuzzy_delay),
    )


def cell_policy(conf: cfg.ConfigOpts) -> CellPolicy:
    """Return how claims choose NUMA cells."""
    from compute_agent.claims.host_view import CellPolicy, HostNetworks
    from compute_agent.request.pci_aliases import read_aliases
    from compute_agent.virt.settings import plan_options

    physnets = {
        name: frozenset(conf[physnet_group(name)].numa_nodes) for name in conf.neutron.physnets
    }
    return CellPolicy(
        HostNetworks(physnets, frozenset(conf.neutron_tunnel.numa_nodes)),
        plan_options(conf),
        read_aliases(conf.pci.alias),
    )


def refresh_seconds(conf: cfg.ConfigOpts) -> float:
    """Return after how long associations in placement are read again; 0 for never."""
    return float(conf.compute.resource_provider_association_refresh)
