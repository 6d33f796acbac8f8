# SPDX-License-Identifier: Apache-2.0
"""Synthetic tokens that can be learnt: mostly each token calls for one certain next token."""

import random
from collections.abc import Mapping

# So few that every pair is seen often within 50 short steps, whatever the vocabulary.
ACTIVE_TOKENS = 512
# How often the next token is any token instead: it keeps the loss above zero.
NOISE = 0.1


def successor_map(vocab: int, seed: int) -> dict[int, int]:
    """A ring through at most ACTIVE_TOKENS tokens of the vocabulary: each token's successor."""
    ring = random.Random(f"successors {seed}").sample(range(vocab), min(vocab, ACTIVE_TOKENS))
    return dict(zip(ring, ring[1:] + ring[:1], strict=True))


def sample_tokens(successors: Mapping[int, int], *, length: int, seed: int, number: int) -> list[int]:
    """Sample `number` of the endless data set that the seed names: `length` tokens."""
    rng = random.Random(f"sample {seed} {number}")
    active = list(successors)
    tokens = [rng.choice(active)]
    while len(tokens) < length:
        tokens.append(rng.choice(active) if rng.random() < NOISE else successors[tokens[-1]])
    return tokens
