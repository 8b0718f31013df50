"""GPUs as JSON: what a capture keeps of NVML, and a source that reads it back."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from compute_agent.discovery.errors import FactMalformed
from compute_agent.discovery.facts import PciAddress, pci_address
from compute_agent.discovery.nvml.facts import NvmlGpu, NvmlReading


class RecordedGpus:
    """A source of GPU facts that were read earlier, perhaps on another machine."""

    def __init__(self, gpus: tuple[NvmlGpu, ...]) -> None:
        self._reading = NvmlReading(gpus=gpus)

    def read(self) -> NvmlReading:
        return self._reading


def to_json(gpus: tuple[NvmlGpu, ...]) -> list[dict[str, Any]]:
    """Return the GPUs as plain objects."""
    return [asdict(gpu) for gpu in gpus]


def from_json(objects: Any, path: str) -> tuple[NvmlGpu, ...]:
    """Return the GPUs of `to_json`.

    Fields left out are unknown, those of other releases are passed over.

    Raises FactMalformed, naming `path`, for anything else.
    """
    try:
        gpus: tuple[NvmlGpu, ...] = fact_of(tuple[NvmlGpu, ...], objects)
    except (TypeError, ValueError, KeyError) as error:
        raise FactMalformed(path, repr(objects), f"a list of GPUs ({error})") from error
    return tuple(sorted(gpus, key=lambda gpu: gpu.address))


def fact_of(kind: Any, value: Any) -> Any:
    """Return a fact of this type from plain objects.

    :raises ValueError: (TypeError, KeyError) they are not of such a fact.
    """
    if get_origin(kind) in (UnionType, Union):
        return None if value is None else fact_of(get_args(kind)[0], value)
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        if kinds[-1] is Ellipsis:
            return tuple(fact_of(kinds[0], item) for item in value)
        return tuple(fact_of(*pair) for pair in zip(kinds, value, strict=True))
    if is_dataclass(kind):
        types, fact_class = get_type_hints(kind), cast("type[Any]", kind)
        known_names = [field.name for field in fields(kind) if field.name in value]
        return fact_class(**{name: fact_of(types[name], value[name]) for name in known_names})
    if kind is PciAddress:
        return pci_address(value)
    plain_type = getattr(kind, "__supertype__", kind)
    if not isinstance(value, plain_type):
        raise TypeError(f"{value!r} is not of type {plain_type.__name__}")
    return value
