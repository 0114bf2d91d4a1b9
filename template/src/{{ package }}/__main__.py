"""The plugin's commands: doctor, opt, inspect."""

import sys

from ._runtime.cli import main

if __name__ == "__main__":
    sys.exit(main())
