#!/usr/bin/env bash
# tools/venv.sh FOLDER PIP-ARGUMENTS...
# Makes the virtual environment FOLDER, or leaves it alone when it is up to date. The stamp inside it
# is removed first and written last, so a set-up that was cut short is taken up again by the next call.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=$1
shift
stamp="$folder/.stamp"

say() { printf 'plaudit: %s\n' "$*" >&2; }

version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }

supported() { [[ $1 =~ ^3\.(11|12|13)\. ]]; }

find_python() {
  local name version found=() names=(python3 python3.13 python3.12 python3.11 python)
  [[ -n ${PYTHON:-} ]] && names=("$PYTHON")
  for name in "${names[@]}"; do
    version=$(version_of "$name") || continue
    if supported "$version"; then
      command -v "$name"
      return
    fi
    found+=("$name is $version")
  done
  say "Python 3.11, 3.12 or 3.13 is needed; ${found[*]:-no Python was found}." \
    "Install one of them, or name it: make test PYTHON=/path/to/python3.12"
  return 1
}

# What the environment depends on: when any of it changes, the key does. (The tools' own settings in
# pyproject.toml are left out: an edited lint rule installs nothing.)
key() {
  "$1" - "$PWD" "$folder" "$@" <<'PYTHON_END'
import hashlib, pathlib, sys, tomllib
metadata = tomllib.loads(pathlib.Path("pyproject.toml").read_text("utf-8"))
constraints = pathlib.Path("constraints.txt").read_text("utf-8")
files = [path.read_text("utf-8") for path in map(pathlib.Path, sys.argv[1:]) if path.suffix == ".txt" and path.is_file()]
parts = [sys.version, *sys.argv[1:], str(metadata["build-system"]), str(metadata["project"]), constraints, *files]
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())
PYTHON_END
}

# An environment that was moved has console scripts that point elsewhere; one that was cut short may lack pip.
sound() {
  [[ $(version_of "$folder/bin/python") == "$1" ]] &&
    grep -qF "$PWD/$folder" "$folder/bin/activate" 2>/dev/null &&
    "$folder/bin/python" -m pip --version >/dev/null 2>&1
}

# A link leads to an environment of somebody else's, as in a second worktree: theirs is not made anew from here.
[[ -L $folder && -x $folder/bin/python ]] && exit 0

python=$(find_python)
wanted=$(key "$python" "$@")
[[ -f $stamp && $(<"$stamp") == "$wanted" && -x $folder/bin/python ]] && exit 0

rm -f "$stamp"
if ! sound "$(version_of "$python")"; then
  say "making $folder with $python; the first time takes a few minutes"
  "$python" -m venv --clear "$folder" || {
    say "$python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"
    exit 1
  }
fi
say "installing into $folder: $*"
# Python compiles what is imported when it is: a fraction of what pip would.
"$folder/bin/python" -m pip install --disable-pip-version-check --no-compile "$@" || {
  say "the packages could not be installed; pip's own words stand above. The same command tries again."
  exit 1
}
printf '%s\n' "$wanted" >"$stamp"
