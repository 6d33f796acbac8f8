# SPDX-License-Identifier: Apache-2.0
"""Writes the cluster settings of exemplar-performance as llmb's configuration, without secrets."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from llmb.config.exemplar import name_in_llmb
from llmb.errors import KeyFaultError, UsageError
from llmb.system.secret_texts import looks_secret
from llmb.system.secrets import SECRETS_FILE, is_secret_name
from llmb.text.names import as_keys, suggest
from llmb.workload.gpus import GpuTypes
from llmb.workload.variables import check_name
from llmb_installer.importing.source import Item, Source, left

_VENV_TYPES, _METHODS = ("uv", "venv", "conda"), ("local", "slurm")
_GRACE = ("gb200", "gb300")  # whose nodes have ARM processors
_UNSET = ("/path/to", "hf_token")  # the values of the example files


def config_of(
    source: Source, target: Path, gpu_type: str | None, known: GpuTypes, workloads: Collection[str]
) -> tuple[dict[str, Any], list[Item]]:
    """The data of cluster_config.yaml in ``target``, and what became of each setting. Raises UsageError.

    ``gpu_type``: overrides that of ``source``; ``workloads``: the keys that plugins offer.
    """
    kind = gpu_type or source.gpu_type
    if kind is None or kind not in known:
        where = f"of {source.folder} is not in its configuration" if kind is None else f"'{kind}' is not known"
        hint = f"set it, such as --gpu-type h100; known: {', '.join(known)}"
        code = "gpu-type-missing" if kind is None else "gpu-type-unknown"
        near = suggest(kind, list(known)) if kind is not None else hint
        raise UsageError(f"the GPU type {where}", hint=near or hint, code=code, key="--gpu-type", value=kind)
    environment, items = _variables(source.environment, "")
    entries: dict[str, Any] = {}
    for name, own in source.environments.items():
        key = as_keys([name_in_llmb(name)], workloads)[0]
        if key not in workloads:
            continue  # the workload itself is left, with the reason
        taken, more = _variables(own, f"{key}: ")
        entries[key] = {"environment": taken}
        items += more
    data = {
        "schema_version": 2,
        "cluster_type": "slurm",
        **({"cluster_name": source.cluster_name} if source.cluster_name else {}),
        "llmb_install": str(target),
        "gpu_type": kind,
        "environment": environment,
        "slurm": _slurm(source),
        "install": {
            "venv_type": source.venv_type if source.venv_type in _VENV_TYPES else "venv",
            "method": source.method if source.method in _METHODS else "local",
            "node_architecture": source.node_architecture or ("aarch64" if kind in _GRACE else "x86_64"),
        },
        "workloads": {"installed": [], "config": entries},
    }
    return data, [*_settings(source, kind), *items]


def secrets_of(source: Source) -> dict[str, str]:
    """The values of the secrets in its configuration, by name; those of the example files are no values."""
    every = {
        **source.environment,
        **{name: value for own in source.environments.values() for name, value in own.items()},
    }
    return {name: value for name, value in every.items() if is_secret_name(name) and value and value not in _UNSET}


def holds_secret(name: str, value: str) -> bool:
    """Whether a variable is a secret by its name, or its value looks like a token."""
    return is_secret_name(name) or looks_secret(value)


def _settings(source: Source, gpu_type: str) -> Iterator[Item]:
    yield Item(kind="setting", name="gpu_type", detail=gpu_type)
    if source.account is not None:
        yield Item(kind="setting", name="slurm.account", detail=source.account)
    for kind, options in (("gpu", source.gpu), ("cpu", source.cpu)):
        if options:
            detail = ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)
            yield Item(kind="setting", name=f"slurm.{kind}", detail=detail)
    if source.layout != "stage" and "gres" not in source.gpu:
        detail = "it is null there; llmb-install add and the wizard ask Slurm for it, or set it: 8, or null for none"
        yield left("setting", "slurm.gpu.gres", detail, "gres-missing")
    for key in source.unknown:
        yield left("setting", key, "no release of exemplar-performance writes this key", "key-unknown")


def _slurm(source: Source) -> dict[str, Any]:
    sections = {"gpu": dict(source.gpu), "cpu": dict(source.cpu)}
    common = {} if source.account is None else {"account": source.account}
    return {**common, "container": "pyxis", **{name: own for name, own in sections.items() if own}}


def _variables(given: Mapping[str, str | None], of: str) -> tuple[dict[str, str], list[Item]]:
    """The variables that a job may have, and what became of each."""
    taken, items = {}, []
    for name, value in given.items():
        if is_secret_name(name):
            continue
        try:
            check_name(name)
        except KeyFaultError as error:
            items.append(left("variable", f"{of}{name}", f"{error}; {error.hint}", "variable-refused"))
            continue
        if value is None:
            items.append(left("variable", f"{of}{name}", "it has no value there", "variable-without-value"))
            continue
        if holds_secret(name, value):
            items.append(left("variable", f"{of}{name}", "its value looks like a token", "variable-secret"))
            continue
        taken[name] = value
        items.append(Item(kind="variable", name=f"{of}{name}"))
    return taken, items


def secret_items(found: Mapping[str, str], present: Collection[str], *, take: bool) -> Iterator[Item]:
    """What becomes of each secret: only with the user's consent it is copied, and never into a configuration."""
    for name in found:
        if name in present:
            detail = f"{SECRETS_FILE} or the environment has it"
            yield Item(kind="secret", name=name, action="present", detail=detail, code="secret-present")
        elif take:
            yield Item(kind="secret", name=name, detail=f"copied into {SECRETS_FILE}, which only you can read")
        else:
            yield left("secret", name, f"llmb reads it from {SECRETS_FILE}", "secret-consent")
