"""The sample configuration and the unit file say what the code does."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from oslo_config import cfg

from compute_agent import conf as agent_conf
from compute_agent.programs.exit_status import Exit
from compute_agent.tracker.decisions import ExitCode

ETC = Path(__file__).parents[3] / "etc"

DEFAULT_OPTIONS = {
    "my_ip": None,
    "state_path": "/var/lib/compute-agent",
    "instances_path": "$state_path/instances",
    "compute_driver": "host.HostDriver",
    "transport_url": "",
    "report_interval": 10,
    "service_down_time": 60,
    "periodic_enable": True,
    "periodic_fuzzy_delay": 60,
    "enable_new_services": True,
    "update_resources_interval": 0,
    "reserved_host_memory_mb": 512,
    "reserved_host_disk_mb": 0,
    "reserved_host_cpus": 0,
    "reserved_huge_pages": None,
    "cpu_allocation_ratio": None,
    "ram_allocation_ratio": None,
    "disk_allocation_ratio": None,
    "initial_cpu_allocation_ratio": 4.0,
    "initial_ram_allocation_ratio": 1.0,
    "initial_disk_allocation_ratio": 1.0,
    "vcpu_pin_set": None,
}
GROUPS = {
    "compute": {
        "cpu_shared_set": None,
        "cpu_dedicated_set": None,
        "provider_config_location": "/etc/compute-agent/provider_config/",
        "resource_provider_association_refresh": 300,
        "sharing_providers_max_uuids_per_request": 200,
        "update_resources_max_workers": 1,
        "consecutive_build_service_disable_threshold": 10,
        "shutdown_retry_interval": 10,
        "image_type_exclude_list": [],
        "max_disk_devices_to_attach": -1,
        "packing_host_numa_cells_allocation_strategy": False,
        "enable_numa_reporting_to_placement": False,
        "reserved_host_memory_mb_per_numa": {},
    },
    "devices": {"enabled_mdev_types": []},
    "neutron": {"physnets": []},
    "neutron_physnet_<name>": {"numa_nodes": []},
    "neutron_tunnel": {"numa_nodes": []},
    "pci": {"device_spec": [], "alias": [], "report_in_placement": False},
    "libvirt": {
        "virt_type": "kvm",
        "connection_uri": "",
        "cpu_mode": None,
        "cpu_models": [],
        "cpu_model_extra_flags": [],
        "file_backed_memory": 0,
        "images_type": "default",
        "images_volume_group": None,
        "images_rbd_pool": "rbd",
        "images_rbd_ceph_conf": "",
        "rbd_user": None,
        "pmem_namespaces": [],
        "swtpm_enabled": False,
        "supported_tpm_secret_security": ["user", "host", "deployment"],
        "num_intel_tdx_guests": None,
        "cpu_power_management": False,
        "cpu_power_management_strategy": "cpu_state",
        "cpu_power_governor_low": "powersave",
        "cpu_power_governor_high": "performance",
    },
    "placement": {
        "service_type": "placement",
        "valid_interfaces": ["internal", "public"],
        "auth_type": None,
        "region_name": None,
        "endpoint_override": None,
        "cafile": None,
        "certfile": None,
        "keyfile": None,
        "insecure": False,
        "timeout": None,
        "connect_retries": None,
        "status_code_retries": None,
    },
    "workarounds": {"reserve_disk_resource_for_image_cache": False},
    "compute_agent": {
        "startup_placement_timeout": 0,
        "on_hostname_change": "rename",
        "placement_connections": 4,
        "use_placement_extensions": "auto",
        "bulk_inventory": "auto",
        "audit_interval": 3600,
        "audit_grace": 300,
        "heal_orphans": False,
        "heal_missing": False,
        "instance_source": "agents",
        "legacy_self_claim": "never",
        "call_timeout": 60,
        "allow_cpu_set_change": False,
        "shared_disk_provider": None,
        "status_socket": "$state_path/status.sock",
        "metrics_bind": None,
    },
    "host": {"sysfs_root": "/sys", "procfs_root": "/proc"},
    "gpu": {
        "nvml": "auto",
        "vf_providers": "auto",
        "max_vgpus_per_guest": None,
        "type_traits": True,
        "mig_classes": False,
        "report_memory_cells": False,
        "numa_node_override": {},
    },
    "nic": {
        "numa_node_override": {},
        "report_vfs": "auto",
        "report_bandwidth": False,
        "bandwidth_share": 0.9,
        "physnet_mappings": [],
    },
}
MUTABLE = {
    ("compute", "resource_provider_association_refresh"),
    *(
        ("compute_agent", name)
        for name in ("audit_interval", "audit_grace", "heal_orphans", "heal_missing")
    ),
}


def registered() -> dict[tuple[str, str], cfg.Opt]:
    found = {}
    for group, options in agent_conf.list_opts():
        name = getattr(group, "name", group)
        found.update({(name, option.name): option for option in options})
    return found


@pytest.mark.parametrize(
    ("group", "name", "default"),
    [
        *(("DEFAULT", name, default) for name, default in DEFAULT_OPTIONS.items()),
        *((g, name, default) for g, opts in GROUPS.items() for name, default in opts.items()),
    ],
)
def test_an_option_that_operators_know_has_the_default_they_know(group, name, default):
    option = next(
        option
        for (option_group, option_name), option in registered().items()
        if option_group == group and option_name.replace("-", "_") == name
    )
    assert option.default == default
    assert option.help
    assert option.mutable is ((group, name) in MUTABLE)


@pytest.mark.parametrize("program", ["compute-agent", "placement"])
def test_the_sample_configuration_is_current(tmp_path, program):
    output = tmp_path / "sample"
    generator = Path(sys.executable).with_name("oslo-config-generator")
    subprocess.run(
        [
            str(generator),
            *("--config-file", str(ETC / f"{program}-config-generator.conf")),
            *("--output-file", str(output)),
        ],
        check=True,
    )
    assert output.read_text() == (ETC / f"{program}.conf.sample").read_text(), (
        f"run: oslo-config-generator --config-file etc/{program}-config-generator.conf"
    )


def test_the_sample_configuration_can_be_used_as_it_is():
    conf = agent_conf.new_config([f"--config-file={ETC / 'compute-agent.conf.sample'}"])
    assert conf.update_resources_interval == 0


def unit(program: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(ETC / f"{program}.service")
    return parser


@pytest.mark.parametrize(
    ("program", "lasting"), [("compute-agent", "1 2 5"), ("compute-scheduler", "2")]
)
def test_the_unit_does_not_restart_what_needs_a_person(program: str, lasting: str):
    service = unit(program)["Service"]
    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == lasting


@pytest.mark.parametrize(
    ("program", "title"),
    [("compute-agent", "# Running compute-agent"), ("compute-scheduler", "# compute-scheduler")],
)
def test_the_unit_points_at_the_documentation_that_is_installed_with_it(program: str, title: str):
    described = Path(unit(program)["Unit"]["Documentation"].removeprefix("file:/usr/"))
    installed = configparser.ConfigParser()
    installed.read(ETC.parent / "setup.cfg")
    patterns = installed["options.data_files"][str(described.parent)].split()
    pages = [page for pattern in patterns for page in ETC.parent.glob(pattern)]
    (page,) = [page for page in pages if page.name == described.name]
    assert page.read_text().startswith(title)


@pytest.mark.parametrize("program", ["compute-agent", "compute-scheduler"])
def test_the_unit_waits_longer_for_a_stop_than_the_program_for_its_work(program: str):
    assert int(unit(program)["Service"]["TimeoutStopSec"]) > 60


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("program", ["compute-agent", "compute-scheduler"])
def test_systemd_finds_no_fault_in_the_unit(program: str, tmp_path: Path):
    # the program need not be installed where the unit looks for it
    text = (ETC / f"{program}.service").read_text().replace(f"/usr/bin/{program}", "/bin/true")
    file = tmp_path / f"{program}.service"
    file.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_exit_status_is_documented():
    text = (ETC.parent / "docs" / "reference" / "exit-statuses.md").read_text()
    for status in {*map(int, Exit), *map(int, ExitCode)}:
        assert f"| {status} |" in text, status
