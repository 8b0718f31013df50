"""The command `compute-scheduler` against a real placement."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fixtures.ports import free_port
from tests.functional.scheduler.conftest import Cloud, Command, write_config


def test_a_claim_prints_where_it_landed_and_release_gives_it_back(
    cloud: Cloud, command: Command
) -> None:
    host = cloud.flat_host(4)
    asked = ("--resources", "VCPU=2,MEMORY_MB=512", "--required", cloud.mark)

    plain = command("claim", *asked)
    assert plain.returncode == 0, plain.stderr
    assert host in plain.stdout
    assert "VCPU=2" in plain.stdout
    consumer = plain.stdout.split()[1]
    assert cloud.held(consumer) == {host: {"VCPU": 2, "MEMORY_MB": 512}}

    document = json.loads(command("claim", *asked, "--json").stdout)
    assert document["root_provider"] == host
    assert document["host"] == f"p-{host}"
    assert document["mappings"] == {"": [host]}

    released = command("release", consumer)
    assert (released.returncode, cloud.held(consumer)) == (0, {})
    again = command("release", consumer)
    assert again.returncode == 1
    assert f"consumer {consumer} holds nothing" in again.stderr


def test_a_host_whose_root_gives_nothing_is_claimed_on_one_of_its_cells(
    cloud: Cloud, claimed: Callable[..., Any]
) -> None:
    root, cells = cloud.nested_host(4, 4)
    document = claimed("VCPU=3,MEMORY_MB=512")
    assert document["root_provider"] == root
    [cell] = document["allocations"]
    assert cell in cells
    assert document["allocations"][cell]["resources"] == {"VCPU": 3, "MEMORY_MB": 512}


def test_a_guest_larger_than_any_cell_is_split_over_them(
    cloud: Cloud, claimed: Callable[..., Any]
) -> None:
    _, cells = cloud.nested_host(4, 4)
    held = cloud.held(claimed("VCPU=6,MEMORY_MB=1500")["consumer"])
    assert set(held) == set(cells)
    assert sum(holding["VCPU"] for holding in held.values()) == 6
    assert sum(holding["MEMORY_MB"] for holding in held.values()) == 1500


def test_a_device_lands_below_the_cell_of_its_guest(cloud: Cloud, command: Command) -> None:
    _, cells = cloud.nested_host(4, 4)
    card = cloud.provider({cloud.mark: 1}, parent=cells[1])
    done = command(
        "claim",
        *("--resources", "VCPU=1,MEMORY_MB=64", "--group", f"CARD:{cloud.mark}=1"),
        *("--same-subtree", "CARD,_NUMA0", "--json"),
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["allocations"]) == {cells[1], card}


def test_an_aggregate_and_a_trait_of_the_root_find_a_nested_host(
    cloud: Cloud, claimed: Callable[..., Any]
) -> None:
    aggregate = str(uuid.uuid4())
    trait = f"{cloud.mark}_RACK"
    cloud.call("PUT", f"/traits/{trait}")
    cloud.nested_host(4)
    wanted, _ = cloud.nested_host(4, root_traits=(trait,), aggregates=(aggregate,))
    for narrowed in (("--member-of", aggregate), ("--required", trait)):
        assert claimed("VCPU=1,MEMORY_MB=64", *narrowed)["root_provider"] == wanted


def test_a_named_host_is_the_only_one_asked(cloud: Cloud, command: Command) -> None:
    cloud.flat_host(64)
    small = cloud.flat_host(2)
    asked = ("claim", "--resources", "VCPU=2", "--required", cloud.mark, "--json")
    done = command(*asked, "--host", f"p-{small}")
    assert json.loads(done.stdout)["root_provider"] == small
    full = command(*asked, "--host", f"p-{small}")
    assert full.returncode == 1
    missing = command(*asked, "--host", "nowhere")
    assert missing.returncode == 1
    assert "Placement knows no host nowhere" in missing.stderr


def test_a_request_that_fits_nowhere_says_why(cloud: Cloud, command: Command) -> None:
    cloud.flat_host(2)
    done = command("claim", "--resources", "VCPU=2000", "--required", cloud.mark)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "No valid host was found. Placement has no candidate" in done.stderr
    assert "Traceback" not in done.stderr

    causes = json.loads(
        command("claim", "--resources", "VCPU=2000", "--required", cloud.mark, "--json").stdout
    )["causes"]
    assert "resources=VCPU:2000" in causes["queries"][0]["query"]


def test_a_specification_that_fits_nowhere_says_why_in_json(command: Command) -> None:
    spec = {"project_id": "p", "user_id": "u", "flavor": {"vcpus": 2000}}
    done = command("select", input=json.dumps(spec | {"instance_uuid": str(uuid.uuid4())}))
    assert done.returncode == 1, done.stderr
    assert "resources=VCPU:2000" in json.loads(done.stdout)["causes"]["queries"][0]["query"]


def test_a_trait_that_placement_does_not_know_is_named(command: Command) -> None:
    done = command("claim", "--resources", "VCPU=1", "--required", "CUSTOM_NEVER_HEARD_OF")
    assert done.returncode == 1
    assert "CUSTOM_NEVER_HEARD_OF" in done.stderr


def test_bad_input_names_the_option(command: Command, tmp_path: Path) -> None:
    done = command("claim", "--resources", "VCPU=two")
    assert done.returncode == 2
    assert "--resources is 'VCPU=two': expected CLASS=AMOUNT" in done.stderr
    assert command("claim", "--consumer", "me", "--resources", "VCPU=1").returncode == 2
    assert command("release", "me").returncode == 2
    broken = tmp_path / "broken.conf"
    broken.write_text("[filter_scheduler]\nhost_subset_size = many\n")
    refused = command("claim", "--resources", "VCPU=1", config_file=broken)
    assert refused.returncode == 2
    assert "[filter_scheduler]host_subset_size" in refused.stderr
    unknown = tmp_path / "unknown.conf"
    unknown.write_text("[filter_scheduler]\nenabled_filters = NoFilter\n")
    refused = command("claim", "--resources", "VCPU=1", config_file=unknown)
    assert refused.returncode == 2
    assert "NoFilter" in refused.stderr


def test_placement_that_is_down_is_no_full_cloud(command: Command, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    down = write_config(tmp_path / "down.conf", url)
    done = command("claim", "--resources", "VCPU=1", config_file=down)
    assert done.returncode == 3
    assert f"{url}/: Connection refused. Check that a server answers there" in done.stderr
    assert "No valid host" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_consumer_that_holds_something_is_not_claimed_for_again(
    cloud: Cloud, command: Command
) -> None:
    host = cloud.flat_host(4)
    consumer = str(uuid.uuid4())
    asked = ("claim", "--required", cloud.mark, "--consumer", consumer)
    assert command(*asked, "--resources", "VCPU=1").returncode == 0
    done = command(*asked, "--resources", "VCPU=2")
    assert done.returncode == 4
    assert "holds allocations already" in done.stderr
    assert cloud.held(consumer) == {host: {"VCPU": 1}}


def test_a_specification_is_claimed_and_its_selections_printed(
    cloud: Cloud, command: Command
) -> None:
    hosts = {cloud.flat_host(4), cloud.flat_host(2)}
    instances = [str(uuid.uuid4()) for _ in range(2)]
    spec = {
        "instance_uuids": instances,
        "project_id": "p",
        "user_id": "u",
        "flavor": {"vcpus": 1, "memory_mb": 64, "extra_specs": {f"trait:{cloud.mark}": "required"}},
        "instance_group": {"policy": "anti-affinity"},
    }
    done = command("select", "--json", input=json.dumps(spec))
    assert done.returncode == 0, done.stderr
    selections = json.loads(done.stdout)
    assert {offer[0]["compute_node_uuid"] for offer in selections} == hosts
    for instance, [selection] in zip(instances, selections, strict=True):
        assert cloud.held(instance) == {
            selection["compute_node_uuid"]: {"VCPU": 1, "MEMORY_MB": 64}
        }

    refused = command("select", "-", input=json.dumps({**spec, "flavor": {"vcpus": "x"}}))
    assert refused.returncode == 2
    assert "flavor.vcpus is 'x'" in refused.stderr
    assert command("select", input="{").returncode == 2


def test_a_command_claims_also_while_agents_of_a_bus_might_do_so(
    cloud: Cloud, claimed: Callable[..., Any], tmp_path: Path, placement_url: str
) -> None:
    host = cloud.flat_host(4)
    file = write_config(tmp_path / "auto.conf", placement_url)
    file.write_text(file.read_text() + "[compute_agent]\nlegacy_self_claim = auto\n")
    consumer = claimed("VCPU=1", config_file=file)["consumer"]
    assert cloud.held(consumer) == {host: {"VCPU": 1}}


def test_a_move_is_begun_reverted_and_confirmed_with_the_document_that_begin_prints(
    cloud: Cloud, command: Command
) -> None:
    hosts = {cloud.flat_host(4), cloud.flat_host(4)}
    instance, migration = str(uuid.uuid4()), str(uuid.uuid4())
    spec = {
        "instance_uuid": instance,
        "project_id": "p",
        "user_id": "u",
        "flavor": {"vcpus": 1, "memory_mb": 64, "extra_specs": {f"trait:{cloud.mark}": "required"}},
    }
    held = {"VCPU": 1, "MEMORY_MB": 64}
    assert command("select", input=json.dumps(spec)).returncode == 0
    [source] = cloud.held(instance)
    [destination] = hosts - {source}

    def begin() -> str:
        arguments = ("move", "begin", "live", instance, "--migration", migration)
        done = command(*arguments, input=json.dumps(spec))
        assert done.returncode == 0, done.stderr
        assert cloud.held(instance) == {destination: held}
        assert cloud.held(migration) == {source: held}
        return done.stdout

    reverted = command("move", "revert", input=begin())
    assert json.loads(reverted.stdout)["reverted"] == instance
    assert (cloud.held(instance), cloud.held(migration)) == ({source: held}, {})

    begun = begin()
    assert command("move", "finish", input=begun).returncode == 0
    assert (cloud.held(instance), cloud.held(migration)) == ({destination: held}, {})
    refused = command("move", "revert", input=begun)
    assert refused.returncode == 4
    assert "the move was confirmed" in refused.stderr

    assert command("move", "begin", "evacuate", instance, input=json.dumps(spec)).returncode == 0
    assert cloud.held(instance) == {source: held, destination: held}
    assert command("move", "returned", instance, destination).returncode == 0
    assert cloud.held(instance) == {source: held}
    wrong = command("move", "finish", input="{}")
    assert wrong.returncode == 2
    assert "expected what begin_move returned" in wrong.stderr


def test_the_status_of_an_upgrade_needs_a_bus(command: Command) -> None:
    done = command("status", "upgrade")
    assert done.returncode == 2
    assert "transport_url is not set" in done.stderr


def test_an_instance_is_rescheduled_attached_to_detached_from_and_deleted_by_command(
    cloud: Cloud, command: Command, claimed: Callable[..., Any], tmp_path: Path
) -> None:
    hosts = {cloud.flat_host(2), cloud.flat_host(2)}
    for host in hosts:
        cloud.provider({cloud.mark: 1}, parent=host)
    instance = str(uuid.uuid4())
    spec = json.dumps(
        {
            "project_id": "p",
            "user_id": "u",
            "flavor": {"vcpus": 2, "extra_specs": {f"trait:{cloud.mark}": "required"}},
        }
    )
    asked = ("VCPU=2", "--project", "p", "--consumer", instance)
    claim = claimed(*asked)
    assert claimed(*asked) == claim

    done = command("reschedule", instance, "--failed", claim["host"], input=spec)
    assert done.returncode == 0, done.stderr
    [host] = hosts - {claim["root_provider"]}
    assert cloud.held(instance) == {host: {"VCPU": 2}}

    before = tmp_path / "before.json"
    before.write_text(json.dumps(cloud.held(instance)))
    group = {"requester_id": "card", "resources": {cloud.mark: 1}}
    body = {"project_id": "p", "user_id": "u", "requested_resources": [group]}
    attach = ("attach", instance, "--before", str(before))
    attached = [command(*attach, input=json.dumps(body)).stdout for _ in range(2)]
    assert attached[0] == attached[1]
    assert len(cloud.held(instance)) == 2
    assert command("detach", instance, input=attached[0]).returncode == 0
    assert cloud.held(instance) == {host: {"VCPU": 2}}

    for released in (True, False):
        deleted = json.loads(command("delete", instance).stdout)
        assert deleted == {"deleted": instance, "released": released}
    assert command("delete", instance, "--local").returncode == 0
