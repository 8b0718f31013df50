"""Damaged files of an agent: an error with file and place, or a cache that is set aside."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from compute_agent import errors
from compute_agent.placement.connection import Clock
from compute_agent.report.cache import CacheFile
from compute_agent.state import documents, identity
from compute_agent.state.files import AgentLock, StateUnusable
from compute_agent.state.ledger import Ledger, ServiceState
from compute_agent.tracker.place import UNKNOWN, boot_id
from tests.unit.tracker.damaged_documents import (
    CACHE,
    CHILD,
    GUEST,
    LEDGERS,
    MARKER,
    NO_FILES,
    RAW,
    ROOT,
    envelope,
    misshapen,
)

MOST = 64 * 1024**2
"""Bytes that reading a file may take, whatever is in it."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*MARKER, "claims", "created", ROOT, "a"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


def ledger_use(directory: Path) -> None:
    """All that an agent does with its ledger: what was read must be good for it."""
    ledger = Ledger(directory, read_only=True)
    assert not ledger.owns("x")
    ledger.remember_providers([ROOT], [CHILD])
    ledger.additions()
    ledger.remember_additions({})
    ledger.change_claims(drop=[GUEST])
    for claim in ledger.claims().values():
        json.dumps(to_builtins(claim))
    ledger.nodes()
    ledger.remember_nodes({})
    ledger.faults()
    ledger.reserves()
    ledger.change_faults(forgotten_providers=[CHILD])
    assert isinstance(ledger.service_state(default_enabled=True), ServiceState)


def marker_use(directory: Path) -> None:
    identity.read_marker(directory)


def identity_use(directory: Path) -> None:
    identity.find([directory])


def lock_use(directory: Path) -> None:
    with AgentLock(directory):
        pass


class KeptFile:
    """One file: its name, what reads it, and the error that it may end with."""

    def __init__(
        self, name: str, use: Callable[[Path], None], error: type[Exception], document: Any
    ) -> None:
        self.name, self.use, self.error, self.document = name, use, error, document

    def written(self, document: Any) -> bytes:
        return envelope(document) if self.name in LEDGERS else json.dumps(document).encode()

    def __repr__(self) -> str:
        return self.name


FILES = [
    *(KeptFile(name, ledger_use, StateUnusable, good) for name, good in LEDGERS.items()),
    KeptFile("registered", marker_use, errors.InvalidNodeConfiguration, MARKER),
    KeptFile("compute_id", identity_use, errors.InvalidNodeConfiguration, None),
]


def cached(directory: Path) -> dict[str, Any]:
    return dict(CacheFile(directory / "placement-cache.json", Clock()).load())


@pytest.fixture
def bounded() -> Iterator[None]:
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MOST


@pytest.mark.parametrize("form", RAW)
@pytest.mark.parametrize("file", FILES, ids=repr)
def test_content_that_is_not_the_documents_is_refused_with_the_name_of_the_file(
    tmp_path: Path, file: KeptFile, form: str
) -> None:
    path = tmp_path / file.name
    path.write_bytes(RAW[form])
    with pytest.raises(file.error) as caught:
        file.use(tmp_path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == RAW[form], "nothing is lost of it"


@pytest.mark.parametrize("form", NO_FILES)
@pytest.mark.parametrize(
    "file", [*FILES, KeptFile("agent.lock", lock_use, StateUnusable, None)], ids=repr
)
@pytest.mark.usefixtures("bounded")
def test_what_is_no_file_of_reasonable_size_is_refused_without_waiting_for_it_or_reading_it_all(
    tmp_path: Path, file: KeptFile, form: str
) -> None:
    path = tmp_path / file.name
    NO_FILES[form](path)
    if (file.name, form) == ("agent.lock", "10 GiB"):
        path.unlink()
        path.mkdir()  # the lock is not read, so its size does not matter
    with pytest.raises(file.error) as caught:
        file.use(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("file", [file for file in FILES if file.document], ids=repr)
def test_a_value_of_another_type_is_refused_with_its_place_in_the_file(
    tmp_path: Path, file: KeptFile
) -> None:
    path = tmp_path / file.name
    tried = 0
    for key, document in misshapen(file.document):
        if '"page_size_kib": null' in json.dumps(document):
            continue  # ordinary memory has no size of its pages
        path.write_bytes(file.written(document))
        with pytest.raises(file.error) as caught:
            file.use(tmp_path)
        message = str(caught.value)
        assert str(path) in message
        assert key in message or f"[{key}]" in message or "half a character" in message
        message.encode()
        tried += 1
    assert tried > 10


@pytest.mark.parametrize("name", LEDGERS)
def test_a_good_document_is_read_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(envelope(LEDGERS[name]))
    ledger_use(tmp_path)


def test_a_document_of_another_type_is_refused_in_a_whole_sentence(tmp_path: Path) -> None:
    (tmp_path / "claims.json").write_text("[1, 2]")
    with pytest.raises(StateUnusable, match=r"is damaged: it is \[1, 2\], not an object"):
        Ledger(tmp_path, read_only=True).claims()


def test_a_claim_under_the_name_of_another_consumer_is_refused(tmp_path: Path) -> None:
    claims = {"claims": {CHILD: LEDGERS["claims.json"]["claims"][GUEST]}}
    (tmp_path / "claims.json").write_bytes(envelope(claims))
    with pytest.raises(StateUnusable, match=f'claims.{CHILD}.consumer is "{GUEST}", not {CHILD}'):
        ledger_use(tmp_path)


def test_what_a_long_value_is_not_stays_a_sentence(tmp_path: Path) -> None:
    claim = {**LEDGERS["claims.json"]["claims"][GUEST], "consumer": "x" * 10**6}
    (tmp_path / "claims.json").write_bytes(envelope({"claims": {GUEST: claim}}))
    with pytest.raises(StateUnusable, match=r'consumer is "x+\.\.\., not') as caught:
        Ledger(tmp_path, read_only=True)
    assert len(str(caught.value)) < 1000


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(document=JSON)
@pytest.mark.parametrize("file", FILES, ids=repr)
def test_any_json_is_read_or_refused_with_the_documented_error(
    tmp_path: Path, file: KeptFile, document: Any
) -> None:
    (tmp_path / file.name).write_bytes(file.written(document))
    with contextlib.suppress(file.error):
        file.use(tmp_path)


# -- the cache -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [*RAW, *NO_FILES])
@pytest.mark.usefixtures("bounded")
def test_a_cache_that_cannot_be_read_is_set_aside_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    path = tmp_path / "placement-cache.json"
    if form in RAW:
        path.write_bytes(RAW[form])
    else:
        NO_FILES[form](path)
    assert cached(tmp_path) == {}
    assert [entry.name for entry in tmp_path.iterdir()] == ["placement-cache.json.broken"]
    [warning] = caplog.records
    assert warning.levelname == "WARNING"
    assert str(path) in warning.getMessage()
    assert f"{path}.broken" in warning.getMessage()


def test_a_cache_with_a_value_of_another_type_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "placement-cache.json"
    for key, document in misshapen(CACHE):
        if key == "format" and document["format"] == 3:
            continue
        path.write_text(json.dumps(document))
        caplog.clear()
        trees = cached(tmp_path)
        if key == "parent_provider_uuid" and trees:
            continue  # a lone root beside the host, as a provider that shares is
        assert trees == {}
        assert not path.exists()
        assert (
            key in caplog.text or "half a character" in caplog.text or key == "parent_provider_uuid"
        )
        assert Path(f"{path}.broken").read_text() == json.dumps(document)


CACHED_ROOT, CACHED_CHILD = CACHE["trees"][ROOT]


def test_a_cache_with_an_inventory_that_placement_cannot_have_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inventory = {"VCPU": {"total": 8, "step_size": 1.5}}
    trees = {ROOT: [{**CACHED_ROOT, "inventory": inventory}]}
    (tmp_path / "placement-cache.json").write_text(json.dumps({**CACHE, "trees": trees}))
    assert cached(tmp_path) == {}
    assert "inventory.VCPU.step_size is 1.5, not a whole number" in caplog.text


@pytest.mark.parametrize(
    ("trees", "place"),
    [
        *(
            ({ROOT: [CACHED_ROOT, {**CACHED_CHILD, **change}]}, place)
            for change, place in (
                ({"uuid": "no-uuid"}, "no-uuid"),
                ({"uuid": ROOT}, ROOT),
                ({"parent_provider_uuid": GUEST}, GUEST),
                ({"name": "host1"}, "host1"),
                ({"name": ""}, "name"),
            )
        ),
        # the host below another provider, and a root with another uuid than its key
        ({CHILD: [CACHED_ROOT, CACHED_CHILD]}, CHILD),
        ({ROOT: [{**CACHED_ROOT, "uuid": GUEST}]}, ROOT),
    ],
)
def test_a_cache_whose_providers_are_no_tree_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trees: dict[str, Any], place: str
) -> None:
    path = tmp_path / "placement-cache.json"
    path.write_text(json.dumps({"format": 1, "trees": trees}))
    assert cached(tmp_path) == {}
    assert Path(f"{path}.broken").exists()
    assert place in caplog.text


def test_additions_that_no_file_can_have_made_end_the_start(tmp_path: Path) -> None:
    additions = {ROOT: {"inventories": ["VCPU"], "traits": ["CUSTOM_B"]}}
    (tmp_path / "provider-config.json").write_bytes(envelope(additions))
    with pytest.raises(StateUnusable, match=r'inventories\[0\] is "VCPU", not a name that starts'):
        Ledger(tmp_path)


def test_a_good_cache_is_read_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "placement-cache.json"
    path.write_text(json.dumps(CACHE))
    assert cached(tmp_path)[ROOT].tree.get_provider_uuids() == [ROOT, CHILD]
    assert path.exists()


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(document=JSON)
def test_any_json_in_the_cache_is_read_or_set_aside(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "placement-cache.json"
    for whole in (
        document,
        {"format": 1, "trees": document},
        {"format": 1, "trees": {ROOT: document}},
    ):
        path.write_text(json.dumps(whole))
        cached(tmp_path)


def test_what_could_not_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Ledger(tmp_path).remember_providers([ROOT])
    path = tmp_path / "placement-cache.json"
    path.write_text(json.dumps(CACHE))
    trees = cached(tmp_path)
    monkeypatch.setattr(documents, "MAX_BYTES", 300)
    with pytest.raises(StateUnusable, match="would have"):
        Ledger(tmp_path).remember_providers([f"{ROOT}{number}" for number in range(10)])
    assert Ledger(tmp_path).owns(ROOT)
    CacheFile(path, Clock()).save(list(trees.values()))
    assert "The next start reads everything" in caplog.text
    assert path.read_text() == json.dumps(CACHE)


# -- the rest ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", NO_FILES)
def test_a_boot_that_cannot_be_read_is_unknown(tmp_path: Path, form: str) -> None:
    path = tmp_path / "sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    NO_FILES[form](path)
    boot = boot_id(str(tmp_path))
    assert boot == UNKNOWN or form == "10 GiB"


def test_a_boot_that_is_not_text_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\xfe")
    assert boot_id(str(tmp_path))
