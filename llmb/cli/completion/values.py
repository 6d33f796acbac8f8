# SPDX-License-Identifier: Apache-2.0
"""The possible values of llmb-run's parameters: workloads, sizes, runs, nodes, settings."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import click

from llmb.cli.completion.engine import ANY_FILE, ANY_FOLDER, Candidate, Completer, last_of
from llmb.cli.context import CliContext
from llmb.contract.spec import Size, Workload
from llmb.core.names import find_workload_and_size
from llmb.errors import LlmbError
from llmb.plan.locate import ARCHIVE

_PREFIX = "pretrain_"
# in the place of their first run
_READ_ARCHIVES = frozenset({"results", "report", "explain", "show"})


def _cli(context: click.Context) -> CliContext:
    return context.find_object(CliContext) or context.ensure_object(CliContext)


def _workloads(context: click.Context) -> Mapping[str, Workload]:
    return _cli(context).workloads


def _chosen(context: click.Context) -> tuple[Workload | None, str | None]:
    """The workload and the size of the options before the word."""
    name, size = context.params.get("workload"), context.params.get("size")
    if not isinstance(name, str):
        return None, None
    with suppress(LlmbError):
        workloads = _workloads(context)
        key, size_in_name = find_workload_and_size(
            name, {key: workload.sizes for key, workload in workloads.items()}
        )
        return workloads[key], size if isinstance(size, str) else size_in_name
    return None, None


def _sizes_of(context: click.Context) -> list[Size]:
    """The chosen size, else all sizes of the chosen workload, else of all."""
    workload, size = _chosen(context)
    if workload is None:
        return [
            size_spec
            for offered in _workloads(context).values()
            for size_spec in offered.sizes.values()
        ]
    return [workload.sizes[size]] if size in workload.sizes else [*workload.sizes.values()]


def workload(context: click.Context, incomplete: str) -> Iterator[Candidate]:
    """Keys, and keys with a size once a key is written. The prefix that all share is optional."""
    workloads = _workloads(context)
    short = {key.removeprefix(_PREFIX): offered for key, offered in workloads.items()}
    names = (
        workloads
        if not incomplete or _PREFIX.startswith(incomplete[: len(_PREFIX)])
        else {**workloads, **short}
    )
    for name, offered in names.items():
        yield Candidate(name, offered.title)
        if incomplete.startswith(name):
            yield from (Candidate(f"{name}_{size}") for size in offered.sizes)


def size(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The sizes of the chosen workload, else of all, with the workload's name."""
    chosen, _ = _chosen(context)
    if chosen is not None:
        yield from (Candidate(name) for name in chosen.sizes)
        return
    for key, offered in _workloads(context).items():
        yield from (Candidate(name, key) for name in offered.sizes)


def dtype(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The dtypes that the rows of the chosen workload and size have."""
    yield from map(
        Candidate,
        dict.fromkeys(
            name for size in _sizes_of(context) for row in size.rows for name in row.dtype
        ),
    )


def scale(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The GPU counts that the rows of the chosen workload and size have."""
    counts = {
        count for size in _sizes_of(context) for row in size.rows for count in row.scales.counts
    }
    yield from (Candidate(str(count), "GPUs") for count in sorted(counts))


def gpu_type(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The GPU types of the cluster, else all that are known."""
    cli = _cli(context)
    with suppress(LlmbError):
        yield from map(Candidate, dict.fromkeys([cli.config.gpu_type, *cli.config.gpu_types]))
        return
    yield from map(Candidate, cli.plugins.gpu_types)


def release(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The image releases of frameworks."""
    frameworks = _cli(context).plugins.frameworks.values()
    yield from map(Candidate, (name for known in frameworks for name in known.releases))


def reference(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The releases with published figures."""
    yield from map(Candidate, sorted({figure.release for figure in _cli(context).figures()}))


def run(context: click.Context, incomplete: str) -> Iterator[Candidate]:
    """Return the ids of runs, the newest first, or paths for a word that begins as a path."""
    from llmb.cli.completion import lookups

    if incomplete.startswith(("/", ".", "~")):
        yield ANY_FILE if context.command.name in _READ_ARCHIVES else ANY_FOLDER
        return
    written = context.params.get("runs") or ()
    if not written and context.command.name in _READ_ARCHIVES:
        yield from (Candidate(path.name, "archive") for path in sorted(Path().glob(f"*{ARCHIVE}")))
    with suppress(LlmbError):
        for run_id, text in lookups.runs(_cli(context).config, incomplete):
            if run_id not in written:
                yield Candidate(run_id, text)


def session(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The sessions of the install directory, the newest first."""
    from llmb.cli.completion import lookups

    names: dict[str, str] = {}
    with suppress(LlmbError):
        for name, text in lookups.sessions(_cli(context).config):
            names.setdefault(name, text)
    yield from (Candidate(name, text) for name, text in names.items())


def baseline(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The baselines of the install directory, and files: archives."""
    from llmb.judge.export import baselines

    with suppress(LlmbError):
        yield from map(Candidate, baselines(_cli(context).config.llmb_install))
    yield ANY_FILE


def side(context: click.Context, incomplete: str) -> Iterator[Candidate]:
    """A side of a comparison: runs with commas between, or a file."""
    yield from last_of(run)(context, incomplete)
    yield ANY_FILE


def _slurm(name: str) -> Completer:
    def complete(context: click.Context, _incomplete: str) -> Iterable[Candidate]:
        from llmb.cli.completion import lookups

        cluster = None
        with suppress(LlmbError):
            slurm = _cli(context).config.slurm
            cluster = slurm.clusters if slurm is not None else None
        find = lookups.nodes if name == "nodes" else lookups.partitions
        return map(Candidate, find(cluster))

    return complete


def setting(context: click.Context, incomplete: str) -> Iterator[Candidate]:
    """``KEY=`` of ``--set``, then ``KEY=VALUE`` for keys with few values."""
    from llmb.contract.switches import CHOICES, PARAMS

    chosen, _ = _chosen(context)
    parameters = chosen.parameters if chosen is not None else {}
    values = {
        **dict.fromkeys(PARAMS, ()),
        **CHOICES,
        **{name: (p.default, *p.choices) for name, p in parameters.items()},
    }
    key, equals, _ = incomplete.partition("=")
    if not equals:
        yield from (
            Candidate(f"{name}=", " ".join(choices), "open") for name, choices in values.items()
        )
        return
    for value in dict.fromkeys(values.get(key, ())):
        yield Candidate(f"{key}={value}")


def state(_context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    from llmb.cli.jobs.filters import STATES

    yield from map(Candidate, STATES)


def framework(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    yield from map(Candidate, _cli(context).frameworks)


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
    "session": session,
    "sessions": session,
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
