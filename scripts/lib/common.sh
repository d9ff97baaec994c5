# What the scripts share. Sourced, never run; the sourcing script sets `set -euo pipefail`.
#
# Under sudo two users are at work: root changes the host, and the *caller*, who typed sudo, owns the checkout and has
# cargo in their home. Without sudo both are the same.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
readonly root
readonly me=${0##*/}
readonly MIN_RUST=1.89

caller=$(id -un)
[[ $EUID -ne 0 || -z ${SUDO_USER-} ]] || caller=$SUDO_USER
caller_home=$(getent passwd "$caller" | cut -d: -f6)
readonly caller caller_home

say() { echo "$me: $*" >&2; }
die() { say "$*"; exit 1; }

# usage: the comment at the top of the running script.
usage() { sed -n '2,/^set /{ /^set /d; s/^# \{0,1\}//p; }' "$0"; }

# as_caller COMMAND…: with the caller's identity, home and cargo.
as_caller() {
    local environment=(HOME="$caller_home" USER="$caller" LOGNAME="$caller" PATH="$caller_home/.cargo/bin:$PATH")
    if [[ $caller == "$(id -un)" ]]; then
        env "${environment[@]}" "$@"
    else
        runuser -u "$caller" -- env "${environment[@]}" "$@"
    fi
}

# Where cargo puts what it builds.
target_dir() {
    local dir=${CARGO_TARGET_DIR:-$root/target}
    [[ $dir == /* ]] || dir=$root/$dir
    echo "$dir"
}

# A run as plain root leaves files that the caller's next build cannot replace. Only what is not the caller's is touched.
give_target_to_caller() {
    local dir
    dir=$(target_dir)
    [[ $EUID -eq 0 && -d $dir ]] || return 0
    find "$dir" ! -user "$caller" -exec chown -h "$caller": {} +
}

# at_least WANTED ACTUAL: compares dotted versions.
at_least() { [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$1" ]]; }
