"""Values are kept for some seconds, and no more of them than are wanted."""

from compute_agent.programs.kept_values import KeptValues
from tests.fixtures.clocks import ManualClock


def test_a_value_is_good_until_its_seconds_are_over():
    clock = ManualClock()
    values: KeptValues[str, int] = KeptValues(10.0, clock)
    assert values.get("a") is None
    assert values.keep("a", 0) == 0
    clock.now += 9.9
    assert values.get("a") == 0
    clock.now += 0.1
    assert (values.get("a"), values.old("a")) == (None, 0)
    values.forget()
    assert values.old("a") is None


def test_of_many_values_the_oldest_goes():
    values: KeptValues[str, int] = KeptValues(10.0, ManualClock(), most=2)
    for number, key in enumerate("abac"):
        values.keep(key, number)
    assert [values.get(key) for key in "abc"] == [2, None, 3]
