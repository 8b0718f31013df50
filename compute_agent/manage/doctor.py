"""Checks for faults that keep a host from being reported as intended; none changes anything.

Advice that names an option has its right value, in the form that its reader takes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from compute_agent import conf as agent_conf
from compute_agent import errors
from compute_agent.claims.guests import cannot_tell
from compute_agent.daemon import message_bus
from compute_agent.daemon.bus_server import check_broker
from compute_agent.daemon.message_bus import fault_of
from compute_agent.discovery import cpu_list
from compute_agent.discovery.sysfs.reader import Machine
from compute_agent.drift.instances.agents import TOPIC
from compute_agent.manage.devices import examine_devices
from compute_agent.manage.diagnosis import Diagnosis, Level, Setting
from compute_agent.manage.hypervisor import examine_hypervisor
from compute_agent.placement import provider_directory
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.transport import (
    CLOCK_SECONDS,
    Request,
    clock_fault,
    version_text,
)
from compute_agent.programs.disk_space import space_of
from compute_agent.report.steps import CreateProvider, KeepProvider, PutProvider
from compute_agent.virt.cpu_sets import guest_cpus
from compute_agent.virt.layout import lay_out
from compute_agent.virt.layout.unmet_options import unreported
from compute_agent.virt.libvirt.driver import LibvirtDriver
from compute_agent.virt.topology_driver import TopologyDriver

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.agent.assembly import AgentParts
    from compute_agent.discovery.facts import HostTopology
    from compute_agent.report.steps import Step
    from compute_agent.tracker.node import Proposal
    from compute_agent.virt.layout import LayoutOptions

NO_AGGREGATE = "00000000-0000-4000-8000-000000000000"
"""A request for its members needs the right to read only, and its answer is short."""

SCHEDULER_NEEDS = (1, 36)
"""Microversion with which the scheduler requests candidates."""


def examine(parts: AgentParts) -> Iterator[Diagnosis]:
    """Check identity, hypervisor, driver and machine, and the effect of the next start.

    :param parts: of an agent that changes nothing.
    """
    if isinstance(parts.driver, LibvirtDriver):
        hypervisor = list(examine_hypervisor(parts.driver))
        yield from hypervisor
        if any(diagnosis.level is Level.ERROR for diagnosis in hypervisor):
            return
    try:
        nodes = parts.setup.nodes()
    except errors.PlacementError as error:
        # who the host is has to be found there; what it has is here
        yield Diagnosis(Level.ERROR, _subject_of(error), str(error))
        yield from _guests(parts)
        for name in parts.driver.get_available_nodes():
            yield from _machine(parts, name)
        return
    except errors.ComputeAgentError as error:
        yield Diagnosis(Level.ERROR, _subject_of(error), str(error))
        return
    yield from _guests(parts)
    is_new = parts.setup.is_unwritten
    for name, uuid in nodes.items():
        uuid_text = "has no uuid yet; its first start makes one" if is_new else f"is {uuid}"
        yield Diagnosis(Level.FINE, "identity", f"node {name} {uuid_text}")
        machine = list(_machine(parts, name))
        yield from machine
        named_faults = {diagnosis.text for diagnosis in machine}
        yield from (d for d in _next_start(parts, name, uuid) if d.text not in named_faults)


def examine_options(conf: cfg.ConfigOpts) -> Iterator[Diagnosis]:
    """Check that the configuration files set nothing that is not read, such as a misspelt name."""
    for line in agent_conf.unread_options(conf):
        yield Diagnosis(Level.WARNING, "options", f"nothing reads {line}")


def examine_placement(connection: Connection) -> Iterator[Diagnosis]:
    """Check that placement answers, is new enough, and gives the user its rights."""
    try:
        offered_versions = connection.versions()
        provider_directory.members_of(PlacementApi(connection), NO_AGGREGATE)
    except errors.PlacementError as error:
        yield Diagnosis(Level.ERROR, "placement", str(error))
        return
    span = f"{version_text(offered_versions.minimum)} to {version_text(offered_versions.maximum)}"
    if offered_versions.maximum < SCHEDULER_NEEDS:
        needed_version = version_text(SCHEDULER_NEEDS)
        text = f"it offers {span}; compute-scheduler needs {needed_version}: upgrade placement"
        yield Diagnosis(Level.WARNING, "placement", text)
    else:
        yield Diagnosis(Level.FINE, "placement", f"it answers and offers {span}")
    if (offset := connection.clock_offset) is not None:
        fault = clock_fault(offset)
        text = fault or f"is within {CLOCK_SECONDS} s of placement's"
        yield Diagnosis(Level.WARNING if fault else Level.FINE, "clock", text)
    yield _may_reshape(connection)


def examine_bus(conf: cfg.ConfigOpts) -> Iterator[Diagnosis]:
    """Check that the broker of the message bus takes messages of this user."""
    if not conf.transport_url:
        text = "none is configured ([DEFAULT]transport_url), so schedulers do not hear this agent"
        yield Diagnosis(Level.FINE, "bus", text)
        return
    address = message_bus.shown_address(conf)
    try:
        bus = message_bus.open_transport(conf)
    except errors.InvalidConfiguration as error:
        yield Diagnosis(Level.ERROR, "bus", str(error))
        return
    try:
        check_broker(bus, TOPIC)
    except Exception as error:  # noqa: BLE001 - also those of the libraries below
        state, why = fault_of(error)
        yield Diagnosis(Level.ERROR, "bus", f"{address} is {state}: {why}")
    else:
        yield Diagnosis(Level.FINE, "bus", f"{address} takes messages")
    finally:
        bus.cleanup()


def _may_reshape(connection: Connection) -> Diagnosis:
    """Check the right by an empty reshape, which is forbidden or else refused as malformed."""
    doing = "Asking whether this user may reshape"
    try:
        response = connection.call(Request("POST", "/reshaper", json={}, doing=doing))
    except errors.PlacementUnauthorized as error:
        text = (
            f"this user may not reshape ({error}). Give it the role service; until then a host "
            "whose layout changes does not start, and inventories are written one by one"
        )
        return Diagnosis(Level.ERROR, "permission", text)
    except errors.PlacementError as error:
        return Diagnosis(Level.ERROR, "permission", str(error))
    if response.status != 400:
        text = f"placement answered {response.status} to an empty reshape; expected 400"
        return Diagnosis(Level.WARNING, "permission", text)
    return Diagnosis(Level.FINE, "permission", "this user may reshape")


def _guests(parts: AgentParts) -> Iterator[Diagnosis]:
    """Check that the driver lists its guests, without which the agent cannot find orphans."""
    try:
        guest_uuids = parts.driver.list_instance_uuids()
    except errors.ComputeAgentError as error:
        yield Diagnosis(Level.ERROR, "guests", str(error))
        return
    if guest_uuids is not None:
        return
    text = cannot_tell(parts.driver)
    if parts.conf.compute_agent.heal_orphans:
        text += "; [compute_agent]heal_orphans has no effect here"
        off = Setting("compute_agent", "heal_orphans", "False")
        yield Diagnosis(Level.WARNING, "guests", text, off)
    else:
        yield Diagnosis(Level.FINE, "guests", text)


def _machine(parts: AgentParts, node: str) -> Iterator[Diagnosis]:
    driver = parts.driver
    if not isinstance(driver, TopologyDriver):
        return
    try:
        topology, options = driver.topology(node), driver.current_options()
    except errors.ComputeAgentError as error:
        yield Diagnosis(Level.ERROR, "machine", str(error))
        return
    cpus = guest_cpus(
        options.cpu_sets,
        topology.online_cpus,
        topology.present_cpus,
        power_management=options.cpu_power_management,
    )
    sets = {"shared": cpus.shared_cpus, "dedicated": cpus.dedicated_cpus}
    description = ", ".join(f"{kind} {cpu_list.write(ids)}" for kind, ids in sets.items() if ids)
    yield from _cpu_sets(parts.conf, topology, options, description)
    layout = lay_out(node, topology, options)
    for unmet in layout.unmet_options:
        setting = None
        if unmet.value is not None:
            is_old_name = unmet.option == "cpu_shared_set" and parts.conf.vcpu_pin_set
            option = ("DEFAULT", "vcpu_pin_set") if is_old_name else (unmet.group, unmet.option)
            setting = Setting(*option, unmet.value)
        yield Diagnosis(Level.WARNING, unmet.option, str(unmet), setting)
    for text in layout.errors:
        yield Diagnosis(Level.ERROR, "layout", text)
    for text in layout.warnings:
        yield Diagnosis(Level.WARNING, "layout", text)
    is_here = not isinstance(driver, LibvirtDriver) or driver.settings.is_local
    machine = Machine(parts.conf.host.sysfs_root) if is_here else None
    yield from examine_devices(topology, options, layout, machine)
    for text in unreported(topology, layout, options):
        yield Diagnosis(Level.FINE, "not reported", text)


def _cpu_sets(
    conf: cfg.ConfigOpts, topology: HostTopology, options: LayoutOptions, description: str
) -> Iterator[Diagnosis]:
    """Check that there are CPUs for guests; missing dedicated ones were refused before."""
    old_name = bool(conf.vcpu_pin_set)
    option = ("DEFAULT", "vcpu_pin_set") if old_name else ("compute", "cpu_shared_set")
    named_cpus = options.cpu_sets.shared_cpus or frozenset()
    if not description:
        text = f"none of the CPUs {cpu_list.write(named_cpus)} for guests exists"
        every = Setting(*option, cpu_list.write(topology.online_cpus))
        yield Diagnosis(Level.ERROR, "CPU sets", text, every)
        return
    yield Diagnosis(Level.FINE, "CPU sets", description)


def _next_start(parts: AgentParts, node: str, uuid: str) -> Iterator[Diagnosis]:
    tracker = parts.tracker(wait=lambda _seconds: False)
    tracker.add_node(node, uuid)
    try:
        proposal = tracker.propose(node)
        steps = parts.node_pass.steps(proposal)
        conflicts = list(_name_conflicts(parts, proposal, steps))
    except errors.ComputeAgentError as error:
        yield Diagnosis(Level.ERROR, _subject_of(error), str(error))
        return
    yield from conflicts
    for caveat in proposal.caveats:
        yield Diagnosis(Level.WARNING, "layout", caveat)
    for problem in proposal.problems:
        yield Diagnosis(Level.ERROR, "configuration", str(problem))
    if proposal.allocations is not None:
        text = "the next start of the agent moves inventory and allocations (a reshape)"
        yield Diagnosis(Level.WARNING, "layout", text)
    change_count = sum(not isinstance(step, KeepProvider) for step in steps)
    yield Diagnosis(Level.FINE, "changes", f"{change_count} due; `compute-agent plan` lists them")


def _name_conflicts(
    parts: AgentParts, proposal: Proposal, steps: list[Step]
) -> Iterator[Diagnosis]:
    for step in steps:
        if not isinstance(step, CreateProvider | PutProvider):
            continue
        holder = parts.report.placement.providers.by_name(step.name)
        if holder is None or proposal.base.exists(holder["uuid"]):
            continue
        text = (
            f"the name {step.name!r}, meant for {step.uuid}, belongs to resource "
            f"provider {holder['uuid']}; rename or delete that one, or adopt it if it is this host"
        )
        yield Diagnosis(Level.ERROR, "names", text)
        if step.parent_uuid is None:
            # the host has another provider, which has all names of the tree
            return


def _subject_of(error: errors.ComputeAgentError) -> str:
    subjects: tuple[tuple[type[errors.ComputeAgentError], str], ...] = (
        (errors.InvalidNodeConfiguration, "identity"),
        (errors.InvalidConfiguration, "configuration"),
        (errors.ReshapeFailed, "layout"),
        (errors.PlacementError, "placement"),
    )
    return next((name for kind, name in subjects if isinstance(error, kind)), "driver")


def examine_disks(conf: cfg.ConfigOpts) -> Iterator[Diagnosis]:
    """Check the state directory, the scheduler's journal, the log and temporary files."""
    uses = [
        (conf.state_path, "[DEFAULT]state_path"),
        (str(Path(conf.compute_scheduler.journal_path).parent), "[compute_scheduler]journal_path"),
        (tempfile.gettempdir(), "temporary files"),
        (conf.log_dir, "[DEFAULT]log_dir"),
    ]
    seen_devices: set[int] = set()
    for directory, use in uses:
        if not directory:
            continue
        path = Path(directory).absolute()
        # the nearest directory above it that exists
        place = next(place for place in (path, *path.parents) if place.exists())
        if (device := place.stat().st_dev) not in seen_devices:
            seen_devices.add(device)
            space, text = space_of(place, f"{directory} ({use})")
            yield Diagnosis(Level(space), "disk", text)
