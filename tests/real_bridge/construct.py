# SPDX-License-Identifier: Apache-2.0
"""python construct.py ROWS.json FOUND.json: constructs the first and the last pipeline stage of
whole models with Megatron core, and counts their parameters and layers.

Run by the Python of one release. Each row has a recipe.json and the variables that its ranks have.
A stage is made as its first rank, at full width, on the meta device, with torch's fake process
group of the real number of ranks. The order is the library's own: its checks of the configuration,
the process groups, then each virtual stage.
"""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.testing._internal.distributed.fake_pg import FakeStore

mocks = importlib.import_module("mocks")
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


def layers_of_nemo() -> ModuleType:
    """The mocks of the tests with NeMo, whose layers have the parameters of the real ones."""
    place = Path(__file__).parent.parent / "real_nemo" / "mocks.py"
    spec = importlib.util.spec_from_file_location("nemo_mocks", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def install() -> None:
    """Mock the libraries, with layers that have parameters, and what is needed of torch.cuda."""
    nemo = layers_of_nemo()
    mocks.FAMILIES.update(("mamba_ssm", "causal_conv1d", "deep_ep"))
    nemo.TransformerEngineBaseModule.save_original_input = False  # which Megatron sets

    class GroupedLinear(nemo.TransformerEngineBaseModule):  # type: ignore[misc, name-defined]
        """A weight for each of this rank's experts."""

        def __init__(
            self, num_gemms: int, in_features: int, out_features: int, **others: Any
        ) -> None:
            super().__init__()
            self.use_bias = bool(others.get("bias"))
            tp, mode = others.get("tp_size", 1), others.get("parallel_mode")
            rows = nemo.split(out_features, tp if mode == "column" else 1)
            columns = nemo.split(in_features, tp if mode == "row" else 1)
            make = {"dtype": others.get("params_dtype"), "device": META}
            for number in range(num_gemms):
                weight = torch.nn.Parameter(torch.empty(rows, columns, **make))
                weight.tensor_model_parallel = mode is not None
                setattr(self, f"weight{number}", weight)
                if others.get("bias"):
                    bias = torch.nn.Parameter(torch.empty(rows, **make))
                    bias.tensor_model_parallel = mode == "column"
                    setattr(self, f"bias{number}", bias)

    class OpGroupedLinear:
        """The one that fuses experts. Megatron inspects its signature."""

        def __init__(self, *_: Any, scale_bias: bool = False, **__: Any) -> None: ...

    def renamed(norm: Any) -> Any:
        """The norm with the name that newer versions give its argument."""

        def __init__(self: Any, normalized_shape: int = 0, **others: Any) -> None:
            norm.__init__(self, others.pop("hidden_size", normalized_shape), **others)

        return type(norm.__name__, (norm,), {"__init__": __init__})

    for name, values in nemo.NAMES.items():
        if name not in (nemo.FUSED_GRADIENT, "transformer_engine"):
            mocks.NAMES.setdefault(name, {}).update(
                {key: value for key, value in values.items() if key != "FusedAdam"}
            )
    mocks.NAMES["transformer_engine.pytorch"] |= {
        layer.__name__: layer
        for layer in (GroupedLinear, renamed(nemo.RMSNorm), renamed(nemo.LayerNorm))
    }
    mocks.NAMES["transformer_engine.pytorch.ops"] = {"GroupedLinear": OpGroupedLinear}
    mocks.install()
    if not importlib.metadata.version("megatron-bridge").startswith("0.3."):
        mocks.VERSIONS["transformer_engine"] = "2.16.0"  # of image 26.06, the newest that is listed
    mocks.add_missing_file()
    torch.cuda.current_device = lambda: META
    torch.cuda.Stream = type("Stream", (mocks.Mock,), {})
    torch.cuda.current_stream = torch.cuda.graph_pool_handle = lambda *_, **__: None
    torch.cuda.synchronize = torch.cuda.set_stream = lambda *_: None
    random_states = importlib.import_module("megatron.core.tensor_parallel.random")
    random_states.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()


@contextlib.contextmanager
def rank_of(config: Any, world: int, stage: int) -> Iterator[None]:
    """Make this process the first rank of a pipeline stage."""
    state = importlib.import_module("megatron.core.parallel_state")
    model = config.model
    rank = stage * world // model.pipeline_model_parallel_size
    torch.distributed.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        state.initialize_model_parallel(
            tensor_model_parallel_size=model.tensor_model_parallel_size,
            pipeline_model_parallel_size=model.pipeline_model_parallel_size,
            virtual_pipeline_model_parallel_size=model.virtual_pipeline_model_parallel_size,
            context_parallel_size=model.context_parallel_size,
            expert_model_parallel_size=model.expert_model_parallel_size,
            expert_tensor_parallel_size=model.expert_tensor_parallel_size,
            num_distributed_optimizer_instances=config.ddp.num_distributed_optimizer_instances,
            create_gloo_process_groups=False,
        )
        groups = importlib.import_module("megatron.core.process_groups_config")
        model._pg_collection = groups.ProcessGroupCollection.use_mpu_process_groups()
        importlib.import_module("megatron.core.tensor_parallel.random").initialize_rng_tracker(
            use_te_rng_tracker=config.rng.te_rng_tracker, force_reset=True
        )
        with OnMeta(), META:
            yield
    finally:
        state.destroy_model_parallel()
        torch.distributed.destroy_process_group()


def construct(config: Any, world: int, stage: int) -> list[Any]:
    """Return every virtual stage of a pipeline stage. Raises what the library raises."""
    with rank_of(config, world, stage):
        model = config.model
        chunks = model.virtual_pipeline_model_parallel_size or 1
        last = model.pipeline_model_parallel_size - 1
        return [
            model.provide(
                pre_process=stage == 0 and chunk == 0,
                post_process=stage == last and chunk == chunks - 1,
                vp_stage=chunk if chunks > 1 else None,
            )
            for chunk in range(chunks)
        ]


def counted(config: Any, chunks: list[Any]) -> dict[str, Any]:
    """The parameters of a stage over all ranks of tensors and experts, its layers by class, and the
    rows of its embedding. Without multi-token prediction, and the copy of the embedding for it.
    """
    model = config.model
    tp, expert_tp = model.tensor_model_parallel_size, model.expert_tensor_parallel_size or 1
    kinds: Counter[str] = Counter()
    total = rows = 0
    for chunk in chunks:
        kinds.update(type(layer).__name__ for layer in chunk.decoder.layers)
        for name, parameter in chunk.named_parameters():
            assert parameter.device == META, name
            is_split = getattr(parameter, "tensor_model_parallel", False)
            # Megatron does not mark the weight of mamba_ssm's norm, which is a rank's part.
            ways = tp if is_split or name.endswith("mixer.norm.weight") else 1
            if ".experts." in name:
                ways = model.expert_model_parallel_size * (expert_tp if is_split else 1)
            is_copy = name.startswith("embedding.") and not chunk.pre_process
            if not name.startswith("mtp.") and not is_copy:
                total += ways * parameter.numel()
            if name == "embedding.word_embeddings.weight":
                rows = ways * parameter.shape[0]
    return {"parameters": total, "layers": dict(kinds), "vocabulary": rows}


def outcome(row: Mapping[str, Any]) -> dict[str, Any]:
    """The totals of the first and the last stage, or the error that stopped the construction."""
    settings = importlib.import_module("llmb_workloads.bridge_pretrain.settings")
    recipes = importlib.import_module("llmb_workloads.bridge_pretrain.recipe")
    before = dict(os.environ)
    mocks.pretend_gpu(row["gpu"])
    try:
        recipe = recipes.parse_recipe(row["recipe"])
        world = recipe.nodes * recipe.gpus_per_node
        os.environ.update(WORLD_SIZE=str(world), RANK="0", **row["environment"])
        config = settings.build(recipe)
        importlib.import_module("megatron.bridge.training.config").runtime_config_update(config)
        if isinstance(getattr(config.model, "quant_recipe", None), str):
            config.model.quant_recipe = None  # the name of te_quant.cfg, which the wheel lacks
        if config.model.vocab_size is None:  # that of the tokenizer, which is not here
            config.model.vocab_size = row["vocabulary"]
        stages = dict.fromkeys((0, config.model.pipeline_model_parallel_size - 1))
        made = [counted(config, construct(config, world, stage)) for stage in stages]
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        os.environ.clear()
        os.environ.update(before)
    return {"error": "", "stages": made}


def main(source: str, target: str) -> None:
    """Construct every model of the file."""
    install()
    rows = json.loads(Path(source).read_text(encoding="utf-8"))
    found = {label: outcome(row) for label, row in rows.items()}
    Path(target).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
