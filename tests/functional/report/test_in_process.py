"""Placement inside the process, from its own configuration file."""

import uuid as uuidlib

from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.report.client import ReportClient
from tests.fixtures.clocks import WaitingClock


def test_the_servers_own_file_is_enough_also_to_reshape(tmp_path):
    """The file asks for keystone and the policy is the default one: the role service is needed."""
    config = tmp_path / "placement.conf"
    config.write_text(
        f"[placement_database]\nconnection = sqlite:///{tmp_path}/placement.db\n"
        "sync_on_startup = true\n[api]\nauth_strategy = keystone\n"
        "[oslo_policy]\nenforce_new_defaults = true\n"
    )
    client = ReportClient(InProcessTransport.from_config_files([str(config)]), clock=WaitingClock())
    root = str(uuidlib.uuid4())
    with client.tracing() as tally:
        base = client.get_provider_tree_and_ensure_root(root, "host")
        new = base.snapshot()
        for number in range(9):
            child = new.new_child(f"host_{number}", "host")
            new.update_inventory(child, {"VGPU": {"total": 1}})
        client.update_from_provider_tree(base, new)
    assert tally.by_call["POST /reshaper"] == 1
    assert tally.failed_count == 0
    client.close()
