"""The command `compute-scheduler make-room`: which guests to move so that a request fits."""

from __future__ import annotations

import argparse
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from compute_agent.cmd.output import columns, show
from compute_agent.cmd.scheduler.configured import assemble
from compute_agent.cmd.scheduler.request_options import given_spec
from compute_agent.cmd.scheduler.views import explanation_lines
from compute_agent.drift.wording import resources
from compute_agent.errors import AllocationMoveFailed
from compute_agent.placement.allocations.amounts import by_class, of_record
from compute_agent.programs.exit_status import Exit
from compute_agent.request.errors import InvalidRequest
from compute_agent.scheduler.assembly import SchedulerParts
from compute_agent.scheduler.errors import MoveRefused
from compute_agent.scheduler.moves.carrying import CarriedPlan
from compute_agent.scheduler.moves.room import Room, find_room

_MOST_PLANS: Final = 5
"""Plans of one run: others may claim what a plan needs."""


def make_room(namespace: argparse.Namespace) -> int:
    """Print a plan of moves, or carry one out."""
    spec = given_spec(namespace)
    parts = assemble(namespace, chooses=True)
    if namespace.carry_out and not namespace.mover:
        raise InvalidRequest("--mover", "", "the command that moves a guest, for --carry-out")
    bounds = {
        "max_moves": namespace.max_moves,
        "places": namespace.places,
        "time_limit": namespace.time_limit,
        "swap": namespace.swap,
        "leave_alone": {"consumers": namespace.keep, "projects": namespace.keep_project},
    }
    heard = parts.announcements
    silent_roots = heard.silent_roots(parts.service_down_time) if heard else frozenset[str]()

    def find() -> Room:
        return find_room(parts.client, parts.explainer, spec, bounds, silent_roots)

    if namespace.carry_out:
        return _carry_out(namespace, parts, find)
    room = find()
    show(namespace, room.as_dict(), *_lines(room))
    return Exit.FINE if room.now.hosts or room.plan else Exit.FAILED


def _carry_out(
    namespace: argparse.Namespace, parts: SchedulerParts, find: Callable[[], Room]
) -> int:
    """Carry a plan out; where a step does not fit any more, make another plan."""
    path: Path = namespace.carry_out
    command = shlex.split(namespace.mover)

    def move_guests(moves: Sequence[Mapping[str, Any]]) -> int:
        arguments = [
            argument
            for move in moves
            for argument in (move["consumer"], _name(move["from"]), _name(move["to"]))
        ]
        ended = subprocess.run([*command, *arguments], stdin=subprocess.DEVNULL, check=False)
        return ended.returncode

    def say(text: str) -> None:
        print(text, flush=True)

    for _ in range(_MOST_PLANS):
        if path.exists():
            plan = CarriedPlan(path)
        else:
            room = find()
            for line in _lines(room):
                say(line)
            if room.plan is None:
                return Exit.FINE if room.now.hosts else Exit.FAILED
            moves, sources = room.plan["moves"], None
            if namespace.swap:
                guests = [move["consumer"] for move in moves]
                sources = {guest: parts.client.holding(guest).allocations for guest in guests}
            plan = CarriedPlan.write(path, moves, sources)
        try:
            is_done = plan.carry_out(parts.client, parts.mover, move_guests, say, namespace.at_once)
        except (AllocationMoveFailed, MoveRefused) as error:
            say(f"{error} Another plan is made.")
            path.unlink()
            continue
        if not is_done:
            return Exit.FAILED
    return Exit.FAILED


def _lines(room: Room) -> Iterator[str]:
    for name, causes in (room.refused or {}).items():
        yield f"On {name} there would be room, but: {causes.sentence()}"
    if room.now.hosts:
        yield f"It fits on {room.now.hosts[0].name} as it is. Nothing has to move."
    elif room.plan is None:
        yield f"No valid host. {room.now.causes.sentence()}"
        yield from explanation_lines(room.now.causes)
        nothing = "makes room within these bounds" if room.is_proved else "was found; one may exist"
        yield f"No plan {nothing}."
    else:
        yield from _plan_lines(room.plan)
        yield "No plan moves less." if room.is_proved else "A plan that moves less may exist."
        yield from room.then.plan if room.then is not None else ()


def _plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    hosts = ", ".join(dict.fromkeys(_name(place["to"]) for place in plan["places"]))
    moves = plan["moves"]
    yield f"Nothing fits. Move {len(moves)} guest{'s' * (len(moves) > 1)}, then it fits on {hosts}:"
    rows = [
        (f"{number}.", move["consumer"], _name(move["from"]), "->", _name(move["to"]), _held(move))
        for number, move in enumerate(moves, 1)
    ]
    yield from (f"  {line}" for line in columns(rows))


def _name(tree: Mapping[str, Any]) -> str:
    return str(tree["name"] or tree["root"])


def _held(move: Mapping[str, Any]) -> str:
    return resources(by_class(of_record(move).values()))
