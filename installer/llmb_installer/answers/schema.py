# SPDX-License-Identifier: Apache-2.0
"""What an answers file may say. Field names are the file's keys; docs/install.md explains each."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

from llmb.config.runai import RunaiConfig
from llmb.config.schema import GpuTypeConfig
from llmb.config.slurm import SlurmConfig
from llmb.system.secrets import SECRETS_FILE, is_secret_name
from llmb.text.names import suggest
from llmb.workload.variables import Environment, check_passed
from llmb_installer.answers.words import CPU_WHEELS, IndexUrl, Interpreter, Version

AUTO = "auto"
ARCHITECTURES = ("x86_64", "aarch64")
TORCH, TRANSFORMERS = Version("2.13.0"), Version("5.23.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The packages whose version is a setting; None leaves those of the NeMo environment to llmb (nemo/versions.yaml).

    ``torch`` and ``transformers`` are for the small models of size tiny, ``nemo_torch`` is NeMo's.
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
class ImageAnswers:
    """How images are built: ``level`` of the compression and ``processors``, None leave them to the builder.

    The rest is as in ``llmb_installer.registry.settings``.
    """

    builder: Literal["auto", "stream", "enroot"] = "auto"
    compression: Literal["zstd", "lz4", "gzip", "lzo", "xz"] = "zstd"
    level: int | None = None
    processors: int | None = None
    keep_layers: bool = False
    insecure_registries: tuple[str, ...] = ()
    registry_mirrors: dict[str, str] = field(default_factory=dict)
    ca_bundle: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What is to be installed. Field names are the keys of an answers file.

    ``auto`` is found out by ``llmb_installer.detect.site.settle``. ``workloads`` None takes every one that a plugin
    offers; ``torch_index`` is an index for torch alone; ``torch_cpu_index`` is that for a machine without a GPU, None
    leaves torch to pip there too; ``method`` is where things are fetched and built; ``wheelhouse`` is a folder of
    wheels to install from, with no index; ``python_download`` lets uv fetch a Python that is not here.
    """

    cluster_type: Literal["local", "slurm", "runai"]
    install: Path
    cluster_name: str = ""
    gpu_type: str = AUTO
    gpu_types: dict[str, GpuTypeConfig] = field(default_factory=dict)
    node_architecture: Literal["auto", "x86_64", "aarch64"] = "auto"
    slurm: SlurmConfig | None = None
    runai: RunaiConfig | None = None
    method: Literal["here", "srun", "sbatch"] = "here"
    venv_type: Literal["auto", "uv", "venv", "conda"] = "auto"
    python: Interpreter | None = None
    python_download: bool = False
    wheelhouse: Path | None = None
    versions: Versions = Versions()
    tokenizer: Literal["none", "hub"] = "none"
    torch_index: IndexUrl | None = None
    torch_cpu_index: IndexUrl | None = CPU_WHEELS
    images: ImageAnswers = ImageAnswers()
    image_folder: Path | None = None
    experiments_root: Path | None = None
    environment: Environment = field(default_factory=dict)
    pass_environment: tuple[Annotated[str, check_passed], ...] = ()
    workloads: tuple[str, ...] | None = None

    @staticmethod
    def hint_for(key: str) -> str:
        """What to do about a ``key`` that is none of these."""
        if is_secret_name(key):
            return f"a secret is no answer: export {key}, or keep it in {SECRETS_FILE}"
        return suggest(key, [field.name for field in fields(Answers)])

    @property
    def uses_images(self) -> bool:
        """Whether ranks start inside a container image."""
        if self.cluster_type == "slurm":
            return (self.slurm or SlurmConfig()).container == "pyxis"
        return self.cluster_type == "runai"
