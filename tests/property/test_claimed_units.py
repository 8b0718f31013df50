"""Named units of a host under claims and drops in any order: nobody ever shares one."""

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.claims.units import chosen, holdings
from compute_agent.state.claim import AssignedUnit
from compute_agent.virt.driver import InstanceDevices, MdevUse

GPU = "0000:42:00.0"
UNITS = frozenset(
    [AssignedUnit("root", "PCPU", str(cpu)) for cpu in range(12)]
    + [AssignedUnit("gpu", "VGPU", f"{GPU}/{place}") for place in range(4)]
)
TOTALS = {"PCPU": 12, "VGPU": 4}
PROVIDER = {"PCPU": "root", "VGPU": "gpu"}

events = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.sampled_from(["claim", "drop", "start", "stop"]),
        st.fixed_dictionaries({}, optional={rc: st.integers(1, n) for rc, n in TOTALS.items()}),
    ),
    max_size=20,
)


def as_seen(units: frozenset[AssignedUnit]) -> InstanceDevices:
    """What a hypervisor tells of a guest that has these units: not which place of a GPU."""
    return InstanceDevices(
        pinned_cpus=tuple(int(u.name) for u in units if u.resource_class == "PCPU"),
        mdevs=tuple(MdevUse(None, GPU) for u in units if u.resource_class == "VGPU"),
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
        elif event == "claim" and instance not in held:
            taken = frozenset().union(*held.values())
            wanted = {PROVIDER[rc]: {rc: amount} for rc, amount in amounts.items()}
            found, short = chosen(wanted, UNITS, taken)
            # the oracle only counts
            free = {rc: n - sum(u.resource_class == rc for u in taken) for rc, n in TOTALS.items()}
            assert bool(short) == any(amount > free[rc] for rc, amount in amounts.items())
            if not short:
                assert not taken.intersection(found)
                assert {rc: sum(u.resource_class == rc for u in found) for rc in amounts} == amounts
                claims[instance] = frozenset(found)
        everything = [u for each in holdings(claims, guests, UNITS).values() for u in each]
        assert len(everything) == len(set(everything))
