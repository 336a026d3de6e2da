#!/usr/bin/env bash
# Makes the virtual environment .venv at the project's root and installs the project into it, once; prints its Python.
#   bash scripts/setup.sh [EXTRA]     EXTRA: an optional group of pyproject.toml, such as dev
# A later call is quick: it installs again only after pyproject.toml or constraints.txt has changed.
# PYTHON=/path/to/python chooses the interpreter; otherwise the first of a few names that is new enough is taken.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
extra="${1:-}"
python="$root/.venv/bin/python"

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local name
    for name in ${PYTHON:-python3 python3.12 python3.11 python3.13 python3.14 python}; do
        if new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    echo "setup: found no Python 3.11 or newer (tried ${PYTHON:-python3, python3.11 to python3.14, python});" \
        "install one, or name it: PYTHON=/path/to/python bash $0" >&2
    return 1
}

# The stamp names the project's place too: a copied environment would import the other copy.
stamp="$(echo "$root" | cat - "$root/pyproject.toml" "$root/constraints.txt" | cksum)"
installed() { [ "$(cat "$root/.venv/.installed-$1" 2>/dev/null)" = "$stamp" ]; }

if ! { new_enough "$python" && { installed "${extra:-plain}" || { [ -z "$extra" ] && installed dev; }; }; }; then
    if ! new_enough "$python"; then
        base="$(find_python)"
        echo "setup: making .venv with $base" >&2
        rm -rf "$root/.venv"
        if command -v uv >/dev/null; then
            uv venv --quiet --python "$base" "$root/.venv" >&2
        elif ! "$base" -m venv "$root/.venv" >&2; then
            echo "setup: $base could not make a virtual environment (on Debian: apt install python3-venv)" >&2
            exit 1
        fi
    fi
    echo "setup: installing jaxfed${extra:+[$extra]} (about a minute)" >&2
    what=(-c "$root/constraints.txt" -e "$root${extra:+[$extra]}")
    if command -v uv >/dev/null; then
        uv pip install --quiet --python "$python" "${what[@]}" >&2
    else
        "$python" -m pip install --quiet --disable-pip-version-check "${what[@]}" >&2
    fi
    echo "$stamp" >"$root/.venv/.installed-${extra:-plain}"
fi
echo "$python"
