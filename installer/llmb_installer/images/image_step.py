# SPDX-License-Identifier: Apache-2.0
"""The step for a container image: it builds the file if the cluster needs one, else it only checks
the reference.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import ClassVar

from llmb.core import typed
from llmb.core.units import bytes_in_words
from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError, PreflightError, as_fault
from llmb_installer.answers.schema import ImageAnswers
from llmb_installer.images.adapter import build_image, check_file, check_image, check_images
from llmb_installer.step import BuildContext, Facts, InstallStep, StepCost
from sqshpull.settings import PullSettings

FOR_PODS = "pods pull images with the cluster's credentials, not this machine: check that they can"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageStep(InstallStep):
    """Builds the image ``reference`` for ``architecture`` as the file ``target``; None only checks
    the reference.

    ``settings`` says how; ``srun`` are srun's options for building on a node, None builds here.
    """

    kind: ClassVar[str] = "image"
    reference: str
    architecture: str
    target: Path | None
    settings: ImageAnswers = field(default_factory=ImageAnswers)
    srun: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return self.reference

    @property
    def title(self) -> str:
        if self.target is None:
            return f"Container image, used by its reference ({self.architecture})"
        return f"Container image for {self.architecture}, as {self.target.name}"

    @property
    def path(self) -> Path | None:
        return self.target

    @property
    def digest(self) -> str:
        """The digest of what is installed, whatever way it is built."""
        return hashlib.sha256(
            f"image {self.reference} {self.architecture} {self.target}".encode()
        ).hexdigest()

    def check(self, context: BuildContext) -> StepCost:
        """Check the image in its registry. Raises PreflightError."""
        found, faults = check_all([self], context)
        if faults:
            raise PreflightError(faults)
        return found[0][1]

    def build(self, context: BuildContext) -> Facts:
        """Build the file, unless a sound one exists; without a file, look the reference up."""
        if self.target is not None:
            settings = PullSettings(**asdict(self.settings))
            if self.srun is not None:
                srun_args = ("--job-name=llmb-image", *self.srun)
                settings = replace(settings, via="srun", srun_args=srun_args)
            image = build_image(self.reference, self.architecture, self.target, settings, context)
            return {**typed.to_data(image), "file": str(self.target)}
        try:
            found = check_image(
                self.reference,
                self.architecture,
                environ=context.environ,
                home=context.home,
                settings=self.settings,
            )
        except LlmbError as error:  # pods may still get it
            return {
                "reference": self.reference,
                "digest": None,
                "note": f"{error.message}; {FOR_PODS}",
            }
        return {"reference": self.reference, "digest": found.digest}


def check_all(
    steps: Sequence[ImageStep], context: BuildContext
) -> tuple[list[tuple[ImageStep, StepCost]], list[Fault]]:
    """Check all images in their registries at once: the cost of each, and every fault."""
    from sqshpull.layers import cache_folder, missing_bytes

    wanted = [
        (step.reference, step.architecture)
        for step in steps  # a quick check; building checks more
        if step.target is None
        or not step.target.is_file()
        or check_file(step.target, deep=False) is not None
    ]
    if not wanted:
        return [(step, StepCost(fetch=0, disk=0)) for step in steps], []
    try:
        found = check_images(
            wanted,
            environ=context.environ,
            home=context.home,
            settings=steps[0].settings,
            say=context.progress.say,
        )
    except PreflightError as error:
        return [], error.faults
    except LlmbError as error:
        return [], [as_fault(error, "image")]
    checked = dict(zip(wanted, found, strict=True))
    costs = []
    for step in steps:
        image, cost = checked.get((step.reference, step.architecture)), StepCost(fetch=0, disk=0)
        if image is not None and step.target is not None:
            layers = sum({layer.digest: layer.size for layer in image.layers}.values())
            # an earlier attempt left layers
            left = missing_bytes(image, cache_folder(step.target, None))
            missing = image.compressed_bytes - layers + left
            cost = StepCost(fetch=missing, disk=image.image_bytes + missing)
        costs.append((step, cost))
    return costs, []


def is_there(name: str, facts: Facts, install: Path) -> bool:
    """Return True if the file exists with its recorded size.

    An image that is used by its reference has no file, and is always there.
    """
    if "file" not in facts:
        return True
    path = Path(str(facts["file"]))
    return path.is_file() and path.stat().st_size == facts.get("size", path.stat().st_size)


def verify(name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
    """Return the fault of the file. ``deep`` reads all of it."""
    if "file" not in facts:
        return []
    path = Path(str(facts["file"]))
    fault = check_file(path, deep=deep)
    return (
        []
        if fault is None
        else [replace(fault, message=f"{path}: {fault.message}", value=str(path))]
    )


def remove(name: str, facts: Facts, install: Path) -> None:
    if "file" in facts:
        path = Path(str(facts["file"]))
        for one in (path, path.with_name(f"{path.name}.json")):
            one.unlink(missing_ok=True)


def describe(name: str, facts: Facts) -> str:
    if "file" not in facts:
        return f"by reference, {facts.get('digest') or 'not readable from this machine'}"
    found = facts.get("size")
    return Path(str(facts["file"])).name + (
        f", {bytes_in_words(found)}" if isinstance(found, int) else ""
    )
