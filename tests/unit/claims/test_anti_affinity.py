"""Members of an anti-affinity group on one host, of which only some may be together."""

import pytest

from compute_agent import errors
from compute_agent.agent import claim_messages
from tests.unit.claims.claiming import MOVE, ONE, OTHER_HOST, TWO


def comes(host, consumer, *members, most=1, **more):
    """A member of an anti-affinity group whom the scheduler has sent here."""
    host.allocate(consumer, VCPU=1)
    group = {"policy": "anti-affinity", "members": list(members)}
    group["rules"] = {"max_server_per_host": most}
    spec = {"instance_uuid": consumer, "instance_group": group, **more}
    return host.assigner.claim(claim_messages.request_from(spec, {}, {}))


def test_of_two_members_who_may_not_be_together_the_later_one_is_refused(host):
    # both hold something of this host in placement before either comes
    for consumer in (ONE, TWO):
        host.allocate(consumer, VCPU=1)
    comes(host, TWO, ONE, TWO)
    with pytest.raises(errors.ComputeResourcesUnavailable, match=f"cannot be with {TWO}"):
        comes(host, ONE, ONE, TWO)
    assert [claim.instance for claim in host.book.claims()] == [TWO]
    comes(host, TWO, ONE, TWO)


def test_a_member_that_runs_here_without_a_claim_is_met_too(host):
    host.allocate(TWO, VCPU=1)
    host.driver.list_instance_uuids = lambda: [TWO]
    with pytest.raises(errors.ComputeResourcesUnavailable, match=TWO):
        comes(host, ONE, ONE, TWO)


def test_a_member_that_has_moved_away_or_was_deleted_is_no_obstacle(host):
    comes(host, TWO, TWO)
    host.report.held[TWO] = {OTHER_HOST: {"VCPU": 1}}
    comes(host, ONE, ONE, TWO)


@pytest.mark.parametrize(
    "more",
    [{"most": 2}, {"force_hosts": ["h"]}, {"instance_group": {"policy": "soft-anti-affinity"}}],
)
def test_members_who_may_be_together_are(host, more):
    comes(host, TWO, ONE, TWO)
    comes(host, ONE, ONE, TWO, **more)
    assert len(host.book.claims()) == 2


@pytest.mark.parametrize("rules", [None, {}, {"max_server_per_host": None}])
def test_a_group_without_a_number_keeps_its_members_one_to_a_host(rules):
    group = {"policy": "anti-affinity", "members": [TWO], "rules": rules}
    spec = {"instance_uuid": ONE, "instance_group": group}
    assert claim_messages.request_from(spec, {}, {}).together == 1


def test_a_member_that_changes_on_its_host_is_not_sent_away(host):
    comes(host, ONE, ONE, TWO, most=2)
    comes(host, TWO, ONE, TWO, most=2)
    comes(host, ONE, ONE, TWO, migration_uuid=MOVE)


@pytest.mark.parametrize(
    "group",
    [
        {"policy": "anti-affinity", "members": "x"},
        {"policy": "anti-affinity", "members": ["x"]},
        {"policy": "anti-affinity", "rules": {"max_server_per_host": 0}},
        {"policy": "anti-affinity", "rules": {"max_server_per_host": "9" * 5000}},
        {"policy": "anti-affinity", "rules": {"max_server_per_host": 2**31}},
        ["anti-affinity"],
    ],
)
def test_a_group_that_cannot_be_read_is_named(group):
    with pytest.raises(errors.InvalidInput, match=r"spec\.instance_group"):
        claim_messages.request_from({"instance_uuid": ONE, "instance_group": group}, {}, {})
