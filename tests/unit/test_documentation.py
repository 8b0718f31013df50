"""Names in the pages of docs/, compared with what there is: options and alerts."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from keystoneauth1 import loading
from oslo_config import cfg

from compute_agent import conf as agent_conf
from compute_agent.virt import fake
from placement_server import conf as server_conf
from tools.dependencies import dependencies, key_of, versions_of

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
OPTION = re.compile(r"\[([a-z_]+|DEFAULT)\](?!\()([a-z][a-z0-9_]*)\b")
SECTION = re.compile(r"\[([\w-]+|(?:mdev|neutron_physnet)_<[a-z]+>)\]")
ASSIGNMENT = re.compile(r"#?([a-z][a-z0-9_]*) ?= ?")
TEST = re.compile(
    r"\b((?:tests|examples|compute_agent/testing)/[\w/]+\.py)(?:::(?:[A-Z]\w+::)?(test_\w+))?"
)
MODULE = re.compile(r"`([a-z_]+/[a-z_/]+)`")
QUOTE = re.compile(r'"([^"]+)"')
STRING_GOES_ON = re.compile(r'"\s*\n\s*f?"')
OTHER_SOFTWARE = {"local", "test", "Service", "Unit"}
"""Sections of files that are not ours."""


def registered() -> dict[str, set[str]]:
    """The names of all options by group, old names too."""
    names: dict[str, set[str]] = {}

    def add(group: str, option: cfg.Opt) -> None:
        names.setdefault(group, set()).add(option.dest)
        for old in option.deprecated_opts:
            names.setdefault(old.group or group, set()).add(
                (old.name or option.name).replace("-", "_")
            )

    ours = agent_conf.new_config([], default_config_files=[], default_config_dirs=[])
    for conf in (ours, server_conf.new_config(config_files=[])):
        for info in conf._opts.values():
            add("DEFAULT", info["opt"])
        for group in conf._groups.values():
            for info in group._opts.values():
                add(group.name, info["opt"])
    for named, options in agent_conf.list_opts():
        # groups that exist for each type or network that other options name
        if (name := getattr(named, "name", named)) and "<" in name:
            names[name.partition("<")[0]] = {option.dest for option in options}
    for option in (*fake.size_opts, *fake.behaviour_opts):
        add(fake.GROUP, option)
    of_ways_to_authenticate = {
        option.dest
        for name in ("password", "v3password", "http_basic", "none", "v3applicationcredential")
        for option in loading.get_auth_plugin_conf_options(name)
    }
    for group in ("placement", "keystone_authtoken", "nova", "neutron"):
        names[group] |= of_ways_to_authenticate | {"endpoint_override", "region_name"}
    return names


def named_options(text: str) -> Iterator[tuple[str, str]]:
    """The options of a page, in its sentences and in its blocks of configuration."""
    yield from OPTION.findall(text)
    group, fenced = None, False
    for line in text.splitlines():
        if line.strip().startswith("```"):
            group, fenced = None, not fenced
        elif not fenced and line and not line.startswith("    "):
            group = None
        elif section := SECTION.fullmatch(line.strip()):
            group = re.sub(r"^(mdev_|neutron_physnet_).*", r"\1", section[1])
        elif group and (assigned := ASSIGNMENT.match(line.strip())):
            yield group, assigned[1]


@pytest.fixture(scope="module")
def names() -> dict[str, set[str]]:
    return registered()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_option_that_a_page_names_exists(page, names):
    unknown = {
        f"[{group}]{name}"
        for group, name in named_options(page.read_text())
        if group not in OTHER_SOFTWARE and name not in names.get(group, set())
    }
    assert unknown == set()


def test_an_unknown_option_is_seen_in_a_sentence_and_in_a_block(names):
    text = "Set `[placement]timeouts`.\n\n    [DEFAULT]\n    compute_drivers = x\n"
    assert [name in names[group] for group, name in named_options(text)] == [False, False]
    known = "`[placement]timeout`\n\n    [DEFAULT]\n    compute_driver = x\n"
    assert [name in names[group] for group, name in named_options(known)] == [True, True]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_test_that_a_page_names_exists(page):
    missing = []
    for path, name in TEST.findall(page.read_text()):
        file = DOCS.parent / path
        if not file.is_file() or (name and f"def {name}(" not in file.read_text()):
            missing.append(f"{path}::{name}")
    assert missing == []


def test_each_sentence_of_the_threat_model_names_a_test():
    text = (DOCS / "understand" / "threat-model.md").read_text()
    sentences = re.split(r"^- ", text, flags=re.MULTILINE)[1:]
    assert len(sentences) > 20
    assert [sentence for sentence in sentences if not TEST.search(sentence)] == []


def test_each_defect_has_a_test():
    text = (DOCS / "understand" / "defects.md").read_text()
    rows = [row for row in re.findall(r"^\| (.+) \|$", text, re.MULTILINE) if "---" not in row]
    defects = [row for row in rows if row != "what was wrong | test"]
    assert len(defects) > 90
    assert [row for row in defects if not any(name for _, name in TEST.findall(row))] == []


def test_the_page_about_monitoring_has_every_alert():
    rules = (DOCS.parent / "etc" / "placement-alerts.yml").read_text()
    page = (DOCS / "do" / "monitoring.md").read_text()
    assert set(re.findall(r"alert: (\w+)", rules)) == set(
        re.findall(r"`((?:Placement|Compute)[A-Z]\w+)`", page)
    )


def test_each_message_that_the_page_of_troubleshooting_quotes_is_one_of_a_program():
    page = (DOCS / "do" / "troubleshooting.md").read_text()
    symptoms = [row.split(" | ")[0] for row in page.splitlines() if row.startswith("| ")]
    quotes = [
        part for row in symptoms for text in QUOTE.findall(row) for part in text.split(" ... ")
    ]
    assert len(quotes) > 8
    messages = " ".join(
        STRING_GOES_ON.sub("", path.read_text())
        for package in ("compute_agent", "placement_server")
        for path in (DOCS.parent / package).rglob("*.py")
    )
    assert [quote for quote in quotes if quote not in messages] == []


def test_every_module_that_the_page_about_the_agent_names_exists():
    named = MODULE.findall((DOCS / "understand" / "agent.md").read_text())
    package = DOCS.parent / "compute_agent"
    assert "tracker/decisions" in named
    assert [
        name
        for name in named
        if not (package / name).exists() and not (package / f"{name}.py").exists()
    ] == []


def test_every_sentence_of_the_specifications_names_a_test() -> None:
    page = (DOCS / "understand" / "specifications.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    tests = {row: TEST.findall(row.rpartition(" | ")[2]) for row in rows}
    unshown = [row for row, found in tests.items() if not any(name for _, name in found)]
    assert {row.split(" | ")[0] for row in unshown} == {"| sentence"}


def test_the_page_of_dependencies_has_each_with_its_version() -> None:
    page = (DOCS / "understand" / "dependencies.md").read_text()
    versions = versions_of(DOCS.parent / "constraints.txt")
    rows = re.findall(r"^\| \[(.+?)\]\(.*?\) \| (.+?) \| (.+?) \| (.+?) \|", page, re.MULTILINE)
    assert [tuple(row[:3]) for row in rows] == [tuple(dependency) for dependency in dependencies()]
    assert [row[3].split(", ")[-1] for row in rows] == [versions[key_of(row[0])] for row in rows]
