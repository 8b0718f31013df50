"""The example of the Python API, as the documentation has it, with libvirt's own test driver."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.functional.scheduler.conftest import Cloud

pytest.importorskip("libvirt")

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "scheduler-python.md"
NODE = "<node><domain type='test'><name>other</name><memory>1</memory><os><type>hvm</type></os>"


def test_the_example_of_the_documentation_starts_a_guest_and_releases_what_it_held(
    cloud: Cloud, config: Path, tmp_path: Path
) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    # the hosts of this test alone
    program = program.replace(
        '"root_gb": 0}', f'"root_gb": 0, "extra_specs": {{"trait:{cloud.mark}": "required"}}}}'
    )
    (tmp_path / "start_guest.py").write_text(program)
    hosts = [f"p-{cloud.flat_host(4)}" for _ in range(3)]

    def started() -> subprocess.CompletedProcess[str]:
        address = f"test://{tmp_path}/{{host}}.xml"
        command = [sys.executable, str(tmp_path / "start_guest.py"), str(config), address]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    # a host without its file cannot be reached
    (tmp_path / f"{hosts[1]}.xml").write_text(f"{NODE}</domain></node>")
    done = started()
    assert done.returncode == 0, done.stderr
    assert f"runs on {hosts[1]} with" in done.stdout
    (tmp_path / f"{hosts[1]}.xml").unlink()
    failed = started()
    assert failed.returncode == 1
    assert all(f"{host} cannot start the guest" in failed.stderr for host in hosts)
    assert "No valid host was found" in failed.stderr
    for host in hosts:
        path = f"/resource_providers/{host.removeprefix('p-')}/usages"
        assert set(cloud.call("GET", path)["usages"].values()) == {0}
