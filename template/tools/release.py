# Owned by the project template; changed only by `copier update`.
"""Whether a tag may be released: it is the project's version, and its wheels are fit to ship.

For the tag v0.1.0 and wheels in dist: python tools/release.py v0.1.0 dist
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def problems(tag: str, folder: Path) -> list[str]:
    """What stands against a release, each with its remedy."""
    found = []
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if tag != f"v{version}":
        found.append(
            f"The tag is {tag}, and pyproject.toml says version {version}: tag v{version}, or change the version."
        )
    if not re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE):
        found.append(f"CHANGELOG.md has no entry {version}: write one.")
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        found.append(f"There is no wheel in {folder}: build them first.")
    for wheel in wheels:
        built = wheel.name.split("-")[1]
        if re.sub(r"\.post\d+$", "", built) != version:  # .post: of tools/line.py
            found.append(f"{wheel.name} is of version {built}, not {version}: build it again.")
        with zipfile.ZipFile(wheel) as archive:
            records = [member for member in archive.namelist() if re.fullmatch(r"(\w+)/lib\1\.json", member)]
            record = json.loads(archive.read(records[0])) if records else {}
        if record.get("llvm_match") != "exact":
            match = record.get("llvm_match", "not recorded")
            found.append(
                f"{wheel.name} was built with an LLVM that is {match}, not exact: build it with Triton's own LLVM."
            )
        if "linux_" in wheel.name and "manylinux" not in wheel.name:
            found.append(f"{wheel.name} has no manylinux tag: auditwheel repair --exclude libtriton.so {wheel.name}.")
    return found


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    found = problems(sys.argv[1], Path(sys.argv[2]))
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
