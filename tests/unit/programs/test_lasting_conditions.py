"""Conditions that last are logged when they begin and when they change."""

from compute_agent.programs.lasting_conditions import LastingConditions


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
