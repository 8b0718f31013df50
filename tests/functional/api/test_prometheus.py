"""A real Prometheus that scrapes a real server of two workers."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.fixtures.plain_trees import make_provider
from tests.fixtures.ports import free_port

from .served import ServerProcess

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs the Debian package prometheus"
)

OPTIONS = "[placement_server]\nmetrics_path = /-/metrics\ninventory_metrics = hosts\n"
START_SECONDS = 60


@pytest.fixture
def placement(tmp_path: Path) -> Iterator[str]:
    """The URL of a server on which a host has 8 VCPU."""
    arguments = (tmp_path, "--workers", "2")
    with ServerProcess(*arguments, config=OPTIONS, console_script=True) as served:

        def send(method: str, path: str, body: object) -> None:
            assert served.ask(method, path, json=body).ok

        make_provider(send, "h", {"VCPU": 8})
        yield served.url


@pytest.fixture
def prometheus(tmp_path: Path, placement: str) -> Iterator[str]:
    """The URL of a Prometheus that scrapes the server every second."""
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "scrape_configs:\n- job_name: placement\n  scrape_interval: 1s\n"
        "  metrics_path: /-/metrics\n"
        f"  static_configs: [{{targets: ['{placement.removeprefix('http://')}']}}]\n"
    )
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'series'}",
            f"--web.listen-address={address}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(30)


def sampled(prometheus: str, query: str) -> str:
    """The value of the only series of a query, once there is one."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            answer = requests.get(
                f"{prometheus}/api/v1/query", params={"query": query}, timeout=5
            ).json()
        except (requests.ConnectionError, ValueError):
            answer = {}
        if answer.get("data", {}).get("result"):
            (series,) = answer["data"]["result"]
            return str(series["value"][1])
        time.sleep(0.1)
    raise AssertionError(f"no sample of {query} within {START_SECONDS} s")


def test_whichever_worker_answers_prometheus_sees_the_whole_fleet_once(prometheus: str) -> None:
    # on a busy machine the first scrape may take longer than prometheus waits
    assert sampled(prometheus, 'up{job="placement"} == 1') == "1"
    assert sampled(prometheus, 'placement_inventory_free{resource_class="VCPU"}') == "8"
    assert sampled(prometheus, 'placement_host_inventory_free{host="h"}') == "8"
    # Both workers have connections, and none serves a request but the scrape itself.
    assert float(sampled(prometheus, "placement_database_connections")) >= 1
