# Both commands install what they need on Debian 12 as root; elsewhere they say
# what to install.

.PHONY: demo test bench format

demo: .venv/ready
	.venv/bin/python scripts/demo.py

test: .venv/ready
	.venv/bin/python -m pytest $(TESTS)

bench: .venv/ready
	.venv/bin/python scripts/bench.py

format: .venv/ready
	.venv/bin/ruff format scripts tests
	.venv/bin/ruff check --fix scripts tests

.venv/ready: pyproject.toml scripts/setup.sh
	sh scripts/setup.sh
	touch $@
