# SPDX-License-Identifier: Apache-2.0
"""The synthetic tokens can be learnt, differ from sample to sample, and never change."""

from itertools import pairwise

from llmb_workloads.world import ACTIVE_TOKENS, NOISE, sample_tokens, successor_map


def test_the_map_is_one_ring_within_the_vocabulary() -> None:
    successors = successor_map(2048, seed=1)
    token, seen = next(iter(successors)), set()
    while token not in seen:
        seen.add(token)
        token = successors[token]
    assert len(seen) == len(successors) == ACTIVE_TOKENS
    assert max(seen) < 2048


def test_a_small_vocabulary_is_used_whole() -> None:
    assert set(successor_map(10, seed=1)) == set(range(10))


def test_most_tokens_follow_the_map() -> None:
    successors = successor_map(2048, seed=1)
    tokens = sample_tokens(successors, length=5000, seed=1, number=0)
    follow = sum(successors[left] == right for left, right in pairwise(tokens))
    assert abs(follow / 4999 - (1 - NOISE)) < 0.02


def test_a_sample_depends_on_seed_and_number_alone() -> None:
    successors = successor_map(64, seed=1)
    first = sample_tokens(successors, length=32, seed=1, number=7)
    assert sample_tokens(successors, length=32, seed=1, number=7) == first
    assert sample_tokens(successors, length=32, seed=1, number=8) != first
    assert sample_tokens(successors, length=32, seed=2, number=7) != first


def test_the_data_of_a_seed_stay_what_they_are() -> None:
    # Published losses depend on them, on every Python.
    tokens = sample_tokens(successor_map(16, seed=1), length=8, seed=1, number=0)
    assert tokens == [9, 11, 0, 8, 10, 6, 13, 15]
