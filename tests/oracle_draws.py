"""Where chance comes from: Philox words by their purpose, and which decision a word makes.

The stream map
--------------
Philox4x32-10, key = (low half, high half) of the seed. A draw is a function of its purpose alone.
Counter words, r the replication, (t, j) the j-th request that arrives in round t, n the running
number of a call within its request, l a layer (the outermost is 0; 0 for the budget of a chain)::

    stream    c0      c1           c2  c3                 words of the block
    ARRIVALS  t >> 1  0            r   1                  0, 1 of an even t; 2, 3 of an odd t
    SERVICE   t       j>>2         r   2 | n << 2         j & 3
    JITTER    t       j            r   3 | n>>2 << 2      n & 3
    CLIENT    t       j>>2         r   4                  j & 3
    THROTTLE  t       j | l << 24  r   5 + (n>>2 << 2)    n & 3

The streams keep apart by c3: its two low bits are 1 for ARRIVALS (which is 1 itself) and THROTTLE
(5 and more), 2 for SERVICE, 3 for JITTER, 0 for CLIENT.

What a word decides, all on integers:

* ARRIVALS, 64 bits: inverted through `poisson_table` of the mean of the round, so a higher mean
  only adds requests.
* SERVICE: the served call n fails if ``word < round(failure_rate * 2**32)``.
* JITTER: number n is drawn for the wait that ends with call n + 1, by the formulas of
  `oracle_waits`.
* CLIENT: the client of a request is ``word * clients >> 32``.
* THROTTLE: call n is rejected with probability p, a fraction, if ``word < p * 2**32``.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Final

from oracle_world import Call, Draws

WORD: Final = 2**32
ARRIVALS, SERVICE, JITTER, CLIENT, THROTTLE = 1, 2, 3, 4, 5


@lru_cache(maxsize=2**17)  # calls that follow each other share blocks, and so do cells
def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the four words of one block of Philox4x32-10.

    Notes
    -----
    Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section
    3.3; multipliers and key increments as in Random123's philox.h.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, WORD)
        high1, low1 = divmod(0xCD9E8D57 * c2, WORD)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 = (k0 + 0x9E3779B9) % WORD
        k1 = (k1 + 0xBB67AE85) % WORD
    return c0, c1, c2, c3


def arrivals_word(seed: int, replication: int, t: int) -> int:
    """Return the 64-bit uniform of the arrivals in round `t`; a block serves two rounds."""
    words = philox((t // 2, 0, replication, ARRIVALS), _key(seed))
    high, low = words[2:] if t % 2 else words[:2]
    return high * WORD + low


def service_word(seed: int, replication: int, call: Call) -> int:
    """Return the 32-bit uniform that decides whether a served call fails."""
    purpose = SERVICE + 4 * call.attempt
    words = philox((call.arrival, call.j // 4, replication, purpose), _key(seed))
    return words[call.j % 4]


def jitter_word(seed: int, replication: int, call: Call) -> int:
    """Return the 32-bit uniform of the wait after a failed call."""
    purpose = JITTER + 4 * (call.attempt // 4)
    words = philox((call.arrival, call.j, replication, purpose), _key(seed))
    return words[call.attempt % 4]


def client_word(seed: int, replication: int, call: Call) -> int:
    """Return the 32-bit uniform that names the client of a request."""
    words = philox((call.arrival, call.j // 4, replication, CLIENT), _key(seed))
    return words[call.j % 4]


def throttle_word(seed: int, replication: int, call: Call, layer: int) -> int:
    """Return the 32-bit uniform that decides whether a layer's throttle rejects a call."""
    purpose = THROTTLE + 4 * (call.attempt // 4)
    words = philox((call.arrival, call.j + layer * 2**24, replication, purpose), _key(seed))
    return words[call.attempt % 4]


def _key(seed: int) -> tuple[int, int]:
    return seed % WORD, seed // WORD


@lru_cache(maxsize=10_000)
def poisson_table(rate: float) -> tuple[int, ...]:
    """Return floor(2**64 * P(N <= k)) for k = 0, 1, ... up to the first 2**64 - 1.

    `rate` is the double, taken exactly. The table is empty for a rate of 0.
    """
    if rate == 0:
        return ()
    table: list[int] = []
    with localcontext(prec=100):
        mean = Decimal(rate)
        term = (-mean).exp()
        below = term
        while not table or table[-1] < 2**64 - 1:
            table.append(min(int(below * 2**64), 2**64 - 1))
            term = term * mean / len(table)
            below += term
    return tuple(table)


@dataclass(frozen=True)
class Words:
    """A source of uniform words, one for each purpose: 64 bits for arrivals, 32 for the others."""

    arrivals: Callable[[int], int]
    service: Callable[[Call], int]
    jitter: Callable[[Call], int]
    client: Callable[[Call], int]
    throttle: Callable[[Call, int], int]


def by_words(words: Words) -> Draws:
    """Let words decide, as the stream map says."""
    return Draws(
        arrivals=lambda t, mean: (
            bisect_right(poisson_table(mean), words.arrivals(t)) if mean else 0
        ),
        fails=lambda call, rate: words.service(call) < round(rate * WORD) if rate else False,
        delay=lambda call, formula: formula(words.jitter(call)),
        client=lambda call, clients: words.client(call) * clients >> 32,
        throttled=lambda call, layer, chance: words.throttle(call, layer) < chance * WORD,
    )


def philox_world(seed: int, replication: int) -> Draws:
    """Draw from Philox under the key `seed`, each draw by its purpose."""
    return by_words(
        Words(
            arrivals=lambda t: arrivals_word(seed, replication, t),
            service=lambda call: service_word(seed, replication, call),
            jitter=lambda call: jitter_word(seed, replication, call),
            client=lambda call: client_word(seed, replication, call),
            throttle=lambda call, layer: throttle_word(seed, replication, call, layer),
        )
    )


def mersenne_world(seed: int) -> Draws:
    """Draw from Python's own generator in the order of asking: several times faster than Philox.

    For means over many runs; a row of it is nobody else's.
    """
    generator = random.Random(seed)

    def word(*_: object) -> int:
        return generator.getrandbits(32)

    return by_words(Words(lambda _: generator.getrandbits(64), word, word, word, word))
