"""The command `heal_allocations`: give instances the allocations that they should have."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any, Final

from msgspec import Struct
from oslo_config import cfg

from compute_agent import errors
from compute_agent.cmd import program
from compute_agent.cmd.manage.exit_statuses import HealExit
from compute_agent.cmd.manage.options import BadArgument, configuration
from compute_agent.cmd.output import print_json
from compute_agent.cmd.screen import progress_bars
from compute_agent.drift import wording
from compute_agent.drift.healing.healer import Healer, Outcome, State, healer_of
from compute_agent.drift.instances.agents import AgentsOnBus
from compute_agent.drift.instances.instance import Instance, InstanceCatalogue, devices_of
from compute_agent.drift.instances.source import catalogue_of
from compute_agent.report.client import ReportClient
from compute_agent.virt.driver import InstanceDevices

WOULD_HEAL = 6
"""With --dry-run, where no port is written that could fail."""
TROUBLES = (
    HealExit.ROLL_BACK_FAILED,
    HealExit.PORT_FAILED,
    HealExit.FAILED,
    HealExit.NO_NODE,
    HealExit.PORTS_UNREADABLE,
    HealExit.ACCELERATORS,
)
"""Of several troubles the first of these is the exit status; the names are those of states."""
_SHOWN_FIELDS: Final = ("detail", "before", "after", "surplus", "owner_changed")


class NoSuchInstance(errors.ComputeAgentError):
    """The source of instances does not know the one that was asked for."""


class HealResult(Struct):
    """What was, or would be, done.

    :ivar looked_at: instances that the source listed.
    :ivar outcomes: of the instances that were healed, could not be, hold too much, or are left
        alone.
    :ivar more: the bound was reached, and another instance is to be healed.
    :ivar failure: what ended it before its time.
    """

    looked_at: int = 0
    outcomes: list[Outcome] = []
    more: bool = False
    failure: errors.ComputeAgentError | None = None

    @property
    def counts(self) -> Counter[State]:
        """How many of the reported instances came to each end."""
        return Counter(outcome.state for outcome in self.outcomes)


def heal_allocations(namespace: argparse.Namespace) -> int:
    """Heal the instances that the options name."""
    _check(namespace)
    conf = configuration(namespace)
    with ExitStack() as closing:
        bars = closing.enter_context(progress_bars())
        catalogue, ports = catalogue_of(conf, namespace.instances)
        if namespace.cell and catalogue.name == "nova":
            raise errors.InvalidConfiguration(
                "--cell: Nova's API does not have the cells of instances. Leave it out, or name a "
                "file of instances that has them with --instances."
            )
        way = program.transport(namespace, conf)
        report = ReportClient(way)
        closing.callback(report.close)
        healer = healer_of(
            conf,
            way,
            report,
            ports,
            devices_of=_devices_from_agents(conf, closing),
            force=namespace.force,
            with_ports=not namespace.skip_port_allocations,
            overcommit=namespace.force_overcommit,
        )
        result = _heal(namespace, catalogue, healer, bars.show)
    if namespace.json:
        print_json(_document(result, namespace, catalogue.name))
    else:
        _print(result, namespace, healer.directory.name)
    return _status(result, dry_run=namespace.dry_run)


def _devices_from_agents(
    conf: cfg.ConfigOpts, closing: ExitStack
) -> Callable[[Instance], InstanceDevices | None]:
    """Return what asks agents for the devices of a guest; `None` when they are not known.

    The bus is joined for the first guest, and left when `closing` ends.
    """

    @cache
    def bus() -> AgentsOnBus:
        agents = AgentsOnBus(conf)
        closing.callback(agents.close)
        return agents

    def devices(instance: Instance) -> InstanceDevices | None:
        if not conf.transport_url:
            return None
        document = bus().devices(instance.host, instance.uuid)
        return None if document is None else devices_of(document)

    return devices


def _check(namespace: argparse.Namespace) -> None:
    if namespace.cell and namespace.instance:
        raise BadArgument("--cell cannot be given with --instance, which is in one cell anyway.")
    if namespace.force and not namespace.instance:
        raise BadArgument("--force is for one instance: name it with --instance.")
    if namespace.force and namespace.skip_port_allocations:
        raise BadArgument(
            "--force removes what an instance does not need, and --skip-port-allocations leaves "
            "unknown what its ports need: give one of them only."
        )


def _heal(
    namespace: argparse.Namespace,
    catalogue: InstanceCatalogue,
    healer: Healer,
    say: Callable[[str], None],
) -> HealResult:
    """Heal instances; what one fails of does not keep the others from being healed.

    :raises NoSuchInstance: the one that was asked for does not exist.
    :raises ComputeAgentError: the source cannot be used; nothing was changed.
    """
    result, only, max_count = HealResult(), namespace.instance, namespace.max_count
    try:
        for instance in catalogue.instances(only):
            if namespace.cell and instance.cell != namespace.cell:
                continue
            result.looked_at += 1
            is_full = max_count is not None and result.counts[State.HEALED] >= max_count
            outcome = healer.heal(instance, dry_run=namespace.dry_run or is_full)
            if is_full and outcome.state is State.HEALED:
                result.more = True
                break
            if outcome.state is not State.WHOLE or outcome.surplus:
                result.outcomes.append(outcome)
            if result.looked_at % 50 == 0:
                say(f"{result.looked_at} instances looked at")
    except errors.ComputeAgentError as error:
        if not result.looked_at:
            raise
        # what was done until now is to be reported
        result.failure = error
    if only is not None and not result.looked_at:
        raise NoSuchInstance(
            f"The source of instances ({catalogue.name}) knows no instance {only}. Nothing was "
            "changed."
        )
    return result


def _status(result: HealResult, *, dry_run: bool) -> int:
    if result.failure is not None:
        return HealExit.FAILED
    state_names = {state.name for state in result.counts}
    for trouble in TROUBLES:
        if trouble.name in state_names:
            return trouble
    if "HEALED" not in state_names:
        return HealExit.NOTHING
    if dry_run:
        return WOULD_HEAL
    return HealExit.MORE if result.more else HealExit.HEALED


def _document(result: HealResult, namespace: argparse.Namespace, source: str) -> dict[str, Any]:
    return {
        "source": source,
        "dry_run": namespace.dry_run,
        "instances": result.looked_at,
        "more": result.more,
        "outcomes": [
            {
                "instance": outcome.instance.uuid,
                "host": outcome.instance.host,
                "state": outcome.state.name.lower(),
                **{name: getattr(outcome, name) for name in _SHOWN_FIELDS},
                "bindings": dict(outcome.bindings),
            }
            for outcome in result.outcomes
        ],
        "failure": None if result.failure is None else str(result.failure),
    }


def _print(
    result: HealResult, namespace: argparse.Namespace, name_of: Callable[[str], str]
) -> None:
    for outcome in result.outcomes:
        instance_text = f"{outcome.instance.uuid} on {outcome.instance.host or 'no host'}"
        if outcome.state is State.HEALED:
            print(f"{instance_text}: {_change(outcome, namespace, name_of)}")
        elif outcome.state is State.SKIPPED:
            print(f"{instance_text}: left alone, {outcome.detail}")
        elif outcome.state is not State.WHOLE:
            print(f"{instance_text}: {outcome.state.value}: {outcome.detail}", file=sys.stderr)
        if outcome.surplus and not namespace.force:
            surplus = wording.allocations(outcome.surplus, name_of)
            print(
                f"{instance_text}: holds more than it needs: {surplus}; if that is wrong, "
                f"--instance {outcome.instance.uuid} --force takes it away"
            )
    counts = result.counts
    verb = "would be healed" if namespace.dry_run else "healed"
    troubled_count = sum(counts[State[trouble.name]] for trouble in TROUBLES)
    looked_at = wording.count_of(result.looked_at, "instance")
    print(
        f"{looked_at}: {counts[State.HEALED]} {verb}, {troubled_count} could not be, "
        f"{counts[State.SKIPPED]} left alone" + (", there are more to heal" if result.more else "")
    )
    if result.failure is not None:
        print(
            f"compute-manage heal_allocations: it ended early: {result.failure}. What is "
            "listed above was done; repeat the command for the rest.",
            file=sys.stderr,
        )


def _change(outcome: Outcome, namespace: argparse.Namespace, name_of: Callable[[str], str]) -> str:
    verbs = ("would hold", "would be given") if namespace.dry_run else ("holds", "was given")
    after, before = (wording.allocations(a, name_of) for a in (outcome.after, outcome.before))
    parts = [f"{verbs[0]} {after}"] if after == before else [f"{verbs[0]} {after} (held {before})"]
    if outcome.owner_changed:
        spec = outcome.instance.spec
        parts.append(f"{verbs[1]} to project {spec.project_id}, user {spec.user_id}")
    parts += [f"port {port}: allocation {value}" for port, value in outcome.bindings.items()]
    return "; ".join(parts)
