# SPDX-License-Identifier: Apache-2.0
"""Reads what a log says besides its steps: where the job runs, and its checkpoints.

Megatron logs a checkpoint in two lines, ``  successfully saved checkpoint from iteration      50 to /ckpt`` and then
``    save-checkpoint ................................: (24895.07, 24895.13)``, the shortest and the longest time of all
ranks in ms.
"""

import json
import math
import re
from dataclasses import replace
from functools import lru_cache
from typing import Literal, TypeVar

from llmb.logs.lines import read_value
from llmb.logs.samples import CheckpointEvent, Environment, Node
from llmb.logs.scan import Line, needle, plain, strip_escapes

T = TypeVar("T")

SAVE, LOAD = needle("Global Checkpoint Save", b"."), needle("Global Checkpoint Load", b"._")
_NETWORK, _NCCL_VERSION = needle("Using network "), needle("NCCL version ", b"+")
_LIGHTNING_WORLD = needle("distributed processes registered", b".w")
_MEGATRON_WORLD = needle("using world size")
_NODE = needle("llmb node ", b"{}")
_VBOOST = needle("llmb vboost: ")
_TITAN_JOB = needle("Trainer is initialized with local batch size", b",")
_TITAN_WORLD = needle("Building device mesh with parallelism", b"=,")
_CPU = needle("CPU with ")
PLACES = (_NETWORK, _NCCL_VERSION, _LIGHTNING_WORLD, _MEGATRON_WORLD, _NODE, _VBOOST, _TITAN_JOB, _TITAN_WORLD, _CPU)

_NETWORK_PATTERN = re.compile(rb"Using network\s+([^\r\n]{1,60})")
_NCCL_VERSION_PATTERN = re.compile(rb"NCCL version\s+(\d[\w.+-]{0,60})")
_NODE_PATTERN = re.compile(rb"llmb node (?P<host>[\w.-]{1,253}): (?P<facts>\{[^{}\r\n]*\})")
_VBOOST_PATTERN = re.compile(rb"llmb vboost: (set on \d{1,6} of \d{1,6} nodes?[^\r\n]{0,300})")
_CPU_PATTERN = re.compile(rb"CPU with \d{1,6} threads a rank")
_TITAN_JOB_PATTERN = re.compile(
    rb"global batch size (?P<gbs>\d{1,12}),.{1,200}sequence length (?P<seq>\d{1,12}),\s{1,40}"
    rb"total steps (?P<steps>\d{1,12})"
)
_TITAN_SPLIT = re.compile(rb"\b(?:pp|dp_replicate|dp_shard|cp|tp)=(\d{1,6})\b")
_HOST = re.compile(rb"(?<![\w.-])([\w.-]{1,253}):\d{1,9}:\d{1,9} \[\d{1,5}\] NCCL INFO\s{0,20}$")
_WORLD = re.compile(rb"Starting with (\d{1,9}) processes|using world size:\s*(\d{1,9})")

NOTHING = Environment()
_MOST_RANKS = 1 << 14
_MOST = 1e6  # MHz, W: no GPU has more


def environment_of(text: bytes, line: Line) -> Environment:
    """Where the job runs, from one line that was found by the ``text`` of one of PLACES."""
    after = strip_escapes(line.after)
    if text == _NODE.text:  # ends with a brace, so it is complete even where the line may be cut
        node = _read_node(after)
        return NOTHING if node is None else Environment(hosts=(node.host,), described=(node,))
    if line.cut:
        return NOTHING
    if text == _TITAN_WORLD.text:
        return Environment(world_size=math.prod(map(int, _TITAN_SPLIT.findall(after) or [0])) or None)
    if text in (_LIGHTNING_WORLD.text, _MEGATRON_WORLD.text):
        match = _WORLD.search(line.before + line.after)
        return Environment(world_size=int(match[1] or match[2]) or None) if match else NOTHING
    if text == _TITAN_JOB.text and (match := _TITAN_JOB_PATTERN.search(after)):
        steps, gbs, seq_length = (int(match[name]) or None for name in ("steps", "gbs", "seq"))
        return Environment(steps=steps, gbs=gbs, seq_length=seq_length)
    if text == _NCCL_VERSION.text and (match := _NCCL_VERSION_PATTERN.match(after)):
        return Environment(nccl_version=match[1].decode())
    if text == _VBOOST.text and (match := _VBOOST_PATTERN.match(after)):
        return Environment(vboost=plain(match[1]))  # `set on 15 of 16 nodes: sudo: a password is required`
    if text == _CPU.text and _CPU_PATTERN.match(after):
        return Environment(device="CPU")
    if text == _NETWORK.text and (match := _NETWORK_PATTERN.match(after)):
        host = _HOST.search(strip_escapes(line.before))
        return Environment(networks=(plain(match[1]),), hosts=(host[1].decode(),) if host else ())
    return NOTHING


def merged(earlier: Environment, later: Environment) -> Environment:
    """Both together; the ``later`` one overrides single values."""
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
        gbs=later.gbs or earlier.gbs,
        seq_length=later.seq_length or earlier.seq_length,
        device=later.device or earlier.device,
    )


def _union(earlier: tuple[T, ...], later: tuple[T, ...]) -> tuple[T, ...]:
    if len(later) < 2:  # fast path: a line adds one value, and a job has hundreds of nodes
        return earlier if not later or later[0] in earlier else (*earlier, *later)
    return earlier if set(later) <= set(earlier) else tuple(dict.fromkeys((*earlier, *later)))


def add_checkpoint(events: list[CheckpointEvent], kind: Literal["save", "load"], line: Line) -> None:
    """Add the ``line`` of one rank to ``events``; a second line of the same rank is of another checkpoint."""
    found = _read_checkpoint(line, b"Save duration" if kind == "save" else b"Time spent in load_checkpoint")
    if found is None:
        return
    seconds, rank, iteration = found
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
    """Seconds (called ``key``), rank and iteration of one rank's line; None where the line is incomplete."""
    text = strip_escapes(line.after)
    values = read_value(text, key, line.cut), read_value(text, b"Rank"), read_value(text, b"Iteration")
    seconds, rank, iteration = (value if value is None or math.isfinite(value) else None for value in values)
    if seconds is None or not 0 <= int(rank or 0) < _MOST_RANKS:
        return None
    return seconds, int(rank or 0), None if iteration is None else int(iteration)


def _read_node(text: bytes) -> Node | None:
    """The node in ``llmb node gpu-001: {"driver": "570.86.15", ...}``; None where the line is incomplete."""
    if (match := _NODE_PATTERN.match(text)) is None:
        return None
    facts = _read_facts(match["facts"])
    return None if facts is None else replace(facts, host=match["host"].decode())


@lru_cache(maxsize=64)
def _read_facts(text: bytes) -> Node | None:
    """The facts of a node, without its name: most nodes of a job have the same (cached)."""
    try:
        data = json.loads(text, parse_constant=int)  # int() raises for nan and inf
    except (ValueError, RecursionError):
        return None
    driver, gpu = (plain(data[name]) if isinstance(data.get(name), str) else None for name in ("driver", "gpu"))
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
_LOADED_TEXT = re.compile(rb"checkpoint from (\S{1,1024})(?:.{0,80} at iteration\s{1,20}(\d{1,12}))?")
_TIMER = re.compile(rb"-checkpoint [.]{1,200}:\s{0,9}\((\d{1,15}(?:\.\d{1,9})?),\s{0,9}(\d{1,15}(?:\.\d{1,9})?)\)")


def add_megatron_checkpoint(
    saves: list[CheckpointEvent], loads: list[CheckpointEvent], text: bytes, line: Line
) -> None:
    """Add the ``line``, found by the ``text`` of one of MEGATRON_CHECKPOINTS, to ``saves`` or ``loads``."""
    after = strip_escapes(line.after)
    if text in (SAVE_TIMER.text, LOAD_TIMER.text):
        _add_time(saves if text == SAVE_TIMER.text else loads, "save" if text == SAVE_TIMER.text else "load", after)
        return
    saved = text == SAVED.text
    found = None if line.cut else (_SAVED_TEXT if saved else _LOADED_TEXT).search(after)
    if found is None:
        return
    iteration, folder = found.groups() if saved else found.groups()[::-1]
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
    found = _TIMER.search(after)
    if found is not None and events and events[-1].kind == kind and events[-1].max_seconds is None:
        events[-1] = replace(events[-1], max_seconds=float(found[2]) / 1000)
