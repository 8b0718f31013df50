"""Sets of host CPUs: those guests float on (VCPU) and those given away one by one (PCPU)."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from compute_agent import errors
from compute_agent.discovery import cpu_list
from compute_agent.programs.whole_numbers import whole_number

MAX_CPU_ID = 65535
"""Far above what Linux supports; bounds the memory a mistyped range may take."""


class CpuSets(Struct, frozen=True):
    """The two sets as configured; None = unset. Raises InvalidConfiguration when they overlap."""

    shared_cpus: frozenset[int] | None = None
    dedicated_cpus: frozenset[int] | None = None

    def __post_init__(self) -> None:
        common = (self.shared_cpus or frozenset()) & (self.dedicated_cpus or frozenset())
        if common:
            raise errors.InvalidConfiguration(
                "[compute]cpu_shared_set and [compute]cpu_dedicated_set both name CPUs "
                f"{cpu_list.write(common)}. A CPU is either shared or dedicated: take them out "
                "of one of the two."
            )


class GuestCpus(Struct, frozen=True):
    """CPUs of this machine that guests get."""

    shared_cpus: frozenset[int]
    dedicated_cpus: frozenset[int]


def parse_cpu_set(text: str, option: str) -> frozenset[int]:
    """Parse `4-12,^8,15`: numbers, inclusive ranges, and exclusions (^) that win wherever they are.

    :param option: name of the option, for the message.
    :raises InvalidConfiguration: anything else, or a set without a CPU.
    """
    included_cpus: set[int] = set()
    excluded_cpus: set[int] = set()
    for part in filter(None, map(str.strip, text.split(","))):
        target = excluded_cpus if part.startswith("^") else included_cpus
        target.update(_parse_range(part.removeprefix("^").strip(), part, text, option))
    if not included_cpus - excluded_cpus:
        raise errors.InvalidConfiguration(
            f"{option} = {text!r} names no CPU. Name at least one, or leave the option out."
        )
    return frozenset(included_cpus - excluded_cpus)


def guest_cpus(
    sets: CpuSets,
    online: Collection[int],
    present: Collection[int],
    *,
    power_management: bool = False,
) -> GuestCpus:
    """Apply the configured sets to the CPUs a machine has.

    | shared | dedicated | VCPU            | PCPU      |
    |--------|-----------|-----------------|-----------|
    | unset  | unset     | all online      | none      |
    | set    | unset     | shared ∩ online | none      |
    | unset  | set       | none            | dedicated |
    | set    | set       | shared ∩ online | dedicated |

    :param power_management: idle dedicated CPUs are switched off, hence need only be present.
    :raises InvalidConfiguration: a dedicated CPU is not there.
    """
    dedicated_cpus = sets.dedicated_cpus or frozenset()
    usable = frozenset(present if power_management else online)
    if absent := dedicated_cpus - usable:
        state = "present" if power_management else "online"
        raise errors.InvalidConfiguration(
            f"[compute]cpu_dedicated_set names CPUs {cpu_list.write(absent)}, which are not "
            f"{state}; {state} are {cpu_list.write(usable)}. Correct the option, or bring the "
            "CPUs online."
        )
    if sets.shared_cpus is not None:
        shared_cpus = sets.shared_cpus & frozenset(online)
    elif sets.dedicated_cpus is None:
        shared_cpus = frozenset(online)
    else:
        shared_cpus = frozenset()
    return GuestCpus(shared_cpus, dedicated_cpus)


def _parse_range(text: str, part: str, whole: str, option: str) -> range:
    first_text, dash, last_text = text.partition("-")
    first = whole_number(first_text, MAX_CPU_ID)
    last = whole_number(last_text, MAX_CPU_ID) if dash else first
    if first is None or last is None:
        raise errors.InvalidConfiguration(
            f"{option} = {whole!r}: {part!r} is not a CPU, a range of CPUs or an exclusion; write "
            "for example 4-12,^8,15."
        )
    if first > last:
        raise errors.InvalidConfiguration(
            f"{option} = {whole!r}: the range {part!r} runs backwards; the lower CPU comes first."
        )
    return range(first, last + 1)
