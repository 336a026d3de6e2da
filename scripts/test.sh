#!/usr/bin/env bash
# Installs the project with its development tools into .venv (once), then runs ruff, pyright and pytest.
# Options go to pytest: bash scripts/test.sh -m slow
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="$(bash "$here/setup.sh" dev)"
cd "$here/.."
unset PYTHONDONTWRITEBYTECODE # where it is set, every process of the tests would compile jax's modules anew: 4 s each
"$python" -m ruff check .
"$python" -m pyright
exec "$python" -m pytest "$@"
