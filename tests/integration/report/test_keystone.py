"""The client with credentials of a real Keystone, against a server that validates them."""

import uuid as uuidlib
from pathlib import Path

import pytest
from oslo_config import cfg

from compute_agent import errors
from compute_agent.conf import services
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.report.client import ReportClient
from tests.fixtures.keystone import PASSWORD, Keystone


@pytest.fixture
def placement(placement_behind_keystone: str) -> str:
    return placement_behind_keystone


def client_from_file(
    directory: Path, keystone: Keystone, placement: str | None, user: str, password: str = PASSWORD
) -> ReportClient:
    """As an operator configures it: one file."""
    config = directory / "agent.conf"
    override = f"endpoint_override = {placement}\n" if placement else ""
    config.write_text(
        f"[placement]\nauth_type = password\nauth_url = {keystone.url}\n{override}"
        f"username = {user}\npassword = {password}\nproject_name = "
        f"{'admin' if user == 'admin' else 'demo'}\n"
        "user_domain_id = default\nproject_domain_id = default\n"
    )
    conf = cfg.ConfigOpts()
    services.register_opts(conf, "placement")
    conf([], default_config_files=[str(config)])
    return ReportClient(KeystoneTransport.from_conf(conf))


def report(client: ReportClient, allocations: dict | None = None) -> str:
    root = str(uuidlib.uuid4())
    base = client.get_provider_tree_and_ensure_root(root, f"host {root}")
    new = base.snapshot()
    for number in range(9):
        child = new.new_child(f"host {root} {number}", root)
        new.update_inventory(child, {"VGPU": {"total": 1}})
    client.update_from_provider_tree(base, new, allocations=allocations)
    return root


def test_a_user_with_role_service_reports_and_reshapes(keystone, placement, tmp_path):
    client = client_from_file(tmp_path, keystone, placement, "placement")
    with client.tracing() as tally:
        root = report(client)
    assert tally.failed_count == 0
    assert tally.by_call["POST /reshaper"] == 1
    assert len(client.get_provider_tree(root)) == 10
    client.close()


def test_a_user_with_role_admin_only_reports_and_is_told_why_it_cannot_reshape(
    keystone, placement, tmp_path
):
    client = client_from_file(tmp_path, keystone, placement, "admin")
    with client.tracing() as tally:
        report(client)
    assert tally.by_call["PUT /resource_providers/*/inventories"] == 9
    with pytest.raises(errors.ReshapeFailed, match="the placement user needs role service"):
        report(client, allocations={})
    client.close()


def test_a_wrong_password_is_unauthorized_and_names_the_options(keystone, placement, tmp_path):
    client = client_from_file(tmp_path, keystone, placement, "placement", password="wrong")
    with pytest.raises(errors.PlacementUnauthorized, match=r"\[placement\]"):
        client.connect()


def test_a_user_without_a_role_is_unauthorized(keystone, placement, tmp_path):
    client = client_from_file(tmp_path, keystone, placement, "reader")
    with pytest.raises(errors.PlacementUnauthorized, match="Policy does not allow"):
        client.get_provider_tree(str(uuidlib.uuid4()))


def test_a_catalogue_without_placement_is_unauthorized_and_names_what_to_check(keystone, tmp_path):
    client = client_from_file(tmp_path, keystone, None, "placement")
    with pytest.raises(errors.PlacementUnauthorized, match="the catalogue of keystone"):
        client.connect()
