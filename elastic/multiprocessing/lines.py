"""Bytes of a stream in, whole lines out. Pure.

It decodes nothing: NUL and broken UTF-8 pass through as they are. A carriage return is an update of
the current line, as a terminal shows it: of ``10%\\r20%\\r30%\\n`` only ``30%`` is a line.
"""

LINE_LIMIT = 32 * 1024 * 1024
"""A line longer than this comes out in pieces, so that a stream without newlines can't fill memory."""


class LineAssembler:
    """Cuts one stream into lines. The lines it returns have no line end."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._pending = bytearray()
        self._shown = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and return the lines they complete."""
        first, *rest = data.split(b"\n")
        self._pending += first
        if not rest:
            return self._trim(is_new_update=b"\r" in data)
        lines = [_visible(bytes(self._pending)), *(_visible(line) for line in rest[:-1])]
        self._pending = bytearray(rest[-1])
        self._shown = b""
        return lines + self._trim(is_new_update=b"\r" in rest[-1])

    def feed_block(self, data: bytes, prefix: bytes) -> list[bytes | memoryview]:
        """As :meth:`feed`, but with the lines as one block in pieces, each line with a prefix and an end.

        Without updates it does no work for each single line, and copies the bytes once.
        """
        end = data.rfind(b"\n") + 1
        if not end or b"\r" in data or b"\r" in self._pending:
            return [prefix + line + b"\n" for line in self.feed(data)]
        begun, rest = prefix + self._pending, data[end:]
        self._pending = bytearray(rest)
        self._shown = b""
        # The last prefix, and what follows it, belong to a line that is yet to be completed.
        block = memoryview(data.replace(b"\n", b"\n" + prefix))
        return [begun, block[: len(block) - len(prefix) - len(rest)]]

    def take_update(self) -> bytes | None:
        """Return the unfinished line as it now looks, if it is an update that wasn't taken yet."""
        if b"\r" not in self._pending:
            return None
        text = _visible(bytes(self._pending))
        if not text or text == self._shown:
            return None
        self._shown = text
        return text

    def flush(self) -> bytes | None:
        """Return the unfinished line at the end of the stream, if there is one that wasn't taken yet."""
        text = _visible(bytes(self._pending))
        is_taken = text == self._shown
        self._pending.clear()
        self._shown = b""
        return None if is_taken or not text else text

    def _trim(self, *, is_new_update: bool) -> list[bytes]:
        if is_new_update:  # what an update has overwritten is never needed again
            last = self._pending.rfind(b"\r")
            before = self._pending.rfind(b"\r", 0, max(last, 0))
            del self._pending[: before + 1]
        pieces = []
        while len(self._pending) > self._limit:
            pieces.append(bytes(self._pending[: self._limit]))
            del self._pending[: self._limit]
        return pieces


def _visible(line: bytes) -> bytes:
    """What a terminal shows of a line: the part after the last carriage return that isn't its end."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]
