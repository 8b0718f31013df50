"""openstacksdk's placement proxy as a real client of the server."""

import uuid

import pytest
from keystoneauth1 import session, token_endpoint
from openstack import connection, exceptions


@pytest.fixture
def cloud(placement_url: str) -> connection.Connection:
    auth = token_endpoint.Token(placement_url, "admin")
    return connection.Connection(
        session=session.Session(auth=auth),
        placement_endpoint_override=placement_url,
        placement_api_version="1",
        placement_default_microversion="1.39",
    )


def test_the_sdk_manages_a_provider_from_creation_to_deletion(
    cloud: connection.Connection,
) -> None:
    placement = cloud.placement
    suffix = uuid.uuid4().hex[:8].upper()
    provider = placement.create_resource_provider(name=f"sdk-{suffix}")
    assert provider.generation == 0
    assert placement.get_resource_provider(provider.id).name == f"sdk-{suffix}"
    assert placement.find_resource_provider(f"sdk-{suffix}").id == provider.id

    inventory = placement.create_resource_provider_inventory(provider, "VCPU", total=4)
    assert inventory.total == 4
    assert [i.resource_class for i in placement.resource_provider_inventories(provider)] == ["VCPU"]

    trait = placement.create_trait(f"CUSTOM_SDK_{suffix}")
    assert trait.name in {t.name for t in placement.traits()}
    created = placement.create_resource_class(name=f"CUSTOM_SDK_{suffix}")
    assert placement.get_resource_class(created.name).name == created.name

    provider = placement.get_resource_provider(provider.id)
    aggregate = str(uuid.uuid4())
    placement.set_resource_provider_aggregates(provider, aggregate)
    provider = placement.fetch_resource_provider_aggregates(provider)
    assert provider.aggregates == [aggregate]

    renamed = placement.update_resource_provider(provider, name=f"sdk-renamed-{suffix}")
    assert renamed.name == f"sdk-renamed-{suffix}"

    placement.delete_resource_provider(provider)
    placement.delete_resource_class(created)
    placement.delete_trait(trait)
    with pytest.raises(exceptions.NotFoundException):
        placement.get_resource_provider(provider.id)
