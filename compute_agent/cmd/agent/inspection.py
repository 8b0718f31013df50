"""The commands `plan` and `show`: the tree of this host as it would be, and as it is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from compute_agent import errors
from compute_agent.agent import assembly
from compute_agent.cmd import logging_setup
from compute_agent.cmd.agent import capture
from compute_agent.cmd.output import new_console, print_json
from compute_agent.cmd.trees.form import TreeForm, form_of, given_form_options
from compute_agent.drift import wording
from compute_agent.placement.allocations.amounts import Amounts, add, of_record
from compute_agent.placement.consumers import Consumers
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Request, Response, make_response
from compute_agent.programs.exit_status import Exit
from compute_agent.report.steps import KeepProvider, describe
from compute_agent.report.usage import holders_in_tree, usage_of
from compute_agent.tracker.pass_attempt import as_one

if TYPE_CHECKING:
    from compute_agent.agent.assembly import AgentParts
    from compute_agent.manage.tree_reading import ProviderLines
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.provider_tree.provider import ProviderData
    from compute_agent.report.client import ReportClient
    from compute_agent.tracker.node import Proposal


Ages = Mapping[str, float | None]
"""Provider uuid to seconds since it was written."""

_VERSIONS: Final = (
    '{"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.39", '
    '"status": "CURRENT", "links": [{"rel": "self", "href": ""}]}]}'
)
_NOT_FOUND: Final = (
    '{"errors": [{"status": 404, "title": "Not Found", "detail": "There is nothing here."}]}'
)


class EmptyPlacement:
    """A placement that has nothing, for reads: what a machine is compared with without another."""

    def send(self, request: Request) -> Response:
        """See `Transport`."""
        status, body = 404, _NOT_FOUND
        if request.path == "/":
            status, body = 200, _VERSIONS
        elif request.path.partition("?")[0] == "/resource_providers":
            status, body = 200, '{"resource_providers": []}'
        return make_response(status, [("Content-Type", "application/json")], body)


def plan(namespace: argparse.Namespace) -> int:
    """Print the steps of the next pass; return 6 if there are any."""
    return print_plan(
        _parts(namespace), namespace.node, as_json=namespace.json, with_tree=namespace.tree
    )


def show(namespace: argparse.Namespace) -> None:
    """Print the tree that placement has."""
    given_options = given_form_options(namespace)
    if given_options and (namespace.details or namespace.json):
        everything = "--json" if namespace.json else "--details"
        namespace.refuse(
            f"{', '.join(given_options)} cannot be combined with {everything}, which has all"
        )
    parts = _parts(namespace)
    with closing(Consumers(KeystoneTransport.from_conf(parts.conf))) as consumers:
        print_trees(
            parts,
            namespace.node,
            as_json=namespace.json,
            age_of=consumers.last_written,
            form=form_of(namespace, full=namespace.details),
        )


def _parts(namespace: argparse.Namespace) -> AgentParts:
    """Assemble an agent that changes nothing."""
    conf = logging_setup.quiet_configuration(namespace)
    directory = getattr(namespace, "from_capture", None)
    if directory is None:
        return assembly.build(conf, read_only=True)
    capture.use(conf, directory)
    transport = None
    if not (conf.placement.auth_type or conf.placement.auth_section):
        print(
            "No placement is configured ([placement]auth_type), so the machine is compared with an "
            "empty one.",
            file=sys.stderr,
        )
        transport = EmptyPlacement()
    # a captured machine is compared with what placement has under its name, guests or not
    return assembly.build(conf, read_only=True, adopt_asked=True, transport=transport)


def print_plan(
    parts: AgentParts, only: str | None, *, as_json: bool, with_tree: bool = False
) -> int:
    """Print the steps of the next pass; return 6 if there are any.

    :param with_tree: print the tree that placement would have then, too.
    :raises InvalidConfiguration: errors that would end a start, after the steps are printed.
    :raises ComputeAgentError: the steps cannot be computed.
    """
    tracker = parts.tracker(wait=lambda _seconds: False)
    documents, change_count = [], 0
    problems: list[Exception] = []
    for name, uuid in selected_nodes(parts.setup.nodes(), only).items():
        tracker.add_node(name, uuid)
        proposal = tracker.propose(name)
        problems.extend(proposal.problems)
        steps = parts.node_pass.steps(proposal)
        lines = [describe(step) for step in steps]
        change_count += sum(not isinstance(step, KeepProvider) for step in steps)
        documents.append(
            {
                "node": name,
                "uuid": None if parts.setup.is_unwritten else uuid,
                "reshape": proposal.allocations is not None,
                "class_changes": [str(change) for change in proposal.class_changes],
                "operations": lines,
                "problems": [str(problem) for problem in proposal.problems],
            }
        )
        if not as_json:
            _print_plan(name, proposal, lines, is_new=parts.setup.is_unwritten)
            if with_tree:
                usages = _planned_usages(parts.report, proposal)
                _print_tree(proposal.wanted_tree, proposal.root_uuid, usages, {}, TreeForm())
    if as_json:
        print_json({"nodes": documents})
    if problems:
        raise as_one(problems)
    return Exit.WOULD_CHANGE if change_count else Exit.FINE


def print_trees(
    parts: AgentParts,
    only: str | None,
    *,
    as_json: bool,
    age_of: Callable[[str], float | None],
    form: TreeForm,
) -> None:
    """Print the tree placement has for each node.

    :param age_of: returns seconds since a provider was written; `None` when placement has no time.
    :raises ComputeAgentError: it cannot be read.
    """
    documents = []
    for name, uuid in selected_nodes(parts.setup.nodes(), only).items():
        tree = parts.report.get_provider_tree(uuid)
        usages = {
            provider: usage_of(parts.report, provider) for provider in tree.get_provider_uuids()
        }
        if not tree.exists(uuid):
            raise errors.ComputeHostNotFound(
                f"Placement has no resource provider {uuid} for node {name}. Start the agent with "
                "`compute-agent run` to report it; `compute-agent plan` shows what it would do."
            )
        ages = {provider: age_of(provider) for provider in usages}
        documents.append({"node": name, "uuid": uuid, "providers": providers(tree, usages, ages)})
        if not as_json:
            _print_tree(tree, uuid, usages, ages, form)
    if as_json:
        print_json({"nodes": documents})


def selected_nodes(nodes: Mapping[str, str], only: str | None) -> dict[str, str]:
    """Return the selected nodes.

    :raises ComputeHostNotFound: no node has that name.
    """
    if only is None:
        return dict(nodes)
    if only not in nodes:
        raise errors.ComputeHostNotFound(
            f"Node {only} is not managed here; this agent manages: {', '.join(nodes) or 'none'}."
        )
    return {only: nodes[only]}


def providers(
    tree: ProviderTree, usages: Mapping[str, Mapping[str, int]], ages: Ages
) -> list[dict[str, Any]]:
    """Return a tree as plain JSON types, parents first."""
    return [
        {
            "uuid": data.uuid,
            "name": data.name,
            "parent_uuid": data.parent_uuid,
            "generation": data.generation,
            "age_seconds": None if (age := ages[data.uuid]) is None else max(int(age), 0),
            "inventories": {rc: dict(record) for rc, record in sorted(data.inventory.items())},
            "usages": dict(sorted(usages[data.uuid].items())),
            "traits": sorted(data.traits),
            "aggregates": sorted(data.aggregates),
        }
        for data in map(tree.data, tree.get_provider_uuids())
    ]


def _print_plan(name: str, proposal: Proposal, lines: list[str], *, is_new: bool) -> None:
    print(f"{name}: {len(lines)} step(s)" if lines else f"{name}: nothing to do")
    if is_new:
        print("  a new host: its uuids are examples until its first start makes them")
    if proposal.allocations is not None:
        print("  a reshape: it is done at the start of the agent only")
    for change in proposal.class_changes:
        print(f"  = {change}")
    for line in lines:
        print("  - " + line.replace("\n", "\n    "))
    for problem in proposal.problems:
        print(f"  ! {problem}")


def _planned_usages(report: ReportClient, proposal: Proposal) -> Amounts:
    """Return the amounts that consumers would hold after the plan."""
    if proposal.allocations is not None:
        return add(*map(of_record, proposal.allocations.values()))
    holders = holders_in_tree(report, proposal.root_uuid)
    return add(
        *(
            {provider: resources}
            for provider, consumers in holders.items()
            for resources in consumers.values()
        )
    )


def _print_tree(
    tree: ProviderTree,
    root_uuid: str,
    usages: Mapping[str, Mapping[str, int]],
    ages: Ages,
    form: TreeForm,
) -> None:
    from compute_agent.cmd.trees.drawing import drawing

    console = new_console()
    for root in sorted(tree.roots, key=lambda data: data.uuid != root_uuid):
        members = map(tree.data, tree.get_provider_uuids(root.uuid))
        console.print(drawing([_lines(member, usages, ages) for member in members], form))


def _lines(
    provider: ProviderData, usages: Mapping[str, Mapping[str, int]], ages: Ages
) -> ProviderLines:
    from compute_agent.manage.tree_reading import ProviderLines, inventory_lines

    return ProviderLines(
        uuid=provider.uuid,
        name=provider.name,
        parent=provider.parent_uuid,
        inventories=inventory_lines(provider.inventory, usages.get(provider.uuid, {})),
        traits=tuple(sorted(provider.traits)),
        aggregates=tuple(sorted(provider.aggregates)),
        note="" if (age := ages.get(provider.uuid)) is None else f"written {wording.age(age)}",
    )
