"""Requests that name as much as they may, and more, on every database."""

from __future__ import annotations

import pytest

from placement_server.store.allocations import allocations, usages
from placement_server.store.errors import (
    ProviderNotFound,
    ResourceClassNotFound,
    StoreError,
    TraitNotFound,
)
from placement_server.store.providers import aggregates, filters, providers, traits
from placement_server.store.providers.tree import read_tree
from placement_server.store.records import ConsumerWrite
from placement_server.store.store import Store
from tests.fixtures.allocations import new_uuid
from tests.integration.store.conftest import generation_of, new_provider, set_of, use_of

MANY = 70_000
NAMES = [f"CUSTOM_UNKNOWN_{number}" for number in range(MANY)]


def give_traits(store: Store, provider: str) -> None:
    generation = generation_of(store, provider)
    store.write(traits.replace_of_provider, provider, NAMES, generation=generation)


def find_by_traits(store: Store, _provider: str) -> None:
    store.read(filters.find, required=[frozenset(NAMES)])


def find_by_classes(store: Store, _provider: str) -> None:
    store.read(filters.find, resources=dict.fromkeys(NAMES, 1))


def claim_of_classes(store: Store, provider: str) -> None:
    store.write(allocations.write, [set_of(new_uuid(), {provider: dict.fromkeys(NAMES, 1)}, None)])


@pytest.mark.parametrize(
    ("name_them", "refusal"),
    [
        (give_traits, TraitNotFound),
        (find_by_traits, TraitNotFound),
        (find_by_classes, ResourceClassNotFound),
        (claim_of_classes, ResourceClassNotFound),
    ],
)
def test_any_number_of_unknown_names_is_refused_in_few_words(
    store: Store, name_them: object, refusal: type[StoreError]
) -> None:
    assert callable(name_them)
    provider = new_provider(store, {"VCPU": 8})
    with pytest.raises(refusal) as refused:
        name_them(store, provider)
    assert str(refused.value).endswith(f" and {MANY - 100} more.")
    assert len(str(refused.value)) < 5000


def test_any_number_of_unknown_providers_is_refused_by_the_first(store: Store) -> None:
    unknown = [new_uuid() for _ in range(MANY)]
    with pytest.raises(ProviderNotFound, match=unknown[0]):
        store.write(
            allocations.write, [set_of(new_uuid(), {uuid: {"VCPU": 1} for uuid in unknown}, None)]
        )


@pytest.mark.parametrize("count", [8, 9, 1000])
def test_a_provider_must_pass_each_of_a_thousand_filters(store: Store, count: int) -> None:
    groups = [new_uuid() for _ in range(count)]
    inside, outside = (new_provider(store, {"VCPU": 8}) for _ in range(2))
    store.write(aggregates.replace, inside, groups, generation=None)
    store.write(aggregates.replace, outside, groups[1:], generation=None)

    def found(members: list[str], resources: dict[str, int]) -> list[str]:
        terms = [frozenset({group}) for group in members]
        providers = store.read(filters.find, member_of=terms, resources=resources)
        return [provider.uuid for provider in providers]

    assert found(groups, {"VCPU": 8}) == [inside]
    assert found(groups, {"VCPU": 9}) == []
    assert sorted(found(groups[1:], {})) == sorted([inside, outside])


def owned(
    provider: str, consumers: list[str], owner: str, expected: int | None
) -> list[ConsumerWrite]:
    return [
        set_of(
            uuid,
            {provider: {"VCPU": 1}},
            expected,
            project=f"{owner}-{uuid}",
            user=f"{owner}-{uuid}",
            consumer_type="INSTANCE" if number % 2 else "MIGRATION",
        )
        for number, uuid in enumerate(consumers)
    ]


def test_consumers_that_have_new_owners_each_get_them_and_change_them(store: Store) -> None:
    provider = new_provider(store, {"VCPU": 9000})
    consumers = [new_uuid() for _ in range(9000)]
    for owner, expected in (("first", None), ("second", 1)):
        store.write(allocations.write, owned(provider, consumers, owner, expected))
        assert use_of(store, provider) == {"VCPU": 9000}
        for uuid in (consumers[0], consumers[-1]):
            record, _ = store.read(allocations.of_consumer, uuid)
            assert record is not None
            assert (record.project_id, record.user_id) == (f"{owner}-{uuid}", f"{owner}-{uuid}")
            assert store.read(usages.of_project, f"{owner}-{uuid}") == {"VCPU": 1}
        assert record.generation == (expected or 0) + 1


def test_owners_keep_their_names_whatever_characters_these_have(store: Store) -> None:
    names = [
        '"',
        "\\",
        '\\"',
        "a,b",
        "{}",
        "NULL",
        "null",
        "'",
        "%s",
        " a",
        "é😀",
        "a\tb\n",
        "(a)",
        "a",
    ]
    provider = new_provider(store, {"VCPU": len(names)})
    consumers = {new_uuid(): name for name in names}
    store.write(
        allocations.write,
        [
            set_of(uuid, {provider: {"VCPU": 1}}, None, project=name, user=name)
            for uuid, name in consumers.items()
        ],
    )
    for uuid, name in consumers.items():
        record, _ = store.read(allocations.of_consumer, uuid)
        assert record is not None
        assert (record.project_id, record.user_id) == (name, name)


def test_a_tree_may_be_as_deep_as_it_has_providers(store: Store) -> None:
    chain = [new_uuid() for _ in range(30)]
    parents = dict(zip(chain, [None, *chain], strict=False))
    for uuid, parent in parents.items():
        store.write(providers.create, uuid=uuid, name=uuid, parent_uuid=parent)
    tree = store.read(read_tree, chain[-1])
    shown = tree.parent_uuids()
    assert {provider.uuid: shown[provider.id] for provider in tree.providers} == parents
