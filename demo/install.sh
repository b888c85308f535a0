#!/bin/sh
# install.sh PYTHON VENV: a virtual environment with what a run needs, and Batten in place from src.
# Without pip, and compiled at the first run: a third of the size, and of the time.
set -eu

python=$1
venv=$2
root=$(cd "$(dirname "$0")/.." && pwd)

"$python" -c 'import sys; sys.exit("Batten needs Python 3.11 or newer; make demo PYTHON=…" if sys.version_info < (3, 11) else 0)'
echo "Installing into $venv …"
rm -rf "$venv"
if "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m venv --without-pip "$venv"
    "$python" -m pip --python "$venv/bin/python" \
        install --quiet --no-compile --requirement "$root/requirements.txt"
else
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --no-compile --requirement "$root/requirements.txt"
    "$venv/bin/python" -m pip uninstall -qq --yes setuptools pip
fi
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$root/src" >"$packages/batten.pth"
