# SPDX-License-Identifier: Apache-2.0
"""The faults of a request that do not depend on the numbers of its jobs, each at its place in the list. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from llmb.config import ClusterConfig
from llmb.errors import Fault, InputFaults, KeyFaultError, UsageError, as_fault
from llmb.planning import params
from llmb.planning.job_spec import JobOverrides
from llmb.runs.job import JobRequest
from llmb.workload.spec import Workload
from llmb.workload.switches import PROFILE_DETAILS, merged
from llmb.workload.variables import check_name

MOST_REPEATS = 10_000  # of one configuration: more is a typing error, and would fill the memory


def wrong_settings(request: JobRequest, workload: Workload, size: str, overrides: JobOverrides) -> Iterator[Fault]:
    """The faults of parameters and switches that the size does not have, and of values of its parameters."""
    for name, value in overrides.parameters.items():
        for fault in params.faults_of_parameters(workload, size, {name: (value,)}):
            yield replace(fault, place=f"--set {name}={value}")
    listed = {name: values for name, values in request.parameters.items() if name not in overrides.parameters}
    found = [
        *params.faults_of_parameters(workload, size, listed),
        *params.faults_of_training(
            workload,
            size,
            dict.fromkeys([*request.params, *overrides.params]),
            merged((request.switches, overrides.switches)),
            profile=request.profile or request.add_profile,
        ),
    ]
    if found:
        yield from faults_at(InputFaults(found), request, request.place)


def own_faults(request: JobRequest, env: Mapping[str, str], profiled: Collection[str]) -> Iterator[Fault]:
    """The faults of variables, switches of profiles and repeats; ``profiled``: headers of sections with a profile."""
    for name in {**request.env, **env}:
        try:
            check_name(name)
        except KeyFaultError as error:
            yield replace(error.as_fault(request.place), code="variable-refused", key="env", value=name)
    if request.switches.sets_profile and request.header not in profiled:
        name = next(name for name in PROFILE_DETAILS if getattr(request.switches, name) is not None)
        message = f"'{name}' is for profiled jobs, but no job is profiled"
        place = request.key_places.get(name, request.place)
        yield Fault(place=place, message=message, hint="add profile: true", code="not-profiled", key=name)
    if request.repeats > MOST_REPEATS:
        message = f"{request.repeats} repeats are more than {MOST_REPEATS}"
        yield Fault(place=request.place, message=message, code="repeats", value=request.repeats)


def slurm_faults(request: JobRequest, config: ClusterConfig) -> Iterator[Fault]:
    """The faults of options of sbatch on a cluster that has none."""
    cluster_type = config.cluster_type
    for name in request.slurm if not config.traits.sbatch_options else ():
        place, hint = request.key_places.get(name, request.place), config.traits.instead_of(name)
        message = f"'{name}' is an option of Slurm, and this cluster has type {cluster_type}"
        yield Fault(place=place, message=message, hint=hint, code="option-without-effect", key=name, value=cluster_type)


def duplicates(request: JobRequest) -> Iterator[str]:
    """A warning for each scale or dtype that is given more than once: meant as repeats, or a typing error."""
    given: tuple[tuple[str, tuple[str | int, ...]], ...] = (("scale", request.scales), ("dtype", request.dtypes))
    for what, values in given:
        for value, times in Counter(values).items():
            if times > 1:
                place = request.places.get(value, request.place)
                where = f"{place}: " if place else ""
                yield f"{where}{what} {value} is given {times} times, and each gives jobs; use repeats instead"


def faults_at(error: UsageError, request: JobRequest, place: str) -> list[Fault]:
    """The faults of an error, each at the line of the key that it is about, else at ``place``."""
    keys = request.key_places
    faults = error.faults if isinstance(error, InputFaults) else [as_fault(error)]
    return [
        fault
        if fault.place
        else replace(fault, place=next((keys[key] for key in fault.key.split() if key in keys), place))
        for fault in faults
    ]
