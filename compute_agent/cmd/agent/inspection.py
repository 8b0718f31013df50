"""Output of `plan`, `show`, `status` and `report`: for people, or one JSON document."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from compute_agent import errors
from compute_agent.cmd.console import new_console
from compute_agent.cmd.trees.form import TreeForm
from compute_agent.placement.allocations.amounts import Amounts, add, of_record
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
    from compute_agent.tracker.passes.proposal import Proposal


Ages = Mapping[str, float | None]
"""Provider uuid to seconds since it was written."""


def plan(parts: AgentParts, only: str | None, *, as_json: bool, with_tree: bool = False) -> int:
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
        print(json.dumps({"nodes": documents}, indent=2))
    if problems:
        raise as_one(problems)
    return Exit.WOULD_CHANGE if change_count else Exit.FINE


def show(
    parts: AgentParts,
    only: str | None,
    *,
    as_json: bool,
    age_of: Callable[[str], float | None],
    form: TreeForm,
) -> int:
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
        print(json.dumps({"nodes": documents}, indent=2))
    return Exit.FINE


def print_status(document: Mapping[str, Any], *, as_json: bool) -> int:
    """Print the status document."""
    if as_json:
        print(json.dumps(document, indent=2))
        return Exit.FINE
    placement = document["placement"]
    reachable = {True: "answers", False: "cannot be reached", None: "was not asked yet"}
    print(f"agent      {document['host']}, pid {document['pid']}, since {document['started']}")
    print(f"placement  {reachable[placement['up']]} since {placement['since'] or '-'}")
    # an older agent has neither of these
    changes = document.get("changes", {"state": "off"})
    if changes["state"] != "off":
        print(
            f"changes    {changes['state']} since {changes['since']}, {changes['changes']} so far"
        )
    if bus := document.get("bus"):
        print(f"bus        {_bus_text(bus)}")
    for claim in document.get("running_claims", ()):
        seconds = time.time() - claim["since"]
        print(f"claim      {claim['instance']} {claim['stage']}, for {seconds:.0f} s")
    # an older agent does not count them
    if undecided := document.get("totals", {}).get("undecided_claims", 0):
        print(f"claims     {undecided} refused: their fit was not decided; the log names them")
    for call in document.get("hung_calls", ()):
        print(f"hangs      {call['source']}: {call['call']}, since {call['since']}")
    if (trouble := document.get("trouble")) is not None:
        print("nodes      not known yet" if not document["nodes"] else "nodes      as last found")
        print(_trouble_text(trouble))
    for node in document["nodes"]:
        _print_node_status(node)
    return Exit.FINE


def print_history(changes: Sequence[Mapping[str, Any]], *, as_json: bool) -> int:
    """Print the last changes that the agent wrote."""
    if as_json:
        print(json.dumps(list(changes), indent=2))
        return Exit.FINE
    for change in changes:
        print(f"{change['at']}  {'lost ' if change['is_loss'] else ''}{change['text']}")
    if not changes:
        print("Nothing was changed in placement.")
    return Exit.FINE


def exit_status_of_passes(document: Mapping[str, Any]) -> int:
    """Return 0 if every node of a status document was reported, else the status of its trouble."""
    from compute_agent.tracker.decisions import EventKind, ExitCode, exit_code_for

    kinds = {kind.value: kind for kind in EventKind}
    for _name, trouble in troubles(document):
        kind = kinds.get(trouble["what"])
        return ExitCode.DRIVER_FAILED if kind is None else exit_code_for(kind)
    is_reported = document["nodes"] and not any(node["startup"] for node in document["nodes"])
    return Exit.FINE if is_reported else ExitCode.DRIVER_FAILED


def troubles(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what keeps an agent from reporting, by its status: each with the node, or `host`."""
    for entry in (document, *document["nodes"]):
        if (trouble := entry.get("trouble")) is not None:
            yield entry.get("name", "host"), trouble


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
            "age_seconds": _whole(ages[data.uuid]),
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
        note=_age(ages.get(provider.uuid)),
    )


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else max(int(seconds), 0)


def _age(seconds: float | None) -> str:
    """Return the age in the largest unit of which it has two; an empty string when unknown."""
    elapsed_seconds = _whole(seconds)
    if elapsed_seconds is None:
        return ""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if elapsed_seconds >= 2 * size:
            return f"written {elapsed_seconds // size} {unit} ago"
    return f"written {elapsed_seconds} s ago"


def _trouble_text(trouble: Mapping[str, Any]) -> str:
    return (
        f"  trouble since {trouble['since']}, seen {trouble['seen']} time(s): "
        f"{trouble['what']}: {trouble['message']}"
    )


def _bus_text(bus: Mapping[str, Any]) -> str:
    texts = {
        "off": "none is configured ([DEFAULT]transport_url)",
        "waiting": "is joined once a node has been reported",
    }
    why = f": {bus['why']}" if bus["why"] else ""
    return texts.get(bus["state"], f"{bus['state']} since {bus['since']}{why}")


def _print_node_status(node: Mapping[str, Any]) -> None:
    print(f"node       {node['name']}  {node['uuid']}")
    if not node["enabled"]:
        print(f"  disabled: {node['disabled_reason'] or 'no reason given'}")
    last = node["last_pass"]
    if last is not None:
        print(
            f"  last pass {last['at']}: {last['outcome']}, {last['seconds']} s, "
            f"{last['requests']} request(s), {last['changes']} change(s), "
            f"{last['providers']} provider(s)"
        )
    print(f"  last success {node['last_success'] or 'never'}")
    if node["reshape_pending"]:
        print("  a reshape is pending: restart the agent")
    if node["trouble"] is not None:
        print(_trouble_text(node["trouble"]))
    # an older agent has none
    for caveat in node.get("caveats", ()):
        print(f"  warning: {caveat}")
    if faulty := node.get("faulty"):
        print(f"  marked as broken: {', '.join(faulty)}; see compute-agent clear-fault")
    for loss in node.get("losses", ()):
        print(f"  lost {loss['at']}: {loss['text']}")
    for gpu in node.get("gpus", ()):
        _print_slices(gpu)
    _print_cores(node.get("cells", ()))
    for kind, consumers in sorted(node["drift"].items()):
        if consumers:
            print(f"  drift, {kind}: {', '.join(consumers)}")
    # an older agent does not report it
    if why := node.get("orphans_unknown"):
        print(f"  drift, orphaned: unknown: {why}")


def _print_cores(cells: Sequence[Mapping[str, Any]]) -> None:
    """Print which guest has which dedicated CPUs, each with a letter."""
    letters: dict[str, str] = {}
    for cell in cells:
        cores = []
        for core in cell["cores"]:
            cpus = []
            for cpu, guest in core:
                if guest is not None and guest not in letters:
                    number = len(letters)
                    letters[guest] = f"{ascii_lowercase[number % 26]}{number // 26 or ''}"
                cpus.append(f"{cpu}{letters.get(guest, '')}")
            cores.append(f"({' '.join(cpus)})")
        print(f"  cell {cell['id']}, cores {''.join(cores)}")
    for guest, letter in letters.items():
        print(f"    {letter}: {guest}")


def _print_slices(gpu: Mapping[str, Any]) -> None:
    profile_counts = Counter(device["profile"] for device in gpu["mig_devices"])
    more = {profile: count for profile, count in gpu["mig_remaining"].items() if count}
    parts = [f"{count} x {profile}" for profile, count in sorted(profile_counts.items())]
    if more:
        room = " or ".join(f"{count} x {profile}" for profile, count in sorted(more.items()))
        parts.append(f"room for {room}")
    if parts:
        print(f"  GPU {gpu['address']}, MIG: {', '.join(parts)}")
