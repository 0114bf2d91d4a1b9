# Owned by the project template; changed only by `copier update`.
"""Makes this checkout build for another line of Triton: python tools/line.py 3.8.

Version 1.2.0 becomes 1.2.0.post38, which needs triton~=3.8.0. Releases of one version
for several lines differ in their number only: pip takes the highest that fits the Triton
that is wanted, and PyPI takes post releases, which it does not take of local versions
such as 1.2.0+triton3.8.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def for_line(text: str, line: str) -> str:
    """pyproject.toml's text for a line such as "3.8"."""
    text = re.sub(r'"triton~=\d+\.\d+\.0"', f'"triton~={line}.0"', text)
    number = line.replace(".", "")
    return re.sub(
        r'^version = "(.+?)(\.post\d+)?"$', rf'version = "\1.post{number}"', text, count=1, flags=re.MULTILINE
    )


def main() -> int:
    if len(sys.argv) != 2 or not re.fullmatch(r"\d+\.\d+", sys.argv[1]):
        print("error: name a line of Triton, as in: python tools/line.py 3.8", file=sys.stderr)
        return 2
    PYPROJECT.write_text(for_line(PYPROJECT.read_text(), sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
