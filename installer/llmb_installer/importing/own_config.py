# SPDX-License-Identifier: Apache-2.0
"""Writes the cluster settings of another tool as llmb's configuration, without secrets."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from llmb.builtin.nvidia_images import bridge_release, nemo_release, releases
from llmb.contract.foreign_install import ForeignInstall
from llmb.contract.gpus import GpuTypes
from llmb.contract.spec import BRIDGE, NEMO
from llmb.contract.variables import check_name
from llmb.core.names import as_keys, suggest
from llmb.core.secret_patterns import holds_secret
from llmb.core.secrets import SECRETS_FILE, is_secret_name
from llmb.errors import KeyFaultError, UsageError
from llmb_installer.importing.item import ImportItem, leave

_VENV_TYPES, _METHODS = ("uv", "venv", "conda"), ("local", "slurm")
_GRACE = ("gb200", "gb300")  # whose nodes have ARM processors


def make_config(
    source: ForeignInstall,
    target: Path,
    gpu_type: str | None,
    gpu_types: GpuTypes,
    workloads: Collection[str],
) -> tuple[dict[str, Any], list[ImportItem]]:
    """Return the data of cluster_config.yaml in ``target``, and what became of each setting.

    ``gpu_type`` overrides that of ``source``. ``workloads`` are the keys that plugins offer. Raises
    UsageError.
    """
    kind = gpu_type or source.gpu_type
    if kind is None or kind not in gpu_types:
        of_source = f"of {source.folder} "
        reason = (
            f"{of_source}is not in its configuration"
            if kind is None
            else f"'{kind}' {'' if gpu_type else of_source}is not known"
        )
        hint = f"set it, such as --gpu-type h100; known: {', '.join(gpu_types)}"
        code = "gpu-type-missing" if kind is None else "gpu-type-unknown"
        near = suggest(kind, list(gpu_types)) if kind is not None else None
        if near is not None and not gpu_type:
            near += "  --gpu-type h100 overrides it"
        raise UsageError(
            f"the GPU type {reason}", hint=near or hint, code=code, key="--gpu-type", value=kind
        )
    environment, items = _variables(source.environment, "")
    entries: dict[str, Any] = {}
    for name, variables in source.environments.items():
        key = as_keys([name], workloads)[0]
        if key not in workloads:
            continue  # the workload itself is left, with the reason
        accepted, variable_items = _variables(variables, f"{key}: ")
        entries[key] = {"environment": accepted}
        items += variable_items
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
            "node_architecture": (
                source.node_architecture or ("aarch64" if kind in _GRACE else "x86_64")
            ),
        },
        "workloads": {"installed": [], "config": entries},
    }
    return data, [*_settings(source, kind), *items]


def installed_frameworks(references: Iterable[str]) -> dict[str, str]:
    """Return the keys of ``install`` that keep the frameworks of NVIDIA's images, and a release.

    Without them, the next ``llmb-install add`` would select frameworks by the GPU type.
    """
    images = [(nemo_release(text), bridge_release(text)) for text in references]
    names = {NEMO if bridge is None else BRIDGE for nemo, bridge in images if nemo != bridge}
    found = {bridge for _, bridge in images}
    release = next((name for name in releases() if name in found), None)
    framework = "both" if len(names) > 1 else next(iter(names), None)
    values = {"framework": framework, "bridge_release": release}
    return {name: value for name, value in values.items() if value is not None}


def find_secrets(source: ForeignInstall) -> dict[str, str]:
    """Return the secrets in its configuration by name."""
    variables = {
        **source.environment,
        **{
            name: value
            for own_variables in source.environments.values()
            for name, value in own_variables.items()
        },
    }
    return {name: value for name, value in variables.items() if is_secret_name(name) and value}


def _settings(source: ForeignInstall, gpu_type: str) -> Iterator[ImportItem]:
    yield ImportItem(kind="setting", name="gpu_type", detail=gpu_type)
    if source.account is not None:
        yield ImportItem(kind="setting", name="slurm.account", detail=source.account)
    for kind, options in (("gpu", source.gpu), ("cpu", source.cpu)):
        if options:
            detail = ", ".join(
                f"{name} {value}" for name, value in options.items() if value is not None
            )
            yield ImportItem(kind="setting", name=f"slurm.{kind}", detail=detail)
    if source.is_configured and "gres" not in source.gpu:
        detail = (
            "it is null there; llmb-install add and the wizard ask Slurm for it, or set it: 8, or"
            " null for none"
        )
        yield leave("setting", "slurm.gpu.gres", detail, "gres-missing")
    for key in source.unknown_keys:
        yield leave(
            "setting", key, f"no release of {source.program} writes this key", "key-unknown"
        )


def _slurm(source: ForeignInstall) -> dict[str, Any]:
    sections = {"gpu": dict(source.gpu), "cpu": dict(source.cpu)}
    common = {} if source.account is None else {"account": source.account}
    return {
        **common,
        "container": "pyxis",
        **{name: options for name, options in sections.items() if options},
    }


def _variables(
    variables: Mapping[str, str | None], of: str
) -> tuple[dict[str, str], list[ImportItem]]:
    """The variables that a job may have, and what became of each."""
    accepted, items = {}, []
    for name, value in variables.items():
        if is_secret_name(name):
            continue
        try:
            check_name(name)
        except KeyFaultError as error:
            items.append(
                leave("variable", f"{of}{name}", f"{error}; {error.hint}", "variable-refused")
            )
            continue
        if value is None:
            items.append(
                leave("variable", f"{of}{name}", "it has no value there", "variable-without-value")
            )
            continue
        if holds_secret(name, value):
            items.append(
                leave("variable", f"{of}{name}", "its value looks like a token", "variable-secret")
            )
            continue
        accepted[name] = value
        items.append(ImportItem(kind="variable", name=f"{of}{name}"))
    return accepted, items


def list_secrets(
    names: Mapping[str, str], known_names: Collection[str], *, take: bool
) -> Iterator[ImportItem]:
    """Yield what becomes of each secret. It is copied only with the user's consent."""
    for name in names:
        if name in known_names:
            detail = f"{SECRETS_FILE} or the environment has it"
            yield ImportItem(
                kind="secret", name=name, action="present", detail=detail, code="secret-present"
            )
        elif take:
            yield ImportItem(
                kind="secret",
                name=name,
                detail=f"copied into {SECRETS_FILE}, which only you can read",
            )
        else:
            yield leave("secret", name, f"llmb reads it from {SECRETS_FILE}", "secret-consent")
