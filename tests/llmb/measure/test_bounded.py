# SPDX-License-Identifier: Apache-2.0
"""Tests that what a log holds decides no more than how long it is: work is counted, since no test
asserts a time.

Each of these logs once cost its length squared, or 4096 times its length.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.formats import ParseSpec, formats_of
from llmb.core.call_time_limit import time_limit
from llmb.core.scan import apart, hits_in, needle, read_blocks
from llmb.measure import log_lines, root_cause as find, whole_log
from llmb.measure.log_lines import SlowPatternError
from llmb.measure.log_reader import read_log
from llmb.measure.root_cause import _TRACEBACK, _error_at, root_cause

STEP = needle("train_step_timing in s")
KNOWN = formats_of(ParseSpec())
SIZE = 1 << 18
# seconds, of which a linear pattern takes less than one: so that a failure is no hanging suite
GUARD = 200


def many(unit: bytes) -> bytes:
    return unit * (SIZE // len(unit))


@pytest.mark.parametrize("form", KNOWN, ids=lambda form: str(form.name))
@pytest.mark.parametrize(
    "line", [b"9" * 4000, b"iteration " + b"9" * 4000, b"step: " * 700, b"1/" * 2000, b" " * 4000]
)
def test_a_pattern_tries_no_run_of_characters_twice(form: Any, line: bytes) -> None:
    """Python's own count of steps cannot be had; a pattern that is not linear does not end on 60
    times the line.
    """
    with time_limit(GUARD):
        list(form.iteration.finditer(line * 60))


@pytest.mark.parametrize(
    "pattern",
    [
        log_lines._NUMBER,
        log_lines._VALUE.pattern,
        log_lines._STEP_TIME.pattern,
        log_lines._RANK.pattern,
    ],
)
@pytest.mark.parametrize(
    "text",
    [b"1" * 200_000 + b"x", b"Step Time : " + b"1" * 200_000, b" 0: " * 50_000, b": [a]" * 40_000],
)
def test_numbers_and_prefixes_are_linear(pattern: bytes, text: bytes) -> None:
    with time_limit(GUARD):
        re.fullmatch(pattern, text)
        re.match(pattern, text)


def test_a_text_that_comes_again_and_again_in_a_line_is_judged_once(tmp_path: Path) -> None:
    path = tmp_path / "log-x.out"
    path.write_bytes(many(b"train_step_timing in s"))
    with path.open("rb", buffering=0) as stream:
        found = [
            hit
            for block in read_blocks(stream)
            for hit in apart(hits_in(block, [needle("train_step_timing in s")]))
        ]
    assert len(found) < 5
    lines_of_their_own = b"train_step_timing in s\n" * 100
    path.write_bytes(lines_of_their_own)
    with path.open("rb", buffering=0) as stream:
        found = [
            hit
            for block in read_blocks(stream)
            for hit in apart(hits_in(block, [needle("train_step_timing in s")]))
        ]
    assert len(found) == 100


@pytest.mark.parametrize(
    "unit",
    [
        b"9",
        b"Traceback (most recent call last):",
        b"Traceback (most recent call last):\n",
        b"Traceback (most recent call last):\n  x\n",
        b" Traceback (most recent call last):\n\tx\n",
        b"using world size",
        b"Using network ",
        b"divisible\n",
        b"iteration 7/49 " + b"1" * 3000 + b"train_step_timing in s: " + b"1" * 3000,
    ],
    ids=lambda unit: str(unit[:20]),
)
def test_a_storm_comes_to_an_end(
    unit: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # each of them may be the longest that is read
    monkeypatch.setattr(find, "_MOST_TRACEBACKS", 100)
    path = tmp_path / "log-x.out"
    path.write_bytes(many(unit) * 8)
    with time_limit(GUARD):
        read_log(path)
        root_cause([path])


def test_of_a_storm_of_tracebacks_some_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[bytes] = Counter()

    def found(hit: Any, more: Any) -> Any:
        counts[hit.text] += 1
        return _error_at(hit, more)

    monkeypatch.setattr(find, "_error_at", found)
    monkeypatch.setattr(find, "_MOST_TRACEBACKS", 50)
    path = tmp_path / "log-x.out"
    path.write_bytes(
        b"Traceback (most recent call last):\n  x\nValueError: first\n" * 500
        + b"CUDA out of memory\n"
    )
    cause = root_cause([path])
    assert counts[_TRACEBACK.text] == 50
    assert cause is not None


# the limit may pass in a callback of gc
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_plugins_pattern_that_does_not_end_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "PATTERN_SECONDS", 0.2)
    path = tmp_path / "log-x.out"
    path.write_text("1" * 60 + "b lasted: 2\n")
    spec = ParseSpec(
        needle="lasted",
        iteration=r"(?P<i>(1+)+)$",
        keys={"step_time": "lasted"},
        source="acme:bench",
    )
    with pytest.raises(SlowPatternError) as caught:
        read_log(path, spec)
    assert (caught.value.code, caught.value.value) == ("pattern-slow", "acme:bench")


SLOW = r"(a+)+!x"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("key", "fields"),
    [
        ("must_have[1]", {"must_have": ("a", SLOW)}),
        ("must_not_have[0]", {"must_not_have": (SLOW,)}),
        ("patterns.bw", {"patterns": {"ok": r"ok (?P<value>\d)", "bw": SLOW + r"(?P<value>\d)"}}),
        (
            "iteration or patterns.bw",
            {
                "needle": "step",
                "iteration": SLOW + r"(?P<i>\d)",
                "patterns": {"bw": r"bw (?P<value>\d)"},
            },
        ),
    ],
)
def test_a_slow_pattern_is_named_and_not_tried_again(
    key: str, fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (log_lines, whole_log):
        monkeypatch.setattr(module, "PATTERN_SECONDS", 0.2)
    whole = {"patterns": {"ok": r"ok (?P<value>\d)"}, "metrics": ("ok", "bw"), **fields}
    spec = ParseSpec(**whole, source=f"acme:{key}")
    path = tmp_path / "log-x.out"
    path.write_text(f"ok 1\n{'a' * 64} step bw 1\n" * 2)
    errors = []
    for _ in range(2):
        with pytest.raises(SlowPatternError) as caught:
            read_log(path, spec)
        errors.append(caught.value)
    assert errors[0] is errors[1]
    assert (errors[0].key, errors[0].value) == (key, f"acme:{key}")
    assert key in errors[0].message
    assert key in (errors[0].fix or "")
