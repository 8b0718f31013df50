"""An installation of compute-agent without extras."""

import json
import subprocess
import sys
from importlib import metadata

from tests.fixtures.plain_installation import REPOSITORY, plain_distributions

NEED_A_BUS = {
    "compute_agent.cmd.dev.bus",
    "compute_agent.cmd.scheduler.serve",
    "compute_agent.scheduler.bus.rpc",
    "compute_agent.scheduler.bus.calls",
    "compute_agent.scheduler.bus.rpc_life_cycle",
    "compute_agent.scheduler.service.life",
}
NEED_FIXTURES = {"compute_agent.testing"}
OF_THE_SERVER = {
    *("numpy", "sqlalchemy", "alembic", "granian", "jsonschema", "oslo-messaging", "eventlet"),
}
IMPORT_ALL = """
import importlib, json, pkgutil, compute_agent
failures = {}
for module in pkgutil.walk_packages(compute_agent.__path__, "compute_agent."):
    try:
        importlib.import_module(module.name)
    except Exception as error:
        failures[module.name] = str(error)
print(json.dumps(failures))
"""


def test_an_agents_host_gets_at_most_45_packages_and_none_of_the_server():
    packages = plain_distributions()
    assert len(packages) <= 45
    assert not packages & OF_THE_SERVER


def test_what_an_agents_host_gets_is_small():
    """36 MB of files; byte code and folders make them 60, see docs/reference/compute-agent.md."""
    # a new virtual environment has setuptools already
    packages = plain_distributions() - {"setuptools"}
    sizes = {
        name: sum(
            file.locate().stat().st_size
            for file in metadata.files(name) or ()
            if file.suffix != ".pyc"
        )
        for name in packages
    }
    assert all(sizes.values())
    for folder in ("compute_agent", "placement_server", "etc", "man", "docs"):
        sizes[folder] = sum(
            file.stat().st_size
            for file in (REPOSITORY / folder).rglob("*.*")
            if file.suffix not in {".pyc", ".png"}
        )
    assert sum(sizes.values()) < 36.5e6, sizes


def test_without_extras_everything_but_the_bus_and_the_fixtures_can_be_imported(plain_installation):
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        env=plain_installation,
        capture_output=True,
        text=True,
        check=True,
    )
    failures = json.loads(done.stdout)
    assert set(failures) == NEED_A_BUS | NEED_FIXTURES
    for module, text in failures.items():
        extra = "testing" if module in NEED_FIXTURES else "bus"
        assert f"pip install '.[{extra}]'" in text
