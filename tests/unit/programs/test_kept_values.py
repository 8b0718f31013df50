"""Values are kept for some seconds, and no more of them than are wanted."""

from compute_agent.programs.kept_values import KeptValues, LastingConditions
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


def test_a_condition_is_new_until_it_is_recorded_and_when_it_changes():
    conditions = LastingConditions()
    answers = [conditions.is_new("disk", text) for text in ("full", "full", "broken", "full")]
    assert answers == [True, False, True, True]
    assert conditions.is_new("memory", "full")


def test_a_condition_is_over_once_and_new_after_that():
    conditions = LastingConditions()
    assert not conditions.is_over("disk")
    conditions.is_new("disk")
    assert [conditions.is_over("disk"), conditions.is_over("disk")] == [True, False]
    assert conditions.is_new("disk")


def test_of_several_sentences_those_are_new_that_were_not_true_before():
    conditions = LastingConditions()
    assert conditions.new_among("host", ["b", "a"]) == ["a", "b"]
    assert conditions.new_among("host", ["b", "c"]) == ["c"]
    assert conditions.new_among("host", []) == []
    assert conditions.new_among("host", ["b"]) == ["b"]
