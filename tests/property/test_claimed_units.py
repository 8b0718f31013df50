"""Named units of a host under claims and drops in any order: nobody ever shares one."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.claims.units import choose_units, holdings
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
            found, short = choose_units(wanted, UNITS, taken)
            # the oracle only counts
            free = {rc: n - sum(u.resource_class == rc for u in taken) for rc, n in TOTALS.items()}
            assert bool(short) == any(amount > free[rc] for rc, amount in amounts.items())
            if not short:
                assert not taken.intersection(found)
                assert {rc: sum(u.resource_class == rc for u in found) for rc in amounts} == amounts
                claims[instance] = frozenset(found)
        everything = [u for holding in holdings(claims, guests, UNITS).values() for u in holding]
        assert len(everything) == len(set(everything))
