"""The command `host drain`: a host disabled, and followed until nobody holds anything of it.

It moves no guest: that is for what runs them. It prints who is left, where each would fit on the
other hosts, and who fits nowhere and why.
"""

from __future__ import annotations

import argparse
import math
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct, to_builtins
from oslo_config import cfg

from compute_agent.agent.availability import AUTOMATIC
from compute_agent.cmd.manage import fleet as fleet_commands
from compute_agent.cmd.manage.options import BadArgument, configuration, report_client
from compute_agent.cmd.output import new_console, new_table, print_json, show
from compute_agent.cmd.screen import looks, now, progress_bars
from compute_agent.drift.wording import count_of, resources
from compute_agent.manage import drain, fleet, hosts
from compute_agent.manage.drain import ConsumerMove, Holder, HostHolders
from compute_agent.manage.fleet import FleetHost, HostSwitch
from compute_agent.manage.hosts import CommandRefused
from compute_agent.manage.tree_reading import existing_tree
from compute_agent.placement.api import PlacementApi
from compute_agent.programs.exit_status import Exit
from compute_agent.scheduler.bus import running_scheduler
from compute_agent.scheduler.errors import NoSchedulerAnswers

_REASON: Final = "drain"
"""The beginning of the reason that an agent is given, by which `--undo` knows a drained host."""


def drain_host(namespace: argparse.Namespace) -> int:
    """Disable a host, and follow it until it is empty."""
    _check(namespace)
    conf = configuration(namespace)
    placement = report_client(namespace, conf).placement
    root = hosts.root_of(placement, namespace.name)
    with fleet_commands.agents_on_bus(conf, may_be_away=True) as agents:
        switch = fleet.HostSwitch.of(placement, agents, root)
        [host] = fleet.described(
            placement, [existing_tree(placement.connection, root[0])], switch.heard
        )
        if namespace.undo:
            return _undo(namespace, switch, host)
        was_disabled = _disable(namespace, switch, host)
    left_out = _silent(placement, conf, host.uuid)
    drained_host = DrainedHost(namespace, placement, host, switch.by, was_disabled, left_out)
    use = drain.use_of(placement, host.uuid)
    moves = drained_host.moves(use)
    if namespace.watch and not namespace.dry_run and moves:
        if not namespace.json:
            drained_host.show(moves)
            sys.stdout.flush()
        moves = drained_host.moves(drained_host.watch(use))
        if not moves and not namespace.json:
            print(f"{host.name} is empty")
            return Exit.FINE
    drained_host.show(moves)
    if namespace.dry_run and not was_disabled:
        return Exit.WOULD_CHANGE
    if any(move.is_stuck for move in moves):
        return Exit.FAILED
    return Exit.UNFINISHED if moves else Exit.FINE


def _check(namespace: argparse.Namespace) -> None:
    if namespace.undo and (namespace.watch or namespace.reason or namespace.parameters):
        raise BadArgument("--undo only enables the host: leave out --watch, --reason and --with.")
    if namespace.watch and namespace.dry_run:
        raise BadArgument(
            "--watch waits for a change that --dry-run does not make: give one of them only."
        )
    if namespace.timeout is not None and not namespace.watch:
        raise BadArgument("--timeout has no effect without --watch: add --watch, or leave it out.")


def _disable(namespace: argparse.Namespace, switch: HostSwitch, host: FleetHost) -> bool:
    """Disable the host, unless an operator did; the agent's own reasons end by themselves.

    :returns: whether an operator had disabled it before.
    """
    was_disabled = not host.is_enabled and not host.reason.startswith(AUTOMATIC)
    reason = f"{_REASON}: {namespace.reason}" if namespace.reason else _REASON
    if not was_disabled or (namespace.reason and host.reason != reason):
        fleet_commands.order(namespace, switch, is_enabled=False, reason=reason)
    return was_disabled


def _undo(namespace: argparse.Namespace, switch: HostSwitch, host: FleetHost) -> int:
    if host.service is not None and not host.is_enabled and not host.reason.startswith(_REASON):
        raise CommandRefused(
            f"Host {host.name} was disabled by hand ({host.reason or 'no reason given'}), not by a "
            f"drain, so nothing was changed. `compute-manage host enable {host.name}` enables it."
        )
    if not host.is_enabled:
        fleet_commands.order(namespace, switch, is_enabled=True)
    would_change = namespace.dry_run and not host.is_enabled
    document = {"dry_run": namespace.dry_run, "uuid": host.uuid, "name": host.name}
    is_now = "would be enabled" if would_change else "is enabled"
    line = f"{host.name} ({host.uuid}) {is_now}"
    show(namespace, {**document, "enabled": not would_change}, line)
    return Exit.WOULD_CHANGE if would_change else Exit.FINE


def _silent(placement: PlacementApi, conf: cfg.ConfigOpts, drained_root: str) -> dict[str, str]:
    """Return the other hosts whose agents fell silent, uuid to name, as a running scheduler knows.

    A host that never announced itself is not silent: others than agents report hosts too.
    """
    if not conf.transport_url:
        return {}
    roots = dict(fleet.roots(placement))
    try:
        announcements = running_scheduler.announcements(conf)
        silent_roots = announcements.silent_roots(conf.service_down_time)
    except NoSchedulerAnswers as error:
        print(
            "It is not known which agents fell silent: every host that is not disabled counts as "
            f"one that takes consumers. {error}",
            file=sys.stderr,
        )
        return {}
    return {root: name for root, name in roots.items() if root in silent_roots - {drained_root}}


class DrainedHost(Struct, frozen=True):
    """A host that is drained.

    :ivar namespace: what the command was given.
    :ivar host: as it was before.
    :ivar by: by what it is disabled.
    :ivar was_disabled: by an operator, before this command.
    :ivar left_out: other hosts that take nothing, since their agents fell silent: uuid to name.
    """

    namespace: argparse.Namespace
    placement: PlacementApi
    host: FleetHost
    by: str
    was_disabled: bool
    left_out: Mapping[str, str]

    @property
    def together(self) -> bool:
        """Whether each consumer is placed with what those before it have left."""
        return self.placement.trees.is_offered

    def moves(self, use: HostHolders | None) -> list[ConsumerMove]:
        """Return where those who hold something of the host would go."""
        with progress_bars() as progress:
            return list(
                drain.moves(
                    self.placement,
                    self.host.uuid,
                    () if use is None else use.holders,
                    self.namespace.parameters,
                    left_out=self.left_out,
                    progress=progress.update,
                )
            )

    def watch(self, use: HostHolders | None) -> HostHolders | None:
        """Follow the host until it is empty or the time is over; return what it is then."""
        deadline = time.monotonic() + (self.namespace.timeout or math.inf)

        def is_over(seconds: float) -> bool:
            return time.monotonic() >= deadline or threading.Event().wait(seconds)

        look = partial(drain.use_of, self.placement, self.host.uuid)
        for present_use in looks(look, is_over, self.namespace.interval, self._say):
            before = () if use is None else use.holders
            use = present_use
            self._say_difference(before, () if use is None else use.holders)
            if use is None:
                break
            if not use.is_disabled:
                raise CommandRefused(
                    f"Host {self.host.name} was enabled while it was drained, by an operator or "
                    f"by its agent that came back; {count_of(len(use.holders), 'consumer')} left. "
                    "Repeat the command to disable it again."
                )
            if not use.holders:
                break
        return use

    def _say_difference(self, before: Sequence[Holder], after: Sequence[Holder]) -> None:
        earlier, remaining = ({holder.consumer for holder in use} for use in (before, after))
        left_text = count_of(len(remaining), "consumer")
        for consumer in sorted(earlier - remaining):
            self._say(f"{now()}  {consumer} has left; {left_text} left")
        for consumer in sorted(remaining - earlier):
            self._say(
                f"{now()}  {consumer} has arrived, by a request from before the drain; "
                f"{left_text} left"
            )

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr if self.namespace.json else sys.stdout, flush=True)

    def show(self, moves: Sequence[ConsumerMove]) -> None:
        """Print the host and who is left: for people, or as one JSON document."""
        host, is_dry_run = self.host, self.namespace.dry_run
        if self.namespace.json:
            document = {
                "dry_run": is_dry_run,
                "uuid": host.uuid,
                "name": host.name,
                "agent": host.agent,
                "was_disabled": self.was_disabled,
                "by": self.by,
                "empty": not moves,
                "together": self.together,
                "left_out": sorted(self.left_out.values()),
                "consumers": to_builtins(moves),
            }
            print_json(document)
            return
        if self.was_disabled:
            how = f"is disabled already{f' ({host.reason})' if host.reason else ''}"
        else:
            how = f"{'would be' if is_dry_run else 'is'} disabled {self.by}"
        print(f"{host.name} ({host.uuid}) {how}; agent {host.agent}")
        if not moves:
            print(f"{host.name} is empty")
            return
        rows = [
            (
                move.consumer,
                resources(move.resources),
                move.to or ("nowhere" if move.is_stuck else "-"),
                move.reason,
            )
            for move in moves
        ]
        new_console().print(new_table(("consumer", "holds", "would fit on", "why not"), rows))
        stuck_count = sum(move.is_stuck for move in moves)
        room_text = (
            f"of which {stuck_count} {'fits' if stuck_count == 1 else 'fit'} nowhere else"
            if stuck_count
            else "and there is room elsewhere"
        )
        print(
            f"{count_of(len(moves), 'consumer')} left, {room_text}. Move them with what runs them."
        )
        if host.agent == "silent":
            print("Its agent is silent: if the host is dead, they have to be evacuated.")
        if not self.together:
            print(
                "This placement has no what-if, so each was asked about as if it were the only one."
            )
        if self.left_out:
            names = ", ".join(sorted(self.left_out.values()))
            print(f"Left out as destinations, since their agents fell silent: {names}.")
