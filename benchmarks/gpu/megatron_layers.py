# SPDX-License-Identifier: Apache-2.0
"""Layers of megatron-core, without Transformer Engine: a few steps of each of our model shapes at
two layers. `llmb-run parse` reads the log.
"""

import json
import subprocess
from dataclasses import replace
from typing import Any

from gpu.context import ROOT, CannotRunError, Context
from gpu.site import Site
from llmb.contract.model import ModelShape
from llmb.contract.spec import read_workload

LAYERS = 2
SEQUENCE, SMALL_SEQUENCE = 2048, 32
SMALLER = 64  # by which widths are divided on a CPU
STEPS = 5
_SIZES = {"nemotron4": ("15b", "340b"), "llama31": ("8b", "70b", "405b"), "nemotronh": ("56b",)}


def run(context: Context) -> None:
    """Train each shape in a process of its own, since one may take all memory."""
    ask = [context.torch_python, "-c", "import megatron.core as m; print(m.__version__)"]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotRunError("megatron-core is not importable here: none of its layers was run")
    version = done.stdout.split()[-1]
    context.record("version", version, f"megatron-core {version}")
    site = Site(context)
    for name, shape in _shapes(is_small=not context.is_gpu).items():
        _record(context, site, name, shape)


def _shapes(*, is_small: bool) -> dict[str, dict[str, Any]]:
    """Return the arguments of gpu.mcore for each shape."""
    shapes = {}
    for plugin, sizes in _SIZES.items():
        path = ROOT / "plugins" / plugin / f"llmb_{plugin}" / "workload.yaml"
        workload = read_workload(path)
        for size in sizes:
            model = workload.sizes[size].model
            assert model is not None
            shapes[f"{plugin}_{size}"] = _arguments(model, is_small=is_small)
    return shapes


def _arguments(model: ModelShape, *, is_small: bool) -> dict[str, Any]:
    if is_small:
        heads = max(2, model.heads // SMALLER * 2)
        model = replace(
            model,
            hidden=model.hidden // SMALLER // heads * heads,
            ffn=model.ffn // SMALLER,
            heads=heads,
            kv_groups=2,
            head_dim=None,
            vocab=1024,
        )
    return {
        "architecture": model.architecture,
        "layers": LAYERS,
        "hidden": model.hidden,
        "ffn": model.ffn,
        "heads": model.heads,
        "kv_groups": model.kv_groups,
        "gated": model.gated,
        "vocab": model.vocab,
        "sequence": SMALL_SEQUENCE if is_small else SEQUENCE,
        "steps": STEPS,
    }


def _record(context: Context, site: Site, name: str, shape: dict[str, Any]) -> None:
    log = context.kept / f"{name}.log"
    with log.open("w") as stream:
        argv = [context.torch_python, "-u", "-m", "gpu.mcore", json.dumps(shape)]
        code = subprocess.run(argv, stdout=stream, stderr=subprocess.STDOUT, check=False).returncode
    parsed = json.loads(site.run("parse", log, "--format", "json", codes=(0, 1, 3)))
    (result,) = parsed["results"]
    last = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
    values = {key: result[key] for key in ("status", "reason", "steps", "time_mean_seconds")}
    seconds = result["time_mean_seconds"]
    found = f"{seconds:.4g} s per step by parse" if seconds else f"{result['reason']}; {last}"
    context.record(name, values | {"code": code, "shape": shape}, f"{name}: {found}")
