"""What a server remembers of the writes it has done, so that none is done twice.

Pure. A client whose connection broke cannot know whether its write was done, and sends it again under the
same number. It gets the answer of the first time. A number below its floor is one that it has the answer
of: such a write was delayed on the way, and must not be done any more.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from .messages import Answer


@dataclass(slots=True)
class _Client:
    floor: int = 0
    answers: dict[int, Answer] = field(default_factory=dict)


class Replays:
    """Answers by client and write number, at most so many and of so many bytes.

    Beyond that, those of the client that has been silent longest go first.
    """

    def __init__(self, *, entries: int, size: int) -> None:
        self._entries = entries
        self._size = size
        self._held = 0
        self._used = 0
        self._clients: OrderedDict[bytes, _Client] = OrderedDict()

    def __len__(self) -> int:
        return self._held

    def find(self, client: bytes, write: int) -> Answer | None:
        """The answer that this write had, if it was done."""
        known = self._clients.get(client)
        return None if known is None else known.answers.get(write)

    def is_over(self, client: bytes, write: int) -> bool:
        """Whether the client has said that it has the answer of this write."""
        known = self._clients.get(client)
        return known is not None and write < known.floor

    def raise_floor(self, client: bytes, floor: int) -> None:
        """Forget the answers below, which the client has."""
        known = self._clients.setdefault(client, _Client())
        self._clients.move_to_end(client)
        known.floor = max(known.floor, floor)
        for write in [write for write in known.answers if write < floor]:
            self._forget(known, write)

    def remember(self, client: bytes, write: int, answer: Answer) -> None:
        """Keep the answer of a write that was done now."""
        known = self._clients.setdefault(client, _Client())
        self._clients.move_to_end(client)
        known.answers[write] = answer
        self._held += 1
        self._used += _size(answer)
        while self._held > self._entries or self._used > self._size or len(self._clients) > self._entries:
            silent, oldest = next(iter(self._clients.items()))
            if oldest.answers:
                self._forget(oldest, next(iter(oldest.answers)))
            else:
                del self._clients[silent]

    def _forget(self, client: _Client, write: int) -> None:
        self._held -= 1
        self._used -= _size(client.answers.pop(write))


def _size(answer: Answer) -> int:
    return sum(map(len, answer.fields))
