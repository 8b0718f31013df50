"""Named units of a host under claims and drops in any order: nobody ever shares one."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.claims.units import holdings
from compute_agent.fitting.guest import Guest, Wish
from compute_agent.fitting.host import Device, Host
from compute_agent.fitting.plan import Plan
from compute_agent.fitting.planner import plan
from compute_agent.state.claim import AssignedUnit
from compute_agent.virt.driver import InstanceDevices, MdevUse

GPU = "0000:42:00.0"
UNITS = frozenset(
    [AssignedUnit("root", "PCPU", str(cpu)) for cpu in range(12)]
    + [AssignedUnit("gpu", "VGPU", f"{GPU}/{place}") for place in range(4)]
    + [AssignedUnit("port", "SRIOV_NET_VF", f"0000:81:00.{number}") for number in range(1, 6)]
)
TOTALS = {"PCPU": 12, "VGPU": 4, "SRIOV_NET_VF": 5}
PROVIDER = {"PCPU": "root", "VGPU": "gpu", "SRIOV_NET_VF": "port"}

events = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.sampled_from(["claim", "drop", "start", "start elsewhere", "stop"]),
        st.fixed_dictionaries({}, optional={rc: st.integers(1, n) for rc, n in TOTALS.items()}),
    ),
    max_size=20,
)


def as_seen(units: frozenset[AssignedUnit]) -> InstanceDevices:
    """What a hypervisor tells of a guest that has these units: not which place of a GPU."""
    return InstanceDevices(
        pinned_cpus=tuple(int(u.name) for u in units if u.resource_class == "PCPU"),
        mdevs=tuple(MdevUse(None, GPU) for u in units if u.resource_class == "VGPU"),
        pci_addresses=tuple(u.name for u in units if u.resource_class == "SRIOV_NET_VF"),
    )


def elsewhere(
    given_units: frozenset[AssignedUnit], taken: frozenset[AssignedUnit]
) -> frozenset[AssignedUnit]:
    """As many units of each kind as were given, the free ones with the highest names first."""
    free = sorted(UNITS - taken, key=lambda unit: unit.name, reverse=True)
    wanted = Counter(unit.resource_class for unit in given_units)
    other = [u for rc, n in wanted.items() for u in [f for f in free if f.resource_class == rc][:n]]
    enough = Counter(unit.resource_class for unit in other) == wanted
    return frozenset(other) if enough else given_units


def chosen(
    wanted: dict[str, dict[str, int]], taken: frozenset[AssignedUnit]
) -> frozenset[AssignedUnit] | None:
    """Return free units as the planner gives them; None where there are too few."""
    devices = [
        Device(provider, rc, len(names), tuple(names))
        for rc, provider in PROVIDER.items()
        if (names := sorted(u.name for u in UNITS - taken if u.resource_class == rc))
    ]
    wishes = [
        Wish(rc, rc, amount, devices=frozenset((provider,)))
        for provider, classes in wanted.items()
        for rc, amount in classes.items()
    ]
    answer = plan(Host((), tuple(devices)), Guest(floats=True, wishes=tuple(wishes)))
    if not isinstance(answer, Plan):
        return None
    return frozenset(
        AssignedUnit(given.device, given.resource_class, name)
        for given in answer.given
        for name in given.units
    )


@given(events)
def test_a_claim_succeeds_if_and_only_if_enough_is_free_and_takes_from_nobody(happening):
    claims: dict[str, frozenset[AssignedUnit]] = {}
    guests: dict[str, InstanceDevices] = {}
    for instance, event, amounts in happening:
        held = holdings(claims, guests, UNITS)
        if event == "drop":
            claims.pop(instance, None)
        elif event == "stop":
            guests.pop(instance, None)
        elif event == "start" and instance in claims:
            guests[instance] = as_seen(claims[instance])
        elif event == "start elsewhere" and instance in claims and instance not in guests:
            taken = frozenset().union(*held.values())
            guests[instance] = as_seen(elsewhere(claims[instance], taken))
            # the hypervisor's choice does not change how much is held
            now = holdings(claims, guests, UNITS)
            assert len(now[instance]) == len(held[instance])
        elif event == "claim" and instance not in held:
            taken = frozenset().union(*held.values())
            wanted = {PROVIDER[rc]: {rc: amount} for rc, amount in amounts.items()}
            found = chosen(wanted, taken)
            # the oracle only counts
            free = {rc: n - sum(u.resource_class == rc for u in taken) for rc, n in TOTALS.items()}
            assert (found is None) == any(amount > free[rc] for rc, amount in amounts.items())
            if found is not None:
                assert not taken.intersection(found)
                assert {rc: sum(u.resource_class == rc for u in found) for rc in amounts} == amounts
                claims[instance] = frozenset(found)
        everything = [u for holding in holdings(claims, guests, UNITS).values() for u in holding]
        assert len(everything) == len(set(everything))
