# SPDX-License-Identifier: Apache-2.0
"""What `--set` of `llmb-run parse` says of logs without a record: parallelism, batch, the workload's own parameters."""

from collections.abc import Sequence
from dataclasses import replace

from llmb.cli.context import Context
from llmb.cli.submit.overrides import parse_set
from llmb.errors import Fault, InputFaults
from llmb.planning.params import faults_of_parameters, faults_of_training, known_names
from llmb.results.description import Description
from llmb.workload.switches import NO_SWITCHES

_FIELDS = {"num_layers": "layers"}  # what a description calls them, where not the same
_OF_LOGS = ("max_steps",)  # what a log itself says


def with_settings(context: Context, given: Description, text: Sequence[str]) -> Description:
    """``given`` with the pairs ``text`` of ``--set``. Raises InputFaults with every fault."""
    faults: list[Fault] = []
    workload = context.workloads.get(given.workload or "")
    size = None if workload is None else given.size or workload.default_size
    usable = None if workload is None else [name for name in known_names(workload, size) if name not in _OF_LOGS]
    params, words, own = parse_set(text, context.parameters, faults, usable)
    for name in (*_OF_LOGS, *words):
        if name in params or name in words:
            message, hint = f"--set {name}: the log itself says it", "omit it"
            faults.append(Fault(message=message, hint=hint, code="param-of-log", key=name))
    if given.gbs is not None and params.get("gbs", given.gbs) != given.gbs:
        message, hint = f"--gbs {given.gbs} and --set gbs={params['gbs']} differ", "give one of them"
        faults.append(Fault(message=message, hint=hint, code="option-conflict", key="gbs", value=params["gbs"]))
    if workload is not None and size is not None:
        named = [*params, *(["gbs"] if given.gbs is not None else [])]
        faults += faults_of_parameters(workload, size, {name: (value,) for name, value in own.items()})
        wrong = faults_of_training(workload, size, dict.fromkeys(named), NO_SWITCHES, profile=False)
        faults += [replace(fault, hint="omit it") for fault in wrong]
    if faults:
        raise InputFaults(faults)
    values = {_FIELDS.get(name, name): value for name, value in params.items()}
    return replace(given, **values, parameters=own or None)  # type: ignore[arg-type] # each is a whole number
