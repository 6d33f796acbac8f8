# SPDX-License-Identifier: Apache-2.0
"""Looks through a plugin's workload for what would only fail when somebody submits it: its rows, and its launch."""

import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llmb.errors import Fault, LlmbError, UsageError
from llmb.planning.configure import Place, Wish, configure
from llmb.plugins.loader import PluginError, Plugins
from llmb.runs.job import Job
from llmb.runs.site import Site
from llmb.text import yamlfile
from llmb.text.names import suggest
from llmb.text.yamlfile import KeyPath
from llmb.workload.gpus import CPU, gpus_in_words, known_types
from llmb.workload.rows import ANY_GPU, Row
from llmb.workload.spec import Workload

_INSTALL = Path("/install")
DTYPES = ("bf16", "fp8", "fp16", "fp32")  # that llmb's programs, and NeMo's plugins of precision, know


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A key path of a workload; ``at``: where its file has it, ``file:line``, or the plugin that has no such file."""

    at: str
    path: KeyPath

    def fault(self, message: str, hint: str | None) -> Fault:
        return Fault(place=self.at, message=f"{'.'.join(map(str, self.path))}: {message}", hint=hint)


def faults_of(workload: Workload, plugins: Plugins) -> list[Fault]:
    """Everything wrong with a workload and with how its plugin launches it, each once and where it stands."""
    source = plugins.offers[workload.key].source
    document = None if workload.file is None else yamlfile.load(workload.file)

    def place(*path: Hashable) -> _Place:
        return _Place(at=source if document is None else document.place(path), path=path)

    found: list[Job | Fault] = [*_wrong_default(workload, place("default_dtype"))]
    for name, size in workload.sizes.items():
        jobs: list[Job] = []
        for number, row in enumerate(size.rows):
            at = place("sizes", name, "rows", number)
            of_row = list(_jobs(workload, name, row, at))
            jobs += [one for one in of_row if isinstance(one, Job)]
            found += [*_unknown_types(row, place(*at.path, "gpu")), *of_row]
            found += _without_program(workload, [one for one in of_row if isinstance(one, Job)], plugins, at)
        found += _faults_of_own(workload, jobs[:1], plugins, source)
    return list(dict.fromkeys(one for one in found if isinstance(one, Fault)))


def _wrong_default(workload: Workload, place: _Place) -> Iterator[Fault]:
    size, dtype = workload.default_size, workload.default_dtype
    dtypes = list(dict.fromkeys(dtype for row in workload.sizes[size].rows for dtype in row.dtype))
    if dtype not in dtypes:
        yield place.fault(f"the default size {size} has no row for '{dtype}'", suggest(dtype, dtypes))


def _unknown_types(row: Row, place: _Place) -> Iterator[Fault]:
    known = [*known_types(), ANY_GPU]
    for gpu in row.gpu:
        if gpu not in known:
            yield place.fault(f"no GPU type is called '{gpu}'", suggest(gpu, known))


def _jobs(workload: Workload, size: str, row: Row, place: _Place) -> Iterator[Job | Fault]:
    """The job of each GPU type, dtype and scale of a row, or what is wrong with it."""
    types = (CPU if gpu == ANY_GPU else gpu for gpu in row.gpu)
    for gpu, dtype, scale in itertools.product(types, row.dtype, row.scales.counts):
        if gpu not in known_types():
            continue
        here = Place(
            gpu_type=gpu,
            rows=gpu,
            gpus_per_node=known_types()[gpu].gpus_per_node,
            one_machine=gpu == CPU,
            needs_image=gpu != CPU,
        )
        wish = Wish(
            workload=workload, size=size, dtype=dtype, scale=scale, params={}, strong_scaling=row.strong_scaling
        )
        try:
            yield configure(wish, here)[0]
        except UsageError as error:
            yield place.fault(error.message, "mend the row, or the model's shape")


def _faults_of_own(workload: Workload, jobs: Sequence[Job], plugins: Plugins, source: str) -> Iterator[Fault]:
    """What the plugin's own setup and launch fail with when they are asked for these jobs."""
    own = plugins.manager.get_plugin(source)
    for job in jobs:
        try:
            if hasattr(own, "llmb_setup"):
                plugins.setup(workload, _site(job))
            if hasattr(own, "llmb_launch"):
                plugins.launch(workload, job, _site(job))
        except PluginError as error:
            yield Fault(place=source, message=error.message, hint=error.hint)
        except LlmbError:  # what it says to a user may be right at another place
            continue


def _without_program(workload: Workload, jobs: Sequence[Job], plugins: Plugins, place: _Place) -> Iterator[Fault]:
    """Why llmb's own programs cannot run these jobs, neither on a cluster nor on one machine."""
    if hasattr(plugins.manager.get_plugin(plugins.offers[workload.key].source), "llmb_launch"):
        return
    for job in {(job.gpu_type, job.dtype): job for job in jobs}.values():
        if job.dtype not in DTYPES:
            yield place.fault(f"llmb's programs know no dtype '{job.dtype}'", suggest(job.dtype, DTYPES))
        elif (fault := _refusal(workload, job, plugins, place)) is not None:
            yield fault


def _refusal(workload: Workload, job: Job, plugins: Plugins, place: _Place) -> Fault | None:
    """Why no program of llmb runs ``job``: on a cluster, nor on one machine where one has room for it."""
    site, fix = _site(job), "give the size a 'nemo' recipe, or the plugin an llmb_launch"
    found = place.fault(f"no program of llmb runs it at {gpus_in_words(job.scale)}", fix)
    here = replace(site, cluster_type="local", container=False)
    for one in (site, here) if job.nodes == 1 else (site,):
        try:
            if plugins.launch(workload, job, one) is not None:
                return None
        except LlmbError as error:
            options = error.hint is None or "--" in error.hint  # a fix for those who run it
            hint = fix if options else error.hint
            found = place.fault(error.message.removeprefix(f"{job.experiment_name}: "), hint)
    return found


def _site(job: Job) -> Site:
    is_local = job.gpu_type == CPU
    return Site(
        cluster_type="local" if is_local else "slurm",
        gpu_type=job.gpu_type,
        gpus_per_node=job.gpus_per_node,
        install=_INSTALL,
        container=not is_local,
        venv=_INSTALL / "venvs" / "x",
        environment=job.env,
    )
