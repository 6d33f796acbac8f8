# SPDX-License-Identifier: Apache-2.0
"""The options of llmb-install and of its sub-commands.

A sub-command is the function ``run`` of the module of its name here, which is imported when the
command starts: help imports none of them.
"""

import importlib
import keyword
from pathlib import Path
from typing import Any

import click

from llmb.cli.completion.words import HELP, SHELLS


class _NonEmptyPath(click.Path):
    """A path that is not empty: an unset variable in a script must not mean the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty: is a variable unset?", param, ctx)
        return super().convert(value, param, ctx)


class _Command(click.Command):
    """A sub-command that is imported when it starts."""

    def invoke(self, ctx: click.Context) -> None:
        module = f"{self.name}_" if keyword.iskeyword(str(self.name)) else self.name
        importlib.import_module(f"llmb_installer.commands.{module}").run(**ctx.params)


def _flag(*names: str, help: str) -> click.Option:
    return click.Option(names, is_flag=True, help=help)


def _choice(*names: str, of: str, help: str, **settings: Any) -> click.Option:
    """An option with one of the words ``of``."""
    return click.Option(names, type=click.Choice(of.split()), help=help, **settings)


def _cluster_types(_context: click.Context, _option: click.Parameter, begin: str) -> list[str]:
    """The cluster types whose names begin so, for completion."""
    from llmb_installer.cluster_types import all_types

    return [name for name in all_types() if name.startswith(begin)]


def _repeated(*names: str, metavar: str, help: str) -> click.Option:
    """An option that may be given several times."""
    return click.Option(names, multiple=True, metavar=metavar, help=help)


FILE = _NonEmptyPath(path_type=Path, dir_okay=False)
FOLDER = _NonEmptyPath(path_type=Path, file_okay=False)

_INSTALLED = click.Option(
    ["--install"], type=FOLDER, help="Install directory (default: LLMB_INSTALL, or this folder)."
)
_YES = _flag("--yes", help="Do not ask for confirmation.")
_DRY_RUN = _flag("--dry-run", "-d", help="Show the steps and do nothing.")
_FORMAT = _choice(
    "--format", "fmt", of="table json", default="table", help="Output format: table or json."
)

_SET = _repeated(
    "--set", "settings", metavar="KEY=VALUE", help="Override an answer, such as slurm.qos=high."
)

INSTALL_OPTIONS = (
    click.Option(["--config", "answers_file"], type=FILE, help="The answers file."),
    click.Option(
        ["--install"], type=FOLDER, help="The folder to install into; overrides the answers."
    ),
    _SET,
    _YES,
    _DRY_RUN,
    _FORMAT,
    click.Option(
        ["--record", "record_file"], type=FILE, help="Write the answers in effect to this file."
    ),
)

_IMAGE = """Build the container image REF as a squashfs file for enroot and pyxis.

An existing, complete image is kept.

\b
llmb-install image nvcr.io/nvidia/nemo:25.04.01 -o nemo.sqsh --arch aarch64
llmb-install image nvcr.io/nvidia/nemo:25.04.01 -o nemo.sqsh --check
"""

_IMPORT = """Import DIR, an install directory of another tool, which a plugin reads.

llmb creates a new install directory next to DIR, with the cluster's settings, links to the images, and the finished
runs. DIR is not changed. Run the command again to import runs that have finished since.

\b
llmb-install import /lustre/me/llmb --dry-run
llmb-install import /lustre/me/llmb --into /lustre/me/new
"""

COMMANDS = [
    _Command("status", help="Show what is installed.", params=[_INSTALLED, _FORMAT]),
    _Command(
        "verify",
        help="Find what is missing, changed or out of date.",
        params=[
            _INSTALLED,
            _flag("--deep", help="Also read the contents of every file (slower)."),
            _flag("--repair", help="Repair what is missing, changed or out of date."),
            _YES,
            _FORMAT,
        ],
    ),
    _Command(
        "add",
        short_help="Install more workloads.",
        help="Install more WORKLOADS.",
        params=[
            click.Argument(["workloads"], nargs=-1, required=True),
            _INSTALLED,
            _SET,
            _YES,
            _DRY_RUN,
            _FORMAT,
        ],
    ),
    _Command(
        "remove",
        short_help="Remove workloads.",
        help="Remove WORKLOADS; their runs are kept.",
        params=[
            click.Argument(["workloads"], nargs=-1),
            _flag("--unused", help="Remove what no installed workload needs any more."),
            _INSTALLED,
            _YES,
            _DRY_RUN,
        ],
    ),
    _Command(
        "uninstall",
        short_help="Remove all that was built.",
        help="Remove all that llmb-install built; runs and configuration are kept.",
        params=[_INSTALLED, _YES, _DRY_RUN],
    ),
    _Command(
        "import",
        short_help="Import another tool's install.",
        help=_IMPORT,
        params=[
            click.Argument(["folder"], metavar="DIR", type=FOLDER),
            click.Option(
                ["--into"], type=FOLDER, help="The new install directory (default: DIR-llmb)."
            ),
            click.Option(
                ["--gpu-type"], metavar="TYPE", help="The GPU type, overriding DIR's configuration."
            ),
            _flag("--with-secrets", help="Copy tokens into ~/.config/llmb/secrets."),
            _flag("--no-checksums", help="Link images without reading them."),
            _YES,
            _DRY_RUN,
            _FORMAT,
        ],
    ),
    _Command(
        "doctor",
        short_help="Check this machine and its cluster, and print fixes.",
        help="Check this machine and its cluster, and print fixes.",
        params=[
            _INSTALLED,
            click.Option(
                ["--cluster-type"],
                metavar="TYPE",
                shell_complete=_cluster_types,
                help="Cluster type to check (default: that of the installation).",
            ),
            _flag("--registries", help="Also check that the registries have the images."),
            _FORMAT,
        ],
    ),
    _Command(
        "completion",
        help=HELP.format(prog="llmb-install"),
        params=[click.Argument(["shell"], type=click.Choice(SHELLS))],
    ),
    _Command(
        "image",
        short_help="Build a single container image.",
        help=_IMAGE,
        params=[
            click.Argument(["reference"], metavar="REF"),
            click.Option(
                ["-o", "--output"],
                type=FILE,
                help="The file (default: in the image folder, or here).",
            ),
            click.Option(
                ["--arch"], help="Node architecture: x86_64 or aarch64 (default: --install's)."
            ),
            click.Option(
                ["--install"],
                type=FOLDER,
                help="Use the image folder and architecture of this directory.",
            ),
            _flag("--check", help="Verify the existing image; build nothing."),
            _flag("--update", help="Rebuild it if the registry has a newer image."),
            _choice(
                "--builder",
                of="auto stream enroot",
                default="auto",
                help="stream: mksquashfs >= 4.5; auto: the first available.",
            ),
            _choice("--via", of="here srun", default="here", help="Where enroot runs."),
            _repeated(
                "--srun-arg",
                "srun_args",
                metavar="ARG",
                help="An option for srun, such as --partition=cpu.",
            ),
            _choice(
                "--compression",
                of="zstd lz4 gzip lzo xz",
                default="zstd",
                show_default=True,
                help="How the image is compressed.",
            ),
            click.Option(["--level"], type=int, help="Compression level (default: 3 for zstd)."),
            click.Option(
                ["--processors"],
                type=click.IntRange(1),
                help="Number of processors (default: all).",
            ),
            click.Option(
                ["--cache"],
                type=FOLDER,
                help="Folder for layers (default: .layers next to the file).",
            ),
            _flag("--keep-layers", help="Keep the layers."),
            _flag(
                "--keep-devices",
                "devices",
                help="Keep device nodes; only root can unpack the image.",
            ),
            _repeated(
                "--insecure", "insecure", metavar="HOST", help="A registry to use without TLS."
            ),
            _repeated(
                "--mirror",
                "mirrors",
                metavar="HOST=HOST/PATH",
                help="A mirror to use for a registry.",
            ),
            click.Option(
                ["--ca-bundle"],
                type=FILE,
                help="Certificates to trust in addition to the system's.",
            ),
        ],
    ),
]
