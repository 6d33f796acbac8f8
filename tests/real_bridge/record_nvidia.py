# SPDX-License-Identifier: Apache-2.0
"""python record_nvidia.py CHECKOUT RECORD.json: what NVIDIA's launch scripts make of each row, for
the parity tests.

CHECKOUT is Megatron-Bridge's repository (git, or its folder scripts/performance alone) at the
release of the installed library: the scripts are not part of its wheel. The scripts run here as on
a cluster, up to the training; only NeMo-Run, which would submit, is a mock that keeps the
environment. RECORD has, for each row, the leaves in which the scripts' configuration differs from
the base function of the library, and the variables of the ranks.
"""

import importlib
import importlib.metadata
import json
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

mocks, names = importlib.import_module("mocks"), importlib.import_module("leaves")
GPUS = ("h100", "b200", "b300", "gb200", "gb300")
DTYPES = ("bf16", "fp8_cs", "fp8_mx", "fp8_sc", "nvfp4")
MODELS = {
    "llama3_8b": "llama",
    "llama3_70b": "llama",
    "llama31_405b": "llama",
    "nemotronh_56b": "nemotronh",
    "qwen3_30b_a3b": "qwen",
    "qwen3_235b_a22b": "qwen",
    "nemotron_3_nano": "nemotronh",
    "nemotron_3_5_lightning": "nemotronh",
    "nemotron_3_super": "nemotronh",
    "deepseek_v3": "deepseek",
    "gpt_oss_120b": "gpt_oss",
    "kimi_k2": "kimi",
}
# llmb has the rows of 0.3.1 for these alone.
OLD_MODELS = ("llama3_8b", "llama3_70b", "llama31_405b", "nemotronh_56b")
# The launch scripts before 0.6 have tables; from 0.6 on the library has functions.
WITH_TABLES = ("0.3.", "0.4.", "0.5.")
NODE = {"gb200": 4, "gb300": 4}
# The jobs of NVIDIA's exemplar-performance 26.08 whose launch.sh changes more than the batch, in
# the releases that it may run them in: model, GPU type, dtypes, GPU counts and the options. On
# b200, DeepSeek with fp8 on 128 GPUs is not among them, because its experts do not fit there.
WITH_OPTIONS = ("0.5.", "0.6.")
RECOMPUTE = "--recompute_modules="
MULTIPLES_OF_72 = (72, 144, 216, 288, 360, 432, 504, 576)
OPTIONS: tuple[tuple[str, str, tuple[str, ...], tuple[int, ...], str], ...] = (
    (
        *("deepseek_v3", "gb300", ("bf16", "fp8_mx", "nvfp4"), (128,)),
        f"-pp 4 -vp 4 -ep 32 {RECOMPUTE}mla_up_proj",
    ),
    (
        *("deepseek_v3", "gb200", ("fp8_mx",), (128,)),
        f"-tp 2 -pp 2 -vp 8 -ep 32 {RECOMPUTE}mla_up_proj",
    ),
    ("deepseek_v3", "b300", ("bf16",), (128,), "--cuda_graph_impl none"),
    ("deepseek_v3", "b300", ("fp8_mx",), (128,), f"{RECOMPUTE}mla_up_proj,core_attn"),
    ("gpt_oss_120b", "gb300", ("bf16",), MULTIPLES_OF_72, "-ep 8 -mb 5"),
)
Record = dict[str, dict[str, str | None]]  # `base`, `changed` and `environment` of a row


class Executor(SimpleNamespace):
    """NeMo-Run's executor: keeps its arguments."""


class Script(SimpleNamespace):
    """NeMo-Run's script: keeps its arguments."""


def mock_nemo_run() -> None:
    """Put a mock of NeMo-Run where the scripts import it from."""
    run = mocks.Library("nemo_run")
    for name in ("SlurmExecutor", "LocalTunnel", "GitArchivePackager", "Packager"):
        setattr(run, name, Executor)
    vars(run).update(Partial=SimpleNamespace, Script=Script, Plugin=object)
    config, launcher = ModuleType("nemo_run.config"), ModuleType("nemo_run.core.execution.launcher")
    vars(config).update(
        get_nemorun_home=lambda: "/nemo",
        set_nemorun_home=lambda _: None,
        Script=Script,
        Partial=Script,
    )
    vars(launcher).update(SlurmTemplate=Executor)
    kubeflow = ModuleType("nemo_run.core.execution.kubeflow")
    vars(kubeflow).update(KubeflowExecutor=Executor)
    parents = ("nemo_run.core", "nemo_run.core.execution", "nemo_run.run", "nemo_run.run.plugin")
    modules = {
        "nemo_run": run,
        "nemo_run.config": config,
        "nemo_run.core.execution.launcher": launcher,
        kubeflow.__name__: kubeflow,
    }
    sys.modules.update({**{name: ModuleType(name) for name in parents}, **modules})
    for name in ("nemo_run.run.plugin", "nemo_run.run"):
        vars(sys.modules[name]).update(Plugin=object)


def options_of(model: str, gpu: str, dtype: str, gpus: int) -> list[str]:
    """The options that NVIDIA's benchmark adds to the command line of a job."""
    return next(
        (
            options.split()
            for name, type_, dtypes, counts, options in OPTIONS
            if (name, type_) == (model, gpu) and dtype in dtypes and gpus in counts
        ),
        [],
    )


def rows_by_option() -> Iterator[tuple[str, str, str, int, str | None]]:
    """Model, GPU type, dtype and GPUs of the jobs that NVIDIA's benchmark starts with options."""
    for model, gpu, dtypes, counts, _ in OPTIONS:
        for dtype in dtypes:
            for gpus in counts:
                yield model, gpu, dtype, gpus, None


def command(model: str, gpu: str, dtype: str, gpus: int, variant: str | None) -> Any:
    """The scripts' own command line, parsed by the scripts."""
    argv = [
        "-m",
        MODELS[model],
        "-mr",
        model,
        "-g",
        gpu,
        "-c",
        dtype,
        "-ng",
        str(gpus),
        "-gn",
        str(NODE.get(gpu, 8)),
    ]
    argv += ["-a", "account", "-p", "partition", "-i", "image"] + (
        ["--config_variant", variant] if variant else []
    )
    argv += options_of(model, gpu, dtype, gpus)
    parser = importlib.import_module("argument_parser").parse_cli_args()
    return parser.parse_known_args(argv)[0]


def rows_by_variant(models: Sequence[str]) -> Iterator[tuple[str, str, str, int, str | None]]:
    """Model, GPU type, dtype, GPUs and variant of the rows of the older scripts, which are in
    tables. A table without variant has None. The scripts prefer v2 at the GPU count of v1 too, so
    that of a model without experts has both counts.
    """
    utils = importlib.import_module("utils.utils")
    for model in models:
        known = vars(importlib.import_module(f"configs.{MODELS[model]}"))
        for gpu in GPUS:
            for dtype in DTYPES:
                counts: list[int] = []
                for variant in ("v1", "v2", None):
                    words = [model, "pretrain_config", gpu, dtype, *([variant] if variant else [])]
                    row = known.get("_".join(words).upper())
                    if isinstance(row, utils.WorkloadBaseConfig):
                        # Experts may not fit into the fewer GPUs of v1.
                        if variant == "v1" or model not in OLD_MODELS:
                            counts.clear()
                        counts.append(row.num_gpus)
                        for gpus in dict.fromkeys(counts):
                            yield model, gpu, dtype, gpus, variant


def rows_at_other_counts() -> Iterator[tuple[str, str, str, int, str | None]]:
    """The same at twice the highest GPU count that has a function, with bf16 and fp8_cs.

    There the scripts change more than the batch.
    """
    highest: dict[tuple[str, str, str], int] = {}
    for model, gpu, dtype, gpus, _ in rows_by_function():
        if dtype in ("bf16", "fp8_cs") and (model, dtype) != ("nemotronh_56b", "bf16"):
            highest[model, gpu, dtype] = max(gpus, highest.get((model, gpu, dtype), 0))
    for (model, gpu, dtype), gpus in highest.items():
        yield model, gpu, dtype, 2 * gpus, "v2"  # the scripts' default


def rows_by_function() -> Iterator[tuple[str, str, str, int, str | None]]:
    """The same of the rows of the newer library, each of which is a function."""
    for model, family in MODELS.items():
        for gpu in GPUS:
            package = importlib.import_module(f"megatron.bridge.perf_recipes.{family}.{gpu}")
            modules = [
                importlib.import_module(module.name)
                for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
            ]
            for name in sorted({name for module in modules for name in vars(module)}):
                words = name.removeprefix(f"{model}_pretrain_").removesuffix("_config").split("_")
                if len(words) == 3 and words[0].removesuffix("gpu").isdigit() and words[1] == gpu:
                    dtype = words[2].replace("fp8", "fp8_")
                    if dtype in DTYPES:
                        yield model, gpu, dtype, int(words[0].removesuffix("gpu")), None


def old_way(args: Any, extra: list[str]) -> tuple[Any, Any]:
    """The configuration of run_script.py before 0.6, and its base function."""
    utils, overrides = (
        importlib.import_module("utils.utils"),
        importlib.import_module("utils.overrides"),
    )
    model, family = args.model_recipe_name, args.model_family_name
    config = utils.get_perf_optimized_recipe(
        model_family_name=family,
        model_recipe_name=model,
        train_task=args.task,
        gpu=args.gpu,
        compute_dtype=args.compute_dtype,
        config_variant=args.config_variant,
    )
    config = overrides.set_user_overrides(overrides.set_cli_overrides(config, extra), args)
    task, variant = args.task, args.config_variant
    config = overrides.set_post_overrides(
        config, family, model, args.gpu, args.num_gpus, args.compute_dtype, task, None, variant
    )
    return config, base_of(family, model)


def base_of(family: str, model: str) -> Any:
    """The library's general recipe of ``model``."""
    name = f"{model}_pretrain_config"
    package = importlib.import_module(f"megatron.bridge.recipes.{family}")
    if not hasattr(package, name):  # Kimi's folder is no package
        package = importlib.import_module(f"{package.__name__}.{model}")
    return getattr(package, name)


def new_way(args: Any, extra: list[str]) -> tuple[Any, Any]:
    """The configuration of run_script.py of 0.6, and the flat function."""
    config = importlib.import_module("run_script")._prepare_perf_recipe(args, extra)
    if args.compute_dtype == "bf16" and config.optimizer.optimizer == "adam":
        config.optimizer.use_precision_aware_optimizer = True
    utils = importlib.import_module("utils.utils")
    dtype = args.compute_dtype.replace("_", "")
    name = f"{args.model_recipe_name}_pretrain_{args.num_gpus}gpu_{args.gpu}_{dtype}_config"
    function = utils.find_perf_recipe(name)
    if function is None:  # the scripts take that of another GPU count
        name = utils._first_matching_perf_recipe_name(
            model_recipe_name=args.model_recipe_name,
            task=args.task,
            gpu=args.gpu,
            precision=args.compute_dtype,
            config_variant=args.config_variant,
            num_gpus=None,
        )
        function = utils.find_perf_recipe(name)
    return config, function


def environment(args: Any, *, has_plugin: bool) -> tuple[dict[str, str], list[str]]:
    """The variables of the launcher's executor, and what it adds to the program's command line."""
    executors = importlib.import_module("utils.executors")
    kept = dict(getattr(executors, "PERF_ENV_VARS", {}))
    made = executors.slurm_executor(
        args.gpu, "account", "partition", "/log", 1, NODE.get(args.gpu, 8)
    )
    variables, script = dict(made.env_vars), Script(args=[])
    made.env_vars = variables
    if has_plugin:
        plugins = importlib.import_module("perf_plugins")
        asked = vars(args)
        names_ = (
            "gpu",
            "compute_dtype",
            "model_family_name",
            "model_recipe_name",
            "config_variant",
        )
        ways = {
            "tp_size": args.tensor_model_parallel_size,
            "pp_size": args.pipeline_model_parallel_size,
            "cp_size": args.context_parallel_size,
            "ep_size": args.expert_model_parallel_size,
        }
        changed = {name: value for name, value in ways.items() if value is not None}
        plugins.PerfEnvPlugin(
            train_task=args.task, **{name: asked[name] for name in names_}, **changed
        ).setup(script, made)
        executors.PERF_ENV_VARS.clear()  # the executor writes into the module's own table
        executors.PERF_ENV_VARS.update(kept)
    return {name: str(value) for name, value in variables.items()}, script.args


def prepare(checkout: str) -> str:
    """Make the scripts and the library importable, and return the library's version."""
    folder = Path(checkout)
    sys.path.insert(
        0, str(folder / "scripts" / "performance" if (folder / "scripts").is_dir() else folder)
    )
    mocks.install()
    mocks.add_missing_file()
    mock_nemo_run()
    return importlib.metadata.version("megatron-bridge")


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaRow:
    """A row as NVIDIA's scripts make it."""

    model: str
    gpu: str
    dtype: str
    gpus: int
    variant: str | None
    config: Any
    #: The function of the library from which the scripts start.
    function: Any
    #: The variables of the ranks.
    variables: dict[str, str]


def rows_of(version: str) -> Iterator[NvidiaRow]:
    """Every row of the models that llmb has in this version."""
    has_tables = version.startswith(WITH_TABLES)
    models = OLD_MODELS if version.startswith("0.3.") else tuple(MODELS)
    for model, gpu, dtype, gpus, variant in (
        *(rows_by_variant(models) if has_tables else rows_by_function()),
        *(() if has_tables else rows_at_other_counts()),
        *(rows_by_option() if version.startswith(WITH_OPTIONS) else ()),
    ):
        mocks.pretend_gpu(gpu)
        args = command(model, gpu, dtype, gpus, variant)
        args.save_config_filepath = "ConfigContainer.yaml"  # else a folder at the root is made
        variables, extra = environment(args, has_plugin=has_tables)
        config, function = (old_way if has_tables else new_way)(args, extra)
        if has_tables and not version.startswith("0.3.") and config.ddp.nccl_ub:
            variables |= {"NCCL_NVLS_ENABLE": "1", "NCCL_CTA_POLICY": "1"}  # main of run_script.py
        variables |= {name: str(value) for name, value in getattr(config, "env_vars", {}).items()}
        yield NvidiaRow(
            model=model,
            gpu=gpu,
            dtype=dtype,
            gpus=gpus,
            variant=variant,
            config=config,
            function=function,
            variables=variables,
        )


def main(checkout: str, target: str) -> None:
    """Write the record of all rows."""
    version = prepare(checkout)
    found: dict[str, Record] = {}
    for row in rows_of(version):
        theirs, own = names.leaves(row.config), names.leaves(row.function())
        changed = {
            path: theirs.get(path)
            for path in sorted({*theirs, *own})
            if theirs.get(path) != own.get(path)
        }
        words = [row.model, row.gpu, row.dtype, str(row.gpus)]
        label = " ".join([*words, *([row.variant] if row.variant else [])])
        base = f"{row.function.__module__}:{row.function.__qualname__}"
        found[label] = {
            "base": {"base": base},
            "changed": changed,
            "environment": {**row.variables},
        }
    Path(target).write_text(to_text(version, found), encoding="utf-8")
    print(f"{len(found)} rows of {version}", file=sys.stderr)


def to_text(version: str, found: Mapping[str, Record]) -> str:
    """The record with a line for each row; what all rows of a model have in common is in the row
    ``MODEL *``.
    """
    common: dict[str, Record] = {}
    for label, row in found.items():
        shared = common.setdefault(
            f"{label.partition(' ')[0]} *", {part: dict(values) for part, values in row.items()}
        )
        for part, values in row.items():
            shared[part] = {
                name: value
                for name, value in shared[part].items()
                if values.get(name, "?") == value
            }
    own = {
        label: {
            part: {
                name: value
                for name, value in values.items()
                if name not in common[f"{label.split()[0]} *"][part]
            }
            for part, values in row.items()
        }
        for label, row in found.items()
    }
    lines = [
        f"{json.dumps(label)}: {json.dumps(row, sort_keys=True)}"
        for label, row in {**common, **own}.items()
    ]
    return "{" + ",\n".join([f'"megatron-bridge": "{version}"', *lines]) + "}\n"


if __name__ == "__main__":
    main(*sys.argv[1:])
