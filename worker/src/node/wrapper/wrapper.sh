#!/bin/sh
# The node-side wrapper makes all decisions that need the node.
#
# A worker may die, hang or lose its connection at any moment, and another worker then starts the
# next attempt. Only the node can tell whether processes of an older attempt still run. Every start
# therefore goes through this script. It
#
# * takes the node's lock,
# * refuses a token (epoch, attempt) that is not higher than the last one of the step, or of the
#   node if the run is exclusive,
# * checks the step's ledger: it refuses an older generation, and an equal one with other content,
# * ends the remaining processes of older attempts,
# * records the start in the ledger, and only then starts the attempt in its own session.
#
# The lock covers the decision, not the run or the transfer of its input. The next attempt must be
# able to take the lock while this one hangs. The started process keeps the lock until its process
# id is on disk. So a free lock implies a recorded process id.
#
# An attempt is named EPOCH.ATTEMPT, because attempt numbers recur after a database restore, and
# epochs don't. Its folder has that name. Older wrappers named it ATTEMPT alone. The input contains
# secrets. It is deleted when the run ends, and also if no run starts.
#
# The connection to the worker may break, which does not affect the run. The run has its own
# supervisor on the node and writes to files. `run` only follows these files, as does `follow`, from
# any byte offset.
#
# A machine has many runs, and processes are expensive. The script therefore prefers shell builtins,
# and one call takes a run from its scripts to its result.
#
# Plain POSIX shell, because a node has no Gantry software. Usage: sh wrapper ROOT COMMAND ARGUMENTS
#
#     run    STEP EPOCH ATTEMPT GENERATION CONTENT EXCLUSIVE TIMEOUT GRACE NODE ROLE SIZE MARK LIMIT
#            HASH[+BYTES]:NAME...
#            Starts an attempt and follows it to its end. Standard input has SIZE bytes: the
#            concatenated scripts that have BYTES, then the input and its surroundings (one line of
#            JSON each), then lines of the form  export NAME='value'
#     follow EPOCH.ATTEMPT OUT ERR MARK LIMIT
#            Prints the streams from these byte offsets to the run's end. Unless MARK is -, the
#            output of `take` follows the last byte of standard output, between MARK and MARK.
#            The attempt's folder stays until a line on standard input confirms the receipt.
#     take   EPOCH.ATTEMPT LIMIT
#            Prints how the attempt ended (one line of words), then up to LIMIT + 1 bytes of
#            GANTRY_OUTPUT
#     end    STEP EPOCH ATTEMPT GRACE
#            Ends the attempt and older ones of its step. If it does not run, prevents it from
#            starting. Prints whether it ever started.
#     lacks  HASH...
#            Prints the hashes of scripts that are missing
#     check  TIMEOUT GRACE NODE ROLE SIZE LIMIT HASH[+BYTES]:NAME
#            Runs a script that is no attempt: it takes no lock and no token, and the ledger does
#            not list it. Standard input is as for `run`. Prints how it ended (one line of words),
#            then the last LIMIT bytes of its output. Ends all its processes.
#     put    HASH
#            Stores a script from standard input under its content hash
#     ledger STEP
#            Prints the ledger
#     attempts
#            Lists the attempts, one per line: EPOCH.ATTEMPT STEP, and one of runs, ended, gone
#
# Exit codes: 0 done (also if the run failed: see take); 71 refused; 72 scripts are missing; 73
# timeout waiting for the lock; 74 the node's folder can't be used; 76 unknown attempt; 77 the
# attempt lost its supervisor. The exit codes of scripts are never passed on.

set -u
umask 077
LC_ALL=C
export LC_ALL
# The reader may be gone, but cleanup must still run. Scripts would inherit an ignored signal, but
# not a handler.
trap ':' PIPE

REFUSED=71 MISSING=72 LOCKED=73 UNUSABLE=74 NOTHING=76 ORPHANED=77

# Bytes that each run reserves, so that its result can be written even if the disk is full.
RESERVE=16384

# Maximum bytes of a stream that wait for a reader (32 MiB). A worker's own limit is lower.
MOST=33554432

ROOT=$1
COMMAND=$2
shift 2
HOME_DIR=$ROOT/.gantry
SELF=$0

say() { printf '%s\n' "$*" >&2; }
fail() { code=$1; shift; say "$*"; exit "$code"; }

for part in ledger run incoming scripts; do
    [ -d "$HOME_DIR/$part" ] || mkdir -p "$HOME_DIR/$part" || fail $UNUSABLE "gantry: can't create $HOME_DIR/$part"
done

# ---- Processes --------------------------------------------------------------------------------

read -r BOOT 2>/dev/null </proc/sys/kernel/random/boot_id || BOOT=unknown

# Process ids are reused. A process id with its start time is unique.
look_at() { # PID; sets begun (start time, empty if there is no such process) and does (state)
    begun='' does='' stat=''
    if [ -r "/proc/$1/stat" ]; then
        while read -r line || [ -n "$line" ]; do stat="$stat $line"; done 2>/dev/null <"/proc/$1/stat"
        # The name is in parentheses and may contain anything. The fields start after the last one.
        set -- ${stat##*)}
        does=${1:-}
        [ $# -lt 20 ] || begun=${20}
    else
        begun=$(ps -o lstart= -p "$1" 2>/dev/null | tr ' ' '_')
    fi
}

# A unique name for this process.
identify() { # sets identity
    look_at $$
    identity=$BOOT.$$.$begun
}

lives() { # IDENTITY
    boot=${1%%.*}
    pid=${1#*.}
    start=${pid#*.}
    pid=${pid%%.*}
    [ "$boot" = "$BOOT" ] && runs_since "$pid" "$start"
}

runs_since() { # PID START
    kill -0 "$1" 2>/dev/null || return 1
    look_at "$1"
    [ "$begun" = "$2" ] || return 1
    # A zombie does not count as alive.
    case $does in Z* | X*) return 1 ;; esac
}

# All processes in the session of this leader. A service that called setsid has left the session and
# survives.
session_of() {
    ps -eo pid=,sid=,stat= 2>/dev/null | while read -r pid session state; do
        case $state in Z*) continue ;; esac
        [ "$session" = "$1" ] && echo "$pid"
    done
}

group_alive() { # SESSION
    session=$1
    set -- $(ps -eo sid=,stat= 2>/dev/null)
    if [ $# = 0 ]; then
        kill -0 -- "-$session" 2>/dev/null
        return
    fi
    while [ $# -gt 1 ]; do
        if [ "$1" = "$session" ]; then
            case $2 in Z*) ;; *) return 0 ;; esac
        fi
        shift 2
    done
    return 1
}

# The leader is also signaled by its own id, because it leads a group only after setsid.
signal_group() {
    kill -s "$1" "$2" 2>/dev/null
    kill -s "$1" -- "-$2" 2>/dev/null
    for pid in $(session_of "$2"); do
        kill -s "$1" "$pid" 2>/dev/null
    done
    return 0
}

# Whether a group still belongs to an attempt. Either its leader's start time matches, or a member
# has the attempt's folder in its environment. One member is enough, because a group id is not
# reused while the group has members.
group_is_of() {
    pgid=$1 start=$2 name=$3
    look_at "$pgid"
    [ -n "$start" ] && [ "$begun" = "$start" ] && return 0
    for pid in $(session_of "$pgid"); do
        if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -q "^GANTRY_INPUT=.*/run/$name/input\.json\$"; then
            return 0
        fi
    done
    return 1
}

# Sends SIGTERM to a group, and SIGKILL after GRACE seconds.
end_group() {
    signal_group TERM "$1"
    tenths=$(($2 * 10))
    while group_alive "$1"; do
        if [ "$tenths" -le 0 ]; then
            signal_group KILL "$1"
            sleep 0.05
        else
            tenths=$((tenths - 1))
            sleep 0.1
        fi
    done
}

# ---- The node's lock --------------------------------------------------------------------------

# Removed when this process exits for any reason: an input, the folder of a run that did not start,
# and the lock.
incoming= making= held=

leave() {
    [ -z "$incoming" ] || rm -f "$incoming"
    [ -z "$making" ] || rm -rf "$making"
    unlock
}

clear_away_at_exit() {
    trap leave EXIT
    # A shell that dies of an unhandled signal does not run its EXIT trap.
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

not_locked() { fail $LOCKED "gantry: can't lock this node: another start has held the lock for a minute"; }

# The holder can pass the lock to a process that it started. That process calls `inherit` with the
# `holder` of the old process, which calls `let_go`.
if command -v flock >/dev/null 2>&1; then
    holder=-
    lock() {
        exec 9>"$HOME_DIR/lock" || fail $UNUSABLE "gantry: can't open $HOME_DIR/lock"
        flock -w 60 9 || not_locked
    }
    unlock() { exec 9>&-; }
    inherit() { :; }
    let_go() { exec 9>&-; }
else
    # A folder with one file, whose name is the lock's holder: `free` or an identity. A process
    # takes the lock by renaming that file. Only one of several concurrent renames succeeds, because
    # the old name is gone for the others. So no process can free or take over a lock that changed
    # hands after it looked.
    LOCK=$HOME_DIR/holder
    identify
    holder=$identity
    lock() {
        trap leave EXIT
        tenths=600
        until take_lock; do
            [ "$tenths" -gt 0 ] || not_locked
            tenths=$((tenths - 1))
            sleep 0.1
        done
        held=$holder
    }
    take_lock() {
        for now in "$LOCK"/*; do
            now=${now##*/}
            case $now in
            free | "$holder") ;;
            '*')
                make_lock
                return 1
                ;;
            "${LOCK##*/}".*)
                rm -rf "${LOCK:?}/$now"
                continue
                ;;
            *) if lives "$now"; then continue; fi ;;
            esac
            [ "$now" = "$holder" ] || mv -f "$LOCK/$now" "$LOCK/$holder" 2>/dev/null || continue
            return 0
        done
        return 1
    }
    # Created under another name, then renamed. If another process was faster, `mv` moves this
    # folder into the existing one, where it has no effect.
    make_lock() {
        rmdir "$LOCK" 2>/dev/null
        mkdir -p "$LOCK.$$" && true >"$LOCK.$$/free" && mv "$LOCK.$$" "$LOCK" 2>/dev/null
        rm -rf "$LOCK.$$" "$LOCK/${LOCK##*/}.$$"
    }
    unlock() {
        [ -z "$held" ] || mv -f "$LOCK/$held" "$LOCK/free" 2>/dev/null
        held=
    }
    # If another process took the lock over, this one must stop.
    inherit() {
        mv -f "$LOCK/$1" "$LOCK/$holder" 2>/dev/null || return 1
        held=$holder
    }
    let_go() { held=; }
fi

# ---- The ledger -------------------------------------------------------------------------------

# A ledger is parsed, never executed. `attempt` is the highest attempt seen, `started` the last one
# that started.
read_ledger() {
    l_epoch=0 l_attempt=0 l_started=0 l_generation=0 l_content= l_state=none
    [ -f "$HOME_DIR/ledger/$1" ] || return 0
    while IFS='=' read -r key value; do
        case $key in
        epoch) l_epoch=$value ;;
        attempt) l_attempt=$value ;;
        started) l_started=$value ;;
        generation) l_generation=$value ;;
        content) l_content=$value ;;
        state) l_state=$value ;;
        esac
    done <"$HOME_DIR/ledger/$1"
    for number in "$l_epoch" "$l_attempt" "$l_started" "$l_generation"; do
        case $number in
        '' | *[!0-9]*) fail $UNUSABLE "gantry: the ledger $HOME_DIR/ledger/$1 is damaged: look at what this step did here, then remove it" ;;
        esac
    done
}

write_whole() {
    printf '%s\n' "$2" >"$1.new" && { sync "$1.new" 2>/dev/null || :; } && mv -f "$1.new" "$1" && return 0
    rm -f "$1.new"
    return 1
}

write_ledger() {
    write_whole "$HOME_DIR/ledger/$1" "epoch=$l_epoch
attempt=$l_attempt
started=$l_started
generation=$l_generation
content=$l_content
state=$l_state" || fail $UNUSABLE "gantry: can't write the ledger of step $1: is the disk full?"
}

# Only the last started attempt may record how the step ended.
close_ledger() { # STEP EPOCH.ATTEMPT STATE
    lock
    read_ledger "$1"
    if [ "$l_epoch.$l_started" = "$2" ] && [ "$l_state" = started ]; then
        l_state=$3
        write_ledger "$1"
    fi
    unlock
}

# ---- Runs -------------------------------------------------------------------------------------

# Ends the remaining processes of an attempt.
end_processes() { # FOLDER GRACE
    [ -f "$1/process" ] || return 0
    read -r boot pgid start <"$1/process"
    if [ "$boot" = "$BOOT" ] && group_is_of "$pgid" "$start" "${1##*/}"; then
        end_group "$pgid" "$2"
    fi
}

# Ends the remaining processes of an attempt and deletes its folder with the input.
end_attempt() { # FOLDER GRACE
    end_processes "$1" "$2"
    rm -rf "$1"
}

forget_input() { # FOLDER OTHER...
    gone=$1
    shift
    rm -f "$gone/stdin" "$gone/input.json" "$gone/surroundings.json" "$gone/environment" "$@"
}

# Whether a token is at most this attempt's token.
no_later() { # EPOCH.ATTEMPT
    [ "${1%.*}" -lt "$EPOCH" ] || { [ "${1%.*}" -eq "$EPOCH" ] && [ "${1#*.}" -le "$ATTEMPT" ]; }
}

# Deletes inputs that can't start a run: their reader was killed, or their attempt is outdated. The
# caller must hold the lock and know that this attempt's token is the highest.
clear_incoming() {
    for left in "$HOME_DIR"/incoming/*; do
        [ -f "$left" ] && [ "$left" != "$incoming" ] || continue
        theirs=${left##*/}
        by=${theirs##*@}
        theirs=${theirs%@*}
        if ! lives "$by" || { [ "${theirs%%@*}" = "$STEP" ] && no_later "${theirs#*@}"; }; then
            rm -f "$left"
        fi
    done
}

end_older() {
    for left in "$HOME_DIR"/run/*; do
        [ -d "$left" ] || continue
        # Its creator held the lock, so it is gone.
        [ -f "$left/of" ] && read -r step exclusive <"$left/of" || { rm -rf "$left"; continue; }
        if [ "$step" = "$STEP" ] || { [ "$exclusive" = 1 ] && [ "$EXCLUSIVE" = 1 ]; }; then
            end_attempt "$left" 2
        fi
    done
}

# Exclusive runs have the node for themselves, so their tokens are compared per node, not only per
# step.
check_token() {
    read_ledger "$STEP"
    if [ "$EPOCH" -lt "$l_epoch" ]; then
        fail $REFUSED "gantry: epoch $EPOCH is over: this node has seen epoch $l_epoch (the database was restored)"
    fi
    if [ "$EPOCH" -eq "$l_epoch" ]; then
        [ "$ATTEMPT" -le "$l_attempt" ] &&
            fail $REFUSED "gantry: attempt $ATTEMPT of this step is outdated: this node has seen attempt $l_attempt"
        [ "$GENERATION" -lt "$l_generation" ] &&
            fail $REFUSED "gantry: generation $GENERATION of this step is outdated: this node has seen generation $l_generation"
        if [ "$GENERATION" -eq "$l_generation" ] && [ -n "$l_content" ] && [ "$CONTENT" != "$l_content" ]; then
            fail $REFUSED "gantry: generation $GENERATION of this step had other content before ($l_content, now $CONTENT)"
        fi
    fi
    if [ "$EXCLUSIVE" = 1 ] && [ -f "$HOME_DIR/exclusive" ]; then
        read -r epoch attempt <"$HOME_DIR/exclusive"
        if [ "$EPOCH" -lt "$epoch" ] || { [ "$EPOCH" -eq "$epoch" ] && [ "$ATTEMPT" -le "$attempt" ]; }; then
            fail $REFUSED "gantry: attempt $ATTEMPT is outdated: this node has started attempt $attempt, which used the node exclusively"
        fi
    fi
}

has_sum() { # FILE SUM
    sum=$(sha256sum <"$1")
    [ "${sum%% *}" = "$2" ]
}

script_hash() { # HASH[+BYTES]:NAME; sets hash
    hash=${1%%:*}
    hash=${hash%%+*}
}

# Prints the scripts that are missing or don't match their hash.
missing_scripts() {
    for script in "$@"; do
        script_hash "$script"
        file=$HOME_DIR/scripts/$hash
        if [ ! -f "$file" ] || ! has_sum "$file" "$hash"; then
            rm -f "$file"
            echo "$hash"
        fi
    done
}

command_run() {
    STEP=$1 EPOCH=$2 ATTEMPT=$3 GENERATION=$4 CONTENT=$5 EXCLUSIVE=$6 TIMEOUT=$7 GRACE=$8
    shift 8
    NODE=$1 ROLE=$2 SIZE=$3 MARK=$4 LIMIT=$5
    shift 5
    command -v setsid >/dev/null 2>&1 || fail $UNUSABLE "gantry: this node lacks setsid (package util-linux)"
    token=$EPOCH.$ATTEMPT
    folder=$HOME_DIR/run/$token

    # Read the input before taking the lock. The sender's connection may hang, and others must not
    # wait for it.
    clear_away_at_exit
    identify
    incoming=$HOME_DIR/incoming/$STEP@$token@$identity
    head -c "$SIZE" >"$incoming" || fail $UNUSABLE "gantry: can't write $incoming: is the disk full?"
    lock
    check_token
    # A worker that is killed while writing leaves a partial input.
    came=$(wc -c 2>/dev/null <"$incoming") && [ "$((came))" = "$SIZE" ] ||
        fail $UNUSABLE "gantry: the input is incomplete, so nothing was started"
    keep_scripts "$@"
    [ -z "$(missing_scripts "$@")" ] || exit $MISSING
    end_older
    clear_incoming
    end_attempt "$folder" 2
    making=$folder
    make_folder || fail $UNUSABLE "gantry: can't write $folder: is the disk full?"
    [ "$EXCLUSIVE" != 1 ] || write_whole "$HOME_DIR/exclusive" "$EPOCH $ATTEMPT" ||
        fail $UNUSABLE "gantry: can't write $HOME_DIR/exclusive: is the disk full?"
    l_epoch=$EPOCH l_attempt=$ATTEMPT l_started=$ATTEMPT l_generation=$GENERATION l_content=$CONTENT l_state=started
    write_ledger "$STEP"

    making=
    setsid sh "$SELF" "$ROOT" supervise "$STEP" "$token" "$holder" "$TIMEOUT" "$GRACE" "$NODE" "$ROLE" "$@" \
        </dev/null >/dev/null 2>&1 &
    # The started process releases the lock.
    let_go
    follow "$token" 0 0 "$MARK" "$LIMIT"
}

# Stores the scripts that came with the input. The rest of the input begins at byte `from`.
keep_scripts() {
    from=1
    for script in "$@"; do
        script_hash "$script"
        bytes=${script%%:*}
        case $bytes in *+*) bytes=${bytes#*+} ;; *) continue ;; esac
        if [ ! -f "$HOME_DIR/scripts/$hash" ]; then
            # This subshell must not release the lock when it exits.
            tail -c "+$from" "$incoming" | head -c "$bytes" | (held='' && command_put "$hash") || exit $UNUSABLE
        fi
        from=$((from + bytes))
    done
}

# Write the owner first: if this process dies, the next holder of the lock finds the folder by its
# owner.
make_folder() {
    mkdir -p "$folder" && echo "$STEP $EXCLUSIVE" >"$folder/of" && echo "$BOOT" >"$folder/boot" &&
        tail -c "+$from" "$incoming" >"$folder/stdin" && head -n 1 "$folder/stdin" >"$folder/input.json" &&
        sed -n '2{p;q;}' "$folder/stdin" >"$folder/surroundings.json" && tail -n +3 "$folder/stdin" >"$folder/environment" &&
        rm "$incoming" "$folder/stdin" && true >"$folder/out" && true >"$folder/err" &&
        head -c "$RESERVE" /dev/zero >"$folder/reserve" && incoming=
}

# Supervises a run to its end, independent of the connection, in its own session.
command_supervise() {
    STEP=$1 token=$2 TIMEOUT=$4 GRACE=$5
    inherit "$3" || exit 0
    shift 5
    folder=$HOME_DIR/run/$token
    why= child=
    trap 'why=canceled; end_aside' TERM INT HUP
    trap 'why=timeout; end_aside' USR1
    look_at $$
    echo "$BOOT $$ $begun" >"$folder/supervisor.new" && mv "$folder/supervisor.new" "$folder/supervisor"
    setsid sh "$SELF" "$ROOT" launch "$token" "$holder" "$@" </dev/null >>"$folder/out" 2>>"$folder/err" &
    child=$!
    let_go
    start_clock
    code=
    if [ -z "$why" ]; then
        wait "$child"
        code=$?
    fi
    # `wait` returns when the child has ended, or when a signal has set the reason to end it.
    if [ -n "$why" ]; then
        end_group "$child" "$GRACE"
        wait "$child" 2>/dev/null
    fi
    trap '' TERM INT HUP USR1
    stop_clock
    # End all processes that the run left in its session, also after success. Services call setsid.
    group_alive "$child" && end_group "$child" 1
    [ -d "$folder" ] || exit 0
    [ -f "$folder/canceled" ] && why=canceled
    full=
    [ "$code" = 0 ] || ! is_full || full=1
    forget_input "$folder" "$folder/process" "$folder/reserve"
    # The script's own error message did not fit on the disk.
    [ -z "$full" ] || echo "gantry: the disk of this node is full" >>"$folder/err"
    read -r name 2>/dev/null <"$folder/at" || name=
    if [ -z "$why" ] && [ "$code" = 0 ]; then state=succeeded; else state=failed; fi
    close_ledger "$STEP" "$token" "$state"
    # close_ledger took the lock. If another process ended this attempt, the folder is gone by now.
    [ -d "$folder" ] || exit 0
    # Write this last, because readers stop when they see it.
    echo "code=$code why=${why:-exit} script=$name" >"$folder/ended.new" && mv "$folder/ended.new" "$folder/ended"
    # Wake the follower, so that it does not wait for its next poll.
    if read -r pid start 2>/dev/null <"$folder/follower"; then
        look_at "$pid"
        [ "$begun" != "$start" ] || kill -s USR1 "$pid" 2>/dev/null
    fi
    exit 0
}

is_full() {
    head -c 4096 /dev/zero >"$folder/probe" 2>/dev/null
    fits=$?
    rm -f "$folder/probe"
    [ "$fits" != 0 ]
}

# A signal just before `wait` would not interrupt it. So the handler itself ends the group, which
# then ends `wait`.
end_aside() {
    [ -z "$child" ] || end_group "$child" "$GRACE" &
}

# Signals the supervisor at the timeout. It runs in its own session and is killed with its sleeper.
# SIGTERM could arrive before its handler is installed and get lost, and then the clock would run to
# the full timeout.
start_clock() { # [check]
    look_at $$
    setsid sh "$SELF" "$ROOT" clock "$TIMEOUT" $$ "$begun" "$folder" "${1:-}" </dev/null >/dev/null 2>&1 &
    clock=$!
}

# A monotonic clock in seconds.
look_at_clock() { # sets now
    if read -r now _ 2>/dev/null </proc/uptime; then now=${now%%.*}; else now=$(date +%s); fi
}

# Meanwhile limits the size of the output files. The supervisor may have been killed and its id
# reused.
command_clock() {
    look_at_clock
    until=$((now + $1))
    while [ "$now" -lt "$until" ]; do
        sleep 1
        [ -n "${4:-}" ] && for stream in out err; do bound "$4/$stream"; done
        runs_since "$2" "$3" || { [ "${5:-}" != check ] || clear_checks; exit 0; }
        look_at_clock
    done
    runs_since "$2" "$3" && kill -s USR1 "$2"
    exit 0
}

# The writer appends, so after truncation it continues at the beginning of the file.
bound() {
    [ -s "$1" ] || return 0
    if [ -f "$1.cut" ] || [ "$(wc -c 2>/dev/null <"$1" || echo 0)" -gt "$MOST" ]; then
        : >"$1.cut"
        : >"$1"
    fi
}

stop_clock() {
    kill -s KILL "$clock" 2>/dev/null
    kill -s KILL -- "-$clock" 2>/dev/null
    wait "$clock" 2>/dev/null
}

# Prints the part of a stream after the offset.
pass_on() { # FILE FROM; sets passed
    passed=$2
    [ -s "$1" ] && [ ! -f "$1.cut" ] || return 0
    size=$(wc -c 2>/dev/null <"$1") || return 0
    [ "$size" -gt "$2" ] || return 0
    # The reader is gone.
    tail -c "+$(($2 + 1))" "$1" | head -c "$((size - $2))" || exit 0
    passed=$((size))
}

# A new attempt has no supervisor file yet. If the machine rebooted during its start, it never gets
# one.
supervised() { # FOLDER
    if read -r boot pid start 2>/dev/null <"$1/supervisor"; then
        lives "$boot.$pid.$start"
    else
        ! read -r boot 2>/dev/null <"$1/boot" || [ "$boot" = "$BOOT" ]
    fi
}

# Check the supervisor first: it writes `ended` as its last action.
orphaned() { # FOLDER
    ! supervised "$1" && [ ! -f "$1/ended" ]
}

follow() { # EPOCH.ATTEMPT OUT ERR MARK LIMIT
    folder=$HOME_DIR/run/$1 attempt=${1#*.} out=$2 err=$3 looks=0 over=''
    [ -d "$folder" ] || fail $NOTHING "gantry: attempt $attempt does not exist on this node"
    woken='' sleeper='' pause=0.2
    trap 'woken=1' USR1
    look_at $$
    # If this can't be written, the next poll finds the end.
    echo "$$ $begun" 2>/dev/null >"$folder/follower"
    while :; do
        # Check before reading the streams: an ended run has written all its output.
        [ -f "$folder/ended" ] && over=ended
        if [ -z "$over" ] && [ "$((looks % 20))" = 19 ] && orphaned "$folder"; then over=orphaned; fi
        # The process that ended this attempt also deleted its folder.
        [ -d "$folder" ] || fail $REFUSED "gantry: attempt $attempt was ended by a newer one"
        pass_on "$folder/out" "$out"
        out=$passed
        pass_on "$folder/err" "$err" >&2
        err=$passed
        [ -z "$over" ] || break
        # The caller is gone, and polling would continue to the run's end.
        if read -r _ _ _ parent _ 2>/dev/null <"/proc/$$/stat" && [ "$parent" != "$PPID" ]; then exit 0; fi
        looks=$((looks + 1))
        # Sleep until the supervisor signals the end. A signal just before `wait` only costs the
        # rest of the sleep.
        [ "$looks" -lt 50 ] || pause=0.5
        sleep "$pause" </dev/null >/dev/null 2>&1 &
        sleeper=$!
        [ -n "$woken" ] || wait "$sleeper"
        [ -z "$woken" ] || kill "$sleeper" 2>/dev/null
        woken=''
    done
    for stream in out err; do
        [ ! -f "$folder/$stream.cut" ] || say "[gantry: more output than this node stores, output after $MOST bytes may be missing]"
    done
    [ "$over" = ended ] || fail $ORPHANED "gantry: attempt $attempt has lost its supervisor on the node: the machine was restarted, its disk is full, or something killed it"
    [ "$4" != - ] || exit 0
    # The signal may arrive late and would interrupt `read`.
    trap '' USR1
    printf %s "$4"
    tell "$folder" "$5"
    printf %s "$4"
    # The reader may be gone before it stored the result. Without its confirmation, the result stays
    # for `take`.
    read -r _ 2>/dev/null && rm -rf "$folder"
    exit 0
}

# The leader of the run's session.
command_launch() {
    folder=$HOME_DIR/run/$1 attempt=${1#*.} node=$3 role=$4
    inherit "$2" || exit 126
    shift 4
    look_at $$
    echo "$BOOT $$ $begun" >"$folder/process.new" && mv "$folder/process.new" "$folder/process" || exit 126
    unlock
    GANTRY_ROOT=$ROOT GANTRY_NODE=$node GANTRY_ROLE=$role GANTRY_RUN=$attempt
    GANTRY_INPUT=$folder/input.json GANTRY_SURROUNDINGS=$folder/surroundings.json GANTRY_OUTPUT=$folder/output.json
    export GANTRY_ROOT GANTRY_NODE GANTRY_ROLE GANTRY_RUN GANTRY_INPUT GANTRY_SURROUNDINGS GANTRY_OUTPUT
    . "$folder/environment"
    unset LC_ALL
    umask 022
    cd "$ROOT" || exit 126
    for script in "$@"; do
        echo "${script#*:}" >"$folder/at"
        script_hash "$script"
        "$HOME_DIR/scripts/$hash" || exit $?
    done
    exit 0
}

command_take() {
    tell "$HOME_DIR/run/$1" "$2"
    [ ! -f "$HOME_DIR/run/$1/ended" ] || rm -rf "$HOME_DIR/run/$1"
    exit 0
}

# Prints how a run ended, then the file GANTRY_OUTPUT. Reports if that is not a regular file.
tell() { # FOLDER LIMIT
    ended='code= why=unknown script='
    read -r ended 2>/dev/null <"$1/ended"
    if [ -f "$1/output.json" ]; then
        echo "$ended"
        head -c "$(($2 + 1))" "$1/output.json"
    elif [ -e "$1/output.json" ] || [ -L "$1/output.json" ]; then
        echo "output=no-file $ended"
    else
        echo "$ended"
    fi
}

command_end() {
    STEP=$1 EPOCH=$2 ATTEMPT=$3
    lock
    read_ledger "$STEP"
    before=$l_epoch.$l_started
    if [ "$EPOCH" -gt "$l_epoch" ]; then
        l_epoch=$EPOCH l_attempt=$ATTEMPT l_started=0 l_generation=0 l_content= l_state=none
        write_ledger "$STEP"
    elif [ "$EPOCH" -eq "$l_epoch" ] && [ "$ATTEMPT" -gt "$l_attempt" ]; then
        l_attempt=$ATTEMPT
        write_ledger "$STEP"
    fi
    end_up_to "$before" "$4"
    clear_incoming
    if [ "$EPOCH" -eq "$l_epoch" ] && [ "$l_started" -eq "$ATTEMPT" ]; then
        echo "started=yes state=$l_state"
    elif [ "$EPOCH" -lt "$l_epoch" ] || [ "$l_started" -gt "$ATTEMPT" ]; then
        # A later attempt has overwritten the ledger entry.
        echo "started=unknown state=$l_state"
    else
        echo "started=no state=$l_state"
    fi
    unlock
    exit 0
}

# Ends this attempt and the remains of earlier ones of its step.
end_up_to() { # STARTED GRACE; STARTED: token of the last started attempt in the ledger
    for left in "$HOME_DIR"/run/*; do
        read -r step _ 2>/dev/null <"$left/of" && [ "$step" = "$STEP" ] || continue
        token=${left##*/}
        case $token in
        *.*) ;;
        # An older wrapper made it, without an epoch. Only the last started one may belong to the
        # present epoch.
        "${1#*.}") token=$1 ;;
        *) token=0.$token ;;
        esac
        no_later "$token" || continue
        if [ "$token" = "$EPOCH.$ATTEMPT" ]; then
            end_this "$left" "$2"
        else
            end_attempt "$left" "$2"
        fi
    done
}

# Keeps the folder so that the supervisor can write the result. If there is no supervisor, deletes
# it.
end_this() { # FOLDER GRACE
    true 2>/dev/null >"$1/canceled"
    end_processes "$1" "$2"
    # The caller holds the lock, so an attempt without a supervisor never gets one.
    if [ ! -f "$1/supervisor" ] && [ ! -f "$1/ended" ] || orphaned "$1"; then
        rm -rf "$1"
    fi
}

# Attempts taken in the meantime are omitted, which is correct. An attempt that is gone keeps its
# folder for its follower, without the input.
command_attempts() {
    STEP='' EPOCH=0 ATTEMPT=0
    clear_incoming
    for left in "$HOME_DIR"/run/*; do
        read -r of _ 2>/dev/null <"$left/of" || continue
        state=runs
        if [ -f "$left/ended" ]; then
            state=ended
        elif orphaned "$left"; then
            # Its supervisor may have been killed while the run continues.
            if ! { read -r boot pgid start 2>/dev/null <"$left/process" && [ "$boot" = "$BOOT" ] &&
                group_is_of "$pgid" "$start" "${left##*/}" && group_alive "$pgid"; }; then
                state=gone
                forget_input "$left"
            fi
        fi
        echo "${left##*/} $of $state"
    done
    exit 0
}

# A check has a folder named after this process. A folder without its process is left over.
command_check() {
    TIMEOUT=$1 GRACE=$2 NODE=$3 ROLE=$4 SIZE=$5 LIMIT=$6
    shift 6
    command -v setsid >/dev/null 2>&1 || fail $UNUSABLE "gantry: the node lacks setsid (package util-linux)"
    clear_away_at_exit
    identify
    incoming=$HOME_DIR/incoming/check@0.0@$identity
    head -c "$SIZE" >"$incoming" || fail $UNUSABLE "gantry: can't write $incoming: is the disk full?"
    came=$(wc -c 2>/dev/null <"$incoming") && [ "$((came))" = "$SIZE" ] ||
        fail $UNUSABLE "gantry: the input is incomplete, so nothing was started"
    keep_scripts "$@"
    [ -z "$(missing_scripts "$@")" ] || exit $MISSING
    clear_checks
    folder=$HOME_DIR/check/$identity
    making=$folder
    STEP=check EXCLUSIVE=0
    make_folder || fail $UNUSABLE "gantry: can't write $folder: is the disk full?"
    why= child= code=
    trap 'why=canceled; end_aside' TERM INT HUP
    trap 'why=timeout; end_aside' USR1
    setsid sh "$SELF" "$ROOT" probe "$identity" "$NODE" "$ROLE" "$1" </dev/null >>"$folder/out" 2>&1 &
    child=$!
    start_clock check
    if [ -z "$why" ]; then
        wait "$child"
        code=$?
    fi
    if [ -n "$why" ]; then
        end_group "$child" "$GRACE"
        wait "$child" 2>/dev/null
    fi
    trap '' TERM INT HUP USR1
    stop_clock
    # Also what a check that passes left in its session.
    group_alive "$child" && end_group "$child" 1
    echo "code=$code why=${why:-exit}"
    tail -c "$LIMIT" "$folder/out"
    exit 0
}

# Ends the processes of checks whose supervisor was killed, and deletes their folders.
clear_checks() {
    for left in "$HOME_DIR"/check/*; do
        [ -d "$left" ] || continue
        lives "${left##*/}" && continue
        if read -r pid start 2>/dev/null <"$left/process" && runs_since "$pid" "$start"; then
            end_group "$pid" 1
        fi
        rm -rf "$left"
    done
}

# The leader of the session of a check.
command_probe() {
    folder=$HOME_DIR/check/$1 node=$2 role=$3
    look_at $$
    echo "$$ $begun" >"$folder/process" || exit 126
    GANTRY_ROOT=$ROOT GANTRY_NODE=$node GANTRY_ROLE=$role
    GANTRY_INPUT=$folder/input.json GANTRY_SURROUNDINGS=$folder/surroundings.json
    export GANTRY_ROOT GANTRY_NODE GANTRY_ROLE GANTRY_INPUT GANTRY_SURROUNDINGS
    . "$folder/environment"
    unset LC_ALL
    umask 022
    cd "$ROOT" || exit 126
    script_hash "$4"
    exec "$HOME_DIR/scripts/$hash"
}

command_put() {
    file=$HOME_DIR/scripts/$1
    for left in "$file".*; do
        kill -0 "${left##*.}" 2>/dev/null || rm -f "$left"
    done
    clear_away_at_exit
    incoming=$file.$$
    cat >"$incoming" || fail $UNUSABLE "gantry: can't write $file: is the disk full?"
    has_sum "$incoming" "$1" || fail $UNUSABLE "gantry: script $1 arrived damaged"
    chmod 0700 "$incoming" && mv -f "$incoming" "$file" || fail $UNUSABLE "gantry: can't write $file"
    exit 0
}

case $COMMAND in
run) command_run "$@" ;;
supervise) command_supervise "$@" ;;
follow) follow "$@" ;;
launch) command_launch "$@" ;;
clock) command_clock "$@" ;;
take) command_take "$@" ;;
end) command_end "$@" ;;
check) command_check "$@" ;;
probe) command_probe "$@" ;;
lacks) missing_scripts "$@" ;;
put) command_put "$@" ;;
ledger) cat "$HOME_DIR/ledger/$1" 2>/dev/null ;;
attempts) command_attempts ;;
*) fail $UNUSABLE "gantry: the wrapper has no command $COMMAND" ;;
esac
