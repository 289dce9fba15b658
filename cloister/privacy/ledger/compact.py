"""Values of the ledger as compact JSON, and back, by the types of their fields.

A dataclass is the list of its fields' values, in their order: a field that is added needs nothing
here. Nothing is checked when it is read: its reader knows who wrote it, and by which code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from types import UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from cloister.privacy.ledger.retention import Deletion

V = TypeVar("V")

dump = json.JSONEncoder(separators=(",", ":")).encode
load = json.JSONDecoder().decode


class Shared:
    """Maps that many values hold, as the releases of one plan hold its events: each by a number."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """``texts`` are those of numbers from 0 on."""
        self.texts = {text: number for number, text in enumerate(texts)}
        self._read = list(self.texts)
        self._values: dict[int, Any] = {}

    def number(self, value: Mapping[str, Any]) -> int:
        """The number of a map."""
        return self.texts.setdefault(dump(value), len(self.texts))

    def value(self, number: int) -> Any:
        """The map of a number: one object for all that hold it."""
        if number not in self._values:
            self._values[number] = load(self._read[number])
        return self._values[number]


class Lazy(MutableMapping[str, V], Generic[V]):
    """Values of a type by name, in their order, each read from its text when it is asked for.

    ``texts`` holds None in place of the text of a value that was set since.
    """

    def __init__(self, kind: type[V], texts: Mapping[str, str], shared: Shared) -> None:
        """The texts are of what `packed` gave."""
        self.texts: dict[str, str | None] = dict(texts)
        self.shared, self._kind = shared, kind
        self._values: dict[str, V] = {}

    def __getitem__(self, name: str) -> V:
        if name not in self._values:
            text = self.texts[name]
            assert text is not None
            self._values[name] = unpacked(self._kind, load(text), self.shared)
        return self._values[name]

    def __setitem__(self, name: str, value: V) -> None:
        self.texts[name], self._values[name] = None, value

    def __delitem__(self, name: str) -> None:
        del self.texts[name]
        self._values.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self.texts

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)


def packed(kind: Any, value: Any, shared: Shared) -> Any:
    """A value of a type as JSON holds it."""
    return _codec(kind)[0](value, shared)


def unpacked(kind: Any, value: Any, shared: Shared) -> Any:
    """The value of a type that `packed` gave."""
    return _codec(kind)[1](value, shared)


_Convert = Callable[[Any, Shared], Any]
_Codec = tuple[_Convert, _Convert]


@cache
def _codec(kind: Any) -> _Codec:
    """What writes the values of a type, and what reads them."""
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if is_dataclass(origin):
        return _dataclass(origin)
    if arguments == (str, Any):
        return lambda value, shared: shared.number(value), lambda value, shared: shared.value(value)
    return _of_several(origin, arguments) if arguments else _simple(origin)


def _simple(kind: Any) -> _Codec:
    if kind is Fraction:
        return lambda value, _: value.as_integer_ratio(), lambda value, _: Fraction(*value)
    if kind is bytes:
        return lambda value, _: value.hex(), lambda value, _: bytes.fromhex(value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        members = {each.value: each for each in kind}
        return _same, lambda value, _: members[value]
    return _same, _same


def _of_several(kind: Any, arguments: tuple[Any, ...]) -> _Codec:
    if kind in (Union, UnionType):
        return _optional(_codec(arguments[0]))
    if kind in (list, set) or arguments[1:] == (...,):
        return _collection(kind, _codec(arguments[0]))
    if kind is tuple:
        return _tuple([_codec(each) for each in arguments])
    if arguments == (str, str):
        return lambda value, _: dict(value), _same
    return _mapping(_tuple([_codec(each) for each in arguments]))


def _same(value: Any, _: Shared) -> Any:
    return value


def _dataclass(kind: Any) -> _Codec:
    hints = get_type_hints(kind, localns={"Deletion": Deletion})
    names = [each.name for each in fields(kind)]
    codecs = [_codec(hints[name]) for name in names]
    others = [(place, each[1]) for place, each in enumerate(codecs) if each[1] is not _same]

    def write(value: Any, shared: Shared) -> list[Any]:
        pairs = zip(names, codecs, strict=True)
        return [codec[0](getattr(value, name), shared) for name, codec in pairs]

    def read(values: list[Any], shared: Shared) -> Any:
        for place, convert in others:
            values[place] = convert(values[place], shared)
        made = object.__new__(kind)
        made.__dict__.update(zip(names, values, strict=True))
        return made

    return write, read


def _optional(codec: _Codec) -> _Codec:
    return (
        lambda value, shared: None if value is None else codec[0](value, shared),
        lambda value, shared: None if value is None else codec[1](value, shared),
    )


def _collection(kind: Any, codec: _Codec) -> _Codec:
    write, read = codec
    return (
        lambda value, shared: [write(each, shared) for each in value],
        lambda value, shared: kind([read(each, shared) for each in value]),
    )


def _tuple(codecs: Sequence[_Codec]) -> _Codec:
    def converted(side: int) -> _Convert:
        return lambda value, shared: tuple(
            codec[side](each, shared) for codec, each in zip(codecs, value, strict=True)
        )

    return converted(0), converted(1)


def _mapping(pair: _Codec) -> _Codec:
    """Keys need not be text: a map is the list of its pairs."""
    return (
        lambda value, shared: [pair[0](each, shared) for each in value.items()],
        lambda value, shared: dict(pair[1](each, shared) for each in value),
    )
