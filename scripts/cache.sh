# Sourced by the setup scripts: the path of the cache, and functions for messages.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [ -z "${GANTRY_CACHE:-}" ]; then
  if [ -z "${XDG_CACHE_HOME:-}" ] && [ -z "${HOME:-}" ]; then
    echo "gantry: HOME is not set: set GANTRY_CACHE to a folder for downloaded tools." >&2
    exit 1
  fi
  GANTRY_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/gantry
fi
export GANTRY_CACHE

# Standard output is for results. Messages go to standard error.
say() { printf 'gantry: %s\n' "$1" >&2; }
fail() { printf 'gantry: %s\n' "$@" >&2; exit 1; }
