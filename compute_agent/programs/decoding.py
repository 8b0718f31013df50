"""Documents decoded into values, with an error that names the first place that does not fit.

The error of msgspec names a type of Python and neither the value nor the keys of a map. Here it is
`resource_providers[3].generation is null, not a whole number`.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec.inspect
from msgspec import Meta

SHOWN: Final = 60
"""Characters of a value, or of a key, that go into a message."""

LARGEST: Final = 2**63 - 1
"""Beyond it a number is damage, and would not survive a conversion to another type."""

Whole: TypeAlias = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST)]
Number: TypeAlias = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Amounts: TypeAlias = dict[str, Whole]
"""Amounts by resource class."""

Value = TypeVar("Value")

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_learning: Final = threading.Lock()
_words_of_patterns: dict[str, str] = {}
_PLAIN_KEY: Final = r"[A-Za-z0-9_.-]{1,60}"
_FIELD: Final = "Object (missing required|contains unknown) field `(.*)`"
_EXPECTATION: Final = r"Expected `([a-z| ]+)`(.*?)(, got .*)?"
_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}


def matching(pattern: str, words: str) -> Meta:
    """Return the limit of text that matches a pattern as a whole.

    :param words: what fits, for messages.
    """
    whole = rf"^(?:{pattern})\Z"
    _words_of_patterns[f" matching regex {whole!r}"] = words
    return Meta(pattern=whole)


class Misfit(ValueError):
    """A document does not fit its type; the message names the first place that does not."""


def convert(document: Any, kind: type[Value]) -> Value:
    """Return plain values as a value of a type.

    :raises Misfit: they do not fit it.
    """
    try:
        return _convert(document, kind)
    except msgspec.ValidationError as error:
        raise Misfit(_sentence(document, kind, str(error))) from None
    except UnicodeEncodeError as error:
        raise Misfit(f"it has half a character ({error})") from None


def fits(document: Any, kind: Any) -> bool:
    """Check whether plain values fit a type, without saying what does not."""
    try:
        _convert(document, kind)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError):
        return False
    return True


def decode(content: bytes, kind: type[Value]) -> Value:
    """Return JSON as a value of a type.

    :raises Misfit: it does not fit the type, or is nested too deeply.
    :raises json.JSONDecodeError: it is not JSON.
    """
    try:
        return _decoded(content, kind)
    except RecursionError:
        raise Misfit("it is nested too deeply") from None


def _decoded(content: bytes, kind: type[Value]) -> Value:
    try:
        return decoder_of(kind).decode(content)
    except msgspec.DecodeError:
        # Python reads UTF-16, a byte order mark and a key that is there twice
        document = json.loads(content)
        value = convert(document, kind)
        # and what it can neither print nor send
        check_json(document)
        return value


def check_json(document: Any) -> None:
    """Check that a document has only what JSON has, so that it can be printed and sent.

    :raises Misfit: it has half a character, a number without an end, a date, or itself.
    """
    try:
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    except (RecursionError, TypeError, ValueError) as error:
        raise Misfit(f"it has half a character or a value that JSON lacks ({error})") from None


def decoder_of(kind: type[Value]) -> msgspec.json.Decoder[Value]:
    """Return the decoder of a type.

    A type is learned once, by one thread: msgspec 0.22 keeps what it knows of one while it is still
    learning it, and another thread that decodes with that ends the process with a segmentation
    fault. So no module calls `msgspec.json.decode` and `msgspec.convert` themselves.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        with _learning:
            decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    return decoder


def value_text(value: Any) -> str:
    """Return a value for a message, shortened."""
    try:
        text = json.dumps(value, default=str)
    except RecursionError:
        return "something nested too deeply to be shown"
    except (TypeError, ValueError):
        # YAML has keys that JSON lacks, and values that contain themselves
        return "something that cannot be shown"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _sentence(document: Any, kind: Any, text: str) -> str:
    try:
        return _located_fault(document, kind, text)
    except (LookupError, TypeError, ValueError, AttributeError):
        # a key that is not known may be spelled as a place is
        return text


def _located_fault(document: Any, kind: Any, text: str) -> str:
    fault, _, path = text.removesuffix("`").rpartition(" - at `")
    if not fault:
        fault, path = text, "$"
    is_key = path.startswith("key` in `")
    if is_key:
        # of a key that does not fit, msgspec names the map alone
        path = f"{path.removeprefix('key` in `')}[...]"
        keys = _keys(document, kind, text, path)
        place, value = f"{''.join(map(_step, keys[:-1])) or 'it'}: the key", keys[-1]
    else:
        keys = _keys(document, kind, text, path)
        place, value = "".join(map(_step, keys)), _at(document, keys)
    if field := re.fullmatch(_FIELD, fault):
        verb = "is missing" if field[1].startswith("missing") else "is not known"
        return f"{place}{_step(field[2])} {verb}".removeprefix(".")
    place = place.removeprefix(".") or "it"
    if not (keys or fault.startswith(("Expected", "Invalid"))):
        return fault
    if expectation := re.fullmatch(_EXPECTATION, fault):
        kinds = " or ".join(_WORDS.get(kind, kind) for kind in expectation[1].split(" | "))
        words = _words_of_patterns.get(expectation[2], f"{kinds}{expectation[2]}")
        return f"{place} is {value_text(value)}, not {words}"
    if fault.startswith("Invalid enum value"):
        known_words = _words(
            msgspec.inspect.type_info(kind), [*keys[:-1], None] if is_key else keys
        )
        return f"{place} is {value_text(value)}, not one of {', '.join(map(str, known_words))}"
    return f"{place} is {value_text(value)}: {fault}"


def _words(kind: msgspec.inspect.Type, keys: Sequence[Any]) -> Iterator[Any]:
    """Iterate over the words that are known at a place, of which `None` is a key of a map."""
    match kind:
        case msgspec.inspect.EnumType(cls):
            yield from (member.value for member in cls)
        case msgspec.inspect.LiteralType(values):
            yield from values
        case msgspec.inspect.UnionType(kinds):
            for part in kinds:
                yield from _words(part, keys)
        case msgspec.inspect.StructType() | msgspec.inspect.TypedDictType():
            for field in kind.fields:
                if field.encode_name == keys[0]:
                    yield from _words(field.type, keys[1:])
        case msgspec.inspect.DictType(key_kind, value_kind):
            yield from _words(key_kind if keys[0] is None else value_kind, keys[1:])
        case msgspec.inspect.TupleType(kinds):
            yield from _words(kinds[keys[0]], keys[1:])
        case msgspec.inspect.ListType(part) | msgspec.inspect.VarTupleType(part):
            yield from _words(part, keys[1:])


def _keys(document: Any, kind: Any, text: str, path: str) -> list[Any]:
    """Return the keys and indexes that lead to the place of an error of msgspec."""
    keys: list[Any] = []
    rest = path.removeprefix("$")
    while rest:
        value = _at(document, keys)
        if rest.startswith("[...]"):
            rest = rest.removeprefix("[...]")
            # msgspec does not name the key of a map: it is in the half with which the error stays
            entries = list(value.items())
            while len(entries) > 1:
                half = entries[: len(entries) // 2]
                if _error_text(_replaced(document, keys, dict(half)), kind) != text:
                    half = entries[len(half) :]
                entries = half
            [(key, _)] = entries
            document = _replaced(document, keys, dict(entries))
        elif rest.startswith("["):
            index, _, rest = rest[1:].partition("]")
            key = int(index)
        else:
            key = max((name for name in value if rest.startswith(f".{name}")), key=len)
            rest = rest.removeprefix(f".{key}")
        keys.append(key)
    return keys


def _replaced(document: Any, keys: Sequence[Any], part: Any) -> Any:
    """Return a document with another part at one place."""
    if not keys:
        return part
    new_document = copy.copy(document)
    new_document[keys[0]] = _replaced(document[keys[0]], keys[1:], part)
    return new_document


def _error_text(document: Any, kind: Any) -> str | None:
    try:
        _convert(document, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _convert(document: Any, kind: type[Value]) -> Value:
    decoder = decoder_of(kind)
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        # named `any` by msgspec before 0.22
        if not str(error).startswith(("Expected `raw`", "Expected `any`")):
            raise
        # there are parts that stay JSON, which only a text has
        return decoder.decode(json.dumps(document))


def _at(document: Any, keys: Iterable[Any]) -> Any:
    for key in keys:
        document = document[key]
    return document


def _step(key: Any) -> str:
    if type(key) is int:
        return f"[{key}]"
    is_plain = type(key) is str and re.fullmatch(_PLAIN_KEY, key)
    return f".{key}" if is_plain else f"[{value_text(key)}]"
