"""Options of placement.conf without effect: one warning at the start of either way to serve."""

import os
from pathlib import Path

from tests.fixtures import programs

from .served import ServerProcess

CONFIG = "[workarounds]\noptimize_for_wide_provider_trees = true\n"
WARNING = "have no effect in this version: [workarounds]optimize_for_wide_provider_trees."


def test_serve_warns_once_however_many_workers_it_has(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--workers", "2", config=CONFIG)
    assert server.stop() == 0
    assert server.output.count(WARNING) == 1


def test_the_wsgi_application_warns(tmp_path: Path) -> None:
    (tmp_path / "placement.conf").write_text(
        "[placement_database]\nconnection = sqlite://\n[api]\nauth_strategy = noauth2\n" + CONFIG
    )
    done = programs.run(
        "tests.functional.api.wsgi_start",
        environment={**os.environ, "OS_PLACEMENT_CONFIG_DIR": str(tmp_path)},
        timeout=60,
    )
    assert done.returncode == 0
    assert (done.stdout + done.stderr).count(WARNING) == 1
