# SPDX-License-Identifier: Apache-2.0
"""Writes configuration.md, the keys of llmb's files, from the code and keys.yaml; --check: 1 if it
is stale.
"""

import dataclasses
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llmb.contract import sbatch, schema
from llmb.core import typed, yamlfile
from llmb.plan import config_layers
from llmb_installer.answers import schema as answers
from llmb_runai import runai_config
from llmb_testing.generated import write

PAGE = Path(__file__).with_name("configuration.md")
MEANINGS = Path(__file__).with_name("keys.yaml")

HEAD = """\
# Configuration keys

<!-- Written by `python docs/keys.py` from the code and keys.yaml: edit those. -->

Every key of the files that you may write. An unknown key is an error with its line and the nearest
valid key. `llmb-run config` prints the configuration in effect, with all layers. A plugin's cluster
type has a section of its own ([cluster types](cluster-types.md)), and a plugin its settings below
`plugins`.
"""
# The text before each table, the key of its meanings, and the class whose fields are its keys.
TABLES: tuple[tuple[str, str, type], ...] = (
    ("## cluster_config.yaml\n\n"
     "In the install directory; `llmb-install` writes it, and keeps what you change.",
     "cluster_config", schema.ClusterConfig),
    ("Each of `gpu_types`:", "gpu_types", schema.GpuTypeConfig),
    ("`slurm` ([Slurm](slurm.md#options-of-sbatch)), which also has the\n"
     "options of sbatch of the next table:", "slurm", sbatch.SlurmConfig),
    ("`runai` ([Run:ai](runai.md#point-llmb-at-a-project)):", "runai", runai_config.RunaiConfig),
    ("`runai.pvc`:", "runai.pvc", runai_config.RunaiPvc),
    ("Each of `runai.secrets`:", "runai.secrets", runai_config.RunaiSecret),
    ("`install`, which records how the directory was built:", "install", schema.InstallConfig),
    ("`workloads`:", "workloads", schema.WorkloadsConfig),
    ("Each of `workloads.config`:", "workloads.config", schema.WorkloadConfig),
    ("## ~/.config/llmb/config.yaml\n\n"
     "A user's own settings, which override those of a shared install directory.",
     "user", config_layers.UserConfig),
    ("## The answers file\n\n"
     "`llmb-install --config FILE` ([installing](install.md)); `--record FILE` writes one.",
     "answers", answers.Answers),
    ("`versions`:", "versions", answers.PackageVersions),
    ("`images` ([images](images.md)):", "images", answers.ImageAnswers),
)  # fmt: skip


SECTIONS = ("slurm", "runai")  # of cluster types, which their schemas describe
_WORDS: dict[Any, str] = {str: "text", int: "integer", float: "number", bool: "boolean"}


def is_key(own: dataclasses.Field[Any]) -> bool:
    """Whether a field is a key of the file."""
    return not any(own.metadata.get(name) == value for name, value in typed.INTERNAL.items())


def kind(hint: Any) -> str:
    """A type in words; the choices of a Literal as code."""
    if typing.get_origin(hint) is typing.Annotated:
        return kind(typing.get_args(hint)[0])
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(hint))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(
            dict.fromkeys(kind(one) for one in typing.get_args(hint) if one is not type(None))
        )
    if typing.get_origin(hint) in (dict, Mapping):
        return f"mapping to {kind(typing.get_args(hint)[1])}"
    if typing.get_origin(hint) is tuple:
        return f"list of {kind(typing.get_args(hint)[0])}"
    if hint is Path:
        return "path"
    if dataclasses.is_dataclass(hint) and hasattr(hint, "parse"):
        return "text" if hint is not sbatch.SlurmOptions else "mapping"
    return "mapping" if dataclasses.is_dataclass(hint) else _WORDS.get(hint, "any")


def default(own: dataclasses.Field[Any]) -> str:
    """The default of a key, as the file would have it; ``required`` without one."""
    if own.default is dataclasses.MISSING and own.default_factory is dataclasses.MISSING:
        return "required"
    value = own.default if own.default_factory is dataclasses.MISSING else own.default_factory()
    if value is None or value == "" or value == Path():
        return ""
    data = typed.to_data(value)
    if not data and data is not False:
        return ""
    return (
        ""
        if isinstance(data, (dict, list))
        else f"`{str(data).lower() if isinstance(data, bool) else data}`"
    )


def table(cls: type, meanings: Mapping[str, str]) -> str:
    """The keys of a class as Markdown. Raises ValueError where the meanings are of other keys."""
    apart = sbatch.SLURM_OPTIONS if cls is sbatch.SlurmConfig else ()
    own = [one for one in dataclasses.fields(cls) if is_key(one) and one.name not in apart]
    sections = SECTIONS if "cluster_type" in meanings else ()
    if wrong := sorted({*(one.name for one in own), *sections} ^ set(meanings)):
        raise ValueError(f"docs/keys.yaml and {cls.__name__} differ in: {', '.join(wrong)}")
    hints = typing.get_type_hints(cls, include_extras=True)
    rows = (
        f"| `{one.name}` | {kind(hints[one.name])} | {default(one)} | {meanings[one.name]} |"
        for one in own
    )
    more = (f"| `{key}` | mapping |  | {meanings[key]} |" for key in sections)
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows, *more])


def options_of_sbatch(meanings: Mapping[str, str]) -> str:
    """The sbatch options of `slurm` as Markdown."""
    if wrong := sorted(set(sbatch.SLURM_OPTIONS) ^ set(meanings)):
        raise ValueError(f"docs/keys.yaml and SLURM_OPTIONS differ in: {', '.join(wrong)}")
    return "\n".join(
        [
            "| key | meaning |",
            "|---|---|",
            *(f"| `{key}` | {text} |" for key, text in meanings.items()),
        ]
    )


def page() -> str:
    """The whole page."""
    meanings = yamlfile.load(MEANINGS).data
    parts = [HEAD.strip("\n")]
    for text, key, cls in TABLES:
        parts += [text, table(cls, meanings[key])]
        if cls is sbatch.SlurmConfig:
            parts += [
                "Options of sbatch in `slurm`, `slurm.gpu` and `slurm.cpu`:",
                options_of_sbatch(meanings["sbatch"]),
            ]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the page; with --check, only compare, and return 1 if it is stale."""
    return write({PAGE: page()}, "keys", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
