#!/usr/bin/env bash
# APFL against FedAvg, SCAFFOLD, local training and fine-tuning on real digits: a table, quickstart/results.nc and
# quickstart/quickstart.png. Needs only a Python 3.11 or newer; the first call installs into .venv. Options are those of
# scripts/quickstart.py: --smoke, --out FOLDER.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="$(bash "$here/setup.sh")"
exec "$python" "$here/quickstart.py" "$@"
