"""An out-of-tree driver whose class of units becomes another between two starts."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.virt.driver import Allocations, ClassChange
from compute_agent.virt.fake import FakeDriver

CARD: Final = "card"
DRIVER: Final = f"{__name__}.PivotDriver"


class Pivot(NamedTuple):
    """A class of a provider that becomes another; provider "": the root.

    :ivar old_total: units before.
    :ivar new_total: units after.
    """

    old: str
    new: str
    factor: Fraction = Fraction(1)
    at: str = ""
    to: str = ""
    old_total: int = 8
    new_total: int = 8


PIVOTS: Final = {
    "FPGA": Pivot("CUSTOM_FPGA_XILINX", "FPGA"),
    "VF": Pivot("CUSTOM_NIC_VF", "SRIOV_NET_VF"),
    "GPU": Pivot("CUSTOM_GPU", "PGPU"),
    "bandwidth": Pivot("CUSTOM_BW", "NET_BW_EGR_KILOBIT_PER_SEC"),
    "move and rename": Pivot("CUSTOM_FPGA", "FPGA", to=CARD),
    "another total": Pivot("CUSTOM_FPGA", "FPGA", at=CARD, to=CARD, new_total=6),
    "x1000": Pivot("CUSTOM_BW", "NET_BW_EGR_KILOBIT_PER_SEC", Fraction(1000), new_total=8000),
    "x1000 to a card": Pivot(
        "CUSTOM_BW", "NET_BW_EGR_KILOBIT_PER_SEC", Fraction(1000), to=CARD, new_total=8000
    ),
    "/2": Pivot("CUSTOM_HALF", "FPGA", Fraction(1, 2), new_total=4),
}


def will_report(
    state: Path, pivot: Pivot, *, after: bool, is_declared: bool = False, loses: bool = False
) -> None:
    """Make drivers with this state directory report the class from before, or from after.

    :param is_declared: they declare the change.
    :param loses: they lose what consumers hold.
    """
    state.mkdir(parents=True, exist_ok=True)
    factor = Fraction(pivot.factor).as_integer_ratio()
    fields = pivot._replace(factor=factor)  # type: ignore[arg-type]
    wanted = {"pivot": fields, "after": after, "is_declared": is_declared, "loses": loses}
    (state / "pivot.json").write_text(json.dumps(wanted))


class PivotDriver(FakeDriver):
    """A root with a card, whose classes change between two starts."""

    def _read(self) -> tuple[Pivot, dict[str, bool]]:
        wanted = json.loads((Path(self.conf.state_path) / "pivot.json").read_text())
        pivot = Pivot(*wanted.pop("pivot"))
        return pivot._replace(factor=Fraction(*pivot.factor)), wanted  # type: ignore[misc]

    def class_changes(self, nodename: str) -> list[ClassChange]:
        pivot, wanted = self._read()
        if not wanted["is_declared"]:
            return []
        return [ClassChange(pivot.old, pivot.new, pivot.factor)]

    def update_provider_tree(
        self, provider_tree: ProviderTree, nodename: str, allocations: Allocations | None = None
    ) -> None:
        (pivot, wanted), tree = self._read(), provider_tree
        card = f"{nodename}_{CARD}"
        if not tree.exists(card):
            tree.new_child(card, nodename)
        old_place, new_place = (card if place else nodename for place in (pivot.at, pivot.to))
        if wanted["after"] and pivot.old in tree.data(old_place).inventory:
            if allocations is None:
                raise errors.ReshapeNeeded(f"{pivot.old} becomes {pivot.new}")
            places = tree.data(old_place).uuid, tree.data(new_place).uuid
            _move(allocations, pivot, *places, loses=wanted["loses"])
        if wanted["after"]:
            unit = pivot.new, new_place, pivot.new_total
        else:
            unit = pivot.old, old_place, pivot.old_total
        for place in (nodename, card):
            records = {unit[0]: {"total": unit[2]}} if unit[1] == place else {}
            base = {"VCPU": {"total": 8}} if place == nodename else {}
            tree.update_inventory(place, {**base, **records})


def _move(allocations: Allocations, pivot: Pivot, source: str, target: str, *, loses: bool) -> None:
    for record in allocations.values():
        entries = record["allocations"]
        amount = entries.get(source, {}).get("resources", {}).pop(pivot.old, 0)
        if amount and not loses:
            resources = entries.setdefault(target, {"resources": {}})["resources"]
            resources[pivot.new] = -int(-amount * pivot.factor // 1)
        for place in [place for place in entries if not entries[place]["resources"]]:
            del entries[place]
