# SPDX-License-Identifier: Apache-2.0
"""Which of llmb's GPU types a name means: a product's, as nvidia-smi prints it, or a GRES type of Slurm's."""

import re

from llmb.workload.gpus import CPU, known_types


def gpu_type_of(name: str) -> str | None:
    """The known GPU type in ``name``, None where it has none. Words match whole: B200 is not GB200, H100 not H1000."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return next((known for known in known_types() if known != CPU and known in words), None)


def own_name(name: str) -> str:
    """A name for a GPU type that llmb does not know: the word in ``name`` with a model's number, else all of it."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    models = [word for word in words if re.fullmatch(r"[a-z]{1,3}\d{2,4}[a-z]{0,2}", word)]
    return next(iter(models), "-".join(words) or "gpu")


def likeliest(name: str) -> str:
    """The known type whose configurations suit a GPU that llmb does not know best, going by its letters."""
    letters = re.match(r"[a-z]*", own_name(name))
    family = letters[0] if letters is not None else ""
    types = [known for known in known_types() if known != CPU]
    return next((known for known in types if re.sub(r"\d.*", "", known) == family), "h100")
