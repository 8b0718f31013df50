"""Every exit status of the real process, and what it says.

Each status is shown once by the console script, the others by forks of one process.
"""

import uuid

import pytest

from tests.fixtures.plain_trees import make_provider
from tests.functional.agent.processes import PLAIN_API, claim, eventually, running

pytestmark = pytest.mark.waiting

by_console_script = pytest.mark.usefixtures("console_scripts")


def says_once(agent, *words: str) -> str:
    """The one sentence about why it ended, without a traceback."""
    log = agent.logged()
    assert "Traceback" not in log, log
    for word in words:
        assert word in log, log
    return log


def failing(agent) -> int:
    agent.start()
    return agent.ended()


@by_console_script
def test_asked_to_stop_it_ends_with_0_and_lets_the_driver_go(placement, new_agent, node):
    agent = new_agent(placement.url)
    with running(agent):
        assert placement.root(node)
        assert agent.stop() == 0
    assert (agent.directory / "cleaned").exists()
    assert placement.root(node), "placement is left as it is"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"DEFAULT": {"periodic_fuzzy_delay": "soon"}}, "[DEFAULT]periodic_fuzzy_delay soon"),
        ({"DEFAULT": {"compute_driver": "vmware.Driver"}}, "vmware.Driver host.HostDriver"),
        ({"DEFAULT": {"compute_driver": ""}}, "compute_driver empty"),
        ({"DEFAULT": {"log_dir": "/nowhere"}}, "[DEFAULT]log_dir /nowhere No such file"),
        ({"placement": {"endpoint_override": "a:8778"}}, "[placement]endpoint_override a:8778"),
        (
            {"DEFAULT": {"compute_driver": "fake.FakeNumaDriver"}, "fake": {"cells": 0}},
            "[fake]cells 1",
        ),
        ({"DEFAULT": {"transport_url": "pigeon://loft"}}, "transport_url pigeon"),
        ({"compute_agent": {"heal_orphans": True}}, "heal_orphans transport_url"),
        ({"compute_agent": {"heal_missing": True}}, "heal_missing instance_source"),
        (
            {"compute_agent": {"heal_orphans": True, "instance_source": "file"}},
            "heal_orphans instance_file",
        ),
    ],
)
def test_options_that_cannot_be_used_end_with_1_and_are_named(
    placement, new_agent, settings, words
):
    agent = new_agent(placement.url, **settings)
    assert failing(agent) == 1
    says_once(agent, *words.split())


@pytest.mark.parametrize(
    ("group", "option", "value"),
    [
        ("compute", "cpu_shared_set", "0-x"),
        ("compute", "cpu_dedicated_set", "100000"),
        ("pci", "device_spec", "{"),
        ("pci", "alias", "{"),
        ("DEFAULT", "reserved_huge_pages", "node:0,size:huge,count:1"),
    ],
)
def test_an_option_that_makes_no_sense_ends_with_1_and_names_file_option_and_value(
    placement, new_agent, group, option, value
):
    settings = {"DEFAULT": {"compute_driver": "fake.FakeNumaDriver"}}
    settings.setdefault(group, {})[option] = value
    agent = new_agent(placement.url, **settings)
    assert failing(agent) == 1
    says_once(agent, f"[{group}]{option} = ", value, str(agent.config))


@by_console_script
def test_a_missing_file_ends_with_1(placement, new_agent):
    agent = new_agent(placement.url)
    agent.config.unlink()
    assert failing(agent) == 1
    says_once(agent, "agent.conf")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("meta: [", "a.yaml"),
        (
            "meta: {schema_version: '1.0'}\nproviders:\n- identification: {uuid: $COMPUTE_NODE}\n"
            "  traits: {additional: [HW_CPU_X86_AVX]}\n",
            "HW_CPU_X86_AVX",
        ),
    ],
)
def test_a_provider_config_file_that_is_wrong_ends_with_1(placement, new_agent, text, word):
    agent = new_agent(placement.url)
    (agent.directory / "provider_config").mkdir()
    (agent.directory / "provider_config" / "a.yaml").write_text(text)
    assert failing(agent) == 1
    says_once(agent, word)


def test_all_that_contradicts_the_driver_is_said_in_one_start(placement, new_agent, node):
    agent = new_agent(placement.url)
    agent.script(
        nodes=[node],
        inventory={
            "CUSTOM_A": {"total": 1},
            "CUSTOM_B": {"total": 2},
            "MEMORY_MB": {"total": 100, "reserved": 512},
        },
    )
    (agent.directory / "provider_config").mkdir()
    (agent.directory / "provider_config" / "a.yaml").write_text(
        "meta: {schema_version: '1.0'}\nproviders:\n- identification: {uuid: $COMPUTE_NODE}\n"
        "  inventories: {additional: [{CUSTOM_A: {total: 7}}, {CUSTOM_B: {total: 8}}]}\n"
    )
    assert failing(agent) == 1
    log = says_once(agent, "adds CUSTOM_A", "adds CUSTOM_B", "MEMORY_MB", "512")
    assert log.count("adds CUSTOM_A") == log.count("adds CUSTOM_B")
    assert placement.root(node) is None or not placement.tree(node)[node]["inventories"]


def test_a_state_directory_that_cannot_be_used_ends_with_1(placement, new_agent):
    agent = new_agent(placement.url)
    agent.state.write_text("a file")
    assert failing(agent) == 1
    says_once(agent, "state_path")


def test_a_second_agent_on_one_state_directory_ends_with_1(placement, new_agent):
    agent = new_agent(placement.url)
    with running(agent):
        second = agent.run("run")
        assert second.returncode == 1
        assert f"pid {agent.process.pid}" in second.stderr


def test_options_the_driver_refuses_end_with_1(placement, new_agent, node):
    agent = new_agent(placement.url)
    agent.script(nodes=[node], **{"raise": {"init_host": "InvalidConfiguration"}})
    assert failing(agent) == 1
    says_once(agent, "the script says so")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("failing", "consumer x cannot be placed"),
        ("broken", "while it was doing one"),
        ("losing", "VGPU"),
    ],
)
def test_a_reshape_that_fails_ends_with_2_and_changes_nothing(
    placement, new_agent, node, how, words
):
    agent = new_agent(placement.url)
    agent.script(nodes=[node], vgpu_on_root=True)
    with running(agent):
        agent.stop()
    root = placement.root(node)["uuid"]
    claim(placement, root, {"VGPU": 1})
    before = placement.tree(node)
    agent.script(nodes=[node], reshape=how)
    assert failing(agent) == 2
    assert words in agent.logged()
    assert node in agent.logged()
    assert placement.tree(node) == before


@by_console_script
def test_an_update_that_placement_rejects_ends_with_3_and_says_what_it_answered(
    proxy, new_agent, node
):
    proxy.error("PUT", "/inventories$", 400)
    agent = new_agent(proxy.url, compute_agent=PLAIN_API)
    assert failing(agent) == 3
    says_once(agent, "400 was scripted", node)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, None, "[placement]"),
        (403, None, "[placement]"),
        (404, b"<html>nothing here</html>", "nothing here"),
    ],
)
def test_a_placement_that_refuses_all_or_is_none_ends_with_3(proxy, new_agent, status, body, said):
    if body is None:
        proxy.error(".*", ".*", status)
    else:
        proxy.answer(".*", ".*", status, body)
    agent = new_agent(proxy.url)
    assert failing(agent) == 3
    says_once(agent, said)


def test_a_placement_that_is_too_old_ends_with_3_and_both_versions(proxy, new_agent):
    document = {"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.29"}]}
    proxy.answer("GET", "^/$", 200, document)
    agent = new_agent(proxy.url)
    assert failing(agent) == 3
    says_once(agent, "1.29", "1.30")


@pytest.mark.parametrize("auth_type", [None, "pasword"])
def test_no_way_to_authenticate_ends_with_3(placement, new_agent, auth_type):
    agent = new_agent(
        placement.url, DEFAULT={"periodic_fuzzy_delay": 3600}, placement={"auth_type": auth_type}
    )
    assert failing(agent) == 3
    says_once(agent, "[placement]auth_type", auth_type or "not set", "http_basic")


def test_placement_away_longer_than_the_time_limit_of_a_start_ends_with_3(new_agent):
    agent = new_agent("http://127.0.0.1:1", compute_agent={"startup_placement_timeout": 1})
    assert failing(agent) == 3
    says_once(agent, "placement cannot be reached")


@pytest.mark.parametrize("method", ["get_available_resource", "update_provider_tree"])
def test_a_driver_that_fails_ends_with_4_and_its_traceback_is_logged(
    placement, new_agent, node, method
):
    agent = new_agent(placement.url)
    agent.script(nodes=[node], **{"raise": {method: "ZeroDivisionError"}})
    assert failing(agent) == 4
    assert "ZeroDivisionError" in agent.logged()
    assert "Traceback" in agent.logged()


@by_console_script
def test_facts_that_lack_something_end_with_4(placement, new_agent, node):
    agent = new_agent(placement.url)
    agent.script(nodes=[node], missing_facts=["vcpus"])
    assert failing(agent) == 4
    assert "lack vcpus" in agent.logged()


def test_a_lost_identity_ends_with_5_and_the_uuid_to_restore(placement, new_agent, node):
    agent = new_agent(placement.url)
    with running(agent):
        agent.stop()
    own = (agent.state / "compute_id").read_text().strip()
    (agent.state / "compute_id").unlink()
    assert failing(agent) == 5
    says_once(agent, own, node)


@by_console_script
def test_identity_files_that_disagree_end_with_5(placement, new_agent):
    agent = new_agent(placement.url)
    agent.state.mkdir()
    (agent.state / "compute_id").write_text(str(uuid.uuid4()))
    (agent.config.parent / "compute_id").write_text(str(uuid.uuid4()))
    assert failing(agent) == 5
    says_once(agent, "disagree")


def test_a_name_that_another_provider_has_ends_with_5_and_both_uuids(placement, new_agent, node):
    other = make_provider(placement.send, node)
    agent = new_agent(placement.url)
    agent.state.mkdir()
    own = str(uuid.uuid4())
    (agent.state / "compute_id").write_text(own)
    assert failing(agent) == 5
    says_once(agent, own, other, "no inventory", "no allocations", "delete")


def occupied(placement, name):
    """Make a root provider of that name, of which somebody holds something; its uuid."""
    other = make_provider(placement.send, name, {"VCPU": 8, "MEMORY_MB": 1024})
    claim(placement, other, {"VCPU": 1})
    return other


def test_a_name_that_is_taken_ends_with_5_and_says_what_the_other_provider_has(
    placement, new_agent, node
):
    other = occupied(placement, node)
    agent = new_agent(placement.url)
    agent.state.mkdir()
    (agent.state / "compute_id").write_text(str(uuid.uuid4()))
    assert failing(agent) == 5
    says_once(agent, other, "inventory of 2 classes", "allocations of 1 consumer(s)", "compute_id")


def test_a_changed_host_name_that_is_taken_ends_with_5_and_renames_nothing(
    placement, new_agent, node
):
    agent = new_agent(placement.url)
    agent.script(nodes=[node], children={"a": {"VCPU": {"total": 1}}})
    with running(agent):
        own = placement.root(node)["uuid"]
        agent.stop()
    other = occupied(placement, f"{node}-new")
    agent.script(nodes=[f"{node}-new"], children={"a": {"VCPU": {"total": 1}}})
    assert failing(agent) == 5
    says_once(agent, own, other)
    assert set(placement.tree(node)) == {node, f"{node}_a"}


def test_a_changed_host_name_ends_with_5_where_renaming_is_refused(placement, new_agent, node):
    agent = new_agent(placement.url, compute_agent={"on_hostname_change": "refuse"})
    with running(agent):
        agent.stop()
    agent.script(nodes=[f"{node}-new"])
    assert failing(agent) == 5
    says_once(agent, node, f"{node}-new", "on_hostname_change")


@by_console_script
def test_status_and_report_end_with_7_when_no_agent_answers(placement, new_agent):
    agent = new_agent(placement.url)
    for command in ("status", "report"):
        asked = agent.run(command)
        assert asked.returncode == 7
        assert "compute-agent run" in asked.stderr


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["run", "--nonsense"]])
@by_console_script
def test_bad_arguments_end_with_127(placement, new_agent, arguments):
    agent = new_agent(placement.url)
    assert agent.run(*arguments).returncode == 127


def test_a_driver_that_is_not_ready_is_waited_for(placement, new_agent, node):
    agent = new_agent(placement.url)
    agent.script(nodes=[node], **{"raise": {"init_host": "VirtDriverNotReady"}})
    agent.start()
    eventually(lambda: "not ready" in agent.logged(), "a warning")
    agent.script(nodes=[node])
    agent.started()
    assert placement.root(node)
    assert agent.stop() == 0


def test_pci_devices_somebody_holds_cannot_be_taken_out_of_placement(placement, new_agent, node):
    specification = '{"vendor_id": "8086", "product_id": "1889"}'
    agent = new_agent(
        placement.url,
        DEFAULT={"compute_driver": "fake.FakeDriverWithPciResources", "host": node},
        pci={"report_in_placement": True, "device_spec": specification},
    )
    with running(agent):
        agent.stop()
    port = f"{node}_0000:80:00.0"
    consumer = claim(placement, placement.tree(node)[port]["uuid"], {"CUSTOM_PCI_8086_1889": 2})
    agent.configure(pci={"report_in_placement": False})
    assert failing(agent) == 1
    says_once(agent, consumer, port, "report_in_placement")
    assert port in placement.tree(node)
    placement.request("DELETE", f"/allocations/{consumer}")
    with running(agent):
        assert list(placement.tree(node)) == [node]
        agent.stop()
