"""Options of configuration files, declared by lines.

    workers: int 0..                           a whole number with a lower bound, unset by default
    share: float 0..1 (0.9)                    one with both bounds, and its default
    mode: text {fast,safe} (safe) mutable      one of some values, which a reload changes
    enabled: list (a,b)                        values with commas between them
    spec: texts () secret                      may be given several times; no log shows it

The help follows in lines that are indented. Empty lines separate its paragraphs, and the options.
`- fast: what it means` at its end is a value of the option, in the place of the braces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from oslo_config import cfg

_OPTION: Final = re.compile(
    r"(?P<name>\w+): (?P<kind>\w+)"
    r"(?: (?P<min>-?[\d.]+?)\.\.(?P<max>[\d.]+)?)?"
    r"(?: \{(?P<choices>.+)\})?"
    r"(?: \((?P<default>.*)\))?"
    r"(?P<flags>(?: mutable| secret)*)"
)
_KINDS: Final[Mapping[str, Callable[..., cfg.Opt]]] = {
    "bool": cfg.BoolOpt,
    "float": cfg.FloatOpt,
    "int": cfg.IntOpt,
    "list": cfg.ListOpt,
    "text": cfg.StrOpt,
    "texts": cfg.MultiStrOpt,
    "value": cfg.Opt,
    "values": cfg.MultiOpt,
}


def options(lines: str, **more: Mapping[str, Any]) -> list[cfg.Opt]:
    """Return the options that some lines declare.

    :param more: keywords of oslo.config by the name of an option: what lines have no words for.
    """
    declarations = re.split(r"\n+(?=\w)", lines.strip())
    return [_option(declaration, more) for declaration in declarations]


def _option(declaration: str, more: Mapping[str, Mapping[str, Any]]) -> cfg.Opt:
    line, _, text = declaration.partition("\n")
    match = _OPTION.fullmatch(line)
    assert match is not None, f"{line!r} declares no option"
    name, kind, least, most, choices, default, flags = match.groups()
    explanation, *values = re.split(r"^ +- ", text, flags=re.MULTILINE)
    paragraphs = (" ".join(part.split()) for part in explanation.split("\n\n"))
    keywords: dict[str, Any] = {"help": "\n\n".join(paragraphs).strip()}
    keywords |= dict.fromkeys(flags.split(), True)
    if values:
        keywords["choices"] = [tuple(" ".join(v.split()).split(": ", 1)) for v in values]
    elif choices is not None:
        keywords["choices"] = choices.split(",")
    number = float if kind == "float" else int
    keywords |= {n: number(bound) for n, bound in (("min", least), ("max", most)) if bound}
    option = _KINDS[kind](name, **keywords, **more.get(name, {}))
    if default is not None:
        value = option.type(default)
        if option.multi:
            value = [value] if value else []
        option.default = value
    return option
