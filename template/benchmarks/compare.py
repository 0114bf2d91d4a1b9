"""Fails where a ratio got worse between two runs of run.py.

    python benchmarks/compare.py OLD.json NEW.json [--tolerance 0.10]

Ratios are compared, not times: each was measured in one run, so that the two
machines need not be the same.
"""

import argparse
import json
import sys
from pathlib import Path

# Of next to nothing to something: their times matter, not their ratios.
TIMES = ("import", "load", "hook call")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.10, help="how much worse a ratio may be; default: 0.10")
    options = parser.parse_args()
    old, new = (
        {row["name"]: row for row in json.loads(path.read_text())["results"]} for path in (options.old, options.new)
    )
    worse = []
    for name in old:
        if name in TIMES:
            continue
        if name not in new:
            worse.append(f"{name}: measured before, and not now")
            continue
        before, after = old[name]["ratio"], new[name]["ratio"]
        verdict = "worse" if after > before * (1 + options.tolerance) else "ok"
        print(f"{name:<26}{before:>8.3f} -> {after:.3f}   {verdict}")
        if verdict == "worse":
            worse.append(f"{name}: {after:.3f} times stock, was {before:.3f}")
    for line in worse:
        print(f"error: {line} (tolerance {options.tolerance:.0%})", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
