#!/bin/sh
# Makes the virtual environment $1: the pinned stack with its bytecode compiled, this
# package, its C extension. Uses uv when it is there, else venv and pip.
set -eu
venv=$1
# With this set every process of a run would compile TensorFlow's sources anew.
unset PYTHONDONTWRITEBYTECODE

fail() {
    echo "acme-quant: $1" >&2
    exit 1
}

is_python310() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10) or sys.implementation.name != "cpython")' 2>/dev/null
}

# A name on the PATH may be a launcher that does not run; pyenv's own folder is looked
# into for that reason.
find_python() {
    for candidate in "${PYTHON:-}" python3.10 python3 python \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.10*/bin/python3.10 \
        /usr/local/bin/python3.10 /opt/python/cp310-cp310/bin/python3.10; do
        [ -n "$candidate" ] || continue
        if is_python310 "$candidate"; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] ||
    fail "training needs Linux on x86-64, this is $(uname -s) on $(uname -m); running a trained policy works anywhere: pip install ."
python=$(find_python)
[ -n "$python" ] ||
    fail "expected CPython 3.10, found none: install it (package python3.10, or pyenv install 3.10) or name it with PYTHON=/path/to/python3.10."
"$python" -c 'import sysconfig, sys; sys.exit(not sysconfig.get_config_var("Py_ENABLE_SHARED"))' ||
    echo "acme-quant: warning: $python is not a shared build; Launchpad's Courier needs libpython3.10.so.1.0 on the loader's path." >&2
command -v "${CC:-cc}" >/dev/null ||
    fail "expected a C compiler, found none: install gcc (package build-essential)."

if command -v uv >/dev/null 2>&1; then
    [ -x "$venv/bin/python" ] || uv venv --quiet --no-python-downloads --python "$python" "$venv"
    uv pip install --quiet --compile-bytecode --python "$venv/bin/python" -r requirements-test.txt
    uv pip install --quiet --no-deps --no-build-isolation --python "$venv/bin/python" -e .
else
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements-test.txt
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
fi
