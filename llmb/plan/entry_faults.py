# SPDX-License-Identifier: Apache-2.0
"""The faults of an entry that need no planning, each with its place. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from llmb.contract import switches as sw, variables
from llmb.contract.entry import JobEntry
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Workload
from llmb.contract.switches import PROFILE_DETAILS, Switches
from llmb.core.names import squash, suggest
from llmb.errors import Fault, InputFaults, KeyFaultError, UsageError, as_fault

OF_ALL = ("max_steps",)  # llmb's parameters that workloads without a model have too
# no parameter: published figures are of one length
_LENGTHS = ("seqlen", "seqlength", "sequencelength")
# Switches that only training has, with the reason.
_OF_TRAINING = {
    "strong_scaling": "there is no global batch to keep",
    "tokenizer": "there is no model with a tokenizer",
    "fp8": "it sets how training in fp8 scales",
    "save_checkpoint": "there is no model to save",
    "load_checkpoint": "there is no model to load",
    "stragglers": "the detectors are those of NeMo and Megatron-Bridge",
    **dict.fromkeys(sw.PROFILE_DETAILS, "llmb profiles only training"),
}


def known_names(workload: Workload, size: str | None = None) -> tuple[str, ...]:
    """Return the names for ``--set`` and ``params``: llmb's, then the workload's or size's."""
    parameters = workload.parameters if size is None else workload.parameters_of(size)
    return (*(sw.PARAMS if workload.is_training else OF_ALL), *parameters)


def applicable(entry: JobEntry, workload: Workload, size: str) -> JobEntry:
    """Drop what the size does not have: other parameters, and training if no model is trained."""
    declared = workload.parameters_of(size)
    parameters = {name: values for name, values in entry.parameters.items() if name in declared}
    entry = replace(entry, parameters=parameters)
    if workload.is_training:
        return entry
    trained = {*sw.PARAMS, *_OF_TRAINING} - {*OF_ALL}
    sweeps = {name: values for name, values in entry.sweeps.items() if name not in trained}
    without = replace(entry, sweeps=sweeps, add_profile=False)
    return without.with_settings(**dict.fromkeys(trained), profile=False)


def faults_of_training(
    workload: Workload, size: str, params: Iterable[str], switches: Switches, *, profile: bool
) -> Iterator[Fault]:
    """Yield a fault for each setting of training, if ``workload`` trains no model."""
    if workload.is_training:
        return
    hint = f"omit it; {workload.key} {size} takes {', '.join(known_names(workload, size))}"
    for name in params:
        if name not in OF_ALL:
            yield _refused(
                name, f"'{name}' is for training, and {workload.key} trains no model", hint
            )
    chosen = sw.given_switches(switches)
    for name, reason in _OF_TRAINING.items():
        if chosen.get(name):
            yield _refused(
                name,
                f"'{name}' is for training, and {workload.key} trains no model: {reason}",
                "omit it",
            )
    if profile:
        yield _refused(
            "profile", f"{workload.key} cannot be profiled: llmb profiles only training", "omit it"
        )


def _refused(name: str, message: str, hint: str) -> Fault:
    return Fault(message=message, hint=hint, code="not-training", key=name)


def faults_of_parameters(
    workload: Workload, size: str, chosen: Mapping[str, tuple[str, ...]]
) -> Iterator[Fault]:
    """Yield a fault for each parameter that ``size`` lacks, and for each invalid value."""
    for name, values in chosen.items():
        parameter = workload.parameters_of(size).get(name)
        if parameter is None:
            subject = f"{workload.key} {size}" if name in workload.parameters else workload.key
            message, hint = (
                f"{subject} has no parameter '{name}'",
                suggest(name, known_names(workload, size)),
            )
            if name in sw.NAMES:
                hint = f"'{name}' is a key of its own, not one of 'params'"
            model = workload.sizes[size].model
            if squash(name) in _LENGTHS and model is not None:
                hint = (
                    f"omit it: {workload.key} {size} trains sequences of {model.seq_length} tokens"
                )
            yield Fault(message=message, hint=hint, code="param-unknown", key=name, value=name)
            continue
        for value in values:
            try:
                parameter.check(value, name)
            except KeyFaultError as error:
                message = f"'{name}' of {workload.key}: {error}"
                yield Fault(
                    message=message, hint=error.hint, code=error.code, key=name, value=value
                )


MOST_REPEATS = 10_000  # of one configuration: more is a typing error, and would fill the memory


def wrong_settings(entry: JobEntry, workload: Workload, size: str) -> Iterator[Fault]:
    """Yield the faults of settings that the size lacks, and of its parameters' values."""
    settings = entry.settings
    params = [name for name in (*entry.sweeps, *settings.params) if name in sw.PARAMS]
    faults = [
        *faults_of_parameters(workload, size, entry.parameters),
        *faults_of_training(
            workload,
            size,
            dict.fromkeys(params),
            settings,
            profile=settings.profile or entry.add_profile,
        ),
    ]
    if faults:
        yield from faults_at(InputFaults(faults), entry, entry.place)


def own_faults(
    entry: JobEntry, env: Mapping[str, str], profiled: Collection[str]
) -> Iterator[Fault]:
    """Yield the faults of variables, switches of profiles and repeats.

    ``profiled``: headers of sections with a profile.
    """
    for name in {**entry.settings.env, **env}:
        try:
            variables.check_name(name)
        except KeyFaultError as error:
            yield replace(
                error.as_fault(entry.place), code="variable-refused", key="env", value=name
            )
    if entry.settings.sets_profile and entry.header not in profiled:
        name = next(name for name in PROFILE_DETAILS if getattr(entry.settings, name) is not None)
        message = f"'{name}' is for profiled jobs, but no job is profiled"
        place = entry.key_places.get(name, entry.place)
        yield Fault(
            place=place, message=message, hint="add profile: true", code="not-profiled", key=name
        )
    if entry.repeats > MOST_REPEATS:
        message = f"{entry.repeats} repeats are more than {MOST_REPEATS}"
        yield Fault(place=entry.place, message=message, code="repeats", value=entry.repeats)


def slurm_faults(entry: JobEntry, config: ClusterConfig) -> Iterator[Fault]:
    """The faults of options of sbatch on a cluster that has none."""
    cluster_type = config.cluster_type
    for name in entry.slurm if not config.traits.sbatch_options else ():
        yield Fault(
            place=entry.key_places.get(name, entry.place),
            message=f"'{name}' is an option of Slurm, and this cluster has type {cluster_type}",
            hint=config.traits.instead_of(name),
            code="option-without-effect",
            key=name,
            value=cluster_type,
        )


def duplicates(entry: JobEntry) -> Iterator[str]:
    """Yield a warning for each scale or dtype that is given more than once.

    It may be meant as repeats, or be a typing error.
    """
    by_kind: tuple[tuple[str, tuple[str | int, ...]], ...] = (
        ("scale", entry.scales),
        ("dtype", entry.dtypes),
    )
    for kind, values in by_kind:
        for value, times in Counter(values).items():
            if times > 1:
                place = entry.places.get(value, entry.place)
                prefix = f"{place}: " if place else ""
                yield (
                    f"{prefix}{kind} {value} is given {times} times, and each gives jobs; use"
                    " repeats instead"
                )


def faults_at(error: UsageError, entry: JobEntry, place: str) -> list[Fault]:
    """The faults of an error, each at the line of the key that it is about, else at ``place``."""
    faults = error.faults if isinstance(error, InputFaults) else [as_fault(error)]
    return [
        fault if fault.place else replace(fault, place=_place_of(fault, entry) or place)
        for fault in faults
    ]


def _place_of(fault: Fault, entry: JobEntry) -> str | None:
    """Return the line of the dtype or scale that no row has, or of a key of the fault."""
    if fault.code in ("dtype-unknown", "scale-untested") and isinstance(fault.value, (str, int)):
        return entry.places.get(fault.value)
    keys = entry.key_places
    return next((keys[key] for key in fault.key.split() if key in keys), None)
