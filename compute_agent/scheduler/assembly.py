"""Assembly of a scheduler from configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import os_traits
from msgspec import Struct

from compute_agent.placement.transports.transport import Transport
from compute_agent.request.flavor import RequestOptions
from compute_agent.request.pci_aliases import pci_aliases
from compute_agent.scheduler.claiming.claims import GiveBack, NewClaims, RecentClaims
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.explanation import Explainer
from compute_agent.scheduler.filters import registry
from compute_agent.scheduler.filters.host_filter import FilterOptions
from compute_agent.scheduler.fleet.aggregates import source_of
from compute_agent.scheduler.fleet.announcements import Announcements
from compute_agent.scheduler.fleet.rolling_upgrade import CLAIMS, OWNERS, Fleet, Layouts
from compute_agent.scheduler.host_state import NO_CELL
from compute_agent.scheduler.manager import Scheduler, SelectionOptions
from compute_agent.scheduler.moves.attachments import Attachments
from compute_agent.scheduler.moves.mover import Mover
from compute_agent.scheduler.outcomes import Observer
from compute_agent.scheduler.placement.client import PlacementClient
from compute_agent.scheduler.search.prefilters import PrefilterContext
from compute_agent.scheduler.search.search import HostSearch, HostSearchOptions
from compute_agent.scheduler.weighers import order
from compute_agent.virt.settings import plan_options

if TYPE_CHECKING:
    from oslo_config import cfg


class SchedulerParts(Struct, frozen=True):
    """Parts of a scheduler; `announcements` is `None` where nothing is heard of agents."""

    scheduler: Scheduler
    client: PlacementClient
    mover: Mover
    attachments: Attachments
    fleet: Fleet
    journal: Journal
    give_back: GiveBack
    explainer: Explainer
    search: HostSearch
    announcements: Announcements | None
    service_down_time: float

    def heard_lately(self, root: str) -> bool:
        """Whether the agent of a host announced itself lately; False without a message bus."""
        announcement = self.announcements.of(root) if self.announcements is not None else None
        if self.announcements is None or announcement is None:
            return False
        return self.announcements.age(announcement) < self.service_down_time

    def recover(self) -> None:
        """Finish or undo what the journal has of schedulers that died, or that placement left.

        What cannot be done yet because placement does not answer stays in the journal.

        :raises JournalUnusable: the journal cannot be read, or is damaged.
        """
        self.mover.recover()
        self.give_back.process_journal()


def parts_of(
    conf: cfg.ConfigOpts,
    transport: Transport,
    announcements: Announcements | None = None,
    *,
    serving: bool = True,
    observer: Observer | None = None,
    recent_claims: RecentClaims | None = None,
) -> SchedulerParts:
    """Return the parts of a scheduler as `conf` describes it.

    :param announcements: where agents' announcements arrive, `None` without a bus.
    :param serving: with a bus, whether many requests are expected: the scheduler keeps what it
        knows of the hosts' layouts, and holds back what agents are too old for. A command, which
        makes one request, claims itself in any case.
    :param observer: hears of the work.
    :param recent_claims: remembers who is claimed for.
    :raises InvalidConfiguration: an option whose value no filter, weigher or file stands for.
    """
    client = PlacementClient(
        transport, use_extensions=conf.compute_agent.use_placement_extensions == "auto"
    )
    agents_may_claim = conf.compute_agent.legacy_self_claim == "auto"
    options = search_options(conf)
    lasting = announcements if serving else None
    behaviours = [CLAIMS, OWNERS] if agents_may_claim else [OWNERS]
    fleet = Fleet(lasting, client.provider_names, behaviours)
    layouts = Layouts(client.roots_by_layout) if lasting is not None else None
    search = HostSearch(client, options, announcements, fleet, layouts, observer)
    journal = Journal(conf.compute_scheduler.journal_path)
    give_back = GiveBack(client, journal)
    explainer = Explainer(
        client,
        HostSearch(client, options, announcements, fleet, layouts),
        is_enabled=conf.compute_scheduler.explain_no_valid_host,
    )
    scheduler = Scheduler(
        client,
        search,
        claim_options(conf),
        give_back,
        # without a bus no agent announces that it claims itself
        claims=NewClaims(client, give_back, fleet if agents_may_claim else None),
        observer=observer,
        explainer=explainer,
        recent_claims=recent_claims,
    )
    return SchedulerParts(
        scheduler=scheduler,
        client=client,
        mover=Mover(client, scheduler, journal, observer),
        attachments=Attachments(client, search),
        fleet=fleet,
        journal=journal,
        give_back=give_back,
        explainer=explainer,
        search=search,
        announcements=announcements,
        service_down_time=conf.service_down_time,
    )


def search_options(conf: cfg.ConfigOpts) -> HostSearchOptions:
    """Return the options of `conf` about asking and filtering.

    :raises InvalidConfiguration: an unknown filter, an unusable aggregate file or PCI alias.
    """
    scheduler, filtering = conf.scheduler, conf.filter_scheduler
    return HostSearchOptions(
        request=RequestOptions(
            limit=scheduler.max_placement_results,
            pci_aliases=pci_aliases(conf.pci.alias) if filtering.pci_in_placement else None,
        ),
        prefilters=PrefilterContext(
            tenant_aggregates=scheduler.limit_tenants_to_placement_aggregate,
            tenant_aggregate_required=scheduler.placement_aggregate_required_for_tenants,
            image_type=scheduler.query_placement_for_image_type_support,
            isolated_aggregates=scheduler.enable_isolated_aggregate_filtering,
            image_metadata=scheduler.image_metadata_prefilter,
            routed_networks=scheduler.query_placement_for_routed_network_aggregates,
            known_traits=frozenset(os_traits.get_traits()),
            default_zone=conf.default_availability_zone,
        ),
        filters=registry.make(
            filtering.enabled_filters, filtering.available_filters, filter_options(conf)
        ),
        aggregates=source_of(conf),
        planning=plan_options(conf),
        service_down_time=conf.service_down_time,
        track_instances=filtering.track_instance_changes,
        usual_cell=conf.compute_agent.cell_uuid or NO_CELL,
    )


def filter_options(conf: cfg.ConfigOpts) -> FilterOptions:
    """Return the options that filters look at."""
    filtering = conf.filter_scheduler
    return FilterOptions(
        max_io_ops_per_host=filtering.max_io_ops_per_host,
        max_instances_per_host=filtering.max_instances_per_host,
        isolated_images=frozenset(filtering.isolated_images),
        isolated_hosts=frozenset(filtering.isolated_hosts),
        restrict_isolated_hosts_to_isolated_images=(
            filtering.restrict_isolated_hosts_to_isolated_images
        ),
        default_architecture=filtering.image_properties_default_architecture or "",
        image_properties_namespace=filtering.aggregate_image_properties_isolation_namespace or "",
        image_properties_separator=filtering.aggregate_image_properties_isolation_separator,
        pci_in_placement=filtering.pci_in_placement,
        pci_aliases=pci_aliases(conf.pci.alias) if filtering.pci_in_placement else {},
    )


def claim_options(conf: cfg.ConfigOpts) -> SelectionOptions:
    """Return the options of `conf` about ordering and claiming.

    :raises InvalidConfiguration: an unknown weigher.
    """
    filtering = conf.filter_scheduler
    weighers = order.make(filtering.weight_classes)
    multipliers = {}
    for weigher in weighers:
        option = f"{weigher.option}_weight_multiplier"
        # a weigher from elsewhere may have no option of ours; its own default counts then
        if option in filtering:
            multipliers[weigher.option] = filtering[option]
    return SelectionOptions(
        weighers=weighers,
        weighing=order.WeighingOptions(
            multipliers=multipliers,
            subset_size=filtering.host_subset_size,
            shuffle_best=filtering.shuffle_best_same_weighed_hosts,
            spread_equals=conf.compute_scheduler.spread_equal_hosts,
        ),
        candidates_per_host=conf.compute_scheduler.claim_candidates_per_host,
        max_attempts=conf.scheduler.max_attempts,
    )
