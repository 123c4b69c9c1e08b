# Sourced by the set-up scripts: where the cache is, and how they speak.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [ -z "${GANTRY_CACHE:-}" ]; then
  if [ -z "${XDG_CACHE_HOME:-}" ] && [ -z "${HOME:-}" ]; then
    echo "gantry: HOME is not set: set GANTRY_CACHE to a folder for downloaded tools." >&2
    exit 1
  fi
  GANTRY_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/gantry
fi
export GANTRY_CACHE

# Standard output belongs to answers; everything said to a person goes to standard error.
say() { printf 'gantry: %s\n' "$1" >&2; }
fail() { printf 'gantry: %s\n' "$@" >&2; exit 1; }
