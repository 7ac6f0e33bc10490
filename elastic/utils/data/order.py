"""The order of an epoch's samples: the same for the same seed, whichever framework is installed, or none.

It is the order of ``torch.randperm`` on the CPU, with a generator seeded alike: a Mersenne twister (MT19937)
that draws 32 bits for each exchange of a Fisher-Yates shuffle. Python's own generator is the same twister,
so no framework is needed, and a job's order does not hang on what one of its nodes has installed. From
214,748,364 samples on, torch shuffles in another way, and the order is ours alone.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator

# Below this length torch does as is done here, and the modulus favours no element by more than a twentieth.
_LENGTH_FOR_32_BITS = 0xFFFFFFFF // 20


def shuffled(length: int, *, seed: int) -> Iterator[int]:
    """A permutation of ``range(length)``, and after its last element the same again, without end.

    It is worked out as it is taken, in 8 bytes for each element: what is not taken costs no time.
    Only the low 32 bits of the seed count, as in torch.
    """
    draw, bits = _twister(seed).getrandbits, 32 if length < _LENGTH_FOR_32_BITS else 64
    order = array("q", range(length))
    for i in range(length - 1):
        j = i + draw(bits) % (length - i)
        order[i], order[j] = order[j], order[i]
        yield order[i]
    yield from order[-1:]
    while order:
        yield from order


def _twister(seed: int) -> random.Random:
    """A twister seeded by its inventors' ``init_genrand``; Python's own seeding is another."""
    words = [seed & 0xFFFFFFFF]
    for i in range(1, 624):
        words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + i) & 0xFFFFFFFF)
    twister = random.Random()  # noqa: S311 - a shuffle keeps no secret
    twister.setstate((3, (*words, len(words)), None))
    return twister
