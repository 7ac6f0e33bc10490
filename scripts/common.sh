# shellcheck shell=bash
# Sourced by the other scripts: where things are, and how to get what is missing.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

say() { printf '%s\n' "$*" >&2; }

die() {
  say "$(basename "$0"): $*"
  exit 1
}

# need COMMAND PACKAGE...: have COMMAND, from these Debian packages if it is not there yet.
need() {
  command -v "$1" >/dev/null || obtain "the command $1" "${@:2}"
}

# obtain WHAT PACKAGE...: install these Debian packages as root; ask for them otherwise.
obtain() {
  local what=$1
  shift
  command -v apt-get >/dev/null || die "needs $what: install it, then run this again."
  [[ $(id -u) == 0 ]] || die "needs $what: run 'sudo apt-get install $*', then this again."
  say "installing $*, for $what"
  # A new machine's package lists are empty or old: refresh them only where that is why it failed.
  apt_install "$@" 2>/dev/null || { apt-get update -qq </dev/null && apt_install "$@"; }
}

apt_install() {
  DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "$@" >/dev/null </dev/null
}

# is_python COMMAND [VERSION]: COMMAND runs and is a Python that we support, of this version if one is given.
is_python() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10) or sys.argv[1] not in ("", "%d.%d" % sys.version_info[:2]))' \
    "${2:-}" 2>/dev/null
}

# find_python VERSION: print the path of a Python that we support, of this version unless it is '':
# $PYTHON, one on the PATH, or one of pyenv's.
find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3 "python${1:-3}" python3.{13,12,11,10} \
    "${PYENV_ROOT:-$HOME/.pyenv}/versions/${1:-3}."*/bin/python; do
    if is_python "$candidate" "${1:-}"; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

# make_venv DIRECTORY PYTHON REQUIREMENT...: a virtual environment with these, left alone while nothing changed.
make_venv() {
  local directory=$1 python=$2 wanted
  shift 2
  wanted=$("$python" --version && printf '%s\n' "$@" && sha256sum pyproject.toml)
  [[ -f $directory/.complete && $(<"$directory/.complete") == "$wanted" ]] && return
  say "setting up $directory with $("$python" --version); this downloads packages"
  rm -f "$directory/.complete"
  # Debian keeps the module venv apart from Python.
  "$python" -c 'import ensurepip' 2>/dev/null || obtain "Python's venv" "$(basename "$(realpath "$python")")-venv"
  "$python" -m venv "$directory"
  "$directory/bin/python" -m pip install -qq --disable-pip-version-check "$@" </dev/null
  printf '%s\n' "$wanted" >"$directory/.complete"
}
