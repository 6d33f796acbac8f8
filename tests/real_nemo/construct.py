# SPDX-License-Identifier: Apache-2.0
"""python construct.py CONFIGURATIONS.json BUILT.json: constructs whole models with Megatron core,
counts parameters.

Run by the NeMo environment's Python. Each configuration is a recipe.json and the environment that
its script exports. Every pipeline stage is made as its first rank, at full width and depth, on the
meta device, with torch's fake process group of the real number of ranks. The order is NeMo's own:
the strategy sets the model's parallelism and checks it, the callback for communication overlap sets
its values, then Megatron's model is made.
"""

import contextlib
import copy
import functools
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mocks

mocks.install()

import fiddle  # noqa: E402
import megatron.core.parallel_state as parallel_state  # noqa: E402
import megatron.core.tensor_parallel.random as random_states  # noqa: E402
import nemo.lightning._strategy_lib as strategy_library  # noqa: E402
import torch  # noqa: E402
from nemo.lightning.megatron_parallel import MegatronParallel  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

from llmb_workloads.nemo_pretrain.build import build  # noqa: E402
from llmb_workloads.nemo_pretrain.recipe import NemoRunRecipe, parse_recipe  # noqa: E402

META = torch.device("meta")


class OnMeta(TorchFunctionMode):  # type: ignore[misc]
    """Creates tensors for GPUs on the meta device: with a shape, without memory."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call ``function`` with the meta device for its device."""
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = META
        return args[0] if function is torch.Tensor.cuda else function(*args, **kwargs)


def replace_gpu() -> None:
    """Mock what construction needs of torch.cuda, and draw no random numbers."""
    torch.cuda.current_device = lambda: META
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.Stream = torch.cuda.current_stream = torch.cuda.graph_pool_handle = lambda *_, **__: (
        None
    )
    torch.cuda.synchronize = lambda *_: None
    random_states.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
    without_gloo = functools.partial(
        parallel_state.initialize_model_parallel, create_gloo_process_groups=False
    )
    parallel_state.initialize_model_parallel = without_gloo


@contextlib.contextmanager
def rank_of(recipe: NemoRunRecipe, stage: int, environment: Mapping[str, str]) -> Iterator[int]:
    """Make this process the first rank of a pipeline stage, with only ``environment``; yields the
    rank.
    """
    world, before = recipe.nodes * recipe.gpus_per_node, dict(os.environ)
    rank = stage * world // recipe.parallelism.pp
    os.environ.clear()
    os.environ.update(environment)
    torch.distributed.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        with OnMeta(), META:
            yield rank
    finally:
        # Each rank has its own process on a cluster: the next one must not see these caches.
        random_states._CUDA_RNG_STATE_TRACKER, random_states._CUDA_RNG_STATE_TRACKER_INITIALIZED = (
            None,
            False,
        )
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()
        os.environ.clear()
        os.environ.update(before)


def construct(
    recipe: NemoRunRecipe, stage: int, environment: Mapping[str, str]
) -> MegatronParallel:
    """Stage ``stage`` of the recipe's model with all its virtual stages. Raises what NeMo and
    Megatron raise.
    """
    partial = copy.deepcopy(build(recipe))
    partial.trainer.accelerator = "cpu"
    with rank_of(recipe, stage, environment) as rank:
        call = fiddle.build(partial).keywords
        trainer, model = call["trainer"], call["model"]
        trainer.strategy._lightning_module, model.optim = model, call["optim"]
        trainer.strategy.connect(model)
        world, place = recipe.nodes * recipe.gpus_per_node, rank % recipe.gpus_per_node
        strategy_library.init_parallel_ranks(world, rank, place, trainer.strategy.parallelism)
        strategy_library.init_model_parallel(model)
        for callback in trainer.callbacks:
            if type(callback).__name__ == "MegatronCommOverlapCallback":
                callback.setup(trainer, model, "fit")
        model.configure_model()
        return MegatronParallel(
            model, vp_size=trainer.strategy.virtual_pipeline_model_parallel_size, cpu=True
        )


def counted(recipe: NemoRunRecipe, stages: list[MegatronParallel]) -> dict[str, Any]:
    """Totals of the stages over all tensor parallel ranks: parameters, rows of the embedding,
    layers by class.
    """
    kinds: Counter[str] = Counter()
    total = rows = 0
    for stage in stages:
        for chunk in stage:
            kinds.update(type(layer).__name__ for layer in chunk.module.decoder.layers)
        for name, parameter in stage.named_parameters():
            assert parameter.device == META, name
            # Megatron does not mark the weight of mamba_ssm's norm, whose size it gives as a rank's
            # part.
            is_split = getattr(parameter, "tensor_model_parallel", False) or name.endswith(
                "mixer.norm.weight"
            )
            ways = recipe.parallelism.tp if is_split else 1
            total += ways * parameter.numel()
            rows += ways * parameter.shape[0] if name.endswith("word_embeddings.weight") else 0
    return {"parameters": total, "vocabulary": rows, "layers": dict(kinds)}


def outcome(raw: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The totals, or the error that stopped the construction."""
    try:
        recipe = parse_recipe(raw)
        stages = [construct(recipe, stage, environment) for stage in range(recipe.parallelism.pp)]
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": "", "stages": len(stages), "chunks": len(stages[0]), **counted(recipe, stages)}


def main(configurations: Path, answer: Path) -> None:
    """Construct every model of the file."""
    replace_gpu()
    wanted = json.loads(configurations.read_text(encoding="utf-8"))
    found = {key: outcome(one["recipe"], one["environment"]) for key, one in wanted.items()}
    answer.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
