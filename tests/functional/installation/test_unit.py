"""The units, by systemd's own checks; nothing is installed or started."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ETC = Path(__file__).resolve().parents[3] / "etc"
EXPOSURE = 2.0
"""Of 10; the lower the less an intruder in the process could do."""

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is not installed (Debian package: systemd)",
)


WITH_LIBVIRT = "compute-agent with the libvirt driver"


@pytest.fixture(params=["compute-agent", WITH_LIBVIRT, "compute-scheduler", "placement-server"])
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit, whose program is one that every machine has."""
    name = f"{request.param.split()[0]}.service"
    text = (ETC / name).read_text()
    path = tmp_path / name
    path.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    if request.param == WITH_LIBVIRT:
        drop_ins = tmp_path / "compute-agent.service.d"
        drop_ins.mkdir()
        shutil.copy(ETC / "compute-agent-libvirt.conf", drop_ins / "libvirt.conf")
    return path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], check=False, capture_output=True, text=True
    )


def test_systemd_understands_every_line(unit: Path) -> None:
    result = analyze("verify", "--man=no", str(unit))
    assert (result.returncode, result.stderr) == (0, "")


def test_the_process_is_allowed_little(unit: Path) -> None:
    result = analyze("security", "--offline=true", f"--threshold={EXPOSURE * 10:.0f}", str(unit))
    assert result.returncode == 0, result.stdout


def test_it_reports_when_it_serves_and_can_be_reloaded(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    assert "Type=notify" in lines
    assert "ExecReload=/bin/kill -HUP $MAINPID" in lines


def test_the_driver_gets_a_group_and_nothing_else() -> None:
    lines = (ETC / "compute-agent-libvirt.conf").read_text().partition("[Service]")[2].splitlines()
    settings = [line for line in lines if line and not line.startswith("#")]
    assert settings == ["SupplementaryGroups=libvirt"]


def test_the_user_of_the_unit_is_made() -> None:
    if shutil.which("systemd-sysusers") is None:
        pytest.skip("systemd-sysusers is not installed (Debian package: systemd)")
    result = subprocess.run(
        ["systemd-sysusers", "--dry-run", str(ETC / "compute-agent.sysusers.conf")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "compute-agent" in result.stderr + result.stdout
