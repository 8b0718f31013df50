"""NVML where there is none. With one: tests/integration/nvml."""

from __future__ import annotations

import logging

import pytest

from compute_agent.discovery.nvml import binding
from compute_agent.discovery.nvml.binding import NvmlUnavailable
from compute_agent.discovery.nvml.partitions import plain_name
from compute_agent.discovery.nvml.source import NvmlSource


def test_a_missing_module_names_the_extra_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    source = NvmlSource()
    with caplog.at_level(logging.INFO):
        first, second = source.read(), source.read()
    assert first == second
    assert first.gpus == ()
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "'.[nvidia]'" in caplog.text


def test_loading_the_module_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with pytest.raises(NvmlUnavailable, match=r"nvidia"):
        binding.load()


def test_a_source_that_never_started_may_be_closed() -> None:
    loads: list[str] = []
    NvmlSource(lambda: loads.append("pynvml")).close()
    assert loads == []


@pytest.mark.parametrize(
    ("slices", "memory_mib", "name"),
    [(1, 4864, "1g.5gb"), (1, 9728, "1g.10gb"), (3, 40192, "3g.40gb"), (7, 81920, "7g.80gb")],
)
def test_profiles_are_named_as_nvidia_names_them(slices: int, memory_mib: int, name: str) -> None:
    assert plain_name(slices, memory_mib) == name
