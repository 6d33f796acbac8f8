# SPDX-License-Identifier: Apache-2.0
"""python freeze.py CHECKOUT FOLDER: what NVIDIA's launch scripts set, as data that llmb ships.

CHECKOUT is as for record_nvidia.py, of a release before 0.6, whose settings only the scripts have.
Writes FOLDER/MODEL.json for each model: the library's function, and by GPU type, dtype and GPU
count the values that the scripts set on it, without layout and batch. Prints those, as rows of
bridge.yaml. Where there are two variants, only v2 is written, which is the scripts' default for
every GPU count.
"""

import dataclasses
import enum
import importlib
import json
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import FunctionType
from typing import Any

nvidia = importlib.import_module("record_nvidia")
Values = dict[str, Any]
# A row of bridge.yaml and a job's settings have these.
OF_ROWS = {
    "model.tensor_model_parallel_size",
    "model.pipeline_model_parallel_size",
    "model.context_parallel_size",
    "model.virtual_pipeline_model_parallel_size",
    "model.sequence_parallel",
    "train.global_batch_size",
    "train.micro_batch_size",
    "train.train_iters",
    "checkpoint.load",
    "logger.save_config_filepath",
}
# How the loader of the samples differs; a job's settings have the rest of the dataset.
LOADER = ("num_workers", "pin_memory", "persistent_workers")
# NVIDIA's images have a checkout of the repository. The wheel lacks a file of its scripts.
SCRIPTS = "/opt/Megatron-Bridge/scripts/performance"
# The scripts set None although the library's type has no None, which a recipe refuses as null.
NOT_OPTIONAL = ("model.moe_flex_dispatcher_backend",)
PARTS = ("set", "loader", "environment")
PLAIN = (bool, int, float, str, type(None))


def settings(config: Any, base: Any) -> Values:
    """The values by dotted path that make ``config`` of ``base``, parents before their parts."""
    found = {path: value for path, value in changes("", config, base) if path not in OF_ROWS}
    return dict(sorted(found.items()))


def changes(path: str, value: Any, base: Any) -> Iterator[tuple[str, Any]]:
    """The changed parts of one object."""
    prefix = f"{path}." if path else ""
    if is_part(value) and named(value) is None and type(value) is type(base):
        for name in sorted({*vars(value), *vars(base)}):
            if not name.startswith("_") and name not in ("env_vars", "dataset"):
                yield from changes(
                    f"{prefix}{name}", getattr(value, name, None), getattr(base, name, None)
                )
    elif is_part(value) and named(value) is None:
        fresh, arguments = made(value)
        yield path, {"call": name_of(type(value)), "with": arguments}
        yield from changes(path, value, fresh)
    elif nvidia.names.leaves(Holder(value)) != nvidia.names.leaves(Holder(base)):
        yield path, plain(value, path)


@dataclasses.dataclass
class Holder:
    """Lets ``leaves`` read any value."""

    value: Any


def is_part(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def made(value: Any) -> tuple[Any, Values]:
    """An object of the same class, and the arguments that it needs."""
    arguments = {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if field.init and isinstance(getattr(value, field.name), PLAIN)
    }
    return type(value)(**arguments), arguments


def named(value: Any) -> str | None:
    """The name of an object that the library has under one, such as a table of user buffers."""
    if not is_part(value):
        return None
    module = sys.modules["megatron.bridge.training.comm_overlap"]
    return next(
        (f"{module.__name__}:{name}" for name, item in vars(module).items() if item is value), None
    )


def plain(value: Any, path: str) -> Any:
    """The value as the program's recipe has it."""
    if isinstance(value, enum.Enum):
        return value.name
    if path == "model.quant_recipe":
        return {
            "call": "megatron.core.quantization.utils:load_quantization_recipe",
            "with": {"recipe_path": f"{SCRIPTS}/configs/nemotronh/{value}"},
        }
    if value is None and path in NOT_OPTIONAL:
        return {"name": "builtins:None"}
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item, path) for item in value]
    if (name := named(value)) is not None:
        return {"name": name}
    if isinstance(value, (type, FunctionType)):
        return {"name": name_of(value)}
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return {"name": str(value).replace(".", ":")}
    raise TypeError(f"{path}: {value!r}")


def name_of(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


def batch(gbs: int, gpus: int) -> str:
    """The batch as bridge.yaml has it."""
    ratio = Fraction(gbs, gpus)
    times = "" if ratio.numerator == 1 else str(ratio.numerator)
    return f"{times}N" + (f"/{ratio.denominator}" if ratio.denominator > 1 else "")


def layout(row: Any) -> Values:
    """The keys of a row of bridge.yaml but GPU type, dtype and scales."""
    model, train, ddp = row.config.model, row.config.train, row.config.ddp
    ways = {
        "tp": model.tensor_model_parallel_size,
        "pp": model.pipeline_model_parallel_size,
        "cp": model.context_parallel_size,
        "vp": model.virtual_pipeline_model_parallel_size or 1,
        "ep": getattr(model, "expert_model_parallel_size", 1) or 1,
    }
    found: Values = {name: ways_ for name, ways_ in ways.items() if ways_ != 1}
    if ways["ep"] != 1 and ways["tp"] > 1 and model.expert_tensor_parallel_size == 1:
        found["etp"] = 1
    found |= {"mbs": train.micro_batch_size, "gbs": batch(train.global_batch_size, row.gpus)}
    if ddp.use_megatron_fsdp:
        found["fsdp"] = "true"
    if ddp.nccl_ub:
        found["nccl_ub"] = "true"
    if model.cpu_offloading:
        found["offload_layers"] = model.cpu_offloading_num_layers
    if model.recompute_num_layers is not None:
        found["recompute_layers"] = model.recompute_num_layers
    if model.cuda_graph_impl != "none":
        found["graphs"] = model.cuda_graph_impl
        scope = [plain(part, "scope") for part in model.cuda_graph_scope or []]
        if scope:
            found["graph_scope"] = scope[0] if len(scope) == 1 else f"[{', '.join(scope)}]"
    return found


def words(values: list[Any]) -> str:
    """One value, or a list of them, in YAML."""
    return str(values[0]) if len(values) == 1 else f"[{', '.join(map(str, values))}]"


def lines(layouts: dict[tuple[str, str, int], Values]) -> Iterator[str]:
    """The rows in YAML: one for equal layouts of one GPU type."""
    scales: dict[tuple[str, str, str], list[int]] = {}
    for (gpu, dtype, gpus), keys in layouts.items():
        scales.setdefault((gpu, dtype, json.dumps(keys)), []).append(gpus)
    dtypes: dict[tuple[str, str, str], list[str]] = {}
    for (gpu, dtype, keys_), counts in scales.items():
        dtypes.setdefault((gpu, words(sorted(counts)), keys_), []).append(dtype)
    gpus_: dict[tuple[str, str, str], list[str]] = {}
    for (gpu, counts_, keys_), own in dtypes.items():
        gpus_.setdefault((words(own), counts_, keys_), []).append(gpu)
    for (dtypes_, counts_, keys_), types in gpus_.items():
        keys = {"gpu": words(types), "dtype": dtypes_, "scales": counts_, **json.loads(keys_)}
        parts = [f"{name}: {value}" for name, value in keys.items()]
        line = "        - {"
        for number, part in enumerate(parts):
            end = "}" if number == len(parts) - 1 else ","
            if len(line) + len(part) + len(end) > 117:
                yield line.rstrip()
                line = "           "
            line += f"{part}{end} "
        yield line.rstrip()


def to_text(head: Values, rows: dict[str, dict[str, Values]]) -> str:
    """A file with a line for each row. What all rows have is written once."""
    first, *others = rows.values()
    common = {
        part: {
            name: value
            for name, value in first[part].items()
            if all(name in row[part] and row[part][name] == value for row in others)
        }
        for part in PARTS
    }
    own = {
        label: {
            part: {name: value for name, value in row[part].items() if name not in common[part]}
            for part in PARTS
        }
        for label, row in rows.items()
    }
    heads = [
        f"{json.dumps(name)}: {json.dumps(value)}" for name, value in {**head, **common}.items()
    ]
    lines_ = [f"{json.dumps(label)}: {json.dumps(row)}" for label, row in own.items()]
    return "{" + ",\n".join([*heads, '"rows": {\n' + ",\n".join(lines_)]) + "\n}}\n"


def main(checkout: str, folder: str) -> None:
    """Write the settings, and print the rows."""
    version = nvidia.prepare(checkout)
    found: dict[str, dict[tuple[str, str, int], Any]] = {}
    for row in nvidia.rows_of(version):
        rows = found.setdefault(row.model, {})
        if row.variant == "v2":  # it comes after v1
            for key in [key for key in rows if key[:2] == (row.gpu, row.dtype)]:
                del rows[key]
        values = settings(row.config, row.function())
        loader = {name: getattr(row.config.dataset, name) for name in LOADER}
        entry = (name_of(row.function), values, loader, row.variables, layout(row))
        rows[row.gpu, row.dtype, row.gpus] = entry
    for model, rows in found.items():
        (base,) = {entry[0] for entry in rows.values()}
        parts = {
            " ".join(map(str, key)): dict(zip(PARTS, entry[1:-1], strict=True))
            for key, entry in rows.items()
        }
        text = to_text({"megatron-bridge": version, "base": base}, parts)
        Path(folder, f"{model}.json").write_text(text, encoding="utf-8")
        print(f"{model}:")
        print(*lines({key: entry[-1] for key, entry in rows.items()}), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
