"""Nova beside our parts: alone, and as a conductor beside a scheduler that serves."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.differential.nova.nova_process import Nova, nova_environment
from tests.fixtures import programs
from tests.functional.agent.processes import eventually
from tests.functional.scheduler.conftest import Cloud, write_config

CELL = str(uuid.UUID(int=0xCE11))


@pytest.fixture(scope="module")
def nova(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Nova]:
    """Nova with the `OPTIONS` of the module, if it has some."""
    options = getattr(request.module, "OPTIONS", "")
    with closing(Nova(tmp_path_factory.mktemp("nova"), options)) as process:
        yield process


@pytest.fixture(scope="module")
def cloud(placement_url: str) -> Cloud:
    return Cloud(placement_url)


@pytest.fixture(scope="module")
def conductor(
    bus_url: str, placement_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Nova]:
    """A conductor beside a scheduler that serves."""
    nova_environment()  # before the scheduler is started
    directory = tmp_path_factory.mktemp("wire")
    file = write_config(directory / "scheduler.conf", placement_url)
    file.write_text(
        f"[DEFAULT]\ntransport_url = {bus_url}\nhost = s-{uuid.uuid4().hex[:8]}\n"
        "control_exchange = nova\n"
        + file.read_text().removeprefix("[DEFAULT]\n")
        + '[filter_scheduler]\npci_in_placement = true\n[pci]\nalias = {"name": "gpu", '
        '"resource_class": "CUSTOM_GPU"}\n' + f"[compute_agent]\ncell_uuid = {CELL}\n"
    )
    log = directory / "scheduler.log"
    with log.open("wb") as output:
        process = programs.start(
            "compute-scheduler", "--config-file", str(file), "serve", output=output
        )
    options = (
        f"transport_url = {bus_url}\nrpc_response_timeout = 30\n[placement]\n"
        f"auth_type = admin_token\nendpoint = {placement_url}\ntoken = admin\n"
        f"endpoint_override = {placement_url}\n"
        "[filter_scheduler]\npci_in_placement = true\n"
    )
    try:
        with closing(Nova(directory, options)) as process_of_nova:
            eventually(lambda: "Serving topic scheduler" in log.read_text(), log.read_text())
            yield process_of_nova
    finally:
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
    assert "Traceback" not in log.read_text()
