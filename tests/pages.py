"""Runs the console blocks of a page, and compares what they print."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Block:
    """A fenced block: its language, the file that it is or changes, its lines."""

    language: str
    title: str | None
    lines: list[str]
    line: int


@dataclass
class Command:
    """A command of a page, and the lines that the page shows below it."""

    text: str
    shown: list[str]
    line: int


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if fence := re.match(r'```(\w*)(?: title="(.+)")?$', line):
            inside = not inside
            if inside:
                found.append(Block(fence[1], fence[2], [], number))
        elif inside:
            found[-1].lines.append(line)
    return found


def commands(block: Block) -> list[Command]:
    """Those of a console block: after "$ " is a command, after "> " it goes on."""
    found: list[Command] = []
    for number, line in enumerate(block.lines, block.line + 1):
        if line.startswith("$ "):
            found.append(Command(line[2:], [], number))
        elif line.startswith("> "):
            found[-1].text += "\n" + line[2:]
        else:
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
    """Does what the page says, from `folder`, as a reader would: commands, files, patches.

    Fails where a command prints something else than the page shows below it; one
    that shows an error has to fail.
    """
    where = folder
    for block in blocks(page):
        text = "\n".join(block.lines) + "\n"
        if block.language == "console":
            for command in commands(block):
                where = execute(page, command, where, environment)
        elif block.language == "diff" and block.title:
            change(where / block.title, text, f"{page.name}:{block.line}")
        elif block.title:
            (where / block.title).write_text(text)


def change(path: Path, difference: str, told: str) -> None:
    """Makes the changes that a block shows, parted by lines of "..."; each place is there once."""
    text = path.read_text()
    for part in re.split(r"^\.\.\.\n", difference, flags=re.MULTILINE):
        lines = part.splitlines(keepends=True)
        old = "".join(line[1:] or "\n" for line in lines if line[0] != "+")
        new = "".join(line[1:] or "\n" for line in lines if line[0] != "-")
        assert text.count(old) == 1, f"{told}: not there once:\n{old}\nin\n{text}"
        text = text.replace(old, new)
    path.write_text(text)


def execute(page: Path, command: Command, where: Path, environment: dict[str, str]) -> Path:
    """Runs a command in `where`, compares what it prints, and gives the folder it ends in."""
    script = f"cd {str(where)!r}\n{command.text}\nstatus=$?\npwd >&3\nexit $status\n"
    reading, writing = os.pipe()
    with os.fdopen(reading) as ended:
        done = subprocess.run(
            ["bash", "-c", f"exec 3>&{writing}\n{script}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=800,
            env=os.environ | environment,
            pass_fds=[writing],
        )
        os.close(writing)
        folder = Path(ended.read().strip())
    told = f"{page.name}:{command.line}: $ {command.text}\nprinted, with status {done.returncode}:\n{done.stdout}"
    fails = any(line.startswith("error: ") for line in command.shown)
    assert (done.returncode != 0) == fails, told
    if command.shown:
        assert matches(command.shown, re.sub(r"\x1b\[[\d;]*m", "", done.stdout)), told
    return folder
