"""The agent runs on every host: what it does not need is not loaded."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
# keystoneauth1 loads it, and WebOb with it, wherever somebody installed it: no business of ours
sys.modules["osprofiler"] = None
import compute_agent.report.client, compute_agent.placement.transports.transport
from compute_agent.placement.transports.keystone import KeystoneTransport
heavy = {"numpy", "sqlalchemy", "placement_server", "alembic", "webob", "jsonschema"}
print(sorted(heavy & set(sys.modules)))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) // 1024)
"""


@pytest.fixture(scope="module")
def measured() -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_the_report_client_loads_neither_the_server_nor_its_libraries(measured):
    assert measured[0] == "[]"


def test_the_report_client_with_its_http_library_stays_below_48_mib(measured):
    assert int(measured[1]) < 48
