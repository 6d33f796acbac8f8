# SPDX-License-Identifier: Apache-2.0
"""Finds faults of a workload's rows and launch that otherwise only a submission would show."""

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from llmb import api
from llmb.builtin.nemo.recipe_checks import UNUSABLE, NemoNames, known_names, recipe_faults
from llmb.builtin.own_types import LOCAL, SLURM
from llmb.builtin.torch.torch_pretrain import ARCHITECTURE_UNKNOWN
from llmb.check.cluster_trial import IMPURE, faults_of_wrappers, settings_for
from llmb.contract.gpus import CPU, GpuTypes, gpus_in_words
from llmb.contract.rows import ANY_GPU
from llmb.contract.settings import Settings
from llmb.contract.spec import NEMO
from llmb.core import yamlfile
from llmb.core.names import suggest
from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError, PluginError, UsageError, author_fault
from llmb.plan.configure import configure
from llmb.plan.limits import ClusterLimits
from llmb.plugins.loaded import Plugins
from llmb.plugins.settings import Sections

_OF_ANY = "h100"  # a GPU type with several in a node, as rows for any type must serve
NO_SETTINGS: Sections = {}
_INSTALL = Path("/install")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """A key path of a workload."""

    #: ``file:line``, or the plugin's name if the workload has no file.
    place: str
    path: yamlfile.KeyPath

    def fault(self, message: str, hint: str | None, *, code: str, value: object = None) -> Fault:
        key = yamlfile.dotted(self.path)
        return Fault(
            place=self.place,
            message=f"{key}: {message}",
            hint=hint,
            code=code,
            key=key,
            value=value,
        )


def notes_of(workload: api.Workload) -> Iterator[str]:
    """Yield what may be a mistake in a workload's table: a null tokenizer with other tokens than
    the model.
    """
    for name, size in workload.sizes.items():
        model, nemo = size.trained_model if size.model is not None else None, size.nemo
        if model is None or nemo is None or nemo.vocab in (None, model.vocab - 1):
            continue
        path = ("sizes", name, "nemo", "vocab")
        place = "" if workload.file is None else f"{yamlfile.load(workload.file).place(path)}: "
        yield (
            f"{place}{yamlfile.dotted(path)}: with NeMo's end-of-document token these are"
            f" {nemo.vocab + 1} tokens, and the model has {model.vocab}: leave vocab out of nemo"
        )


def faults_of(
    workload: api.Workload,
    plugins: Plugins,
    installed: NemoNames | None = None,
    sections: Sections = NO_SETTINGS,
) -> list[Fault]:
    """Return all faults of a workload and of its plugin's launch, each once with its place.

    Faults of site-wide plugins that change its launches are among them. ``installed``: the names of
    the installed NeMo, None for NeMo 2.3.1, if the workload uses that. ``sections``: the settings
    of plugins.
    """
    source = plugins.offers[workload.key].source
    document = None if workload.file is None else yamlfile.load(workload.file)

    def key(*path: Hashable) -> _Key:
        return _Key(place=source if document is None else document.place(path), path=path)

    case = _Case(workload=workload, framework=workload.framework, release=None)
    names = installed or known_names(workload.image)
    jobs_and_faults: list[api.Job | Fault] = [*_wrong_default(workload, key("default_dtype"))]
    for name, size in workload.sizes.items():
        if size.nemo is not None and names is not None:
            for error in recipe_faults(size.nemo, names):
                at = key("sizes", name, "nemo", *error.path)
                jobs_and_faults.append(
                    at.fault(str(error), error.hint, code=error.code, value=error.value)
                )
        jobs: list[api.Job] = []
        for number, row in enumerate(size.rows):
            at = key("sizes", name, "rows", number)
            of_row = list(_jobs(case, name, row, at, plugins.gpu_types))
            row_jobs = [item for item in of_row if isinstance(item, api.Job)]
            jobs += row_jobs
            jobs_and_faults += [
                *_unknown_types(row, key(*at.path, "gpu"), plugins.gpu_types),
                *of_row,
                *_without_program(workload, row_jobs, plugins, at),
            ]
        own_settings = settings_for(sections, source)
        tried = [(job, replace(_site(job), plugins=own_settings)) for job in _tried(jobs, workload)]
        jobs_and_faults += _hook_faults(workload, tried, plugins, source)
        jobs_and_faults += faults_of_wrappers(workload, tried[:1], plugins, sections)
    jobs_and_faults += _brought_faults(workload, plugins, key)
    return list(dict.fromkeys(item for item in jobs_and_faults if isinstance(item, Fault)))


def _brought_faults(
    workload: api.Workload, plugins: Plugins, key: Callable[..., _Key]
) -> Iterator[Fault]:
    """Yield the faults of rows that frameworks bring: numbers, GPU types, and the launch."""
    is_inline = isinstance(workload.bridge, api.BridgeModel)
    for framework in workload.frameworks.values():
        place = key(framework.name)
        try:
            sizes = framework.rows_for(workload)
        except LlmbError as error:
            yield place.fault(error.message, error.hint, code=error.code, value=error.value)
            continue
        for name, by_release in sizes.items():
            for release, rows in by_release.items():
                trained = framework.of_release(workload, release)
                case = _Case(workload=trained, framework=framework.name, release=release)
                for number, row in enumerate(rows):
                    at = key("sizes", name, "rows", number) if is_inline else place
                    yield from _unknown_types(row, at, plugins.gpu_types)
                    yield from _faults_of_brought_row(case, name, row, plugins, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A workload as a release of a framework trains it."""

    workload: api.Workload
    framework: str
    release: str | None


def _faults_of_brought_row(
    case: _Case, size: str, row: api.Row, plugins: Plugins, key: _Key
) -> Iterator[Fault]:
    jobs, workload = dict[tuple[str, str], api.Job](), case.workload
    for item in _jobs(case, size, row, key, plugins.gpu_types):
        if isinstance(item, Fault):
            yield item
        else:
            jobs[item.gpu_type, item.dtype] = item
    for job in jobs.values():
        try:
            plugins.launch(workload, job, _site(job))
        except PluginError:  # reported with the plugin's hooks
            continue
        except LlmbError as error:
            yield key.fault(error.message, error.hint, code=error.code, value=error.value)


def _wrong_default(workload: api.Workload, key: _Key) -> Iterator[Fault]:
    size, dtype = workload.default_size, workload.default_dtype
    rows = workload.sizes[size].rows
    if not rows and workload.bridge is not None:  # faults of its table are reported there
        return
    dtypes = list(dict.fromkeys(dtype for row in rows for dtype in row.dtype))
    if dtype not in dtypes:
        message = f"the default size {size} has no row for '{dtype}'"
        yield key.fault(message, suggest(dtype, dtypes), code="dtype-unknown", value=dtype)


def _unknown_types(row: api.Row, key: _Key, types: GpuTypes) -> Iterator[Fault]:
    valid_types = [*types, ANY_GPU]
    for gpu in row.gpu:
        if gpu not in valid_types:
            yield key.fault(
                f"unknown GPU type '{gpu}'",
                suggest(gpu, valid_types),
                code="gpu-type-unknown",
                value=gpu,
            )


def jobs_of(workload: api.Workload, size: str, types: GpuTypes) -> Iterator[api.Job]:
    """Yield the valid jobs that the rows of ``size`` describe."""
    case = _Case(workload=workload, framework=workload.framework, release=None)
    for row in workload.sizes[size].rows:
        key = _Key(place="", path=())
        yield from (job for job in _jobs(case, size, row, key, types) if isinstance(job, api.Job))


def _jobs(
    case: _Case, size: str, row: api.Row, key: _Key, types: GpuTypes
) -> Iterator[api.Job | Fault]:
    """The job of each GPU type, dtype and scale of a row, or its fault."""
    workload = case.workload
    row_types = [CPU if gpu == ANY_GPU else gpu for gpu in row.gpu]
    # On a cluster too, where a job may have to fill whole nodes, unless it may have any scale.
    of_any = ANY_GPU in row.gpu and not workload.sizes[size].any_scale
    tried_types = [*row_types, *([_OF_ANY] if of_any else [])]
    for gpu, dtype, scale in itertools.product(tried_types, row.dtype, row.scales.counts):
        if gpu not in types:
            continue
        limits = ClusterLimits(
            gpu_type=gpu,
            rows=gpu,
            gpus_per_node=types[gpu].gpus_per_node,
            one_machine=gpu == CPU,
            needs_image=gpu != CPU,
        )
        settings = Settings(
            workload=workload.key,
            model_size=size,
            dtype=dtype,
            scale=scale,
            framework=case.framework,
            release=case.release,
            strong_scaling=row.strong_scaling,
        )
        try:
            job = configure(settings, workload, limits)[0]
        except UsageError as error:
            message, fix = error.message, "fix the row, or the model's shape"
            if error.code == "nodes-not-full":
                message = f"{message} GPUs on {gpu}"
                fix = "add 'whole_nodes: false' to the size, or choose scales of whole nodes"
            yield key.fault(message, fix, code="row-invalid")
        else:
            if gpu in row_types:
                yield job


def _tried(jobs: Sequence[api.Job], workload: api.Workload) -> list[api.Job]:
    """Return jobs that together have each GPU type, dtype, scale and choice of a parameter."""
    tried: dict[tuple[str, object], api.Job] = {}
    for name in ("gpu_type", "dtype", "scale"):
        for job in jobs:
            tried.setdefault((name, getattr(job, name)), job)
    for name, parameter in workload.parameters.items() if jobs else ():
        for choice in parameter.choices or ():
            values = {**jobs[0].parameters, name: choice}
            tried[name, choice] = replace(jobs[0], parameters=values)
    return list({id(job): job for job in tried.values()}.values())


def _hook_faults(
    workload: api.Workload, jobs: Sequence[tuple[api.Job, api.Site]], plugins: Plugins, source: str
) -> Iterator[Fault]:
    """Yield errors of the plugin's own hooks, and answers that differ for equal arguments."""
    plugin = plugins.manager.get_plugin(source)
    failed: set[str] = set()
    for job, site in jobs:
        calls: dict[str, Callable[[], object]] = {
            "llmb_setup": partial(plugins.setup, workload, site),
            "llmb_launch": partial(plugins.launch, workload, job, site),
        }
        if job.training is not None:
            calls["llmb_flops"] = partial(plugins.flops, workload, job.training.model)
        for hook, call in calls.items():
            if not hasattr(plugin, hook) or hook in failed:
                continue
            try:
                if call() != call():
                    failed.add(hook)
                    message = f"{hook} gives different answers for equal arguments"
                    yield Fault(
                        place=source, message=message, hint=IMPURE, code="hook-impure", key=hook
                    )
            except PluginError as error:
                failed.add(hook)
                yield author_fault(error, source)
            except LlmbError:  # a message for users, which depends on their site
                continue


def _without_program(
    workload: api.Workload, jobs: Sequence[api.Job], plugins: Plugins, key: _Key
) -> Iterator[Fault]:
    """Yield a fault for each GPU type and dtype whose job none of llmb's programs runs."""
    plugin = plugins.manager.get_plugin(plugins.offers[workload.key].source)
    if workload.launch is not None or hasattr(plugin, "llmb_launch"):
        return
    if not workload.is_training:
        fix = "add 'launch' to workload.yaml, or an llmb_launch to the plugin"
        yield key.fault(
            "llmb has no program for a size without a 'model'", fix, code="program-missing"
        )
        return
    framework = workload.frameworks[workload.framework]
    for job in {(job.gpu_type, job.dtype): job for job in jobs}.values():
        if framework.dtypes and job.dtype not in framework.dtypes:
            program = "llmb's programs do" if framework.name == NEMO else f"{framework.title} does"
            message = f"{program} not support dtype '{job.dtype}'"
            hint = suggest(job.dtype, framework.dtypes)
            yield key.fault(message, hint, code="dtype-unknown", value=job.dtype)
        elif (fault := _refusal(workload, job, plugins, key)) is not None:
            yield fault


def _refusal(workload: api.Workload, job: api.Job, plugins: Plugins, key: _Key) -> Fault | None:
    """Return the fault that none of llmb's programs runs ``job``.

    It is tried on a cluster, or on one machine if it is that small.
    """
    site, fix = _site(job), "add a 'nemo' recipe to the size, or an llmb_launch to the plugin"
    program = "no program of llmb runs it"
    if workload.framework != NEMO:
        fix = "change the row, or the function 'launch' of the framework"
        program = f"{workload.frameworks[workload.framework].title} does not run it"
    refusal = key.fault(f"{program} on {gpus_in_words(job.scale)}", fix, code="program-missing")
    on_machine = replace(
        site, cluster_type=LOCAL.name, traits=LOCAL.traits_of(None), container=False
    )
    for place in (site, on_machine) if job.nodes == 1 else (site,):
        try:
            if plugins.launch(workload, job, place) is not None:
                return None
        except LlmbError as error:
            if error.code == UNUSABLE:  # reported once, at the recipe
                return None
            # other hints are for users of the job
            hint = error.hint if error.code == ARCHITECTURE_UNKNOWN else fix
            message = error.message.removeprefix(f"{job.experiment_name}: ")
            refusal = key.fault(
                message, hint, code=error.code or "program-missing", value=error.value
            )
    return refusal


def _site(job: api.Job) -> api.Site:
    is_local = job.gpu_type == CPU
    kind = LOCAL if is_local else SLURM
    return api.Site(
        cluster_type=kind.name,
        traits=kind.traits_of(None),
        gpu_type=job.gpu_type,
        gpus_per_node=job.gpus_per_node,
        install=_INSTALL,
        container=not is_local,
        venv=_INSTALL / "venvs" / "x",
        environment=job.env,
    )
