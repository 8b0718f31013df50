"""Programs on a host that was installed without the extra they need, and those that need none."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.agent.processes import eventually

BIN = Path(sys.executable).parent
WITH_A_BUS = "[DEFAULT]\ntransport_url = rabbit://guest:guest@127.0.0.1:1//\n"


@pytest.fixture
def config(tmp_path, placement_url):
    path = tmp_path / "agent.conf"

    def write(text=""):
        path.write_text(
            f"{text or '[DEFAULT]'}\nstate_path = {tmp_path}/state\nhost = {tmp_path.name}\n"
            "compute_driver = fake.FakeNumaDriver\nperiodic_fuzzy_delay = 0\n"
            f"[placement]\nauth_type = noauth\nendpoint_override = {placement_url}\n"
            f"[compute]\nprovider_config_location = {tmp_path}/provider_config\n"
        )
        return str(path)

    return write


@pytest.fixture
def run(plain_installation):
    def run(program, *arguments):
        return subprocess.run(
            [str(BIN / program), *arguments],
            env=plain_installation,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    ("program", "arguments", "status"),
    [
        ("placement-server", ("serve",), 1),
        ("placement-manage", ("db", "version"), 1),
        ("placement-status", ("upgrade", "check"), 255),
    ],
)
def test_a_program_of_the_server_says_in_one_line_what_to_install(run, program, arguments, status):
    done = run(program, *arguments)
    assert done.returncode == status
    [line] = done.stderr.splitlines()
    assert line.startswith(f"{program}: ")
    assert "pip install '.[server]'" in line
    assert done.stdout == ""


def test_placement_in_process_says_what_to_install(run, config, tmp_path):
    placement = tmp_path / "placement.conf"
    placement.write_text(f"[placement_database]\nconnection = sqlite:///{tmp_path}/placement.db\n")
    options = (f"--config-file={config()}", f"--placement-config={placement}")
    done = run("compute-manage", "placement", "audit", *options)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "pip install '.[server]'" in line


def test_dev_says_what_to_install(run, tmp_path):
    done = run("compute-agent", "dev", "--once", "--port=0", f"--state-dir={tmp_path / 'dev'}")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("compute-agent dev: ")
    assert "pip install '.[dev]'" in line
    assert not (tmp_path / "dev").exists()


def test_an_agent_with_a_bus_says_what_to_install(run, config):
    done = run("compute-agent", "run", "--config-file", config(WITH_A_BUS))
    assert done.returncode == 1
    [line] = [line for line in done.stdout.splitlines() if "CRITICAL" in line]
    assert "pip install '.[bus]'" in line


def test_a_scheduler_that_is_to_serve_says_what_to_install(run, config):
    done = run("compute-scheduler", "--config-file", config(WITH_A_BUS), "serve")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "pip install '.[bus]'" in line


def test_agent_and_scheduler_work_without_any_extra(
    run, config, tmp_path, placement_url, plain_installation
):
    file = config()
    agent = subprocess.Popen(
        [str(BIN / "compute-agent"), "run", "--config-file", file],
        env=plain_installation,
        stderr=(tmp_path / "agent.log").open("wb"),
    )
    try:
        eventually(
            lambda: run("compute-agent", "status", "--config-file", file).returncode == 0,
            "an agent that answers",
        )
        assert run("compute-agent", "plan", "--config-file", file).returncode == 0
        assert run("compute-agent", "show", "--config-file", file).returncode == 0
        claimed = run("compute-scheduler", "--config-file", file, "claim", "--resources", "VCPU=1")
        assert claimed.returncode == 0, claimed.stderr
        agent.terminate()
        assert agent.wait(60) == 0
    finally:
        agent.kill()
        agent.wait()
