# SPDX-License-Identifier: Apache-2.0
"""Builds every distribution of a release into dist/, and checks each. `make release VERSION=1.2.0
URL=https://...`.

Builds from the last commit, in a copy: into each project's metadata go the links of URL, the
repository's address, and beside it the licence.
"""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PUBLIC = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
LINKS = {
    "Homepage": "",
    "Source": "",
    "Documentation": "/tree/main/docs",
    "Issues": "/issues",
    "Changelog": "/blob/main/CHANGELOG.md",
}


def projects(root: Path) -> dict[str, Path]:
    """The folder of each distribution: the runtime's, and those of the members."""
    found = [
        root,
        *(
            path.parent
            for pattern in ("*", "plugins/*")
            for path in root.glob(f"{pattern}/pyproject.toml")
        ),
    ]
    return {settings(folder)["name"]: folder for folder in sorted(found)}


def settings(folder: Path) -> dict[str, str]:
    """The table ``project`` of a folder's pyproject.toml."""
    table: dict[str, str] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def refusals(root: Path, version: str, url: str) -> list[str]:
    """Why there can be no release of this version; empty if there can."""
    wrong = []
    if not PUBLIC.fullmatch(version):
        wrong.append(
            f"VERSION={version or '?'}: a release has one version: make release VERSION=1.2.0"
            " URL=https://..."
        )
    if not re.fullmatch(r"https://[^/\s]+/\S*[^/\s]", url):
        wrong.append(
            f"URL={url or '?'}: the links of the packages need the repository's address:"
            " URL=https://..."
        )
    if wrong:
        return wrong
    for name, folder in projects(root).items():
        own = settings(folder)["version"]
        if own != version:
            wrong.append(
                f"{folder.relative_to(root)}/pyproject.toml: {name} has version {own}, the release"
                f" {version}"
            )
    dated = rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$"
    if not re.search(dated, (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE):
        wrong.append(f"CHANGELOG.md: no section '## {version} (YYYY-MM-DD)'")
    return wrong


def exported(target: Path) -> Path:
    """The files of the last commit, in the new folder ``target``."""
    target.mkdir()
    archive = subprocess.run(
        ["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(target)], input=archive, check=True)
    return target


def complete(folder: Path, version: str, url: str, licence: str) -> None:
    """Add to an exported project what a release has beside the checkout: links, licence, the
    members' own version.
    """
    links = "".join(f'{name} = "{url}{path}"\n' for name, path in LINKS.items())
    project = folder / "pyproject.toml"
    lines = project.read_text("utf-8").splitlines()
    own = [
        re.sub(r'"(llmb[\w-]*|sqshpull)"', rf'"\1=={version}"', line)
        if "dependencies" in line
        else line
        for line in lines
    ]
    project.write_text("\n".join([*own, "", "[project.urls]", links]), encoding="utf-8")
    (folder / "LICENSE").write_text(licence, encoding="utf-8")


def metadata_faults(metadata: Message, name: str, version: str, url: str) -> list[str]:
    """What the metadata of a wheel or sdist lacks for an index."""
    required = metadata.get_all("Requires-Dist", [])
    links = metadata.get_all("Project-URL", [])
    checks = {
        f"name and version: {metadata['Name']} {metadata['Version']}": (
            (
                metadata["Name"],
                metadata["Version"],
            )
            == (name, version)
        ),
        f"direct references: {[line for line in required if '@' in line]}": not any(
            "@" in line for line in required
        ),
        "no README": len(str(metadata.get_payload()).split()) > 20,
        "no README type": metadata["Description-Content-Type"] == "text/markdown",
        "no licence": (
            metadata["License-Expression"] == "Apache-2.0"
            and bool(metadata.get_all("License-File"))
        ),
        f"links: {links}": len(links) == len(LINKS) and all(url in line for line in links),
        "no classifiers": len(metadata.get_all("Classifier", [])) > 3,
        "no Requires-Python": bool(metadata["Requires-Python"]),
    }
    return [fault for fault, is_right in checks.items() if not is_right]


def faults(built: Path, name: str, version: str, url: str) -> list[str]:
    """What is wrong with a built distribution, each with the file's name."""
    if built.suffix == ".whl":
        with zipfile.ZipFile(built) as wheel:
            files = wheel.namelist()
            text = wheel.read(next(file for file in files if file.endswith(".dist-info/METADATA")))
        needs = [f"{name.replace('-', '_')}/py.typed", ".dist-info/licenses/LICENSE"]
    else:
        with tarfile.open(built) as sdist:
            files = sdist.getnames()
            found = sdist.extractfile(
                next(file for file in files if re.fullmatch(r"[^/]+/PKG-INFO", file))
            )
            text = found.read() if found is not None else b""
        needs = ["/pyproject.toml", "/LICENSE", "/py.typed"]
    wrong = metadata_faults(email.message_from_bytes(text), name, version, url)
    wrong += [f"no file {need}" for need in needs if not any(file.endswith(need) for file in files)]
    wrong += [f"does not belong: {file}" for file in files if "__pycache__" in file]
    return [f"{built.name}: {fault}" for fault in wrong]


def build(tree: Path, out: Path, version: str, url: str) -> list[str]:
    """Build every distribution of an exported tree into ``out``, and return what is wrong with
    them.
    """
    licence = (tree / "LICENSE").read_text("utf-8")
    environment = os.environ | {"LLMB_RELEASE": version}
    wrong = []
    for name, folder in projects(tree).items():
        complete(folder, version, url, licence)
        argv = [sys.executable, "-m", "hatchling", "build", "--directory", str(out)]
        subprocess.run(argv, cwd=folder, check=True, env=environment, stdout=subprocess.DEVNULL)
        built = sorted(out.glob(f"{name.replace('-', '_')}-{version}*"))
        wrong += (
            [f"{name}: {len(built)} files, expected a wheel and an sdist"]
            if len(built) != 2
            else []
        )
        wrong += [fault for one in built for fault in faults(one, name, version, url)]
    return wrong


def main(version: str, url: str) -> int:
    """Build and check the release; nothing in dist/ changes unless all of it is right."""
    url = url.rstrip("/")
    wrong = refusals(ROOT, version, url)
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    wrong += ["uncommitted changes: a release is built from a commit"] if changed.stdout else []
    if wrong:
        print(*(f"error: {fault}" for fault in wrong), sep="\n", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary, "dist")
        wrong = build(exported(Path(temporary, "tree")), out, version, url)
        if wrong:
            print(*(f"error: {fault}" for fault in wrong), sep="\n", file=sys.stderr)
            return 1
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(out, DIST)
    print(
        *(f"{path.stat().st_size:>9,}  dist/{path.name}" for path in sorted(DIST.iterdir())),
        sep="\n",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(*[*sys.argv[1:], "", ""][:2]))
