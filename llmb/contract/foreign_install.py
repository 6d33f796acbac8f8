# SPDX-License-Identifier: Apache-2.0
"""The install directory of another tool, as ``llmb-install import`` takes it over."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from llmb.core.checked import check_types
from llmb.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignInstall:
    """The install directory of another tool on a Slurm cluster.

    None or empty for what it does not say.
    """

    #: The tool's program, as in ``acme-bench``.
    program: str
    #: As in ``Acme``.
    vendor: str
    #: With all links resolved.
    folder: Path
    #: Of the tool.
    release: str | None = None
    #: It has a file of settings, in which a key may be missing or empty.
    is_configured: bool = True
    gpu_type: str | None = None
    cluster_name: str | None = None
    #: Of Slurm.
    account: str | None = None
    #: ``partition`` and ``gres`` of jobs on GPUs. Without ``gres`` llmb asks Slurm for it.
    gpu: Mapping[str, str | int | None] = field(default_factory=dict)
    #: The same of jobs without GPUs.
    cpu: Mapping[str, str | int | None] = field(default_factory=dict)
    #: ``x86_64`` or ``aarch64``.
    node_architecture: str | None = None
    #: The place where images and environments are built: ``local`` or ``slurm``.
    method: str | None = None
    #: ``uv``, ``venv`` or ``conda``.
    venv_type: str | None = None
    #: The variables of all jobs. Secrets among them are copied only if the user agrees.
    environment: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    #: The variables of jobs of one workload, by its name.
    environments: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict, repr=False)
    #: The installed workloads, in any spelling that a command line may have.
    workloads: tuple[str, ...] = ()
    #: Environments of Python, by the tool's name. llmb does not use them.
    venvs: Mapping[str, str] = field(default_factory=dict)
    #: Dotted keys of the settings that the tool does not write.
    unknown_keys: tuple[str, ...] = ()
    #: Images as squashfs files, each with its reference, which is empty if unknown.
    images: Mapping[Path, str] = field(default_factory=dict)
    #: Folders with logs of runs.
    runs: tuple[Path, ...] = ()
    #: The scheduler's last known state of each job, by its id.
    states: Mapping[str, str] = field(default_factory=dict)
    #: The iterations that the release measures, for runs that do not have it beside their log.
    window: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def tool(self) -> str:
        """As in ``Acme's acme-bench``."""
        return f"{self.vendor}'s {self.program}"
