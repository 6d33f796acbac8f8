# SPDX-License-Identifier: Apache-2.0
"""Checks which parameters and switches of a request its workload has: llmb's own, and those that it declares. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from llmb.errors import Fault, KeyFaultError
from llmb.text.names import squash, suggest
from llmb.workload import switches as sw
from llmb.workload.spec import Workload
from llmb.workload.switches import Switches

Values = TypeVar("Values")

OF_ALL = ("max_steps",)  # llmb's parameters that workloads without a model have too
_LENGTHS = ("seqlen", "seqlength", "sequencelength")  # no parameter: published figures are of one length
# Switches that only training has, with the reason.
_OF_TRAINING = {
    "strong_scaling": "there is no global batch to keep",
    "tokenizer": "there is no model with a tokenizer",
    "fp8": "it sets how training in fp8 scales",
    "save_checkpoint": "there is no model to save",
    "load_checkpoint": "there is no model to load",
    **dict.fromkeys(sw.PROFILE_DETAILS, "llmb profiles only training"),
}


def known_names(workload: Workload, size: str | None = None) -> tuple[str, ...]:
    """The names that ``--set`` and ``params`` take for ``workload``, or one size of it: llmb's, then its own."""
    own = workload.parameters if size is None else workload.parameters_of(size)
    return (*(sw.PARAMS if workload.is_training else OF_ALL), *own)


def applicable(
    workload: Workload, params: Mapping[str, Values], switches: Switches
) -> tuple[dict[str, Values], Switches]:
    """Without the parameters and switches that only training has, if ``workload`` trains no model."""
    if workload.is_training:
        return dict(params), switches
    kept = {name: value for name, value in params.items() if name in OF_ALL}
    return kept, replace(switches, **dict.fromkeys(_OF_TRAINING))


def faults_of_training(
    workload: Workload, size: str, params: Iterable[str], switches: Switches, *, profile: bool
) -> Iterator[Fault]:
    """A fault for each parameter and switch that only training has, if ``workload`` trains no model."""
    if workload.is_training:
        return
    hint = f"omit it; {workload.key} {size} takes {', '.join(known_names(workload, size))}"
    for name in params:
        if name not in OF_ALL:
            yield _refused(name, f"'{name}' is for training, and {workload.key} trains no model", hint)
    given = sw.given_switches(switches)
    for name, why in _OF_TRAINING.items():
        if given.get(name):
            yield _refused(name, f"'{name}' is for training, and {workload.key} trains no model: {why}", "omit it")
    if profile:
        yield _refused("profile", f"{workload.key} cannot be profiled: llmb profiles only training", "omit it")


def _refused(name: str, message: str, hint: str) -> Fault:
    return Fault(message=message, hint=hint, code="not-training", key=name)


def faults_of_parameters(workload: Workload, size: str, given: Mapping[str, tuple[str, ...]]) -> Iterator[Fault]:
    """A fault for each of the ``given`` parameters that ``size`` does not have, and for each invalid value."""
    for name, values in given.items():
        own = workload.parameters_of(size).get(name)
        if own is None:
            which = f"{workload.key} {size}" if name in workload.parameters else workload.key
            message, hint = f"{which} has no parameter '{name}'", suggest(name, known_names(workload, size))
            if name in sw.NAMES:
                hint = f"'{name}' is a key of its own, not one of 'params'"
            model = workload.sizes[size].model
            if squash(name) in _LENGTHS and model is not None:
                hint = f"omit it: {workload.key} {size} trains sequences of {model.seq_length} tokens"
            yield Fault(message=message, hint=hint, code="param-unknown", key=name, value=name)
            continue
        for value in values:
            try:
                own.check(value, name)
            except KeyFaultError as error:
                message = f"'{name}' of {workload.key}: {error}"
                yield Fault(message=message, hint=error.hint, code=error.code, key=name, value=value)
