"""The generators give their published known answers, and the stream map never changes silently."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import numpy as np
import pytest
from oracle import (
    COUNTERS,
    Call,
    Parameters,
    arrivals_word,
    differences,
    jitter_word,
    minstd,
    philox,
    philox_draws,
    poisson_table,
    service_word,
    simulate,
)

import mc
from mc.kernel.draws import philox as compiled_philox

Words = tuple[int, int, int, int]

# Random123 (Salmon et al. 2011), tests/kat_vectors, the lines "philox4x32 10"
KNOWN_ANSWERS: Final[list[tuple[Words, tuple[int, int], Words]]] = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]

# The stream map, computed once by the oracle and never to change: rows on disk depend on it.
SEED: Final = 20260802 + 5 * 2**32
ARRIVALS_ANSWERS: Final = [  # replication, round, 64-bit uniform
    (0, 0, 0xF97A01D9B32A2B15),
    (0, 1, 0x303E7D6D3DE47A54),
    (7, 1000, 0xDA2D6E6C6FD225E4),
    (2**32 - 1, 3999, 0x378E4F1DF56C2166),
]
CALL_ANSWERS: Final = [  # call of replication 7, SERVICE word, JITTER word
    (Call(0, 0, 0), 0x50B403FE, 0x6937EC03),
    (Call(0, 3, 1), 0x986BC089, 0x2EB268BC),
    (Call(500, 4, 2), 0xB3D7A69F, 0x50CFB1E1),
    (Call(3999, 1000, 80), 0x9499C2DA, 0x456CE57E),
]
ROWS: Final[list[tuple[Parameters, int, tuple[int, ...]]]] = [  # cell, replication, counters
    (
        Parameters(fault_rounds=100, tries=(3, 3, 3)),
        9999,
        (3770, 109, 4577, 3770, 807, 3770, 0, 0, 15, 784, 12, 7547, 116, 102, 44),
    ),
    (
        Parameters(fault_rounds=100, tries=(3, 3, 3), budget=0.3, failure_rate=0.025),
        0,
        (3924, 102, 4225, 3924, 301, 3819, 105, 0, 10, 279, 6, 195, 6, 0, 0),
    ),
    (
        Parameters(fault_rounds=100, tries=(3, 3, 3), budget=0.3, failure_rate=0.025),
        1,
        (3847, 103, 4131, 3847, 284, 3744, 103, 0, 11, 283, 6, 160, 5, 0, 0),
    ),
]


def compiled(counter: Words, key: tuple[int, int]) -> Words:
    words = compiled_philox(*(np.uint64(word) for word in (*counter, *key)))
    w0, w1, w2, w3 = (int(word) for word in words)
    return w0, w1, w2, w3


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_the_oracles_philox_gives_the_known_answers(
    counter: Words, key: tuple[int, int], expected: Words
) -> None:
    got = philox(counter, key)
    assert got == expected


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_the_kernels_philox_gives_the_known_answers(
    counter: Words, key: tuple[int, int], expected: Words
) -> None:
    got = compiled(counter, key)
    assert got == expected


def test_both_philox_agree_on_random_counters_and_keys() -> None:
    rng = np.random.default_rng(20260802)
    # half of the words from the whole range, half near its ends, where carries would go wrong
    words = rng.integers(0, 2**32, size=(2000, 6))
    ends = rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], size=words.shape)
    words = np.where(rng.random(words.shape) < 0.5, words, ends)
    mismatches = []
    for row in words.tolist():
        counter, key = (row[0], row[1], row[2], row[3]), (row[4], row[5])
        got, expected = compiled(counter, key), philox(counter, key)
        if got != expected:
            mismatches.append((counter, key, got, expected))
    assert mismatches == []


def test_minstd_gives_its_ten_thousandth_value() -> None:
    # the value the C++ standard requires of std::minstd_rand
    state = 1
    for _ in range(10_000):
        state = minstd(state)
    assert state == 399268537


@pytest.mark.parametrize(("replication", "t", "expected"), ARRIVALS_ANSWERS)
def test_the_stream_of_arrivals_is_pinned(replication: int, t: int, expected: int) -> None:
    assert arrivals_word(SEED, replication, t) == expected
    words = compiled((t >> 1, 0, replication, 1), (20260802, 5))
    got = (words[2] << 32 | words[3]) if t & 1 else (words[0] << 32 | words[1])
    assert got == expected


@pytest.mark.parametrize(("call", "service", "jitter"), CALL_ANSWERS)
def test_the_streams_of_service_and_jitter_are_pinned(
    call: Call, service: int, jitter: int
) -> None:
    assert service_word(SEED, 7, call) == service
    assert jitter_word(SEED, 7, call) == jitter
    t0, j, n = call
    got = compiled((t0, j >> 2, 7, 2 | n << 2), (20260802, 5))[j & 3]
    assert got == service
    got = compiled((t0, j, 7, 3 | n >> 2 << 2), (20260802, 5))[n & 3]
    assert got == jitter


def test_the_table_of_arrivals_is_pinned() -> None:
    got = poisson_table(97.22 / 100)
    assert got[:3] == (0x60D4FD7C00D890F8, 0xBEF8D8AEFA80195B, 0xECBBC95AC7431F1A)
    assert got[-1] == 2**64 - 1
    assert len(got) == 21
    assert list(got) == sorted(set(got))
    assert poisson_table(0.0) == ()


@pytest.mark.parametrize(("cell", "replication", "expected"), ROWS)
def test_rows_of_the_lesson_under_philox_are_pinned(
    cell: Parameters, replication: int, expected: tuple[int, ...]
) -> None:
    row = dict(zip(COUNTERS, expected, strict=False))  # what follows is of queues
    got = simulate(cell, philox_draws(cell, 20260802, replication))
    assert differences(got, row) == {}
    frame = mc.simulate(
        [mc.Cell(**asdict(cell), chain="flattened")], replications=[replication], seed=20260802
    )
    assert differences(frame.row(0, named=True), row) == {}
