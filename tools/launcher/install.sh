# Sourced by the commands: finds Python 3.11, makes .venv and installs what is missing, showing progress.
# A stamp in .venv, the digest of every file that says what to install, makes the next call instant.
# Sets `root` (the repository) and `python` (the interpreter of .venv).

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=$root/.venv/bin/python

say() { printf '%s\n' "$*" >&2; }

find_python() {
  local candidate
  for candidate in python3.11 python3 python; do
    if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' \
      >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
  done
  say "Python 3.11 with venv is needed and was not found."
  say "On Debian 12: apt-get install python3.11 python3.11-venv. Anywhere: pyenv install 3.11"
  return 1
}

members() { printf '%s\n' "$root/proto" "$root"/libs/*/ "$root"/services/*/ "$root/kernels"; }

install_digest() {
  (cd "$root" && sha256sum tools/requirements.txt tools/engine.txt pyproject.toml \
    proto/pyproject.toml libs/*/pyproject.toml services/*/pyproject.toml kernels/pyproject.toml \
    tools/launcher/install.sh)
}

# pip's configured folders of local files, so that uv finds a wheel that was put there by hand.
find_links() {
  local link
  for link in ${PIP_FIND_LINKS:-$("$python" -m pip config get global.find-links 2>/dev/null || true)}; do
    printf '%s\n' --find-links "$link"
  done
}

install_packages() {
  local base uv links member editable=()
  if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1; then
    base=$(find_python)
    say "making .venv with $base"
    "$base" -m venv --clear "$root/.venv"
  fi
  uv=$root/.venv/bin/uv
  if [ "$("$uv" --version 2>/dev/null | cut -d ' ' -f 2)" != 0.13.9 ]; then
    say "installing uv"
    "$python" -m pip install --quiet --disable-pip-version-check uv==0.13.9
  fi
  mapfile -t links < <(find_links)
  for member in $(members); do editable+=(-e "$member"); done
  export UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-180} VIRTUAL_ENV=$root/.venv
  say "installing packages (tools/requirements.txt)"
  "$uv" pip install --require-hashes "${links[@]}" -r "$root/tools/requirements.txt" >&2
  say "installing the engine (tools/engine.txt; about 1 GB at the first time)"
  "$uv" pip install --no-deps "${links[@]}" -r "$root/tools/engine.txt" >&2
  say "installing the services and libraries of this repository"
  "$uv" pip install --no-deps "${editable[@]}" >&2
}

# Mooncake's native library needs libibverbs, which no Python package carries.
install_system_libraries() {
  local line='apt-get update && apt-get install -y --no-install-recommends libibverbs1'
  if "$python" -c 'import ctypes; ctypes.CDLL("libibverbs.so.1")' >/dev/null 2>&1; then return; fi
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing libibverbs1, which Mooncake needs"
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libibverbs1 >&2
    return
  fi
  say "Mooncake needs libibverbs1, which only root can install. Run this line, then try again:"
  say "  sudo sh -c '$line'"
  return 1
}

install_everything() {
  local digest stamp=$root/.venv/millrace-installed
  digest=$(install_digest)
  if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$digest" ]; then
    install_packages
    printf '%s\n' "$digest" >"$stamp"
  fi
  install_system_libraries
}

# One at a time: two commands started together would install into the same folder.
mkdir -p "$root/.cache"
exec {install_lock}>"$root/.cache/install.lock"
flock "$install_lock"
install_everything
exec {install_lock}>&-
