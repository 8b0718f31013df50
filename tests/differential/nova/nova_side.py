"""Calls of nova's own code for a test: one JSON line in, one JSON line out.

Run by the interpreter of the environment that has nova. Nothing of nova is read here: its objects,
its RPC client and its classes are called, as nova-conductor calls them.

    python nova_side.py CONFIGURATION_FILE
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from nova import config, context, objects, rpc
from nova.compute import provider_tree
from nova.db import migration
from nova.pci import request as pci_request
from nova.pci import whitelist
from nova.scheduler import filters, host_manager, request_filter, rpcapi, utils, weights
from nova.scheduler.client import report
from nova.virt import hardware

CONF = config.CONF


def built(value: Any) -> Any:
    """Make objects of what a test describes: a dictionary with the name of its class in `_`."""
    if isinstance(value, list):
        return [built(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: built(item) for name, item in value.items() if name != "_"}
    kind = value.get("_")
    if kind is None:
        return fields
    if kind == "set":
        return set(fields["items"])
    if kind == "ImageMeta":
        return objects.ImageMeta.from_dict(fields)
    return getattr(objects, kind)(**fields)


def plain(value: Any) -> Any:
    """Return what a test can read of an object."""
    if hasattr(value, "obj_to_primitive"):
        set_fields = (name for name in value.fields if value.obj_attr_is_set(name))
        return {name: plain(getattr(value, name)) for name in set_fields}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


class Conductor:
    """Calls a scheduler as nova-conductor does."""

    def __init__(self) -> None:
        self.context = context.RequestContext("user", "project", is_admin=True)
        self._api = rpcapi.SchedulerAPI()

    def select(
        self, spec: dict[str, Any], instances: list[str], alternates: bool = False
    ) -> dict[str, Any]:
        return self.call(built(spec), instances, alternates=alternates)[0]

    def call(
        self, spec: Any, instances: list[str], *, alternates: bool
    ) -> tuple[dict[str, Any], list[list[Any]]]:
        """Return what the test can read of the answer, and the answer."""
        try:
            selections = self._api.select_destinations(
                self.context, spec, instances, return_objects=True, return_alternates=alternates
            )
        except Exception as error:  # noqa: BLE001 - the test looks at any
            kind = f"{type(error).__module__}.{type(error).__name__}"
            return {"error": kind, "text": str(error)}, []
        answer = {
            "kinds": sorted({type(s).__name__ for per in selections for s in per}),
            "selections": [[plain(selection) for selection in per] for per in selections],
            "limits": [[s.limits.to_dict() for s in per] for per in selections],
        }
        return answer, selections


class Server:
    """One server whose request and answers are carried on from call to call, as conductor does."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._context = conductor.context
        self._placement = report.report_client_singleton()
        self._spec: Any = None
        self._hosts: list[Any] = []
        self._tried: dict[str, Any] = {}

    @property
    def _uuid(self) -> str:
        return str(self._spec.instance_uuid)

    def _answer(self) -> dict[str, Any]:
        answer, selections = self._conductor.call(self._spec, [self._uuid], alternates=True)
        if selections:
            self._hosts = selections[0]
            # what providers serve the ports and devices of the server, as neutron is told
            utils.fill_provider_mapping(self._spec, self._hosts[0])
            groups = self._spec.requested_resources or []
            answer["providers"] = {g.requester_id: g.provider_uuids for g in groups}
        # as it is after it was stored
        self._spec = objects.RequestSpec.obj_from_primitive(self._spec.obj_to_primitive())
        return answer

    def build(self, spec: dict[str, Any]) -> dict[str, Any]:
        self._spec, self._tried = built(spec), {}
        self._spec.generate_request_groups_from_pci_requests()
        return self._answer()

    def next_alternate(self) -> str | None:
        """Give up the host, and claim the next alternate; return its name."""
        failed = self._hosts.pop(0)
        self._placement.delete_allocation_for_instance(self._context, self._uuid)
        utils.populate_retry(self._tried, self._uuid)
        utils.populate_filter_properties(self._tried, failed)
        if not self._hosts:
            return None
        chosen = self._hosts[0]
        is_claimed = utils.claim_resources(
            *(self._context, self._placement, self._spec, self._uuid),
            json.loads(chosen.allocation_request),
            chosen.allocation_request_version,
        )
        return str(chosen.nodename) if is_claimed else None

    def reschedule(self) -> dict[str, Any]:
        """Ask again, without the hosts that were tried."""
        groups = self._spec.requested_resources
        self._spec = objects.RequestSpec.from_primitives(
            self._context, self._spec.to_legacy_request_spec_dict(), self._tried
        )
        self._spec.requested_resources = groups
        self._spec.project_id, self._spec.user_id = "p", "u"
        return self._answer()

    def resize(self, migration: str, extra_specs: dict[str, str]) -> dict[str, Any]:
        """Hand what is held to a migration, and ask for a host of the same cell."""
        source = self._hosts[0]
        self._placement.move_allocations(self._context, self._uuid, migration)
        self._spec.flavor.extra_specs = extra_specs
        self._spec.ignore_hosts = [source.service_host]
        cell = objects.CellMapping(uuid=source.cell_uuid)
        self._spec.requested_destination = objects.Destination(cell=cell)
        self._spec.retry = None
        return self._answer()

    def confirm(self, migration: str) -> None:
        self._placement.delete_allocation_for_instance(
            self._context, migration, consumer_type="migration"
        )

    def revert(self, migration: str) -> None:
        self._placement.delete_allocation_for_instance(self._context, self._uuid)
        self._placement.move_allocations(self._context, migration, self._uuid)

    def evacuate(self) -> dict[str, Any]:
        """Ask for another host than the one that is dead."""
        self._spec.ignore_hosts = [self._hosts[0].service_host]
        self._spec.requested_destination = None
        self._spec.reset_forced_destinations()
        return self._answer()

    def source_returned(self, root: str) -> None:
        self._placement.remove_provider_tree_from_instance_allocation(
            self._context, self._uuid, root
        )


class OneHost:
    """A host manager of a cloud with one host, of a given name and uuid."""

    def __init__(self, name: str, uuid: str) -> None:
        self._name, self._uuid = name, uuid

    def get_compute_nodes_by_host_or_node(
        self, _context: Any, host: str | None, node: str | None, cell: Any = None
    ) -> list[Any]:
        if {host, node} - {None} != {self._name}:
            return []
        name = self._name
        return [objects.ComputeNode(uuid=self._uuid, host=name, hypervisor_hostname=name)]


class Requests:
    """What nova asks placement for."""

    def __init__(self) -> None:
        self._context = context.RequestContext("user", "project", is_admin=True)

    def query(
        self, spec: dict[str, Any], ports: list[dict[str, Any]], host: list[str]
    ) -> dict[str, Any]:
        """Return the parameters of the query for a request, or why there is none.

        Nodes, devices and ports of the guest are those that nova makes of flavor, image and the
        resource requests of neutron's ports.

        :param host: name and uuid of the only host.
        """
        primitive = None
        try:
            asked = built(spec)
            for port in ports:
                self._add_port(asked, port["port_id"], port["resource_request"])
            flavor, image = asked.flavor, asked.image
            asked.numa_topology = hardware.numa_get_constraints(flavor, image)
            devices = pci_request.get_pci_requests_from_flavor(flavor)
            asked.pci_requests.requests += devices.requests
            asked.generate_request_groups_from_pci_requests()
            primitive = asked.obj_to_primitive()
            request_filter.process_reqspec(self._context, asked)
            resources = utils.resources_from_request_spec(self._context, asked, OneHost(*host))
            return {"query": parse_qsl(resources.to_querystring()), "wire": primitive}
        except Exception as error:  # noqa: BLE001 - the test looks at any
            return {"refused": f"{type(error).__name__}: {error}", "wire": primitive}

    def _add_port(self, asked: Any, port_id: str, request: dict[str, Any]) -> None:
        """Add a port's groups as nova-api does."""
        if "request_groups" not in request:
            groups = [objects.RequestGroup.from_port_request(self._context, port_id, request)]
        else:
            groups = objects.RequestGroup.from_extended_port_request(self._context, request)
            level = objects.RequestLevelParams.from_port_request(request)
            asked.request_level_params.extend_with(level)
        asked.requested_resources = [*(asked.requested_resources or []), *groups]

    def aggregate(self, name: str, uuid: str, metadata: dict[str, str]) -> dict[str, Any]:
        """Make an aggregate."""
        aggregate = objects.Aggregate(self._context, name=name, uuid=uuid)
        aggregate.create()
        aggregate.update_metadata(metadata)
        return {}


class Devices:
    """What nova makes of entries of `[pci]alias` and `[pci]device_spec`."""

    def alias(self, entries: list[str], in_placement: bool) -> dict[str, Any]:
        """Return the reason for which aliases are refused when a flavor names `usable`, or none."""
        pci_request.get_alias_from_config.cache_clear()
        CONF.set_override("alias", entries, "pci")
        CONF.set_override("pci_in_placement", in_placement, "filter_scheduler")
        flavor = objects.Flavor(extra_specs={"pci_passthrough:alias": "usable:1"})
        try:
            pci_request.get_pci_requests_from_flavor(flavor)
        except Exception as error:  # noqa: BLE001 - the test looks at any
            return {"refused": f"{type(error).__name__}: {error}"}
        finally:
            pci_request.get_alias_from_config.cache_clear()
            CONF.clear_override("alias", "pci")
            CONF.clear_override("pci_in_placement", "filter_scheduler")
        return {}

    def device_spec(
        self, entry: str, devices: list[dict[str, Any]], report: bool
    ) -> dict[str, Any]:
        """Return which devices an entry matches, or why it is refused."""
        CONF.set_override("report_in_placement", report, "pci")
        try:
            (spec,) = whitelist.Whitelist([entry]).specs
            return {"matches": [bool(spec.match(device)) for device in devices]}
        except Exception as error:  # noqa: BLE001 - the test looks at any
            return {"refused": f"{type(error).__name__}: {error}"}
        finally:
            CONF.clear_override("report_in_placement", "pci")


def fits(host: dict[str, Any], flavor: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of a host that a guest gets, or nothing where it does not fit."""
    try:
        guest = hardware.numa_get_constraints(built(flavor), objects.ImageMeta.from_dict({}))
        placed = hardware.numa_fit_instance_to_host(built(host), guest, None, limits=built(limits))
    except Exception as error:  # noqa: BLE001 - the test looks at any
        return {"refused": f"{type(error).__name__}: {error}"}
    return {"cells": [cell.id for cell in placed.cells]} if placed else {}


class Trees:
    """What nova's driver reports of the host of a libvirtd.

    :param file: its configuration, of which the options of each report come last.
    """

    def __init__(self, file: str) -> None:
        self._file = Path(file)
        self._options = self._file.read_text()
        self._context = context.RequestContext("user", "project", is_admin=True)
        migration.db_sync(database="main")

    def tree(self, options: str, node: str) -> dict[str, Any]:
        """Return inventories and traits by the name of the provider, or why there are none."""
        from nova.virt import fake
        from nova.virt.libvirt import driver

        self._file.write_text(self._options + options)
        CONF.reload_config_files()
        self._know(node)
        tree = provider_tree.ProviderTree()
        tree.new_root(node, "11111111-1111-4111-8111-111111111111")
        try:
            virt = driver.LibvirtDriver(fake.FakeVirtAPI())
            virt.init_host("h")
            virt.update_provider_tree(tree, node)
        except Exception as error:  # noqa: BLE001 - the test looks at any
            return {"refused": f"{type(error).__name__}: {error}"}
        abilities = [name for name, is_able in virt.capabilities_as_traits().items() if is_able]
        tree.add_traits(node, *abilities)
        providers = [tree.data(uuid) for uuid in tree.get_provider_uuids(node)]
        return {p.name: {"inventory": p.inventory, "traits": sorted(p.traits)} for p in providers}

    def _know(self, node: str) -> None:
        """Have the node in the database, as after the first start of its compute."""
        if objects.ComputeNodeList.get_all(self._context):
            return
        numbers = ("vcpus", "memory_mb", "local_gb", "vcpus_used", "memory_mb_used")
        objects.ComputeNode(
            self._context,
            host="h",
            hypervisor_hostname=node,
            hypervisor_type="QEMU",
            cpu_info="",
            **dict.fromkeys((*numbers, "local_gb_used", "hypervisor_version"), 1),
        ).create()


class Verdicts:
    """What nova's filters say of hosts, and in which order its weighers put them."""

    def __init__(self) -> None:
        loader = filters.HostFilterHandler()
        self._classes = {cls.__name__: cls for cls in loader.get_all_classes()}
        self._weighers = {
            cls.__name__: cls for cls in weights.HostWeightHandler().get_all_classes()
        }
        self._handler = weights.HostWeightHandler()

    def passes(
        self, names: list[str], hosts: list[dict[str, Any]], spec: dict[str, Any]
    ) -> list[list[bool | str]]:
        """Return the verdict of each filter on each host."""
        return [[self._verdict(name, host, spec) for host in hosts] for name in names]

    def _verdict(self, name: str, host: dict[str, Any], spec: dict[str, Any]) -> bool | str:
        try:
            return bool(self._classes[name]().host_passes(_state(host), built(spec)))
        except Exception as error:  # noqa: BLE001 - the test looks at any
            return f"{type(error).__name__}: {error}"

    def order(
        self, names: list[str], hosts: list[dict[str, Any]], spec: dict[str, Any]
    ) -> list[list[Any]]:
        """Return hosts with their weights, best first."""
        weighers = [self._weighers[name]() for name in names]
        weighed = self._handler.get_weighed_objects(
            weighers, [_state(host) for host in hosts], built(spec)
        )
        return [[host.obj.nodename, host.weight] for host in weighed]


def _state(facts: dict[str, Any]) -> Any:
    state = host_manager.HostState(facts["host"], facts["nodename"], facts["cell_uuid"])
    for name, value in facts.items():
        setattr(state, name, built(value))
    return state


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    config.parse_args(["nova", f"--config-file={sys.argv[1]}"])
    objects.register_all()
    commands: dict[str, Callable[..., Any]] = {}
    if CONF.placement.auth_type:
        rpc.init(CONF)
        conductor = Conductor()
        server = Server(conductor)
        commands["select"] = conductor.select
        commands |= {
            call.__name__: call
            for call in (
                *(server.build, server.next_alternate, server.reschedule, server.resize),
                *(server.confirm, server.revert, server.evacuate, server.source_returned),
            )
        }
    if CONF.api_database.connection:
        migration.db_sync(database="api")
        requests = Requests()
        commands |= {"query": requests.query, "aggregate": requests.aggregate}
    if CONF.database.connection:
        commands["tree"] = Trees(sys.argv[1]).tree
    verdicts, devices = Verdicts(), Devices()
    commands |= {"passes": verdicts.passes, "order": verdicts.order}
    commands |= {"alias": devices.alias, "device_spec": devices.device_spec}
    commands["fits"] = fits
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        arguments = json.loads(line)
        result = commands[arguments.pop("command")](**arguments)
        print(json.dumps(result, default=str), file=answers, flush=True)
    # threads of drivers wait for events that do not come
    os._exit(0)


if __name__ == "__main__":
    main()
