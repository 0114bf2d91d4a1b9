"""Runs the console blocks of a page, and compares what they print."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Command:
    """A command of a page, and the lines that the page shows below it."""

    text: str
    shown: list[str]
    line: int


def commands(page: Path) -> list[Command]:
    """Those of all ```console blocks; a line after "$ " is a command, "> " goes on with it."""
    found: list[Command] = []
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            inside = line == "```console"
        elif inside and line.startswith("$ "):
            found.append(Command(line[2:], [], number))
        elif inside and line.startswith("> "):
            found[-1].text += "\n" + line[2:]
        elif inside:
            found[-1].shown.append(line)
    return found


def matches(shown: list[str], printed: str) -> bool:
    """Whether `printed` is what the page shows: "..." is any text, a line of it any lines."""
    pattern = ""
    for line in shown:
        if line == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += r".*".join(re.escape(part) for part in line.rstrip().split("...")) + r" *\n"
    return re.fullmatch(pattern, printed.rstrip("\n") + "\n") is not None


def run(page: Path, folder: Path, environment: dict[str, str]) -> None:
    """Runs the page's commands, one after another, as a reader would, from `folder`.

    Fails where one prints something else than the page shows below it; one that
    shows an error has to fail.
    """
    where = folder
    for command in commands(page):
        script = f"cd {str(where)!r}\n{command.text}\nstatus=$?\npwd >{str(folder / '.where')!r}\nexit $status\n"
        done = subprocess.run(
            ["bash", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=800,
            env=os.environ | environment,
        )
        told = f"{page.name}:{command.line}: $ {command.text}\nprinted, with status {done.returncode}:\n{done.stdout}"
        fails = any(line.startswith("error: ") or " failed" in line for line in command.shown)
        assert (done.returncode != 0) == fails, told
        if command.shown:
            assert matches(command.shown, re.sub(r"\x1b\[[\d;]*m", "", done.stdout)), told
        where = Path((folder / ".where").read_text().strip())
