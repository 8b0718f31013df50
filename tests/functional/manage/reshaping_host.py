"""A host whose next start reports another layout, with guests on it."""

from collections import Counter

from compute_agent.virt.fake import FakeReshapeDriver
from tests.functional.manage.conftest import Operator


def will_report(operator: Operator, layout: str) -> None:
    """Make the next start of the reshaping fake one that reports this layout."""
    operator.configure(DEFAULT={"compute_driver": "fake.FakeReshapeDriver"})
    operator.state.mkdir(exist_ok=True)
    starts = {"flat": 0, "nested": 1}[layout]
    (operator.state / FakeReshapeDriver.COUNTER).write_text(str(starts))


def occupied(operator: Operator) -> list[str]:
    """Report the host flat, with guests on its root; the guests."""
    will_report(operator, "flat")
    assert operator.migrate().status == 0
    root = operator.placement.providers(operator.name)[operator.name]["uuid"]
    return [
        operator.placement.claim({root: {"VCPU": 1 + number, "MEMORY_MB": 512}})
        for number in range(3)
    ]


def sums(operator: Operator, consumer: str) -> Counter[str]:
    """What a consumer holds, wherever that is."""
    total: Counter[str] = Counter()
    for resources in operator.placement.held(consumer).values():
        total.update(resources)
    return total
