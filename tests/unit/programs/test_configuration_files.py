"""Options that configuration files set and nothing reads."""

import logging
from pathlib import Path

import pytest

from compute_agent import conf as agent_conf
from placement_server import conf as server_conf


def unread(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "nova.conf"
    file.write_text(text)
    lines = agent_conf.unread_options(agent_conf.new_config(default_config_files=[str(file)]))
    return [line.replace(str(file), "FILE") for line in lines]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[compute]\nenable_numa_reporting_to_placment = true\n",
            "[compute]enable_numa_reporting_to_placment in FILE, probably "
            "enable_numa_reporting_to_placement is meant",
        ),
        (
            "[placment]\nauth_type = none\n",
            "group [placment] in FILE, probably [placement] is meant",
        ),
        (
            "[compute_agent]\nheal_all = true\n",
            "[compute_agent]heal_all in FILE, which is not an option of this version",
        ),
        (
            "repot_interval = 3\n[libvirt]\nvirt_type = kvm\n",
            "[DEFAULT]repot_interval in FILE, probably report_interval is meant",
        ),
        (
            "[Placement]\nauth_type = none\n[GPU]\na = 1\n",
            "[gpu]a in FILE, which is not an option of this version",
        ),
    ],
)
def test_a_misspelt_option_is_named_with_what_is_probably_meant(
    tmp_path: Path, text: str, line: str
) -> None:
    prefix = "" if text.startswith("[") else "[DEFAULT]\n"
    assert unread(tmp_path, prefix + text) == [line]


def test_options_of_other_services_and_former_names_are_not_named(tmp_path: Path) -> None:
    text = """
[DEFAULT]
debug = true
rpc_response_timeout = 60
my_block_storage_ip = 10.0.0.1
max_concurrent_builds = 10
vcpu_pin_set = 0
[placement]
username = nova
user_name = nova
tenant_name = service
os_region_name = here
application_credential_id = 1
[libvirt]
live_migration_uri = qemu+ssh://%s/system
images_rbd_glance_store_name = a
cpu_mode = host-model
cpu_model_extra_flags = pcid
hw_machine_type = x86_64=q35
[pci]
passthrough_whitelist = {"vendor_id": "8086"}
[compute]
image_type_exclude_list = raw
resource_provider_association_refresh = 300
[neutron]
service_metadata_proxy = true
[cinder]
os_region_name = here
[cache]
enabled = true
[oslo_messaging_rabbit]
rabbit_quorum_queue = true
[keystone_authtoken]
auth_url = http://127.0.0.1
[devices]
enabled_mdev_types = nvidia-35
[mdev_nvidia-35]
device_addresses = 0000:84:00.0
[mdev_nvidia-36]
max_instances = 3
"""
    assert unread(tmp_path, text) == []


def test_files_are_those_that_the_library_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "agent.conf").write_text("[gpu]\na = 1\n")
    directory = tmp_path / "agent.conf.d"
    directory.mkdir()
    (directory / "10.conf").write_text("[gpu]\nb = 1\n")
    # as an editor leaves it where a file is open
    (directory / ".#10.conf").symlink_to("nowhere")
    for argument, option, path in (
        ("--config-file=~/agent.conf", "a", "agent.conf"),
        ("--config-dir=~/agent.conf.d", "b", "agent.conf.d/10.conf"),
    ):
        conf = agent_conf.new_config([argument], default_config_files=[], default_config_dirs=[])
        assert agent_conf.unread_options(conf) == [
            f"[gpu]{option} in {tmp_path}/{path}, which is not an option of this version"
        ]


def test_one_warning_has_all_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "agent.conf"
    file.write_text("[gpu]\na = 1\n[nic]\nb = 1\n")
    agent_conf.warn_of_useless(agent_conf.new_config(default_config_files=[str(file)]))
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "[gpu]a" in record.getMessage()
    assert "[nic]b" in record.getMessage()


def test_options_of_groups_that_only_others_read_are_named_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "nova.conf"
    file.write_text(
        "[DEFAULT]\nrpc_ping_enabled = true\nshelved_poll_interval = 1\n[api]\na = 1\n"
        "[libvirt]\nlive_migration_uri = x\n[placement]\nauth_type = password\nusername = u\n"
        "[pci]\ndevice_spc = {}\n"
    )
    agent_conf.warn_of_useless(agent_conf.new_config(default_config_files=[str(file)]))
    misspelt, left = (record.getMessage() for record in caplog.records)
    assert "device_spec is meant" in misspelt
    assert left.endswith("read: [DEFAULT]shelved_poll_interval, [libvirt]live_migration_uri.")


def test_defaults_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    agent_conf.warn_of_useless(agent_conf.new_config(default_config_files=[]))
    assert caplog.records == []


def unread_of_server(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "placement.conf"
    file.write_text(text)
    lines = server_conf.unread_options(server_conf.new_config(config_files=[file]))
    return [line.replace(str(file), "FILE") for line in lines]


def test_misspelt_options_of_the_server_are_named_with_the_likely_ones(
    tmp_path: Path,
) -> None:
    text = "[placement_databse]\nconnection = x\n[placement_server]\nheathcheck_path = /h\nx = 1\n"
    assert unread_of_server(tmp_path, text) == [
        "group [placement_databse] in FILE, probably [placement_database] is meant",
        "[placement_server]heathcheck_path in FILE, probably healthcheck_path is meant",
        "[placement_server]x in FILE, which is not an option of this version",
    ]


def test_a_file_of_openstack_placement_has_none(tmp_path: Path) -> None:
    text = """
[DEFAULT]
debug = true
log_file = /var/log/placement.log
tempdir = /tmp
[api]
auth_strategy = keystone
[keystone_authtoken]
www_authenticate_uri = http://127.0.0.1:5000
auth_uri = http://127.0.0.1:5000
auth_url = http://127.0.0.1:5000
auth_type = password
memcached_servers = 127.0.0.1:11211
username = placement
user_domain_name = Default
password = secret
[placement_database]
connection = sqlite://
max_retries = -1
slave_connection = sqlite://
[placement]
incomplete_consumer_project_id = 00000000-0000-0000-0000-000000000000
[oslo_policy]
policy_file = policy.yaml
[oslo_messaging_notifications]
driver = noop
[cors]
allowed_origin = *
[profiler]
enabled = false
[nova]
region_name = here
"""
    assert unread_of_server(tmp_path, text) == []
