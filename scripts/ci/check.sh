#!/usr/bin/env bash
# Lint, types and every test; all of them run, and one failure is enough to exit non-zero.
# pytest comes last, so that its closing line is the last one. Arguments go to pytest.
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." || exit 1
PATH=$PWD/.venv/bin:$PATH:/usr/sbin:/sbin

code=0
check() {
    echo "check: $*" >&2
    "$@" || { echo "check: $* failed" >&2 && code=1; }
}

check ruff check .
check ruff format --check .
check mypy
python -m rayfleet.sandbox.engine_install || exit 1
# In the order of their folders, so that the long e2e tests start first, on a worker of their own.
pytest -n 2 --no-loadscope-reorder "$@" || code=1
exit "$code"
