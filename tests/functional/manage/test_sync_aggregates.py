"""`sync_aggregates`: hosts are in placement's aggregates as the source lists them."""

import uuid
from collections.abc import Callable, Mapping

import pytest
import yaml

from tests.functional.manage.conftest import Answer, Operator, refusing

pytestmark = pytest.mark.waiting

AZ, RACK = str(uuid.uuid4()), str(uuid.uuid4())


def list_hosts(operator: Operator, hosts: Mapping[str, list[str]]) -> None:
    """Write the source: aggregate uuid to its hosts."""
    file = operator.directory / "aggregates.yaml"
    file.write_text(yaml.safe_dump([{"uuid": host, "hosts": hosts[host]} for host in hosts]))
    operator.configure(compute_scheduler={"aggregate_source": file})


def test_hosts_are_added_once_and_what_they_are_in_besides_stays(operator: Operator) -> None:
    first, second = f"{operator.name}-1", f"{operator.name}-2"
    one, two = operator.placement.new_host(first), operator.placement.new_host(second)
    others = str(uuid.uuid4())
    operator.placement.set_aggregates(one, [others])
    list_hosts(operator, {AZ: [first, second], RACK: [second]})

    result = operator.run("sync_aggregates", "--json", status=0)
    assert len(result.document["changes"]) == 2
    assert operator.placement.aggregates(one) == {others, AZ}
    assert operator.placement.aggregates(two) == {AZ, RACK}

    again = operator.run("sync_aggregates", "--json", status=0)
    assert again.document["changes"] == []


def test_a_host_that_left_an_aggregate_stays_in_it_without_prune(operator: Operator) -> None:
    host = operator.placement.new_host(operator.name)
    mine = str(uuid.uuid4())
    operator.placement.set_aggregates(host, [mine])
    list_hosts(operator, {mine: []})
    assert operator.run("sync_aggregates").status == 0
    assert operator.placement.aggregates(host) == {mine}


def test_prune_takes_hosts_out_and_leaves_sharing_providers_and_unknown_aggregates(
    operator: Operator,
) -> None:
    mine, unknown = str(uuid.uuid4()), str(uuid.uuid4())
    stays = operator.placement.new_host(operator.name)
    leaves = operator.placement.new_host()
    pool = operator.placement.new_provider(
        f"pool-{operator.name}", {"DISK_GB": 9}, ("MISC_SHARES_VIA_AGGREGATE",)
    )
    for provider in (stays, leaves, pool):
        operator.placement.set_aggregates(provider, [mine, unknown])
    list_hosts(operator, {mine: [operator.name]})
    assert operator.run("sync_aggregates", "--prune", "--dry-run").status == 0
    assert operator.placement.aggregates(leaves) == {mine, unknown}
    assert operator.run("sync_aggregates", "--prune").status == 0
    assert operator.placement.aggregates(stays) == {mine, unknown}
    assert operator.placement.aggregates(leaves) == {unknown}
    assert operator.placement.aggregates(pool) == {mine, unknown}


def test_a_dry_run_lists_the_changes_and_writes_nothing(offline: Operator) -> None:
    offline.placement.new_host(offline.name)
    list_hosts(offline, {AZ: [offline.name]})
    before = offline.dump()
    result = offline.run("sync_aggregates", "--dry-run", "--json", status=0)
    assert result.document["changes"][0]["added"] == [AZ]
    assert offline.dump() == before


# -- exit status ---------------------------------------------------------------------------------


def test_4_for_a_host_that_nobody_knows_and_the_others_are_done(operator: Operator) -> None:
    known = operator.placement.new_host(operator.name)
    list_hosts(operator, {AZ: ["no-such-host", operator.name]})
    result = operator.run("sync_aggregates", "--json", status=4)
    assert "no-such-host" in result.err
    assert operator.placement.aggregates(known) == {AZ}


def test_5_for_a_name_that_is_no_hosts(operator: Operator) -> None:
    root = operator.placement.new_host(operator.name)
    operator.placement.new_provider(f"{operator.name}_0", {}, (), root)
    list_hosts(operator, {AZ: [f"{operator.name}_0"]})
    assert operator.run("sync_aggregates").status == 5


def test_3_for_a_provider_whose_aggregates_cannot_be_written(
    offline: Operator, answering: Callable[[Answer], None]
) -> None:
    offline.placement.new_host(offline.name)
    list_hosts(offline, {AZ: [offline.name]})
    answering(refusing("PUT", "/aggregates", 400))
    result = offline.run("sync_aggregates", "--json", status=3)
    assert result.document["problems"][0]["host"] == offline.name


def test_2_for_an_answer_that_was_not_expected(
    offline: Operator, answering: Callable[[Answer], None]
) -> None:
    offline.placement.new_host(offline.name)
    list_hosts(offline, {AZ: [offline.name]})
    answering(refusing("GET", "/aggregates", 400))
    result = offline.run("sync_aggregates", "--json", status=2)
    assert "as a test wants" in result.document["failure"]


def test_127_without_a_source_or_with_one_that_cannot_be_read(offline: Operator) -> None:
    assert offline.run("sync_aggregates").status == 127
    offline.configure(compute_scheduler={"aggregate_source": "/no/such/file"})
    assert offline.run("sync_aggregates").status == 127
