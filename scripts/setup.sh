#!/bin/sh
# Makes .venv with what `make demo` and `make test` need, and a clang.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }

have_clang() {
    have clang++ && return 0
    for version in $(seq 30 -1 15); do have "clang++-$version" && return 0; done
    return 1
}

have_headers() { python3 -c 'import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'; }

missing=
have_clang || missing="$missing clang-22"
python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
have_headers || missing="$missing python3-dev"
if [ -n "$missing" ]; then
    if have apt-get && [ "$(id -u)" = 0 ]; then
        apt-get update -qq
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
        echo "error: these are missing:$missing. Install clang (22 was tested), and Python 3.11 or later with venv and headers." >&2
        exit 1
    fi
fi

[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
.venv/bin/python -m pip install --quiet --group test
