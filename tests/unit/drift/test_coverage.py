"""The part of an instance's need that allocations cover, and what its host lacks of the rest."""

import pytest

from compute_agent.drift.healing.coverage import HostProvider, cover, roomiest
from compute_agent.request.candidate_request import UNSUFFIXED, CandidateRequest, RequestGroup
from tests.unit.manage.needs import group, need


def test_nothing_is_missing_where_everything_is_held() -> None:
    covered = cover(need({"VCPU": 2}, _G=group(VGPU=1)), {"root": {"VCPU": 2}, "card": {"VGPU": 1}})
    assert covered.missing_request is None
    assert covered.surplus == {}
    assert covered.mappings == {"_G": "card"}


def test_the_unsuffixed_group_may_be_held_of_several_providers() -> None:
    covered = cover(need({"VCPU": 4}), {"cell0": {"VCPU": 3}, "cell1": {"VCPU": 1}})
    assert covered.missing_request is None


def test_only_the_part_that_is_lacking_is_missing() -> None:
    covered = cover(need({"VCPU": 4, "DISK_GB": 5}), {"root": {"VCPU": 1}})
    assert covered.missing_request is not None
    assert covered.missing_request.group(UNSUFFIXED).resources == {"VCPU": 3, "DISK_GB": 5}
    assert covered.partly


def test_a_suffixed_group_is_held_of_one_provider_or_not_at_all() -> None:
    wanted = need({}, _G=group(VGPU=2))
    covered = cover(wanted, {"one": {"VGPU": 1}, "two": {"VGPU": 1}})
    assert covered.missing_request is not None
    assert covered.missing_request.groups == wanted.groups
    assert covered.surplus == {"one": {"VGPU": 1}, "two": {"VGPU": 1}}


@pytest.mark.parametrize(
    ("hard", "held"),
    [
        (group(NET=1, PPS=1), {"hard": {"NET": 1, "PPS": 1}, "easy": {"NET": 1, "DISK": 5}}),
        (group(NET=2), {"hard": {"NET": 2}, "easy": {"NET": 1, "DISK": 5}}),
        (group(NET=1).requiring("T"), {"hard": {"NET": 1}, "easy": {"NET": 1, "DISK": 5}}),
    ],
    ids=["several classes", "more of one", "traits"],
)
def test_a_group_that_few_providers_serve_is_served_before_one_that_any_does(
    hard: RequestGroup, held: dict[str, dict[str, int]]
) -> None:
    covered = cover(
        need({}, _A=group(NET=1), _B=hard),
        held,
        may_serve=lambda provider, asked: not asked.required or provider == "hard",
    )
    assert covered.mappings == {"_A": "easy", "_B": "hard"}
    assert covered.missing_request is None


def test_what_is_held_of_a_provider_that_lost_a_trait_is_not_given_a_second_time() -> None:
    wanted = need({}, _G=group(VGPU=1).requiring("CUSTOM_BIG"))
    covered = cover(wanted, {"card": {"VGPU": 1}}, may_serve=lambda _provider, _group: False)
    assert covered.missing_request is None
    assert covered.mappings == {"_G": "card"}


def test_a_group_that_is_bound_to_a_provider_is_held_of_no_other() -> None:
    held = {"one": {"VGPU": 1}, "two": {"VGPU": 1}}
    assert cover(need({}, _G=group(VGPU=1)), held, fixed_providers={"_G": "two"}).mappings == {
        "_G": "two"
    }
    covered = cover(need({}, _G=group(VGPU=1)), held, fixed_providers={"_G": "three"})
    assert covered.missing_request is not None


def test_a_group_without_resources_is_asked_for_with_those_in_its_subtree_alone() -> None:
    bare = RequestGroup().requiring("HW_NUMA_ROOT")
    wanted = CandidateRequest(
        {"_A": group(VGPU=1), "_B": group(NET=1), "_NODE": bare},
        same_subtree=frozenset({frozenset({"_A", "_NODE"}), frozenset({"_B", "_NODE"})}),
    )
    lacking_a = cover(wanted, {"nic": {"NET": 1}}).missing_request
    assert lacking_a is not None
    assert set(lacking_a.groups) == {"_A", "_NODE"}
    assert lacking_a.same_subtree == frozenset({frozenset({"_A", "_NODE"})})
    assert cover(wanted, {"nic": {"NET": 1}, "card": {"VGPU": 1}}).missing_request is None


def test_traits_of_what_is_there_already_are_not_asked_for_again_but_those_of_disk_are() -> None:
    traits = RequestGroup({"VCPU": 2, "DISK_GB": 1}).requiring(
        "HW_CPU_X86_AVX2", "STORAGE_DISK_SSD"
    )
    wanted = CandidateRequest({"": traits})
    lacking_disk = cover(wanted, {"cell": {"VCPU": 2}}).missing_request
    assert lacking_disk is not None
    assert lacking_disk.group("").required == {frozenset({"STORAGE_DISK_SSD"})}
    assert cover(wanted, {}).missing_request == wanted


def provider(uuid: str, *traits: str, **rooms: tuple[int, int]) -> HostProvider:
    """A provider of so much of each class, with so much used."""
    return HostProvider(
        uuid,
        f"name of {uuid}",
        frozenset(traits),
        {name: capacity for name, (capacity, _used) in rooms.items()},
        {name: used for name, (_capacity, used) in rooms.items()},
    )


def test_the_provider_with_the_most_left_is_taken_and_nothing_is_in_the_way() -> None:
    found = roomiest(
        need({"VCPU": 2}, _G=group(VGPU=1, NET=1)),
        [
            provider("a", VCPU=(4, 3)),
            provider("b", VCPU=(4, 1)),
            provider("c", VGPU=(2, 0), NET=(2, 0)),
            provider("d", VGPU=(9, 0), NET=(1, 0)),
        ],
    )
    assert found.amounts == {"b": {"VCPU": 2}, "c": {"VGPU": 1, "NET": 1}}
    assert found.mappings == {"_G": "c"}
    assert found.obstacles == ()
    assert found.complete


def test_a_full_provider_is_named_with_class_and_amounts() -> None:
    found = roomiest(need({"VCPU": 2}), [provider("a", VCPU=(4, 3))])
    assert found.obstacles == ("provider name of a (a) has 1 of 4 VCPU left, and 2 are needed",)
    assert found.complete


def test_two_groups_do_not_get_the_same_room() -> None:
    two = need({}, _A=group(VGPU=1), _B=group(VGPU=1))
    found = roomiest(two, [provider("a", VGPU=(1, 0))])
    assert found.obstacles == ("provider name of a (a) has 0 of 1 VGPU left, and 1 are needed",)
    assert roomiest(two, [provider("a", VGPU=(2, 0))]).obstacles == ()


def test_a_provider_that_is_overcommitted_has_nothing_left() -> None:
    found = roomiest(need({"VCPU": 2}), [provider("a", VCPU=(4, 9))])
    assert "has 0 of 4 VCPU left" in found.obstacles[0]


def test_a_class_that_no_provider_has_is_named() -> None:
    found = roomiest(need({}, _G=group(VGPU=1)), [provider("a", VCPU=(4, 0))])
    assert found.obstacles == ("no provider of the host has VGPU",)
    assert not found.complete


def test_traits_that_no_provider_of_the_class_has_are_named() -> None:
    wanted = need({}, _G=group(VGPU=1).requiring("CUSTOM_A"))
    cards = [provider("a", VGPU=(9, 0)), provider("b", "CUSTOM_A", VGPU=(1, 0))]
    assert roomiest(wanted, cards).amounts == {"b": {"VGPU": 1}}
    assert roomiest(wanted, cards[:1]).obstacles == (
        "no provider that has VGPU has the traits CUSTOM_A",
    )
