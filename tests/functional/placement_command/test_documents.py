"""Files: what export prints apply leaves alone, and a plan comes before what is done."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from compute_agent.placement.transports.transport import Transport
from compute_agent.testing.transports import RecordingTransport
from tests.functional.placement_command.conftest import Run, done


class File:
    """A file of a host with a name of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = f"doc-{uuid.uuid4().hex[:8]}"

    def write(self, **document: Any) -> Path:
        self.path.write_text(yaml.safe_dump(document))
        return self.path

    def host(self) -> list[dict[str, Any]]:
        root = {
            "name": self.name,
            "inventories": {"DISK_GB": {"total": 100, "reserved": 5}, "MEMORY_MB": 1024},
            "traits": [f"CUSTOM_{self.name[4:].upper()}"],
            "aggregates": [str(uuid.uuid4())],
        }
        cells = [
            {
                "name": f"{self.name}_{number}",
                "parent": self.name,
                "inventories": {"VCPU": 4, f"CUSTOM_{self.name[4:].upper()}": 1},
                "traits": ["HW_NUMA_ROOT"],
            }
            for number in range(2)
        ]
        # Parents are found wherever they stand.
        return [*cells, root]


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "providers.yaml")


def test_a_declared_host_is_created_once_and_then_left_alone(run: Run, file: File) -> None:
    path = file.write(providers=file.host())
    planned = run("apply", path, "--dry-run")
    assert planned.status == 6
    assert planned.lines[0] == f"create {file.name}"
    plan = run("apply", path, "--dry-run", "--json")
    assert (plan.status, plan.json) == (6, {"steps": planned.lines, "dry_run": True})
    assert run("provider", "show", file.name).status == 1
    # The uuids of new providers are made for each run; the plan is the same.
    assert done(run("apply", path)).lines == planned.lines
    again = done(run("apply", path))
    assert again.lines == ["Placement is as the file declares it."]
    stock = done(run("inventory", "list", file.name, "--json")).json
    assert (stock["DISK_GB"]["total"], stock["DISK_GB"]["reserved"]) == (100, 5)


def test_what_is_exported_is_as_it_is_declared(run: Run, file: File) -> None:
    done(run("apply", file.write(providers=file.host())))
    exported = yaml.safe_load(done(run("export", file.name)).out)
    assert len(exported["providers"]) == 3
    unchanged = done(run("apply", file.write(**exported)))
    assert unchanged.lines == ["Placement is as the file declares it."]
    assert done(run("export", file.name, "--json")).json == exported
    for provider in exported["providers"]:
        provider["name"] = provider["name"].replace("doc-", "new-")
        provider["parent"] = provider["parent"] and provider["parent"].replace("doc-", "new-")
    done(run("apply", file.write(**exported)))
    renamed = yaml.safe_load(done(run("export", file.name.replace("doc-", "new-"))).out)
    assert {entry["uuid"]: entry for entry in renamed["providers"]} == {
        entry["uuid"]: entry for entry in exported["providers"]
    }


def test_only_what_differs_is_changed_and_what_is_left_out_stays(run: Run, file: File) -> None:
    done(run("apply", file.write(providers=file.host())))
    path = file.write(
        providers=[
            {"name": file.name, "inventories": {"DISK_GB": 200}, "traits": ["HW_NUMA_ROOT"]},
            {"name": f"{file.name}_1", "parent": None},
        ],
        absent=[f"{file.name}_0", "nothing-of-this-name"],
    )
    assert done(run("apply", path)).lines == [
        f"set the inventories of {file.name}: DISK_GB total 100 -> 200 reserved 5 -> 0, "
        "MEMORY_MB removed",
        f"set the traits of {file.name}: +HW_NUMA_ROOT, -CUSTOM_{file.name[4:].upper()}",
        f"make {file.name}_1 a root",
        f"delete {file.name}_0",
    ]
    assert len(done(run("aggregate", "list", file.name, "--json")).json) == 1
    assert list(done(run("inventory", "list", f"{file.name}_1", "--json")).json) != []
    assert run("provider", "show", f"{file.name}_0").status == 1


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("[", "is not YAML"),
        ("[]", "it is [], not an object"),
        ("providers: [{parent: a}]", "providers[0].name is missing"),
        ("providers: [{name: a, uuid: host-a}]", 'providers[0].uuid is "host-a", not a uuid'),
        ("providers: [{name: a, aggregates: [rack]}]", 'providers[0].aggregates[0] is "rack"'),
        ("providers: [{name: a, inventories: {VCPU: many}}]", "providers[0].inventories.VCPU is"),
        (
            "providers: [{name: a, inventories: {1: 2}}]",
            "providers[0].inventories: the key is 1, not text",
        ),
        ("providers: [{name: a, inventories: {2001-01-01: 2}}]", 'the key is "2001-01-01"'),
        ("absent: 2024-02-30", "a value that cannot be read: day is out of range"),
        ("absent: !!bool perhaps", "a value that cannot be read: 'perhaps'"),
        (
            "providers: [{name: a, inventories: {VCPU: {total: 4, reserved: 2024-02-03}}}]",
            "a value that JSON lacks (Object of type date",
        ),
        (r'providers: [{name: "a\uD800"}]', "a value that JSON lacks ('utf-8' codec"),
        ("hosts: []", "hosts is not known"),
        ("providers: [{name: a}, {name: a}]", "more than once"),
        ("providers: [{name: a, parent: b}, {name: b, parent: a}]", "a circle: a -> b -> a"),
        ("providers: [{name: a, parent: no-such-parent}]", "neither in the file nor in placement"),
    ],
)
def test_a_file_that_cannot_be_used_changes_nothing(
    run_ours: Run, tmp_path: Path, document: str, words: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(document)
    ended = run_ours("apply", path)
    assert ended.status == 2, ended.err
    assert words in ended.err
    assert run_ours("provider", "show", "a").status == 1


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("inventories: {a: 5}", "inventories.a is 5, not an object"),
        ("inventories: {a: {VCPU: many}}", "the inventories of a: VCPU is"),
        ("inventories: {a: {inventories: {VCPU: many}}}", "the inventories of a: VCPU is"),
        ("inventories: {}\nallocations: {c: {}}", "allocations.c.allocations is missing"),
        (
            "inventories: {}\nallocations: {c: {allocations: {a: {resources: &a {VCPU: *a}}}}}",
            "has an alias inside its own anchor",
        ),
        (
            "inventories: {}\nallocations: {c: {allocations: {a: 1}}}",
            "allocations.c.allocations.a is 1, not an object",
        ),
    ],
)
def test_a_reshape_that_cannot_be_read_names_the_place(
    run_ours: Run, tmp_path: Path, document: str, words: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(document)
    ended = run_ours("reshape", path)
    assert ended.status == 2, ended.err
    assert words in ended.err


def test_a_change_between_the_reads_of_a_provider_is_not_overwritten(
    our_placement: Transport, run_ours: Run, run_on: Callable[[Transport | None], Run], file: File
) -> None:
    name = file.name
    done(run_ours("apply", file.write(providers=[{"name": name, "inventories": {"VCPU": 8}}])))

    def change(method: str, path: str, _body: object) -> None:
        if method == "GET" and path.endswith("/traits"):
            done(run_ours("inventory", "set", name, "DISK_GB=5"))

    interrupted = run_on(RecordingTransport(our_placement, change))
    path = file.write(providers=[{"name": name, "inventories": {"VCPU": 9}}])
    ended = interrupted("apply", path)
    assert ended.status == 4, ended.err
    assert set(done(run_ours("inventory", "list", name, "--json")).json) == {"VCPU", "DISK_GB"}


def test_a_file_that_is_not_there_is_named(run_ours: Run, tmp_path: Path) -> None:
    ended = run_ours("apply", tmp_path / "none.yaml")
    assert ended.status == 2
    assert "none.yaml cannot be read" in ended.err


def test_inventory_moves_to_a_child_with_what_is_held_of_it(
    run: Run, file: File, tmp_path: Path
) -> None:
    root, child, consumer = file.name, f"{file.name}_gpu", str(uuid.uuid4())
    done(
        run(
            "apply",
            file.write(
                providers=[
                    {"name": root, "inventories": {"VCPU": 8, "VGPU": 4}},
                    {"name": child, "parent": root},
                ]
            ),
        )
    )
    owner = ("--project", "p", "--user", "u")
    done(run("allocation", "set", consumer, f"{root}:VCPU=2,VGPU=1", *owner))
    held = {root: {"resources": {"VCPU": 2}}, child: {"resources": {"VGPU": 1}}}
    reshape = tmp_path / "reshape.json"
    reshape.write_text(
        json.dumps(
            {
                "inventories": {root: {"VCPU": 8}, child: {"VGPU": 4}},
                "allocations": {consumer: {"allocations": held}},
            }
        )
    )
    planned = run("reshape", reshape, "--dry-run")
    assert planned.status == 6
    assert planned.lines[:2] == [f"{root}: VGPU 4 -> 0", f"{child}: VGPU 0 -> 4"]
    assert planned.lines[2].startswith(f"consumer {consumer}: ")
    assert done(run("usage", root, "--json")).json == {"VCPU": 2, "VGPU": 1}
    assert done(run("reshape", reshape)).lines == planned.lines
    assert done(run("usage", root, "--json")).json == {"VCPU": 2}
    assert done(run("usage", child, "--json")).json == {"VGPU": 1}
