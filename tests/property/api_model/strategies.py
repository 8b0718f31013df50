"""Values that the requests of a run are drawn from: few names, so that they meet often."""

from __future__ import annotations

import uuid

from hypothesis import strategies as st

from tests.property.api_model.model import Record

NAMES = [f"name-{number}" for number in range(5)]
CLASSES = ["VCPU", "MEMORY_MB", "CUSTOM_GOLD", "CUSTOM_UNKNOWN"]
TRAITS = ["HW_CPU_X86_AVX", "CUSTOM_FAST", "CUSTOM_WARM", "CUSTOM_UNKNOWN"]
AGGREGATES = [str(uuid.UUID(int=number)) for number in (1, 2)]
CONSUMERS = [str(uuid.UUID(int=number)) for number in range(11, 15)]
NOBODY = str(uuid.UUID(int=99))
PROJECTS = ["p1", "p2"]

RECORDS = st.builds(
    Record,
    total=st.integers(1, 12),
    reserved=st.sampled_from([0, 0, 0, 1, 20]),
    min_unit=st.sampled_from([1, 1, 2]),
    max_unit=st.sampled_from([2147483647, 2147483647, 5]),
    step_size=st.sampled_from([1, 1, 2]),
    allocation_ratio=st.sampled_from([1.0, 1.0, 1.5, 0.5]),
)
PLAIN_RECORDS = st.builds(Record, total=st.integers(4, 16))
STOCK = st.dictionaries(st.sampled_from(CLASSES[:3]), RECORDS, max_size=3)
AMOUNTS = st.sampled_from([1, 1, 2, 2, 3, 4, 6, 9])
HOW_MANY = st.sampled_from([0, 1, 1, 1, 2])
OFF = st.sampled_from([0, 0, 0, 0, 0, 1])
"""How far a generation in a request is off: mostly not at all."""
