# SPDX-License-Identifier: Apache-2.0
"""Holds answers against the cluster that is here, before anything is fetched: what cannot be, and what is doubtful."""

import os

from llmb_installer.answers import Answers
from llmb_installer.detect import slurm_fit
from llmb_installer.fits import runai_fit


def check(answers: Answers) -> list[str]:
    """What llmb-run would refuse later, in sentences. Raises InputFaults for what cannot be, each at its key."""
    if answers.cluster_type == "slurm":
        return slurm_fit.check(answers)
    return [*runai_fit.check(answers, os.environ)] if answers.cluster_type == "runai" else []
