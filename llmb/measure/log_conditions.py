# SPDX-License-Identifier: Apache-2.0
"""Read the conditions in a log: the network, the nodes, and the checkpoints of the job.

Megatron logs a checkpoint in two lines, `` successfully saved checkpoint from iteration 50 to
/ckpt`` and then `` save-checkpoint ................................: (24895.07, 24895.13)``, the
shortest and the longest time of all ranks in ms.
"""

import json
import math
import re
from dataclasses import replace
from functools import lru_cache
from typing import Literal, TypeVar

from llmb.contract.samples import CheckpointEvent, Environment, Node
from llmb.core.scan import Line, needle, plain, strip_escapes
from llmb.measure import nccl_links, stragglers
from llmb.measure.log_lines import read_value
from llmb.measure.telemetry import read_line as read_telemetry

T = TypeVar("T")

SAVE, LOAD = needle("Global Checkpoint Save", b"."), needle("Global Checkpoint Load", b"._")
NETWORK, _NCCL_VERSION = needle("Using network "), needle("NCCL version ", b"+")
_NICS = needle("NET/IB : Using")
# `[Rank 0] (after 2 iterations) memory (MB) | allocated: 26873.7 | max allocated: 45623.3 | ...` of
# Megatron-LM, in MiB, and `memory (GB) | ... | mem-max-allocated-gigabytes: 194.41 | ...` of
# Megatron-Bridge, in GB.
_MEMORY = needle(" memory (", b")")
_MEMORY_KEYS = {b"MB": (b"max allocated", 2.0**20), b"GB": (b"mem-max-allocated-gigabytes", 1e9)}
_LIGHTNING_WORLD = needle("distributed processes registered", b".w")
_MEGATRON_WORLD = needle("using world size")
_MEGATRON_LENGTH = needle(" seq_length .....")  # in its list of arguments
_NODE = needle("llmb node ", b"{}")
_TELEMETRY = needle("llmb telemetry ", b"{}")
_VBOOST = needle("llmb vboost {set on ", b"}")
_WARNING = needle("llmb warning: ")
_TITAN_JOB = needle("Trainer is initialized with local batch size", b",")
_TITAN_WORLD = needle("Building device mesh with parallelism", b"=,")
_CPU = needle("CPU with ")
#: The line of earlier scripts, one of the first of a log. The lines of a trace have all its bytes,
#: so a search for it in each block would take longer than that for all other texts.
_EARLIER_VBOOST = needle("llmb vboost: set on ")
AT_THE_START = (_EARLIER_VBOOST,)
PLACES = (
    NETWORK,
    _NICS,
    _MEMORY,
    _NCCL_VERSION,
    _LIGHTNING_WORLD,
    _MEGATRON_WORLD,
    _MEGATRON_LENGTH,
    _NODE,
    _TELEMETRY,
    _VBOOST,
    _WARNING,
    _TITAN_JOB,
    _TITAN_WORLD,
    _CPU,
)

_NETWORK_PATTERN = re.compile(rb"Using network\s+([^\r\n]{1,60})")
_NCCL_VERSION_PATTERN = re.compile(rb"NCCL version\s+(\d[\w.+-]{0,60})")
_NODE_PATTERN = re.compile(rb"llmb node (?P<host>[\w.-]{1,253}): (?P<facts>\{[^{}\r\n]*\})")
_TELEMETRY_PATTERN = re.compile(
    rb"llmb telemetry (?P<host>[\w.-]{1,253}): (?P<values>\{[^\r\n]{1,2000}\})"
)
_VBOOST_PATTERN = re.compile(
    rb"llmb vboost(?: \{|: )(?P<count>set on \d{1,6} of \d{1,6} nodes?)\}?(?P<why>[^\r\n]{0,300})"
)
_WARNING_PATTERN = re.compile(rb"llmb warning: ([^\r\n]{1,300})")
_CPU_PATTERN = re.compile(rb"CPU with \d{1,6} threads a rank")
_TITAN_JOB_PATTERN = re.compile(
    rb"global batch size (?P<gbs>\d{1,12}),.{1,200}sequence length (?P<seq>\d{1,12}),\s{1,40}"
    rb"total steps (?P<steps>\d{1,12})"
)
_LENGTH_PATTERN = re.compile(rb" seq_length \.{5,60} ([1-9]\d{0,11})\b")
_TITAN_SPLIT = re.compile(rb"\b(?:pp|dp_replicate|dp_shard|cp|tp)=(\d{1,6})\b")
_HOST = re.compile(rb"(?<![\w.-])([\w.-]{1,253}):\d{1,9}:\d{1,9} \[\d{1,5}\] NCCL INFO\s{0,20}$")
_WORLD = re.compile(rb"Starting with (\d{1,9}) processes|using world size:\s*(\d{1,9})")

NOTHING = Environment()
_MOST_RANKS = 1 << 14
_MOST = 1e6  # MHz, W: no GPU has more


def environment_of(text: bytes, line: Line) -> Environment:
    """Return the environment that one line shows, found by the ``text`` of one of PLACES."""
    after = strip_escapes(line.after)
    if text == _NODE.text:  # ends with a brace, so it is complete even where the line may be cut
        node = _read_node(after)
        return NOTHING if node is None else Environment(hosts=(node.host,), described=(node,))
    if line.cut:
        return NOTHING
    if text == _TELEMETRY.text and (match := _TELEMETRY_PATTERN.match(after)):
        return _read_telemetry(match)
    if text == _TITAN_WORLD.text:
        return Environment(
            world_size=math.prod(map(int, _TITAN_SPLIT.findall(after) or [0])) or None
        )
    if text in (_LIGHTNING_WORLD.text, _MEGATRON_WORLD.text):
        match = _WORLD.search(line.before + line.after)
        return Environment(world_size=int(match[1] or match[2]) or None) if match else NOTHING
    if text == _MEGATRON_LENGTH.text and (match := _LENGTH_PATTERN.match(after)):
        return Environment(seq_length=int(match[1]))
    if text == _TITAN_JOB.text and (match := _TITAN_JOB_PATTERN.search(after)):
        steps, gbs, seq_length = (int(match[name]) or None for name in ("steps", "gbs", "seq"))
        return Environment(steps=steps, gbs=gbs, seq_length=seq_length)
    if text == _NCCL_VERSION.text and (match := _NCCL_VERSION_PATTERN.match(after)):
        return Environment(nccl_version=match[1].decode())
    if text in (_VBOOST.text, _EARLIER_VBOOST.text) and (match := _VBOOST_PATTERN.match(after)):
        # `set on 15 of 16 nodes: sudo: a password is required`
        return Environment(vboost=plain(match["count"] + match["why"]))
    if text == _WARNING.text and (match := _WARNING_PATTERN.match(after)):
        return Environment(warnings=(plain(match[1], 300),))
    if text == _CPU.text and _CPU_PATTERN.match(after):
        return Environment(device="CPU")
    if text == _MEMORY.text:
        key, unit = _MEMORY_KEYS.get(after[len(text) : len(text) + 2], (b"", 1.0))
        peak = read_value(after, key) if key else None
        return Environment(peak_memory=peak * unit) if peak and peak > 0 else NOTHING
    if text == _NICS.text:
        return Environment(links=nccl_links.nics_of(after))
    if text == NETWORK.text and (match := _NETWORK_PATTERN.match(after)):
        host = _HOST.search(strip_escapes(line.before))
        return Environment(networks=(plain(match[1]),), hosts=(host[1].decode(),) if host else ())
    return NOTHING


def merged(earlier: Environment, later: Environment) -> Environment:
    """Merge two environments. The ``later`` one overrides single values."""
    if earlier == NOTHING or later == NOTHING:
        return later if earlier == NOTHING else earlier
    return Environment(
        networks=_union(earlier.networks, later.networks),
        hosts=_union(earlier.hosts, later.hosts),
        nccl_version=later.nccl_version or earlier.nccl_version,
        world_size=later.world_size or earlier.world_size,
        vboost=later.vboost or earlier.vboost,
        described=_union(earlier.described, later.described),
        steps=later.steps or earlier.steps,
        resumed_steps=(
            earlier.resumed_steps if later.resumed_steps is None else later.resumed_steps
        ),
        gbs=later.gbs or earlier.gbs,
        seq_length=later.seq_length or earlier.seq_length,
        device=later.device or earlier.device,
        warnings=_union(earlier.warnings, later.warnings),
        links=nccl_links.merged(earlier.links, later.links),
        gpus=_union(earlier.gpus, later.gpus),
        operation=later.operation or earlier.operation,
        stragglers=stragglers.merged(earlier.stragglers, later.stragglers),
        peak_memory=max(filter(None, (earlier.peak_memory, later.peak_memory)), default=None),
    )


def _union(earlier: tuple[T, ...], later: tuple[T, ...]) -> tuple[T, ...]:
    if len(later) < 2:  # fast path: a line adds one value, and a job has hundreds of nodes
        return earlier if not later or later[0] in earlier else (*earlier, *later)
    return earlier if set(later) <= set(earlier) else tuple(dict.fromkeys((*earlier, *later)))


def add_checkpoint(
    events: list[CheckpointEvent], kind: Literal["save", "load"], line: Line
) -> None:
    """Add the ``line`` of one rank to ``events``.

    A second line of the same rank is of another checkpoint.
    """
    values = _read_checkpoint(
        line, b"Save duration" if kind == "save" else b"Time spent in load_checkpoint"
    )
    if values is None:
        return
    seconds, rank, iteration = values
    event = events[-1] if events else None
    if event is None or event.kind != kind or event.iteration != iteration or rank in event.ranks:
        event = CheckpointEvent(kind=kind, ranks=(), max_seconds=seconds, iteration=iteration)
    else:
        events.pop()
    events.append(
        replace(
            event,
            ranks=(*event.ranks, rank),
            max_seconds=max(event.max_seconds or 0.0, seconds),
            rank0_seconds=seconds if rank == 0 else event.rank0_seconds,
        )
    )


def _read_checkpoint(line: Line, key: bytes) -> tuple[float, int, int | None] | None:
    """Return seconds (called ``key``), rank and iteration of a rank's line, None if incomplete."""
    text = strip_escapes(line.after)
    values = (
        read_value(text, key, line.cut),
        read_value(text, b"Rank"),
        read_value(text, b"Iteration"),
    )
    seconds, rank, iteration = (
        value if value is None or math.isfinite(value) else None for value in values
    )
    if seconds is None or not 0 <= int(rank or 0) < _MOST_RANKS:
        return None
    return seconds, int(rank or 0), None if iteration is None else int(iteration)


def _read_node(text: bytes) -> Node | None:
    """Return the node in ``llmb node gpu-001: {"driver": "570.86.15", ...}`` if it is complete."""
    if (match := _NODE_PATTERN.match(text)) is None:
        return None
    facts = _read_facts(match["facts"])
    return None if facts is None else replace(facts, host=match["host"].decode())


def _read_telemetry(match: re.Match[bytes]) -> Environment:
    """Return the node of ``llmb telemetry gpu-001: {"gpus": 8, "sm_clock_mhz": {...}, ...}``."""
    host, values = match["host"].decode(), match["values"].decode("utf-8", "replace")
    node = read_telemetry(host, values)
    return NOTHING if node is None else Environment(hosts=(host,), described=(node,))


@lru_cache(maxsize=64)
def _read_facts(text: bytes) -> Node | None:
    """Return the facts of a node without its name (cached: most nodes of a job have the same)."""
    try:
        data = json.loads(text, parse_constant=int)  # int() raises for nan and inf
    except (ValueError, RecursionError):
        return None
    driver, gpu = (
        plain(data[name]) if isinstance(data.get(name), str) else None for name in ("driver", "gpu")
    )
    gpus = data.get("gpus")
    return Node(
        host="",
        driver=driver,
        gpu=gpu,
        gpus=gpus if type(gpus) is int and 0 < gpus < _MOST_RANKS else None,
        max_sm_clock_mhz=_positive(data.get("max_sm_clock_mhz")),
        power_limit_w=_positive(data.get("power_limit_w")),
    )


def _positive(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and 0 < value < _MOST else None


SAVED = needle("successfully saved checkpoint from iteration")
LOADED = needle("successfully loaded checkpoint from")
SAVE_TIMER, LOAD_TIMER = needle("save-checkpoint .", b"()"), needle("load-checkpoint .", b"()")
MEGATRON_CHECKPOINTS = (SAVED, LOADED, SAVE_TIMER, LOAD_TIMER)

_SAVED_TEXT = re.compile(rb"from iteration\s{1,20}(\d{1,12})(?: to (\S{1,1024}))?")
_LOADED_TEXT = re.compile(
    rb"checkpoint from (\S{1,1024})(?:.{0,80} at iteration\s{1,20}(\d{1,12}))?"
)
_TIMER = re.compile(
    rb"-checkpoint [.]{1,200}:\s{0,9}\((\d{1,15}(?:\.\d{1,9})?),\s{0,9}(\d{1,15}(?:\.\d{1,9})?)\)"
)


def add_megatron_checkpoint(
    saves: list[CheckpointEvent], loads: list[CheckpointEvent], text: bytes, line: Line
) -> None:
    """Add the ``line``, found by a ``text`` of MEGATRON_CHECKPOINTS, to ``saves`` or ``loads``."""
    after = strip_escapes(line.after)
    if text in (SAVE_TIMER.text, LOAD_TIMER.text):
        _add_time(
            saves if text == SAVE_TIMER.text else loads,
            "save" if text == SAVE_TIMER.text else "load",
            after,
        )
        return
    saved = text == SAVED.text
    match = None if line.cut else (_SAVED_TEXT if saved else _LOADED_TEXT).search(after)
    if match is None:
        return
    iteration, folder = match.groups() if saved else match.groups()[::-1]
    event = CheckpointEvent(
        kind="save" if saved else "load",
        ranks=(0,),
        max_seconds=None,
        iteration=None if iteration is None else int(iteration),
        folder=None if folder is None else plain(folder, 1024),
    )
    (saves if saved else loads).append(event)


def _add_time(events: list[CheckpointEvent], kind: str, after: bytes) -> None:
    """Add the longest time of all ranks to the last checkpoint that has none."""
    match = _TIMER.search(after)
    if match is not None and events and events[-1].kind == kind and events[-1].max_seconds is None:
        events[-1] = replace(events[-1], max_seconds=float(match[2]) / 1000)
