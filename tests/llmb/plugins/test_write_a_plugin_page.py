# SPDX-License-Identifier: Apache-2.0
"""Runs every command of docs/write-a-plugin.md, in order and in an empty folder, and compares the
outputs it shows.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.local_install]

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/write-a-plugin.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# It downloads torch, a minute and 1 GB: the test gives the workload the environment that the suite
# has.
WITH_TORCH = "llmb-install add acme --yes"

# An editable installation into a folder on PYTHONPATH, because all tests share the Python
# environment.
PIP = """\
#!/bin/bash
[[ $1 == install && $2 == -e && -d $3 ]] || exit 2
"{bin}/uv" pip install -q --offline --no-deps --no-build-isolation --python "{python}" --target "{site}" "$3" || exit 1
for package in "$3"/llmb_*/; do
    name=$(basename "$package")
    rm -rf "{site}/$name" && ln -s "$(realpath "$package")" "{site}/$name" || exit 1
done
"""


def commands() -> list[tuple[str, list[str]]]:
    """Each command of the page, and the lines of output below it."""
    found: list[tuple[str, list[str]]] = []
    for block in BLOCK.findall(PAGE.read_text("utf-8")):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def give_torch(install: Path, torch: Path, key: str) -> None:
    """Add the workload ``key`` to an install directory, with the torch of another one."""
    path = install / "cluster_config.yaml"
    config, other = (
        yaml.safe_load(file.read_text("utf-8")) for file in (path, torch / "cluster_config.yaml")
    )
    config["workloads"]["installed"].append(key)
    config["workloads"]["config"][key] = other["workloads"]["config"]["pretrain_nemotron4"]
    path.write_text(yaml.safe_dump(config), "utf-8")


def test_every_command_of_the_page_works(tmp_path: Path, torch_install: Path, home: Path) -> None:
    folder, site, own = tmp_path / "work", tmp_path / "site", tmp_path / "bin"
    for path in (folder, site, own):
        path.mkdir()
    here = Path(sys.executable).parent
    (own / "pip").write_text(PIP.format(bin=here, python=sys.executable, site=site))
    (own / "pip").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{own}:{here}:{os.environ['PATH']}",
        "PYTHONPATH": str(site),
        "LLMB_STATE_DIR": str(tmp_path / "state"),
    }
    at = folder
    for command, expected in commands():
        if command == WITH_TORCH:
            give_torch(at, torch_install, "pretrain_acme")
            continue
        script = f"{command}\ncode=$?; pwd >&3; exit $code"
        where = tmp_path / "pwd"
        done = subprocess.run(
            ["bash", "-c", f"exec 3> '{where}'\n{script}"],
            cwd=at,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        at = Path(where.read_text().strip())
        printed = [line.rstrip() for line in done.stdout.splitlines()]
        missing = [line for line in expected if line.rstrip() not in printed]
        assert not missing, f"{command}\n{done.stdout}\nlacks {missing}"
