"""Whether the fields of settings hold values of the types they are declared with.

Pure. Numbers of other libraries count as numbers, and any collection but text as a list.
"""

import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any

from elastic.launcher.errors import UsageError

__all__ = ["check_types"]

_WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    timedelta: "a timedelta",
    str: "text",
    NoneType: "None",
    Any: "anything",
}
_MANY = {int: "whole numbers"}


def check_types(settings: Any) -> None:
    """Check a dataclass whose annotations are types and no text.

    :raises UsageError: one sentence, for the first field whose value is of another type.
    """
    for field in fields(settings):
        value = getattr(settings, field.name)
        if not _is_one(value, field.type):
            raise UsageError(f"{field.name}={value!r} is of the wrong type; give {_words(field.type)}")


def _is_one(value: object, kind: Any) -> bool:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, UnionType):
        return any(_is_one(value, part) for part in parts)
    if kind is Any:
        return True
    if isinstance(value, bool):
        return kind is bool
    if kind is int:
        return isinstance(value, Integral)
    if kind is float:
        return isinstance(value, Real)
    if origin is Sequence:
        is_list = isinstance(value, Collection) and not isinstance(value, str | bytes)
        return is_list and all(_is_one(item, parts[0]) for item in typing.cast(Collection[Any], value))
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _is_one(key, parts[0]) and _is_one(item, parts[1]) for key, item in value.items()
        )
    return isinstance(value, origin or kind)


def _words(kind: Any) -> str:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, UnionType):
        return " or ".join(_words(part) for part in parts)
    if origin is Sequence:
        return f"a list of {_MANY.get(parts[0]) or _words(parts[0])}"
    if origin is Mapping:
        return f"a dict from {_MANY.get(parts[0]) or _words(parts[0])} to {_words(parts[1])}"
    return _WORDS.get(kind) or str((origin or kind).__name__)
