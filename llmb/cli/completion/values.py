# SPDX-License-Identifier: Apache-2.0
"""Completions of llmb-run's parameters: workloads, sizes, dtypes, GPU types, runs, nodes, settings."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import click

from llmb.cli.completion.engine import ANY_FILE, ANY_FOLDER, Candidate, Completer, last_of
from llmb.cli.context import Context
from llmb.config.locate import ARCHIVE
from llmb.errors import LlmbError
from llmb.text.names import find_workload_and_size
from llmb.workload.spec import Size, Workload

_PREFIX = "pretrain_"
_READ_ARCHIVES = frozenset({"results", "report", "explain", "show"})  # in the place of their first run


def _own(context: click.Context) -> Context:
    return context.find_object(Context) or context.ensure_object(Context)


def _workloads(context: click.Context) -> Mapping[str, Workload]:
    return _own(context).workloads


def _chosen(context: click.Context) -> tuple[Workload | None, str | None]:
    """The workload and the size of the options before the word."""
    name, size = context.params.get("workload"), context.params.get("size")
    if not isinstance(name, str):
        return None, None
    with suppress(LlmbError):
        known = _workloads(context)
        key, own = find_workload_and_size(name, {key: [*one.sizes] for key, one in known.items()})
        return known[key], size if isinstance(size, str) else own
    return None, None


def _sizes_of(context: click.Context) -> list[Size]:
    """The chosen size, else all sizes of the chosen workload, else of all."""
    workload, size = _chosen(context)
    if workload is None:
        return [one for own in _workloads(context).values() for one in own.sizes.values()]
    return [workload.sizes[size]] if size in workload.sizes else [*workload.sizes.values()]


def workload(context: click.Context, incomplete: str) -> Iterator[Candidate]:
    """Keys; with a size once a key is written. The prefix that all share is optional."""
    keys = _workloads(context)
    short = {key.removeprefix(_PREFIX): one for key, one in keys.items()}
    names = keys if not incomplete or _PREFIX.startswith(incomplete[: len(_PREFIX)]) else {**keys, **short}
    for name, one in names.items():
        yield Candidate(name, one.title)
        if incomplete.startswith(name):
            yield from (Candidate(f"{name}_{size}") for size in one.sizes)


def size(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The sizes of the chosen workload, else of all, with the workload's name."""
    one, _ = _chosen(context)
    if one is not None:
        yield from (Candidate(name) for name in one.sizes)
        return
    for key, own in _workloads(context).items():
        yield from (Candidate(name, key) for name in own.sizes)


def dtype(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The dtypes that the rows of the chosen workload and size have."""
    yield from map(
        Candidate, dict.fromkeys(name for one in _sizes_of(context) for row in one.rows for name in row.dtype)
    )


def scale(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The GPU counts that the rows of the chosen workload and size have."""
    counts = {count for one in _sizes_of(context) for row in one.rows for count in row.scales.counts}
    yield from (Candidate(str(count), "GPUs") for count in sorted(counts))


def gpu_type(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The GPU types of the cluster, else all that are known."""
    own = _own(context)
    with suppress(LlmbError):
        yield from map(Candidate, dict.fromkeys([own.config.gpu_type, *own.config.gpu_types]))
        return
    yield from map(Candidate, own.plugins.gpu_types)


def release(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The image releases of Megatron-Bridge."""
    from llmb.workload.bridge import releases

    yield from map(Candidate, releases())


def reference(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The releases with published figures."""
    yield from map(Candidate, sorted({figure.release for figure in _own(context).figures()}))


def run(context: click.Context, incomplete: str) -> Iterator[Candidate]:
    """The ids of runs, the newest first; a path where one is written."""
    from llmb.cli.completion import lookups

    if incomplete.startswith(("/", ".", "~")):
        yield ANY_FILE if context.command.name in _READ_ARCHIVES else ANY_FOLDER
        return
    given = context.params.get("runs") or ()
    if not given and context.command.name in _READ_ARCHIVES:
        yield from (Candidate(path.name, "archive") for path in sorted(Path().glob(f"*{ARCHIVE}")))
    with suppress(LlmbError):
        for own, text in lookups.runs(_own(context).config, incomplete):
            if own not in given:
                yield Candidate(own, text)


def baseline(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The baselines of the install directory, and files: archives."""
    from llmb.verdict.export import baselines

    with suppress(LlmbError):
        yield from map(Candidate, baselines(_own(context).config.llmb_install))
    yield ANY_FILE


def side(context: click.Context, incomplete: str) -> Iterator[Candidate]:
    """A side of a comparison: runs with commas between, or a file."""
    yield from last_of(run)(context, incomplete)
    yield ANY_FILE


def _slurm(name: str) -> Completer:
    def complete(_context: click.Context, _incomplete: str) -> Iterable[Candidate]:
        from llmb.cli.completion import lookups

        return map(Candidate, lookups.nodes() if name == "nodes" else lookups.partitions())

    return complete


def setting(context: click.Context, incomplete: str) -> Iterator[Candidate]:
    """``KEY=`` of ``--set``, then ``KEY=VALUE`` for keys with few values."""
    from llmb.workload.switches import CHOICES, PARAMS

    one, _ = _chosen(context)
    own = one.parameters if one is not None else {}
    values = {**dict.fromkeys(PARAMS, ()), **CHOICES, **{name: (p.default, *p.choices) for name, p in own.items()}}
    key, equals, _ = incomplete.partition("=")
    if not equals:
        yield from (Candidate(f"{name}=", " ".join(some), "open") for name, some in values.items())
        return
    for value in dict.fromkeys(values.get(key, ())):
        yield Candidate(f"{key}={value}")


def state(_context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    from llmb.cli.jobs.filters import STATES

    yield from map(Candidate, STATES)


def framework(_context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    from llmb.workload.bridge import BRIDGE, NEMO

    yield from map(Candidate, (NEMO, BRIDGE))


_nodes = last_of(_slurm("nodes"))
# By the names of click's parameters, which mean the same in each command.
COMPLETERS: Mapping[str, Completer] = {
    "workload": workload,
    "workloads": last_of(workload),
    "size": size,
    "dtype": dtype,
    "dtypes": last_of(dtype),
    "scale": scale,
    "scales": last_of(scale),
    "gpu_type": gpu_type,
    "framework": framework,
    "release": release,
    "reference": reference,
    "baseline": baseline,
    "run": run,
    "runs": run,
    "ours": side,
    "theirs": side,
    "params": setting,
    "states": last_of(state),
    "nodelist": _nodes,
    "nodes": _nodes,
    "exclude": _nodes,
    "partition": last_of(_slurm("partitions")),
    "image": lambda _context, _incomplete: [ANY_FILE],
    "mounts": lambda _context, _incomplete: [ANY_FOLDER],
    "load_checkpoint": lambda _context, _incomplete: [ANY_FOLDER],
}
