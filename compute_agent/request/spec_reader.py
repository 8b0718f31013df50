"""Request specifications from JSON, field by field, with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compute_agent.request.candidate_request import RequestGroup
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.extra_specs import amount, resource_class, trait, uuid_text
from compute_agent.request.ports import groups_of_port
from compute_agent.request.spec import (
    Destination,
    Flavor,
    GuestCell,
    Image,
    InstanceGroup,
    PciRequest,
    RequestedGroup,
    RequestedNetwork,
    RequestSpec,
)


class Fields:
    """One JSON object; absent and null fields read as empty.

    :param path: the path of the object in the whole document, for messages.
    """

    def __init__(self, value: object, path: str = "") -> None:
        if not isinstance(value, Mapping):
            raise InvalidRequest(path or "the specification", value, "an object with named fields")
        self._value: Mapping[str, Any] = value
        self._path = path

    def name(self, field: str) -> str:
        """Return the path of a field."""
        return f"{self._path}.{field}" if self._path else field

    def has(self, field: str) -> bool:
        """Return whether the field is there and not null."""
        return self._value.get(field) is not None

    def text(self, field: str, default: str = "") -> str:
        """Return a string; a number is taken as its digits."""
        value = self._value.get(field)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InvalidRequest(self.name(field), value, "a string")
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            # JSON may have halves of characters
            raise InvalidRequest(self.name(field), value, "a string of characters") from None
        return text

    def number(self, field: str, default: int = 0) -> int:
        """Return a whole number of at least 0."""
        value = self._value.get(field)
        if value is None:
            return default
        if isinstance(value, bool):
            raise InvalidRequest(self.name(field), value, "a whole number of at least 0")
        return amount(self.name(field), value)

    def flag(self, field: str) -> bool:
        """Return a boolean, False if absent."""
        value = self._value.get(field, False)
        if not isinstance(value, bool | None):
            raise InvalidRequest(self.name(field), value, "true or false")
        return bool(value)

    def fields(self, field: str) -> Fields:
        """Return an object, empty if absent."""
        value = self._value.get(field)
        return Fields({} if value is None else value, self.name(field))

    def objects(self, field: str) -> list[Fields]:
        """Return a list of objects."""
        return [
            Fields(item, f"{self.name(field)}[{index}]")
            for index, item in enumerate(self.list(field))
        ]

    def list(self, field: str) -> Sequence[Any]:
        """Return a list of anything, empty if absent."""
        value = self._value.get(field)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise InvalidRequest(self.name(field), value, "a list")
        return value

    def lists(self, field: str) -> dict[str, Sequence[Any]]:
        """Return an object of lists by name."""
        inner = self.fields(field)
        return {key: inner.list(key) for key in inner._value}

    def texts(self, field: str) -> frozenset[str]:
        """Return a list of strings as a set."""
        return frozenset(Fields({field: item}, self._path).text(field) for item in self.list(field))

    def strings(self, field: str) -> dict[str, str]:
        """Return an object of strings by name."""
        inner = self.fields(field)
        return {key: inner.text(key) for key in inner._value}

    def resources(self, field: str) -> dict[str, int]:
        """Return amounts by resource class."""
        inner = self.fields(field)
        return {resource_class(inner.name(key), key): inner.number(key) for key in inner._value}

    def amounts(self) -> dict[str, dict[str, int]]:
        """Return amounts by provider and resource class, of an object that has nothing else."""
        return {provider: self.resources(provider) for provider in self._value}

    def traits(self, field: str) -> frozenset[str]:
        """Return a list of traits as a set."""
        return frozenset(trait(self.name(field), item) for item in self.texts(field))

    def trait_sets(self, field: str) -> frozenset[frozenset[str]]:
        """Return traits that are all required; an entry that is a list means any of them."""
        sets = set()
        for item in self.list(field):
            names = item if isinstance(item, list | tuple) else [item]
            sets.add(frozenset(trait(self.name(field), str(name)) for name in names))
        return frozenset(sets)

    def uuid_sets(self, field: str) -> frozenset[frozenset[str]]:
        """Return sets of uuids, each written as a list or as a comma-separated string."""
        sets = set()
        for entry in self.list(field):
            uuids = entry if isinstance(entry, list | tuple) else str(entry).split(",")
            sets.add(frozenset(uuid_text(self.name(field), str(item)) for item in uuids))
        return frozenset(sets)

    def uuid(self, field: str) -> str | None:
        """Return a uuid, `None` if absent or empty."""
        value = self.text(field)
        return uuid_text(self.name(field), value) if value else None

    def uuids(self, field: str) -> frozenset[str]:
        """Return a list of uuids as a set."""
        return frozenset(uuid_text(self.name(field), item) for item in self.texts(field))

    def as_mapping(self) -> Mapping[str, Any]:
        """Return the whole object."""
        return self._value


def instances_of(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the uuids to claim for: `instance_uuids`, or `instance_uuid` alone.

    :raises InvalidRequest: none, one that is not a uuid, or a number other than num_instances.
    """
    fields = Fields(body)
    uuid_texts = fields.list("instance_uuids") or [fields.text("instance_uuid")]
    if uuid_texts == [""]:
        raise InvalidRequest("instance_uuid", None, "the uuid of the instance to claim for")
    uuids = tuple(uuid_text("instance_uuids", str(instance)) for instance in uuid_texts)
    if len(set(uuids)) < len(uuids):
        raise InvalidRequest("instance_uuids", uuid_texts, "each instance once")
    wanted_number = fields.number("num_instances", len(uuids))
    if wanted_number != len(uuids):
        raise InvalidRequest("num_instances", wanted_number, f"{len(uuids)}, one per instance uuid")
    return uuids


def read_spec(body: Mapping[str, Any]) -> RequestSpec:
    """Return the specification in a JSON object; unknown fields are ignored.

    :raises InvalidRequest: a field has the wrong type or an impossible value.
    """
    fields = Fields(body)
    for required_field in ("project_id", "user_id"):
        if not fields.text(required_field):
            raise InvalidRequest(required_field, body.get(required_field), "an id")
    groups = [_requested_group(group) for group in fields.objects("requested_resources")]
    level, image = fields.fields("request_level_params"), fields.fields("image")
    subtrees = {
        _subtree(level.name("same_subtree"), suffixes) for suffixes in level.list("same_subtree")
    }
    for network in fields.objects("requested_networks"):
        request = network.fields("resource_request")
        if network.has("resource_request"):
            port_groups, together = groups_of_port(network.text("port_id"), request.as_mapping())
            groups += port_groups
            subtrees |= together
    return RequestSpec(
        project_id=fields.text("project_id"),
        user_id=fields.text("user_id"),
        flavor=_flavor(fields.fields("flavor")),
        image=Image(image.text("id"), image.strings("properties"), image.text("disk_format")),
        is_bfv=fields.flag("is_bfv"),
        availability_zone=fields.text("availability_zone"),
        destination=_destination(fields.fields("requested_destination")),
        ignore_hosts=fields.texts("ignore_hosts"),
        force_hosts=fields.texts("force_hosts"),
        force_nodes=fields.texts("force_nodes"),
        retried_hosts=_retried_hosts(fields),
        instance_group=_group(fields),
        guest_cells=tuple(
            _guest_cell(cell) for cell in fields.fields("numa_topology").objects("cells")
        ),
        requested_groups=tuple(groups),
        pci_requests=tuple(
            PciRequest(
                device.text("request_id"), device.text("alias_name"), device.number("count", 1)
            )
            for device in fields.objects("pci_requests")
        ),
        root_required=level.traits("root_required"),
        root_forbidden=level.traits("root_forbidden"),
        same_subtree=frozenset(subtrees),
        requested_networks=_networks(fields),
        scheduler_hints=_hints(fields.fields("scheduler_hints")),
        instance=fields.uuid("instance_uuid") or "",
        consumer_type=fields.text("consumer_type", "INSTANCE"),
    )


def _flavor(fields: Fields) -> Flavor:
    return Flavor(
        vcpus=fields.number("vcpus"),
        memory_mb=fields.number("memory_mb"),
        root_gb=fields.number("root_gb"),
        ephemeral_gb=fields.number("ephemeral_gb"),
        swap=fields.number("swap"),
        extra_specs=fields.strings("extra_specs"),
        name=fields.text("name") or fields.text("flavorid"),
    )


def _destination(fields: Fields) -> Destination:
    # the uuid of the cell stands alone or in an object
    in_object = isinstance(fields.as_mapping().get("cell"), Mapping)
    cell = fields.fields("cell").uuid("uuid") if in_object else fields.uuid("cell")
    return Destination(
        host=fields.text("host"),
        node=fields.text("node"),
        aggregates=fields.uuid_sets("aggregates"),
        forbidden_aggregates=fields.uuids("forbidden_aggregates"),
        cell=cell or "",
        allow_cross_cell_move=fields.flag("allow_cross_cell_move"),
    )


def _guest_cell(fields: Fields) -> GuestCell:
    pinned_cpus = fields.texts("pcpuset")
    shared_cpus = fields.texts("cpuset") - pinned_cpus
    return GuestCell(
        len(shared_cpus), len(pinned_cpus), fields.number("memory"), fields.text("pagesize")
    )


def _retried_hosts(fields: Fields) -> frozenset[str]:
    """Return the hosts tried before: names, or [host, node] pairs."""
    hosts = fields.fields("retry").list("hosts")
    names = [host[-1] if isinstance(host, list | tuple) and host else host for host in hosts]
    return Fields({"hosts": names}, "retry").texts("hosts")


def _group(fields: Fields) -> InstanceGroup | None:
    if not fields.has("instance_group"):
        return None
    group = fields.fields("instance_group")
    rules = group.fields("rules")
    return InstanceGroup(
        policy=group.text("policy"),
        rules={"max_server_per_host": rules.number("max_server_per_host", 1)},
        hosts=group.texts("hosts"),
        members=group.uuids("members"),
    )


def _requested_group(fields: Fields) -> RequestedGroup:
    group = RequestGroup(
        {name: amount for name, amount in fields.resources("resources").items() if amount},
        required=fields.trait_sets("required_traits"),
        forbidden=fields.traits("forbidden_traits"),
        member_of=fields.uuid_sets("aggregates"),
        forbidden_aggregates=fields.uuids("forbidden_aggregates"),
        in_tree=fields.uuid("in_tree"),
    )
    return RequestedGroup(fields.text("requester_id"), group)


def _networks(fields: Fields) -> tuple[RequestedNetwork, ...]:
    """Return the networks of the ports, and those that only the caller knows to be theirs."""
    metadata = fields.fields("network_metadata")
    ways = [RequestedNetwork(physnet=physnet) for physnet in sorted(metadata.texts("physnets"))]
    if metadata.flag("tunneled"):
        ways.append(RequestedNetwork(is_tunneled=True))
    functions = (f for r in fields.objects("pci_requests") for f in r.objects("spec"))
    if any(function.text("remote_managed").lower() == "true" for function in functions):
        ways.append(RequestedNetwork(remote_managed=True))
    networks = (
        RequestedNetwork(
            network.uuids("segment_aggregates"),
            network.flag("remote_managed"),
            network.text("physnet"),
            network.flag("tunneled"),
        )
        for network in fields.objects("requested_networks")
    )
    return (*networks, *ways)


def _subtree(name: str, value: object) -> frozenset[str]:
    if not isinstance(value, list | tuple):
        raise InvalidRequest(name, value, "lists of suffixes")
    return frozenset(map(str, value))


def _hints(fields: Fields) -> dict[str, tuple[str, ...]]:
    hints = {}
    for name, value in fields.as_mapping().items():
        values = value if isinstance(value, list | tuple) else [value]
        hints[name] = tuple(str(item) for item in values)
    return hints
