"""The agent runs on every host: what it imports is counted."""

import json
import subprocess
import sys

import pytest

PROBE = """
import json, re, sys, time
import {module}
print(json.dumps({{
    "seconds": time.process_time(),
    "mib": int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024,
    "modules": sorted(sys.modules),
}}))
"""
NEVER = {"numpy", "sqlalchemy", "placement_server", "oslo_messaging", "eventlet", "libvirt", "rich"}
NEVER |= {"opentelemetry", "oslo_utils.strutils"}


def probed(module: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(module=module)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", ["compute_agent.cmd.agent.main", "compute_agent.agent.agent"])
def test_the_agent_is_light_and_imports_nothing_of_the_server(module):
    found = probed(module)
    assert not NEVER & set(found["modules"])
    assert found["mib"] <= 60
    # the bound is for an idle machine; under a loaded one CPU time stretches too
    assert found["seconds"] <= 1.5


@pytest.mark.parametrize(
    ("loading", "loaded", "hidden"),
    [
        (
            "compute_agent.daemon.message_bus as bus; bus.use_threads(); import oslo_messaging",
            "oslo_service",
            "eventlet",
        ),
        (
            "compute_agent.cmd.agent.main as main\nwith main.imports(): import requests",
            "requests",
            "charset_normalizer",
        ),
        (
            "compute_agent.cmd.agent.main, compute_agent.agent.agent",
            "netaddr",  # what stands in its place
            "netaddr.core",
        ),
        ("compute_agent.cmd.agent.main, compute_agent.agent.agent", "shutil", "_lzma"),
        ("compute_agent.cmd.agent.main, compute_agent.agent.agent", "idna", "idna.core"),
        (
            "compute_agent.cmd.agent.main, compute_agent.agent.agent",
            "oslo_serialization",
            "gzip",  # of xmlrpc
        ),
    ],
)
def test_libraries_do_without_what_nobody_uses(loading, loaded, hidden):
    modules = probed(loading)["modules"]
    assert loaded in modules
    assert hidden not in modules
