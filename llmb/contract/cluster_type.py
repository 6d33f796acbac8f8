# SPDX-License-Identifier: Apache-2.0
"""A cluster type as data: its section of cluster_config.yaml, its traits, questions and cluster."""

from __future__ import annotations

import dataclasses
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from llmb.core.values import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from llmb.contract.cluster import Cluster
    from llmb.contract.finding import Finding
    from llmb.contract.schema import ClusterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTraits:
    """The way workloads run on a cluster, by default that of a batch system with environments."""

    #: What ranks start in: a Python environment that llmb-install makes, an image that it stores as
    #: a file, or an image by its reference, which the cluster fetches.
    runs_in: Literal["environment", "image-file", "image-reference"] = "environment"
    #: What trains the models and is installed for them: NeMo or Megatron-Bridge, with torch's
    #: program for size tiny alone, or torch's program for every size.
    trains: Literal["nemo", "torch"] = "nemo"
    #: The source of GPU type and processors of the nodes for llmb-install: this machine, the
    #: scheduler, or the answers alone.
    nodes: Literal["this-machine", "scheduler", "answers"] = "answers"
    #: A job has one node, this machine, and one job runs after another.
    one_machine: bool = False
    #: Jobs take sbatch's options (``--slurm-arg``).
    sbatch_options: bool = False
    #: Ranks see Slurm's variables.
    slurm_variables: bool = False
    #: The job's script can raise the GPUs' clocks.
    sets_vboost: bool = False
    #: A job can choose whether ranks may write into their image.
    writable_images: bool = False
    #: What to do instead of an option of sbatch, by its long name (``partition``), and under
    #: ``others`` for all others: the hint of the error on a cluster without them.
    instead: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    @property
    def uses_images(self) -> bool:
        """Return True if ranks start inside container images."""
        return self.runs_in != "environment"

    @property
    def pulls_images(self) -> bool:
        """Return True if the cluster fetches images by their references."""
        return self.runs_in == "image-reference"

    def instead_of(self, option: str) -> str:
        """Return the hint for sbatch's ``option`` on a cluster that has none of them."""
        return self.instead.get(option) or self.instead.get("others") or "remove it"


_NAME = re.compile(r"[a-z][a-z0-9_-]*")


_BATCH = ClusterTraits()


def _unchanged(value: Any) -> Any:
    return value


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQuestion:
    """A question of llmb-install for one value of the type's section.

    The word none is an empty answer if the question is not ``required``. ``llmb.core.addresses``
    has checks.
    """

    #: The place of the value in the section, dotted: ``pvc.name``.
    key: str
    text: str
    #: Its name in the review.
    label: str = ""
    kind: Literal["text", "folder", "one"] = "text"
    #: Of a question of the kind ``one``; a function gets the user's environment.
    choices: Sequence[str] | Callable[[Mapping[str, str]], Sequence[str]] = ()
    #: A value, or a function of the environment.
    default: Any = ""
    #: An environment variable whose value answers the question.
    variable: str = ""
    #: An empty answer is refused.
    required: bool = False
    #: The value for a typed text, by default the text. Raises ValueError for a wrong one.
    parse: Callable[[str], Any] = _unchanged
    #: The inverse of ``parse``.
    show: Callable[[Any], str] = _shown
    #: What is wrong with a value, from a question or a file; None if nothing is.
    check: Callable[[Any], str | None] = lambda value: None
    #: The word of the review for an empty answer.
    empty: str = "none"
    #: For a user who does not know the answer: how to find it out. A line that begins with blanks
    #: is a command to paste.
    find_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterType:
    """A cluster type by the name that ``cluster_type`` in cluster_config.yaml gives it."""

    name: str
    #: Makes the cluster of a configuration: a function, or its place ``module:function``, so that
    #: its module is imported only when jobs are submitted or polled.
    create: Callable[[ClusterConfig], Cluster] | str
    #: A phrase for the question which scheduler to use.
    title: str = ""
    #: Its name in messages, by default ``name``.
    label: str = ""
    #: The dataclass of its section of cluster_config.yaml and of the answers, read like llmb's own
    #: sections; None for a type without one.
    schema: type | None = None
    #: The section's key, by default the type's name. ``ClusterConfig.section`` is the section that
    #: was read.
    section: str = ""
    #: The way workloads run there, or a function of the section if that decides it.
    traits: ClusterTraits | Callable[[Any], ClusterTraits] = _BATCH
    #: What llmb-install asks.
    questions: tuple[ClusterQuestion, ...] = ()
    #: Names of secrets that every submission needs, from the environment or the user's file.
    secrets: tuple[str, ...] = ()
    #: A variable with the folder in which to install.
    folder_variable: str = ""
    #: llmb-install writes all keys of the section, not only the changed ones.
    writes_defaults: bool = False
    #: What was found of such a cluster here, given the environment; None if there is none.
    detect: Callable[[Mapping[str, str]], str | None] = lambda environ: None
    #: Notes on what would not work, for a section and the environment; called while an install is
    #: planned.
    check: Callable[[Any, Mapping[str, str]], Sequence[str]] = lambda section, environ: ()
    #: Why jobs cannot use a folder of the install, given the section.
    folder_fault: Callable[[Any, Path], str | None] = lambda section, folder: None
    #: What the installer's doctor shows instead of the notes of ``check``, given the section (None
    #: without an installation) and the environment.
    examine: Callable[[Any, Mapping[str, str]], Iterable[Finding]] | None = None
    #: Names in the section that identify the site, by their kind (``{"project": ["team"]}``).
    #: Archives replace them.
    site_names: Callable[[Any], Mapping[str, Sequence[str]]] = lambda section: {}
    #: ``distribution:entry`` of its plugin, set by llmb; empty for llmb's own types.
    source: str = ""

    @property
    def key(self) -> str | None:
        """Return the key of its section, or None without one."""
        return (self.section or self.name) if self.schema is not None else None

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return self.label or self.name

    @property
    def required(self) -> tuple[str, ...]:
        """The dotted keys of the answers that have no default and cannot be detected."""
        gpu = ("gpu_type",) if self.traits_of(None).nodes == "answers" else ()
        return (*gpu, *(f"{self.key}.{name}" for name in required_fields(self.schema)))

    def has(self, schema: type) -> bool:
        """Return True if its section is of the class ``schema``."""
        return self.schema is schema

    def traits_of(self, section: Any) -> ClusterTraits:
        """Return its traits for this section (None: without one)."""
        if isinstance(self.traits, ClusterTraits):
            return self.traits
        return self.traits(section)

    def make(self, config: ClusterConfig) -> Cluster:
        """The cluster of ``config``."""
        create: Any = (
            pkgutil.resolve_name(self.create) if isinstance(self.create, str) else self.create
        )
        cluster: Cluster = create(config)
        return cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedType:
    """A plugin that is skipped, and the reason."""

    source: str
    reason: str
    #: It has the type that was asked for; otherwise it may have it.
    offers: bool


class OfferedTypes(dict[str, ClusterType]):
    """Cluster types by name. ``skipped`` returns the skipped plugins that may offer another one."""

    def __init__(
        self, types: Mapping[str, ClusterType], skipped: Callable[[str], Sequence[SkippedType]]
    ) -> None:
        super().__init__(types)
        self.skipped = skipped


def undetermined(name: str) -> ClusterType:
    """Return a type that no plugin offers here: its jobs can be planned, not submitted."""
    return ClusterType(name=name, create="")


def required_fields(schema: type | None) -> tuple[str, ...]:
    if schema is None:
        return ()
    absent = dataclasses.MISSING
    return tuple(
        field.name
        for field in dataclasses.fields(schema)
        if field.default is absent and field.default_factory is absent
    )


def is_name(name: object) -> bool:
    """Return True if ``name`` has only lower case letters, digits, hyphens and underscores."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None
