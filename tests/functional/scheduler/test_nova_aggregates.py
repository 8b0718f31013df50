"""Host aggregates from the Compute API, of which a stand-in answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compute_agent import conf as agent_conf
from compute_agent.openstack.service import ServiceUnusable
from compute_agent.scheduler.fleet.aggregates import KEPT_SECONDS, NovaAggregates, source_of
from tests.fixtures.clocks import ManualClock
from tests.fixtures.stub_server import StubHandler, StubServer
from tests.functional.scheduler.conftest import Cloud, Command, write_config

AZ = "11111111-1111-1111-1111-111111111111"


class Nova:
    """What the stand-in shows and was asked; nothing is shown while it is down."""

    def __init__(self) -> None:
        self.aggregates: list[dict[str, Any]] = []
        self.down = False
        self.asked: list[tuple[str, str | None]] = []
        self.url = ""


def aggregate(uuid: str, *hosts: str, zone: str | None = None) -> dict[str, Any]:
    """An aggregate as `GET /os-aggregates` shows it at 2.41."""
    return {
        "uuid": uuid,
        "id": 1,
        "name": "rack",
        "availability_zone": zone,
        "hosts": list(hosts),
        "metadata": {"availability_zone": zone} if zone else {},
        "deleted": False,
        "created_at": "2026-01-01T00:00:00.000000",
        "updated_at": None,
        "deleted_at": None,
    }


@pytest.fixture
def nova() -> Iterator[Nova]:
    stand_in = Nova()

    class Handler(StubHandler):
        def do_GET(self) -> None:
            stand_in.asked.append((self.path, self.headers.get("OpenStack-API-Version")))
            body = json.dumps({"aggregates": stand_in.aggregates}).encode()
            self.send_response(404 if stand_in.down else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with StubServer(Handler) as server:
        stand_in.url = f"{server.url}/v2.1"
        yield stand_in


def configured(nova: Nova, file: Path) -> Path:
    file.write_text(
        file.read_text()
        + "[compute_scheduler]\naggregate_source = nova\n"
        + f"[nova]\nauth_type = noauth\nendpoint_override = {nova.url}\n"
    )
    return file


@pytest.fixture
def file(nova: Nova, config: Path) -> Path:
    return configured(nova, config)


def test_aggregates_are_read_with_their_zones_and_kept_for_a_minute(nova: Nova, file: Path) -> None:
    nova.aggregates = [aggregate(AZ, "h1", zone="az1")]
    source = source_of(agent_conf.new_config([f"--config-file={file}"]))
    assert isinstance(source, NovaAggregates)
    source._aggregates.clock = clock = ManualClock()
    assert source.current().where("availability_zone", "az1") == {AZ}
    assert [zone.uuid for zone in source.current().of_host("h1")] == [AZ]
    assert nova.asked == [("/v2.1/os-aggregates", "compute 2.41")]
    nova.aggregates = []
    clock.now = KEPT_SECONDS
    assert source.current().all == ()


def test_what_was_read_stays_in_force_while_nova_is_away(nova: Nova, file: Path) -> None:
    nova.aggregates = [aggregate(AZ, "h1", zone="az1")]
    source = source_of(agent_conf.new_config([f"--config-file={file}"]))
    assert isinstance(source, NovaAggregates)
    source._aggregates.clock = clock = ManualClock()
    source.current()
    nova.down = True
    clock.now = KEPT_SECONDS
    assert source.current().where("availability_zone", "az1") == {AZ}


def test_aggregates_that_were_never_read_are_an_error(nova: Nova, file: Path) -> None:
    nova.down = True
    source = source_of(agent_conf.new_config([f"--config-file={file}"]))
    with pytest.raises(ServiceUnusable, match="Nova answered 404"):
        source.current()
    nova.down = False
    nova.aggregates = [{"name": "of an old Nova"}]
    with pytest.raises(ServiceUnusable, match=r"uuids from 2\.41 on"):
        source.current()


def test_a_zone_of_nova_is_claimed_in(
    nova: Nova, cloud: Cloud, command: Command, tmp_path: Path, placement_url: str
) -> None:
    cloud.flat_host(4)
    wanted = cloud.provider({"VCPU": 4}, cloud.mark, "COMPUTE_NODE", aggregates=(AZ,))
    nova.aggregates = [aggregate(AZ, f"p-{wanted}", zone="az1")]
    file = configured(nova, write_config(tmp_path / "nova.conf", placement_url))
    spec = {
        "instance_uuid": "99999999-9999-9999-9999-" + wanted[-12:],
        "project_id": "p",
        "user_id": "u",
        "availability_zone": "az1",
        "flavor": {"vcpus": 1, "extra_specs": {f"trait:{cloud.mark}": "required"}},
    }
    done = command("select", config_file=file, input=json.dumps(spec))
    assert done.returncode == 0, done.stderr
    [[selection]] = json.loads(done.stdout)
    assert selection["compute_node_uuid"] == wanted
    assert selection["availability_zone"] == "az1"
    nova.down = True
    refused = command("select", config_file=file, input=json.dumps(spec))
    assert refused.returncode == 3
    assert "Nova answered 404" in refused.stderr
