# SPDX-License-Identifier: Apache-2.0
"""Read what straggler detectors of training programs print.

NVRx (nvidia-resiliency-ext, through NeMo or Megatron-Bridge) prints ``STRAGGLER DETECTION WARNING:
Some GPUs have worse relative performance. Affected ranks: {StragglerId(rank=76, node='gpu-9')}``
and, under ``GPU relative performance:``, lines `` Rank=76 Node=gpu-9 Score=0.62``. Megatron's sniff
test prints ``OUTLIER rank 17 (gpu-3): 512.30 (-11.4%)`` below the name and median of its test, and
its StragglerDetector ``MnRtt/Rnk: 3453.08ms/8 | ... | MnEtpt/Rnk: 296.02TF/0 | MxEtpt/Rnk:
297.32TF/8``.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from llmb.contract.samples import Straggler
from llmb.core.scan import REACH, Hit, needle, plain, strip_escapes

NVRX, SNIFF_TEST, STRAGGLER_DETECTOR = "NVRx", "sniff test", "StragglerDetector"
RELATIVE, INDIVIDUAL = "GPU relative performance", "GPU individual performance"
THROUGHPUT = "estimated throughput"

# All have a byte that other needles have too, and that few lines have: U or z.
_WORSE = needle("GPUs have worse relative performance. Affected ranks:")
_DROPPED = needle("GPUs performance dropped. Affected ranks:")
_RELATIVE, _INDIVIDUAL = needle(f"{RELATIVE}:"), needle(f"{INDIVIDUAL}:")
_OUTLIER = needle("OUTLIER rank ")
_DETECTOR = needle("MnRtt/Rnk:", b"z")
NEEDLES = (_WORSE, _DROPPED, _RELATIVE, _INDIVIDUAL, _OUTLIER, _DETECTOR)

_MOST = 64  # ranks of one warning
_SECTION = 1 << 13  # bytes of a table of scores
_NUMBER = rb"(\d{1,12}(?:\.\d{1,9})?)"
_AFFECTED = re.compile(rb"Affected ranks: [\[{(]([^\]})\r\n]{1,3000}(?:\)[^\]})\r\n]{1,99})*)")
_IDENTITY = re.compile(
    rb"rank=(?P<rank>\d{1,7})(?:, node='(?P<node>[\w.-]{1,253})')?|(?<![\w.=-])(?P<bare>\d{1,7})"
    rb"(?![\w.])"
)
_SCORE = re.compile(rb"Rank=(\d{1,7}) Node=([\w.-]{1,253}) Score=(\d(?:\.\d{1,9})?)(?=[\r\n])")
_HEADING = re.compile(rb"GPU (?:relative|individual) performance:")
_OUTLIER_LINE = re.compile(
    rb"OUTLIER rank (\d{1,7})(?: \(([\w.-]{1,253})\))?: " + _NUMBER + rb" \(([-+]\d{1,4}\.\d)%\)"
)
_TEST = re.compile(rb"(\w[^\r\n]{0,120}?): median=" + _NUMBER)
_THROUGHPUT = re.compile(
    rb"MnEtpt/Rnk: " + _NUMBER + rb"TF/(\d{1,7}) \| MxEtpt/Rnk: " + _NUMBER + rb"TF/\d"
)


def stragglers_at(hit: Hit) -> tuple[Straggler, ...]:
    """Return the ranks that the report at ``hit``, a text of NEEDLES, names."""
    behind = strip_escapes(hit.block.behind(hit.at, _SECTION))
    line = behind.split(b"\n", 1)[0]
    if hit.text in (_WORSE.text, _DROPPED.text):
        return tuple(_affected(line, RELATIVE if hit.text == _WORSE.text else INDIVIDUAL))
    if hit.text in (_RELATIVE.text, _INDIVIDUAL.text):
        measure = RELATIVE if hit.text == _RELATIVE.text else INDIVIDUAL
        section = _HEADING.split(behind[len(hit.text) :], maxsplit=1)[0]
        return tuple(
            Straggler(
                detector=NVRX,
                measure=measure,
                rank=int(rank),
                host=node.decode(),
                score=float(score),
            )
            for rank, node, score in _SCORE.findall(section)
        )
    if hit.text == _OUTLIER.text:
        return _outlier(line, bytes(hit.block.data[max(0, hit.at - REACH) : hit.at]))
    match = _THROUGHPUT.search(line)
    if match is None or float(match[3]) <= 0:
        return ()
    score = float(match[1]) / float(match[3])
    detector, measure = STRAGGLER_DETECTOR, THROUGHPUT
    return (Straggler(detector=detector, measure=measure, rank=int(match[2]), score=score),)


def _affected(line: bytes, measure: str) -> Iterator[Straggler]:
    """Yield the ranks of a warning, a set of StragglerId or a list of numbers."""
    match = _AFFECTED.search(line)
    for identity in list(_IDENTITY.finditer(b"" if match is None else match[1]))[:_MOST]:
        node = identity["node"]
        yield Straggler(
            detector=NVRX,
            measure=measure,
            rank=int(identity["rank"] or identity["bare"]),
            host=None if node is None else node.decode(),
            flagged=True,
        )


def _outlier(line: bytes, before: bytes) -> tuple[Straggler, ...]:
    """Return the rank below the median. The test warns of ranks above it too, which slow none."""
    match, tests = _OUTLIER_LINE.match(line), _TEST.findall(before)
    if match is None or float(match[4]) >= 0:
        return ()
    return (
        Straggler(
            detector=SNIFF_TEST,
            measure=plain(tests[-1][0], 120).rsplit("  ", 1)[-1] if tests else SNIFF_TEST,
            rank=int(match[1]),
            host=None if match[2] is None else match[2].decode(),
            score=1 + float(match[4]) / 100,
            flagged=True,
        ),
    )


def merged(earlier: Iterable[Straggler], later: Iterable[Straggler]) -> tuple[Straggler, ...]:
    """Return the ranks of both that were warned of, and the slowest one of each measure."""
    by_rank: dict[tuple[str, str, int], Straggler] = {}
    for straggler in (*earlier, *later):
        key = straggler.detector, straggler.measure, straggler.rank
        before = by_rank.get(key, straggler)
        scores = [score for score in (before.score, straggler.score) if score is not None]
        by_rank[key] = replace(
            straggler,
            host=straggler.host or before.host,
            score=min(scores, default=None),
            flagged=before.flagged or straggler.flagged,
        )
    slowest: dict[tuple[str, str], float] = {}
    for (detector, measure, _), straggler in by_rank.items():
        if straggler.score is not None:
            lowest = slowest.get((detector, measure), straggler.score)
            slowest[detector, measure] = min(lowest, straggler.score)
    shown, named = list[Straggler](), set[tuple[str, str]]()
    for (detector, measure, _), straggler in by_rank.items():
        is_slowest = straggler.score == slowest.get((detector, measure), -1.0)
        if straggler.flagged or (is_slowest and (detector, measure) not in named):
            shown.append(straggler)
            named |= {(detector, measure)} if is_slowest else set()
    return tuple(shown[:_MOST])


def in_words(straggler: Straggler) -> str:
    """Return ``rank 76 on gpu-9: GPU relative performance 0.62 (NVRx warned of it)``."""
    host = "" if straggler.host is None else f" on {straggler.host}"
    score = "" if straggler.score is None else f" {straggler.score:.2f}"
    warned = f"{straggler.detector} warned of it" if straggler.flagged else straggler.detector
    return f"rank {straggler.rank}{host}: {straggler.measure}{score} ({warned})"
