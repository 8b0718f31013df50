"""Reading the configuration: what is accepted, and what is said about what is not."""

from pathlib import Path

import pytest

from compute_agent import conf as agent_conf
from compute_agent import errors
from compute_agent.agent import assembly


def written(directory: Path, text: str, name: str = "agent.conf") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def configured(path: Path):
    return agent_conf.new_config(["--config-file", str(path)])


def test_values_of_a_file_are_converted_to_their_types(tmp_path):
    conf = configured(
        written(
            tmp_path,
            "[DEFAULT]\ncompute_driver = host.HostDriver\nperiodic_fuzzy_delay = 0\n"
            "cpu_allocation_ratio = 1.5\nreserved_huge_pages = node:0,size:2048,count:64\n"
            "reserved_huge_pages = node:1,size:1GB,count:1\n"
            "[compute_agent]\nheal_orphans = yes\n",
        )
    )
    assert conf.compute_driver == "host.HostDriver"
    assert conf.periodic_fuzzy_delay == 0
    assert conf.cpu_allocation_ratio == 1.5
    assert conf.compute_agent.heal_orphans is True
    assert conf.reserved_huge_pages == [
        {"node": "0", "size": "2048", "count": "64"},
        {"node": "1", "size": "1GB", "count": "1"},
    ]


def test_a_wrong_type_names_the_file_the_option_and_the_value(tmp_path):
    path = written(tmp_path, "[DEFAULT]\nperiodic_fuzzy_delay = soon\n")
    with pytest.raises(errors.InvalidConfiguration) as caught:
        configured(path)
    message = str(caught.value)
    assert str(path) in message
    assert "[DEFAULT]periodic_fuzzy_delay" in message
    assert "soon" in message


def test_all_wrong_values_are_reported_at_once(tmp_path):
    path = written(
        tmp_path,
        "[DEFAULT]\nreport_interval = often\n[compute_agent]\non_hostname_change = maybe\n"
        "audit_interval = -1\n",
    )
    with pytest.raises(errors.InvalidConfiguration) as caught:
        configured(path)
    message = str(caught.value)
    for option in (
        "[DEFAULT]report_interval",
        "[compute_agent]on_hostname_change",
        "[compute_agent]audit_interval",
    ):
        assert option in message


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(errors.InvalidConfiguration, match=r"absent\.conf"):
        configured(tmp_path / "absent.conf")


def test_a_file_that_does_not_parse_is_named(tmp_path):
    path = written(tmp_path, "this is no ini file\n")
    with pytest.raises(errors.InvalidConfiguration, match=r"agent\.conf"):
        configured(path)


def test_options_of_other_programs_are_ignored(tmp_path):
    conf = configured(written(tmp_path, "[api]\nauth_strategy = keystone\n[DEFAULT]\nfoo = 1\n"))
    assert conf.report_interval == 10


def test_a_relative_default_follows_the_state_path(tmp_path):
    conf = configured(written(tmp_path, f"[DEFAULT]\nstate_path = {tmp_path}\n"))
    assert conf.instances_path == f"{tmp_path}/instances"
    assert conf.compute_agent.status_socket == f"{tmp_path}/status.sock"


def test_the_name_of_the_service_is_read_although_a_group_has_the_same_name(tmp_path):
    conf = configured(written(tmp_path, "[DEFAULT]\nhost = agent1\n[host]\nsysfs_root = /x\n"))
    assert conf.DEFAULT.host == "agent1"
    assert conf.host.sysfs_root == "/x"


def test_host_and_address_default_to_those_of_the_machine(tmp_path):
    conf = configured(written(tmp_path, ""))
    assert conf.DEFAULT.host
    assert conf.my_ip.count(".") == 3


def test_a_reload_takes_over_mutable_options_and_says_which(tmp_path):
    path = written(tmp_path, "[compute_agent]\naudit_grace = 10\n")
    conf = configured(path)
    written(tmp_path, "[compute_agent]\naudit_grace = 20\n")
    assert agent_conf.reload(conf) == ["[compute_agent]audit_grace: '10' -> '20'"]
    assert conf.compute_agent.audit_grace == 20


def test_a_file_that_is_not_text_is_refused_at_the_start_and_by_a_reload(tmp_path):
    path = written(tmp_path, "[DEFAULT]\n")
    conf = configured(path)
    path.write_bytes(b"[DEFAULT]\nhost = caf\xe9\n")
    with pytest.raises(errors.InvalidConfiguration, match="can't decode byte 0xe9"):
        configured(path)
    with pytest.raises(errors.InvalidConfiguration, match="stay in force"):
        agent_conf.reload(conf)


def test_a_reload_of_a_wrong_value_keeps_the_old_one(tmp_path):
    path = written(tmp_path, "[compute_agent]\naudit_grace = 10\n")
    conf = configured(path)
    written(tmp_path, "[compute_agent]\naudit_grace = long\n")
    with pytest.raises(errors.InvalidConfiguration, match="stay in force"):
        agent_conf.reload(conf)
    assert conf.compute_agent.audit_grace == 10
    written(tmp_path, "[compute_agent\n")
    with pytest.raises(errors.InvalidConfiguration, match="stay in force"):
        agent_conf.reload(conf)
    assert conf.compute_agent.audit_grace == 10


def test_a_reload_that_cannot_set_up_the_log_is_refused_as_such(tmp_path):
    path = written(tmp_path, "[DEFAULT]\n")
    conf = configured(path)
    written(tmp_path, f"[DEFAULT]\nlog_config_append = {tmp_path}/nowhere\n")
    with pytest.raises(errors.InvalidConfiguration, match="log_config_append"):
        agent_conf.reload(conf)


def test_the_cells_that_are_near_each_network_are_read(tmp_path):
    conf = configured(
        written(
            tmp_path,
            "[neutron]\nphysnets = left,right\n[neutron_physnet_left]\nnuma_nodes = 0,1\n"
            "[neutron_tunnel]\nnuma_nodes = 1\n"
            "[compute]\npacking_host_numa_cells_allocation_strategy = true\n",
        )
    )
    policy = assembly.cell_policy(conf)
    assert policy.networks.physnets == {"left": {0, 1}, "right": frozenset()}
    assert policy.networks.tunnel_cells == {1}
    assert policy.options.packing


def test_a_cell_near_a_network_that_is_no_number_is_named(tmp_path):
    path = written(
        tmp_path, "[neutron]\nphysnets = left\n[neutron_physnet_left]\nnuma_nodes = first\n"
    )
    with pytest.raises(errors.InvalidConfiguration, match=r"\[neutron_physnet_left\]numa_nodes"):
        configured(path)
