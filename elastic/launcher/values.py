"""From the text of a flag to a value: one function per kind of value.

Pure. Each takes the text as it was written and returns the value, or raises :class:`ValueError`
with the reason and the fix; the caller knows the flag or the variable and puts its name in front.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from string import Template

from elastic.utils.endpoints import parse_endpoints

__all__ = [
    "PREFIX_NAMES",
    "NodeRange",
    "backend",
    "choice",
    "comma_list",
    "device_list",
    "environment_name",
    "filters",
    "host",
    "node_range",
    "nonnegative",
    "plain",
    "port",
    "positive",
    "prefix_template",
    "ranks",
    "run_id",
    "seconds",
    "size",
    "switch",
    "words_or_none",
    "worker_count",
]

# Far above any machine, and low enough that a typing slip does not build a list of millions.
_MOST_DEVICES = 1024
_MOST_RANKS = 1_000_000
_LONGEST_RUN_ID = 200

PREFIX_NAMES = ("role_name", "rank", "local_rank", "node_rank", "round", "hostname")
"""What a template for the beginning of a line may hold."""


@dataclass(frozen=True, slots=True)
class NodeRange:
    """How many nodes a job may have; ``1 <= minimum <= maximum``."""

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return str(self.maximum) if self.minimum == self.maximum else f"{self.minimum}:{self.maximum}"


def plain(text: str) -> str:
    """Any text that is not blank and has no control characters."""
    if not text.strip():
        raise ValueError("is empty; give a value")
    if not text.isprintable():
        raise ValueError("has control characters; use printable ones")
    return text


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip(), re.ASCII):
        raise ValueError("is not a whole number")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    value = _integer(text)
    if value < 1:
        raise ValueError("must be 1 or more")
    return value


def nonnegative(text: str) -> int:
    """A whole number from 0 on."""
    value = _integer(text)
    if value < 0:
        raise ValueError("must be 0 or more")
    return value


def seconds(*, zero: bool) -> Callable[[str], float]:
    """A finite duration in seconds, above zero, or from zero on where ``zero`` is true."""

    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError("is not a number of seconds") from None
        if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            raise ValueError(f"must be a finite number of seconds, {'0 or more' if zero else 'above 0'}")
        return value

    return convert


def node_range(text: str) -> NodeRange:
    """``N``, or ``MIN:MAX``."""
    low, colon, high = text.partition(":")
    try:
        minimum = positive(low)
        maximum = positive(high) if colon else minimum
    except ValueError as error:
        raise ValueError(f"{error}; write N or MIN:MAX, as in 4 or 2:8") from None
    if maximum < minimum:
        raise ValueError(f"the maximum is below the minimum; write MIN:MAX, as in {maximum}:{minimum}")
    return NodeRange(minimum, maximum)


def worker_count(text: str) -> int | str:
    """A whole number from 1 on, or one of the words ``auto``, ``cpu``, ``gpu`` (returned as they are)."""
    if text in ("auto", "cpu", "gpu"):
        return text
    try:
        return positive(text)
    except ValueError as error:
        raise ValueError(f"{error}; write a number, auto, cpu or gpu") from None


def backend(text: str) -> str:
    """The name of a rendezvous backend; whether there is one is for the registry to say."""
    if text == "etcd-v2":
        raise ValueError("needs etcd's v2 API, which etcd 3.6 no longer has; write etcd, which speaks v3")
    return plain(text)


def host(text: str) -> str:
    """A host name or an address, without a port; an IPv6 address also in brackets."""
    bare = text.removeprefix("[").removesuffix("]")
    try:
        (endpoint,) = parse_endpoints(f"[{bare}]" if ":" in bare else bare, default_port=1)
    except ValueError:
        raise ValueError(
            "is no host; write a name or an address alone, as in node0, 10.0.0.1 or ::1"
        ) from None
    return endpoint.host


def port(text: str) -> int:
    """A number of a TCP port; 0 stands for a free one."""
    number = nonnegative(text)
    if number > 65535:
        raise ValueError("is no port; write a number up to 65535")
    return number


def choice(*words: str) -> Callable[[str], str]:
    """One of the words."""

    def convert(text: str) -> str:
        if text not in words:
            raise ValueError(f"is not one of {', '.join(words)}")
        return text

    return convert


def switch(text: str) -> bool:
    """A flag without a value, as an environment variable writes it: 1 or 0, true or false."""
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes"):
        return True
    if lowered in ("0", "false", "no"):
        return False
    raise ValueError("is neither on nor off; write 1 or 0")


def run_id(text: str) -> str:
    """A job's name: it becomes one level of etcd's keys and one directory of logs."""
    if not text.strip():
        raise ValueError("is empty; name the job, the same on every node")
    if not text.isprintable() or any(mark in text for mark in "/\\ "):
        raise ValueError(
            "has a slash, a space or a control character; use letters, digits and marks such as '-' or '.'"
        )
    if text in (".", ".."):
        raise ValueError("is the name of a directory; choose another")
    if len(text.encode()) > _LONGEST_RUN_ID:
        raise ValueError(f"is longer than {_LONGEST_RUN_ID} bytes; choose a shorter one")
    return text


def comma_list(text: str) -> tuple[str, ...]:
    """Words with commas between them."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise ValueError("names nothing; write WORD[,WORD]")
    return words


def words_or_none(text: str) -> tuple[str, ...]:
    """Words with commas between them; the one word ``none`` stands for no word."""
    return () if text.strip() == "none" else comma_list(text)


def ranks(text: str) -> tuple[int, ...]:
    """Ranks, and ranges of them, with commas between them."""
    chosen: set[int] = set()
    for word in comma_list(text):
        span = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", word, re.ASCII)
        first, last = (int(span[1]), int(span[2] or span[1])) if span else (0, -1)
        if not first <= last < _MOST_RANKS:
            raise ValueError("is not a list of ranks; write it as in 0,2 or 0-3,8")
        chosen.update(range(first, last + 1))
    return tuple(sorted(chosen))


def size(text: str) -> int:
    """A number of bytes from 1 on, also in K, M or G of 1024 each."""
    match = re.fullmatch(r"([0-9]+)([KMG]?)(?:i?B)?", text.strip(), re.ASCII | re.IGNORECASE)
    if match is None or int(match[1]) < 1:
        raise ValueError("is not a size; write a number of bytes, or as in 512K, 100M or 2G")
    return int(match[1]) * {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}[match[2].upper()]


def prefix_template(text: str) -> str:
    """The beginning of a line on the console, with names from :data:`PREFIX_NAMES` as in ``${rank}``."""
    for match in Template.pattern.finditer(text):
        name = match["named"] or match["braced"]
        if match["invalid"] is not None or (name is not None and name not in PREFIX_NAMES):
            raise ValueError(
                f"{match[0]!r} stands for nothing; write ${{NAME}} with one of {', '.join(PREFIX_NAMES)}, "
                "and $$ for a dollar"
            )
    return text


def filters(text: str) -> tuple[str, ...]:
    """Strings with commas between them; two commas stand for one that belongs to the string."""
    pieces = [piece.replace("\0", ",").strip() for piece in text.replace(",,", "\0").split(",")]
    return tuple(piece for piece in pieces if piece)


def device_list(text: str) -> tuple[str, ...]:
    """``0-3`` or ``0,2,GPU-<uuid>``: indices, ranges of indices and device names, each once."""
    devices = tuple(device for word in comma_list(text) for device in _expanded(word))
    if len(set(devices)) != len(devices):
        raise ValueError("names a device twice; name each once")
    return devices


def _expanded(word: str) -> Iterator[str]:
    if re.fullmatch(r"(GPU|MIG)-\S+", word):
        yield word
        return
    span = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", word, re.ASCII)
    if span is None:
        raise ValueError(
            f"{word!r} is not a device; write indices, ranges or names, as in 0-3 or 0,GPU-<uuid>"
        )
    first = int(span[1])
    last = int(span[2]) if span[2] else first
    if last < first or last >= _MOST_DEVICES:
        raise ValueError(f"{word!r} is not a range of devices; write FIRST-LAST, as in 0-3")
    yield from (str(index) for index in range(first, last + 1))


def environment_name(text: str) -> str:
    """The name of an environment variable."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text, re.ASCII):
        raise ValueError("is not the name of an environment variable")
    return text
