"""The DevStack plugin, with functions in place of DevStack's that record their arguments."""

import subprocess
from pathlib import Path

import pytest

from compute_agent.conf import new_config as agent_config
from placement_server.conf import new_config as placement_config

PLUGIN = Path(__file__).resolve().parents[3] / "devstack"
DEVSTACK = """
set -eu -o pipefail
DEST=/opt/stack DATA_DIR=$PWD/data API_WORKERS=2 SERVICE_HOST=192.0.2.1 STACK_USER=stack
KEYSTONE_SERVICE_URI=http://192.0.2.1/identity SERVICE_PASSWORD=secret REGION_NAME=RegionOne
SERVICE_DOMAIN_NAME=Default SERVICE_PROJECT_NAME=service SERVICE_TIMEOUT=60 NOVA_CONF=$PWD/nova.conf
COMPUTE_AGENT_CONF_DIR=$PWD/agent COMPUTE_PLACEMENT_CONF_DIR=$PWD/placement
enabled=" placement-api $SERVICES "
enable_service() { enabled+="$1 "; }
disable_service() { enabled=${enabled/ $1 / }; }
is_service_enabled() { [[ "$enabled" == *" $1 "* ]]; }
sudo() { if [ "$1" = install ]; then mkdir -p "${@:4}"; else "$@"; fi; }
die() { echo "died: ${*:2}" >&2; exit 9; }
iniset() { printf '[%s]\\n%s = %s\\n' "$2" "$3" "$4" >>"$1"; }
configure_keystone_authtoken_middleware() { iniset "$1" keystone_authtoken username "$2"; }
database_connection_url() { echo "mysql+pymysql://root:secret@127.0.0.1/$1"; }
get_transport_url() { echo rabbit://stack:secret@192.0.2.1:5672/; }
get_python_exec_prefix() { echo "$PWD/bin"; }
for function in echo_summary setup_develop pip_install_gr recreate_database create_service_user \
    get_or_create_service get_or_create_endpoint run_process stop_process wait_for_service; do
    eval "$function() { echo $function \\"\\$@\\"; }"
done
mkdir -p bin
printf '#!/bin/sh\\necho ran "$0" "$@"\\n' >bin/placement-manage
chmod +x bin/placement-manage
source "$PLUGIN/settings"
eval "${LOCAL_CONF:-}"
for phase in "stack pre-install" "stack install" "stack post-config" "stack extra" unstack; do
    set -- $phase
    source "$PLUGIN/plugin.sh" "$@"
done
"""


def stacked(directory: Path, services: str = "", local_conf: str = ""):
    environment = {"PATH": "/usr/bin:/bin", "PLUGIN": str(PLUGIN), "SERVICES": services}
    return subprocess.run(
        ["bash", "-c", DEVSTACK],
        cwd=directory,
        env={**environment, "LOCAL_CONF": local_conf},
        capture_output=True,
        text=True,
        check=False,
    )


def unknown_options(path: Path, conf) -> set[str]:
    group, unknown = "DEFAULT", set()
    for line in path.read_text().splitlines():
        if line.startswith("["):
            group = line.strip("[]")
        elif (name := line.partition(" = ")[0]) not in (
            conf if group == "DEFAULT" else conf[group]
        ):
            unknown.add(f"[{group}]{name}")
    return unknown


def test_placement_is_replaced_and_every_option_is_one_that_the_programs_have(tmp_path):
    done = stacked(tmp_path, services="nova")
    assert (done.returncode, done.stderr) == (0, "")
    placement, agent = tmp_path / "placement/placement.conf", tmp_path / "agent/compute-agent.conf"
    server_conf = placement_config(config_files=[str(placement)])
    assert server_conf.placement_database.connection.endswith("/placement")
    agent_conf = agent_config([f"--config-file={agent}"], default_config_dirs=[])
    assert agent_conf.compute_driver == "host.HostDriver"
    assert unknown_options(placement, server_conf) <= {"[keystone_authtoken]username"}
    # those of the way to authenticate are registered when it is loaded
    of_password = {"auth_url", "username", "password", "user_domain_name", "project_name"}
    of_password |= {"project_domain_name"}
    assert unknown_options(agent, agent_conf) <= {f"[placement]{name}" for name in of_password}
    assert "auth_type = password" in (tmp_path / "nova.conf").read_text()
    steps = [line.split()[:2] for line in done.stdout.splitlines()]
    order = [
        ["recreate_database", "placement"],
        ["ran", f"{tmp_path}/bin/placement-manage"],
        ["get_or_create_endpoint", "placement"],
        ["run_process", "compute-placement"],
        ["wait_for_service", "60"],
        ["run_process", "compute-agent"],
        ["run_process", "compute-scheduler"],
        ["stop_process", "compute-scheduler"],
    ]
    positions = [steps.index(step) for step in order]
    assert positions == sorted(positions)


@pytest.mark.parametrize(
    ("services", "local_conf"),
    [("n-cpu", ""), ("", "enable_service placement-api")],
    ids=["two agents", "two placements"],
)
def test_two_programs_for_one_task_are_refused_before_anything_is_installed(
    tmp_path, services, local_conf
):
    done = stacked(tmp_path, services, local_conf)
    assert done.returncode == 9
    assert "disable_service" in done.stderr
    assert done.stdout == ""


def test_an_agent_alone_needs_no_database(tmp_path):
    done = stacked(tmp_path, local_conf="disable_service compute-placement")
    assert done.returncode == 0
    assert "recreate_database" not in done.stdout
    assert "run_process compute-agent" in done.stdout
