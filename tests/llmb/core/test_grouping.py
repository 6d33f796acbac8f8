# SPDX-License-Identifier: Apache-2.0
from llmb.core.grouping import grouped


def test_keys_and_values_keep_their_order() -> None:
    pairs = [("b", 1), ("a", 2), ("b", 0)]
    assert list(grouped(pairs).items()) == [("b", [1, 0]), ("a", [2])]
    assert grouped([]) == {}
