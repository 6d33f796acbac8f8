# SPDX-License-Identifier: Apache-2.0
"""The schema of an answers file, and its text.

Field names are its keys, which docs/install.md explains.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml

from llmb.builtin.nvidia_images import check_release
from llmb.contract.cluster_type import ClusterType
from llmb.contract.sbatch import SECTION, SlurmConfig
from llmb.contract.schema import ClusterConfig, GpuTypeConfig, OfClusterType, PluginSections
from llmb.contract.variables import Environment, check_passed
from llmb.core import typed
from llmb.core.names import suggest
from llmb.core.secrets import SECRETS_FILE, is_secret_name
from llmb.errors import KeyFaultError
from llmb.plan.read_config import no_type
from llmb_installer.cluster_types import all_frameworks, all_types, type_named
from sqshpull.settings import RegistrySettings

AUTO = "auto"
ARCHITECTURES = ("x86_64", "aarch64")
# The highest level of each compression of mksquashfs, None where it has no levels.


@dataclass(frozen=True)
class _Text:
    """A value that is a text in the file."""

    text: str

    def unparse(self) -> str:
        """The text that ``parse`` reads."""
        return self.text


class Version(_Text):
    """A released version of a package, in pip's form: ``2.13.0``."""

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Read a version.

        Raises ValueError, also for a YAML number, which has lost the 0 of 2.10.
        """
        if value is None:
            raise ValueError("the version is empty; write one such as 2.13.0, or omit the key")
        if isinstance(value, float):
            raise ValueError(
                f"{value} is a number to YAML and may have lost a 0; write the version in quotes"
            )
        if not re.fullmatch(
            r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[A-Za-z0-9.]+)?", str(value)
        ):
            raise ValueError(f"'{value}' is not a version; write one such as 2.13.0")
        return cls(str(value))


OLDEST_PYTHON = (3, 10)  # that runs the programs of compute nodes


class Interpreter(_Text):
    """The Python of the environments: ``3.12`` for python3.12, or a program's name or path."""

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Read a version in quotes or a program. Raises ValueError."""
        if not isinstance(value, str) or not value:
            raise ValueError(
                f'write a version in quotes ("3.12") or the path of a Python, not {value!r}'
            )
        version = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)?", value)
        if version is not None and (int(version[1]), int(version[2])) < OLDEST_PYTHON:
            oldest = ".".join(map(str, OLDEST_PYTHON))
            raise ValueError(
                f"must be {oldest} or newer, which the programs of jobs need, not {value}"
            )
        return cls(value)


class IndexUrl(_Text):
    """A package index for pip. A password belongs in pip's own configuration or ``~/.netrc``."""

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Read a URL. Raises ValueError."""
        if not isinstance(value, str) or not re.match(r"(https?|file)://", value):
            raise ValueError(f"must be the URL of a package index (https://...), not {value!r}")
        if re.match(r"\w+://[^/]*@", value):
            raise ValueError(
                "must not contain a user or password; keep them in ~/.netrc or pip's configuration"
            )
        return cls(value)


# the PyTorch project's builds without CUDA
CPU_WHEELS = IndexUrl("https://download.pytorch.org/whl/cpu")
TORCH, TRANSFORMERS = Version("2.13.0"), Version("5.23.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageVersions:
    """The packages whose versions can be set.

    None uses llmb's own version for NeMo (nemo/versions.yaml). ``torch`` and ``transformers`` are
    for the small models of size tiny, ``nemo_torch`` is NeMo's torch.
    """

    torch: Version = TORCH
    transformers: Version = TRANSFORMERS
    nemo_toolkit: Version | None = None
    megatron_core: Version | None = None
    nemo_run: Version | None = None
    nemo_torch: Version | None = None
    transformer_engine: Version | None = None
    mamba_ssm: Version | None = None
    causal_conv1d: Version | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageAnswers(RegistrySettings):
    """The settings of image builds.

    None for ``level`` and ``processors`` is the builder's default.
    """

    builder: Literal["auto", "stream", "enroot"] = "auto"
    compression: Literal["zstd", "lz4", "gzip", "lzo", "xz"] = "zstd"
    level: int | None = None
    processors: int | None = None
    keep_layers: bool = False


def check_cluster_type(name: str) -> None:
    """Raise KeyFaultError for a cluster type that neither llmb nor a plugin offers."""
    if type_named(name) is None:
        raise no_type(name, all_types())


def check_framework(name: str) -> None:
    """Raise KeyFaultError for a framework that neither llmb nor a plugin has."""
    known = (AUTO, *all_frameworks(), "both")
    if name not in known:
        raise KeyFaultError(
            f"'{name}' is not one of {', '.join(known)}",
            hint=suggest(name, known),
            code="value-not-allowed",
            value=name,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers(OfClusterType):
    """The answers of an installation. ``detect.auto`` replaces each ``auto`` by what it detects.

    ``workloads`` None installs every workload that a plugin offers. ``torch_index`` is an index for
    torch alone. ``torch_cpu_index`` is for a machine without a GPU, and None uses pip's own.
    ``method`` says on which machine things are fetched and built. ``wheelhouse`` is a folder of
    wheels to install from without an index. ``python_download`` allows uv to download a missing
    Python. ``framework`` trains the models. Its ``auto`` is NeMo for workloads with rows for the
    GPU type, else Megatron-Bridge. ``bridge_release`` selects its images, None the newest.
    ``plugins`` has settings of plugins, by distribution. Two fields are no keys: ``kind`` is the
    cluster type, None for llmb's own, and ``own_section`` the section of a plugin's type.
    """

    cluster_type: Annotated[str, check_cluster_type]
    install: Path
    cluster_name: str = ""
    gpu_type: str = AUTO
    gpu_types: dict[str, GpuTypeConfig] = field(default_factory=dict)
    node_architecture: Literal["auto", "x86_64", "aarch64"] = "auto"
    method: Literal["here", "srun", "sbatch"] = "here"
    venv_type: Literal["auto", "uv", "venv", "conda"] = "auto"
    python: Interpreter | None = None
    python_download: bool = False
    wheelhouse: Path | None = None
    versions: PackageVersions = PackageVersions()
    framework: Annotated[str, check_framework] = "auto"
    bridge_release: Annotated[str, check_release] | None = None
    tokenizer: Literal["none", "hub"] = "none"
    torch_index: IndexUrl | None = None
    torch_cpu_index: IndexUrl | None = CPU_WHEELS
    images: ImageAnswers = ImageAnswers()
    image_folder: Path | None = None
    experiments_root: Path | None = None
    environment: Environment = field(default_factory=dict)
    pass_environment: tuple[Annotated[str, check_passed], ...] = ()
    workloads: tuple[str, ...] | None = None
    plugins: PluginSections = field(default_factory=dict)
    kind: ClusterType | None = field(
        default=None, compare=False, repr=False, metadata=typed.INTERNAL
    )
    sections: Mapping[str, Any] = field(default_factory=dict, metadata=typed.INTERNAL)

    @staticmethod
    def hint_for(key: str) -> str:
        """The hint for the unknown key ``key``."""
        if is_secret_name(key):
            return f"answers never contain secrets: export {key}, or add it to {SECRETS_FILE}"
        return suggest(
            key, [field.name for field in fields(Answers) if "internal" not in field.metadata]
        )

    def with_slurm(self, slurm: SlurmConfig) -> Self:
        """Return these answers with other options of sbatch."""
        return replace(self, sections={**self.sections, SECTION: slurm})

    @property
    def uses_images(self) -> bool:
        return self.traits.uses_images


_DEFAULTS = Answers(cluster_type="local", install=Path())


def to_yaml(answers: Answers) -> str:
    """The text of an answers file: the answers that differ from the defaults."""
    data, defaults = typed.to_data(answers), typed.to_data(_DEFAULTS)
    always = {"cluster_type", "install", "versions"}
    data |= collect_sections(answers)
    data["gpu_types"] = {name: drop_nulls(config) for name, config in data["gpu_types"].items()}
    different = {
        key: drop_nulls(value)
        for key, value in data.items()
        if key in always or value != defaults.get(key)
    }
    text: str = yaml.safe_dump(different, sort_keys=False, allow_unicode=True)
    return "# SPDX-License-Identifier: Apache-2.0\n# Answers for llmb-install --config.\n" + text


def collect_sections(answers: Answers | ClusterConfig) -> dict[str, Any]:
    """Return the sections of cluster types that are set, by key, as the types want them written."""
    kind, section = answers.of_type, answers.section
    if kind.key is None or section is None:
        return {}
    data = drop_nulls(typed.to_data(section)) if kind.writes_defaults else _lean(section)
    return {kind.key: data}


def _lean(value: Any) -> Any:
    """A section as data with only the values that differ from the defaults, at every level."""
    if not is_dataclass(value) or hasattr(value, "unparse"):
        return typed.to_data(value)
    different = {}
    for field_ in fields(value):
        field_value = getattr(value, field_.name)
        if field_value != (
            field_.default_factory() if field_.default_factory is not MISSING else field_.default
        ):
            different[field_.name] = _lean(field_value)
    return different


def drop_nulls(value: Any) -> Any:
    """Return a mapping without keys that are null or an empty mapping, another value unchanged."""
    return (
        value
        if not isinstance(value, dict)
        else {k: v for k, v in value.items() if v is not None and v != {}}
    )
