#!/bin/sh
# The node-side wrapper: everything that must be decided where the machine is.
#
# A worker may die, sleep or be cut off at any moment, and another one then starts the next attempt. Only the node itself can
# tell whether something of an older attempt still runs here. So each start goes through this file, which
#
#   * takes the node's lock,
#   * refuses a token (epoch, attempt) that is not higher than what it has seen for the step, or, for exclusive runs, for the node,
#   * asks the step's ledger: an older generation is refused, and so is an equal one with other content,
#   * ends what older attempts left running,
#   * writes into the ledger that the attempt has started, and only then starts it, in a session of its own.
#
# The lock covers the decision, never the run, nor the way of its input to here: the next attempt must be able to take it while this
# one hangs. The started process keeps the lock until its own number is on disk, so nobody can find the lock free and the number
# missing.
#
# An attempt is named EPOCH.ATTEMPT: numbers of attempts are given again after the database was restored, epochs are not. Its folder
# has that name; wrappers before this one named it ATTEMPT alone. The input holds secrets: it goes when the run ends, and also when no
# run came of it.
#
# Whoever asked for a run may lose the way to it: a connection breaks, a network is gone for a while. The run does not notice. It has a
# supervisor of its own here, and writes to files; `run` only follows these, and so does `follow`, from any byte on.
#
# A machine has many runs, and each costs processes: what the shell can do itself, it does, and one call carries a run from its scripts to
# its result.
#
# Plain POSIX shell, so that it also runs where nothing of ours is installed. Usage: sh wrapper ROOT COMMAND ARGUMENTS
#
#   run    STEP EPOCH ATTEMPT GENERATION CONTENT EXCLUSIVE TIMEOUT GRACE NODE ROLE SIZE MARK LIMIT HASH[+BYTES]:NAME...
#          standard input, SIZE bytes: the scripts that have BYTES, one behind the other; then the input and what surrounds it (JSON,
#          one line each), then lines of the form  export NAME='value'
#          starts it and follows it to its end
#   follow EPOCH.ATTEMPT OUT ERR MARK LIMIT    the streams from these bytes on, to the run's end
#          Where MARK is no -, all that `take` says comes behind the last byte of standard output, between MARK and MARK. It stays here
#          until a line on standard input says that it has arrived.
#   take   EPOCH.ATTEMPT LIMIT      how it ended: one line of words, then what it wrote to GANTRY_OUTPUT (LIMIT bytes and one)
#   end    STEP EPOCH ATTEMPT GRACE    ends it and what is older of its step if it runs, bars it if it does not; says whether it ever
#          started
#   lacks  HASH...            prints those of the scripts that are not here
#   put    HASH               standard input: a script; kept under its content's hash
#   ledger STEP               prints the ledger
#   attempts                  prints what is left of attempts: a line each, EPOCH.ATTEMPT STEP and one of runs, ended, gone
#
# Exit codes: 0 done (a run that has ended is done, however it ended: see take); 71 refused; 72 scripts are
# missing; 73 the lock was not to be had; 74 the node's folder can't be used; 76 nothing of this attempt is here; 77 its supervisor is
# gone. Codes of scripts never come through here.

set -u
umask 077
LC_ALL=C
export LC_ALL
# Whoever listened may be gone; what has to be cleaned up still has to be. (Ignoring the signal would be passed on to scripts, a
# handler is not.)
trap ':' PIPE

REFUSED=71 MISSING=72 LOCKED=73 UNUSABLE=74 NOTHING=76 ORPHANED=77

# Bytes that each run keeps for its end: where a disk is full by then, how it ended must still be written down.
RESERVE=16384

# Most bytes of a stream that wait here for whoever follows (32 MiB). A worker keeps less of them.
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

# ---- who is who -----------------------------------------------------------------------------------------------------------

read -r BOOT 2>/dev/null </proc/sys/kernel/random/boot_id || BOOT=unknown

# A process number is used again some day; together with the time of its start it is not.
look_at() { # PID; sets begun (the time of its start, nothing for one that is not there) and does (its state)
    begun='' does='' stat=''
    if [ -r "/proc/$1/stat" ]; then
        while read -r line || [ -n "$line" ]; do stat="$stat $line"; done 2>/dev/null <"/proc/$1/stat"
        # The name, in parentheses, may hold anything: what counts comes after the last one.
        set -- ${stat##*)}
        does=${1:-}
        [ $# -lt 20 ] || begun=${20}
    else
        begun=$(ps -o lstart= -p "$1" 2>/dev/null | tr ' ' '_')
    fi
}

# Who this process is: nothing else ever has the same name.
identify() { # sets identity
    look_at $$
    identity=$BOOT.$$.$begun
}

lives() { # IDENTITY
    boot=${1%%.*}
    pid=${1#*.}
    start=${pid#*.}
    pid=${pid%%.*}
    [ "$boot" = "$BOOT" ] && kill -0 "$pid" 2>/dev/null || return 1
    look_at "$pid"
    [ "$begun" = "$start" ] || return 1
    # One that nobody has collected yet does nothing any more.
    case $does in Z* | X*) return 1 ;; esac
}

# Everything in the session that this process leads or led. A service that called setsid has left it, and is meant to stay.
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

# The leader is meant by its number too: it leads a group only once it has called setsid.
signal_group() {
    kill -s "$1" "$2" 2>/dev/null
    kill -s "$1" -- "-$2" 2>/dev/null
    for pid in $(session_of "$2"); do
        kill -s "$1" "$pid" 2>/dev/null
    done
    return 0
}

# Whether a group is still the one that an attempt started: its leader's start time fits, or one of its members was born with the
# attempt's own folder (a number can't be given away while its group has members, so one witness is enough).
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

# Asks a group to end and, GRACE seconds later, makes it.
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

# ---- the node's lock ------------------------------------------------------------------------------------------------------

# What goes when this process does, whatever it dies of: an input, a folder of a run that did not start, and the lock.
incoming= making= held=

leave() {
    [ -z "$incoming" ] || rm -f "$incoming"
    [ -z "$making" ] || rm -rf "$making"
    unlock
}

clear_away_at_exit() {
    trap leave EXIT
    # A shell that is ended by a signal it does not handle leaves everything as it is.
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

not_locked() { fail $LOCKED "gantry: the node's lock was held for a minute: another start hangs on this node"; }

# The lock goes on with a process that was started by its holder: that one calls `inherit` with the name that `holder` has there, and
# the holder `let_go`.
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
    # A folder with one file in it, whose name says who holds the lock: `free`, or an identity. It is taken by giving that file another
    # name, and of many who want to do so, one succeeds: the old name is gone for the others. So nobody can free or take over a lock
    # that has changed hands since they looked.
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
    # Made whole elsewhere. Where another was quicker, this one is moved into that one's, and counts for nothing there.
    make_lock() {
        rmdir "$LOCK" 2>/dev/null
        mkdir -p "$LOCK.$$" && true >"$LOCK.$$/free" && mv "$LOCK.$$" "$LOCK" 2>/dev/null
        rm -rf "$LOCK.$$" "$LOCK/${LOCK##*/}.$$"
    }
    unlock() {
        [ -z "$held" ] || mv -f "$LOCK/$held" "$LOCK/free" 2>/dev/null
        held=
    }
    # Who finds it taken over must not go on.
    inherit() {
        mv -f "$LOCK/$1" "$LOCK/$holder" 2>/dev/null || return 1
        held=$holder
    }
    let_go() { held=; }
fi

# ---- the ledger -----------------------------------------------------------------------------------------------------------

# A ledger is read as words, never executed. `attempt` is the highest one seen, `started` the last one that was started.
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

# Only the attempt that started last may say how the step ended.
close_ledger() { # STEP EPOCH.ATTEMPT STATE
    lock
    read_ledger "$1"
    if [ "$l_epoch.$l_started" = "$2" ] && [ "$l_state" = started ]; then
        l_state=$3
        write_ledger "$1"
    fi
    unlock
}

# ---- runs -----------------------------------------------------------------------------------------------------------------

# What an attempt left running ends.
end_processes() { # FOLDER GRACE
    [ -f "$1/process" ] || return 0
    read -r boot pgid start <"$1/process"
    if [ "$boot" = "$BOOT" ] && group_is_of "$pgid" "$start" "${1##*/}"; then
        end_group "$pgid" "$2"
    fi
}

# What an attempt left running ends; its folder, with the input in it, goes.
end_attempt() { # FOLDER GRACE
    end_processes "$1" "$2"
    rm -rf "$1"
}

forget_input() { # FOLDER OTHER...
    gone=$1
    shift
    rm -f "$gone/stdin" "$gone/input.json" "$gone/surroundings.json" "$gone/environment" "$@"
}

# Whether a token is this attempt's, or comes before it.
no_later() { # EPOCH.ATTEMPT
    [ "${1%.*}" -lt "$EPOCH" ] || { [ "${1%.*}" -eq "$EPOCH" ] && [ "${1#*.}" -le "$ATTEMPT" ]; }
}

# An input that will start nothing goes: whoever read it was killed, or its attempt may not start any more. To be called under the lock
# when this attempt's token is known to be the highest.
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
        # Whoever began to make it is gone: it did so under the lock.
        [ -f "$left/of" ] && read -r step exclusive <"$left/of" || { rm -rf "$left"; continue; }
        if [ "$step" = "$STEP" ] || { [ "$exclusive" = 1 ] && [ "$EXCLUSIVE" = 1 ]; }; then
            end_attempt "$left" 2
        fi
    done
}

# Exclusive runs have a node for themselves, so their tokens count for the node, not only for the step.
check_token() {
    read_ledger "$STEP"
    if [ "$EPOCH" -lt "$l_epoch" ]; then
        fail $REFUSED "gantry: epoch $EPOCH is over: this node has seen epoch $l_epoch (the database was restored since)"
    fi
    if [ "$EPOCH" -eq "$l_epoch" ]; then
        [ "$ATTEMPT" -le "$l_attempt" ] &&
            fail $REFUSED "gantry: attempt $ATTEMPT of this step is outdated: this node has seen attempt $l_attempt"
        [ "$GENERATION" -lt "$l_generation" ] &&
            fail $REFUSED "gantry: generation $GENERATION of this step is outdated: this node has had generation $l_generation"
        if [ "$GENERATION" -eq "$l_generation" ] && [ -n "$l_content" ] && [ "$CONTENT" != "$l_content" ]; then
            fail $REFUSED "gantry: generation $GENERATION of this step came with other content before ($l_content, now $CONTENT)"
        fi
    fi
    if [ "$EXCLUSIVE" = 1 ] && [ -f "$HOME_DIR/exclusive" ]; then
        read -r epoch attempt <"$HOME_DIR/exclusive"
        if [ "$EPOCH" -lt "$epoch" ] || { [ "$EPOCH" -eq "$epoch" ] && [ "$ATTEMPT" -le "$attempt" ]; }; then
            fail $REFUSED "gantry: attempt $ATTEMPT is outdated: this node has started attempt $attempt, which had the node for itself"
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

# Names the scripts that are not here, or are not what their name says.
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
    command -v setsid >/dev/null 2>&1 || fail $UNUSABLE "gantry: this node has no setsid (package util-linux)"
    token=$EPOCH.$ATTEMPT
    folder=$HOME_DIR/run/$token

    # Read before the lock is taken: the way from whoever sends it may break, and nobody else is to wait for that.
    clear_away_at_exit
    identify
    incoming=$HOME_DIR/incoming/$STEP@$token@$identity
    head -c "$SIZE" >"$incoming" || fail $UNUSABLE "gantry: can't write $incoming: is the disk full?"
    lock
    check_token
    # A worker that is killed while it writes leaves half an input.
    came=$(wc -c 2>/dev/null <"$incoming") && [ "$((came))" = "$SIZE" ] ||
        fail $UNUSABLE "gantry: the input broke off, so nothing was started"
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
    # The started process gives the lock back.
    let_go
    follow "$token" 0 0 "$MARK" "$LIMIT"
}

# Keeps the scripts that came with the input; what is left of it begins at the byte `from`.
keep_scripts() {
    from=1
    for script in "$@"; do
        script_hash "$script"
        bytes=${script%%:*}
        case $bytes in *+*) bytes=${bytes#*+} ;; *) continue ;; esac
        if [ ! -f "$HOME_DIR/scripts/$hash" ]; then
            # What goes when this subshell does is not the lock.
            tail -c "+$from" "$incoming" | head -c "$bytes" | (held='' && command_put "$hash") || exit $UNUSABLE
        fi
        from=$((from + bytes))
    done
}

# Whose it is comes first: who has the lock next finds it by that, whatever happens here.
make_folder() {
    mkdir -p "$folder" && echo "$STEP $EXCLUSIVE" >"$folder/of" && echo "$BOOT" >"$folder/boot" &&
        tail -c "+$from" "$incoming" >"$folder/stdin" && head -n 1 "$folder/stdin" >"$folder/input.json" &&
        sed -n '2{p;q;}' "$folder/stdin" >"$folder/surroundings.json" && tail -n +3 "$folder/stdin" >"$folder/environment" &&
        rm "$incoming" "$folder/stdin" && true >"$folder/out" && true >"$folder/err" &&
        head -c "$RESERVE" /dev/zero >"$folder/reserve" && incoming=
}

# Stays with a run to its end, whoever listens. In a session of its own.
command_supervise() {
    STEP=$1 token=$2 TIMEOUT=$4 GRACE=$5
    inherit "$3" || exit 0
    shift 5
    folder=$HOME_DIR/run/$token
    why= child=
    trap 'why=cancelled; end_aside' TERM INT HUP
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
    # `wait` comes back when the child has ended, or when a signal said why it should.
    if [ -n "$why" ]; then
        end_group "$child" "$GRACE"
        wait "$child" 2>/dev/null
    fi
    trap '' TERM INT HUP USR1
    stop_clock
    # What a run leaves behind in its session ends with it, also when it went well: services call setsid.
    group_alive "$child" && end_group "$child" 1
    [ -d "$folder" ] || exit 0
    [ -f "$folder/cancelled" ] && why=cancelled
    full=
    [ "$code" = 0 ] || ! is_full || full=1
    forget_input "$folder" "$folder/process" "$folder/reserve"
    # What the script itself had to say of it did not fit.
    [ -z "$full" ] || echo "gantry: the disk of this node is full" >>"$folder/err"
    read -r name 2>/dev/null <"$folder/at" || name=
    if [ -z "$why" ] && [ "$code" = 0 ]; then state=succeeded; else state=failed; fi
    close_ledger "$STEP" "$token" "$state"
    # Closing took the lock, so whoever ended this attempt has also cleared it away by now.
    [ -d "$folder" ] || exit 0
    # Last: who sees this looks no further.
    echo "code=$code why=${why:-exit} script=$name" >"$folder/ended.new" && mv "$folder/ended.new" "$folder/ended"
    # Whoever follows need not wait for the next look.
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

# A signal may come just before `wait`, which then would not notice it: so the signal itself sees to the end, and `wait` to nothing
# but waiting.
end_aside() {
    [ -z "$child" ] || end_group "$child" "$GRACE" &
}

# Wakes the supervisor when the time is over. In a session of its own, and ended by force, its sleeper after it: a polite signal that
# comes just before it would be heard is lost, and then a run would last as long as it may.
start_clock() {
    look_at $$
    setsid sh "$SELF" "$ROOT" clock "$TIMEOUT" $$ "$begun" "$folder" </dev/null >/dev/null 2>&1 &
    clock=$!
}

# Seconds since some moment; steps of the wall clock are none of them.
look_at_clock() { # sets now
    if read -r now _ 2>/dev/null </proc/uptime; then now=${now%%.*}; else now=$(date +%s); fi
}

# Sees to it meanwhile that nobody's output fills the disk. The supervisor may have been killed, and its number be somebody else's.
command_clock() {
    look_at_clock
    until=$((now + $1))
    while [ "$now" -lt "$until" ]; do
        sleep 1
        [ -n "${4:-}" ] && for stream in out err; do bound "$4/$stream"; done
        kill -0 "$2" 2>/dev/null || exit 0
        look_at_clock
    done
    look_at "$2"
    [ "$begun" = "$3" ] && kill -s USR1 "$2"
    exit 0
}

# Its writer appends, so it goes on at the beginning of the emptied file.
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

# Passes on what a stream has beyond the bytes that were passed on before.
pass_on() { # FILE FROM; sets passed
    passed=$2
    [ -s "$1" ] && [ ! -f "$1.cut" ] || return 0
    size=$(wc -c 2>/dev/null <"$1") || return 0
    [ "$size" -gt "$2" ] || return 0
    # Nobody reads this any more.
    tail -c "+$(($2 + 1))" "$1" | head -c "$((size - $2))" || exit 0
    passed=$((size))
}

# Who has only just been started has not said yet who looks after it, and who was being started when the machine went down never will.
supervised() { # FOLDER
    if read -r boot pid start 2>/dev/null <"$1/supervisor"; then
        lives "$boot.$pid.$start"
    else
        ! read -r boot 2>/dev/null <"$1/boot" || [ "$boot" = "$BOOT" ]
    fi
}

# Looked for its supervisor first: the last thing that one does is to say how it ended.
orphaned() { # FOLDER
    ! supervised "$1" && [ ! -f "$1/ended" ]
}

follow() { # EPOCH.ATTEMPT OUT ERR MARK LIMIT
    folder=$HOME_DIR/run/$1 attempt=${1#*.} out=$2 err=$3 looks=0 over=''
    [ -d "$folder" ] || fail $NOTHING "gantry: nothing of attempt $attempt is here"
    woken='' sleeper='' pause=0.2
    trap 'woken=1' USR1
    look_at $$
    # Where this can't be written, the end is seen at the next look.
    echo "$$ $begun" 2>/dev/null >"$folder/follower"
    while :; do
        # Looked at before the streams: what has ended has said everything by then.
        [ -f "$folder/ended" ] && over=ended
        if [ -z "$over" ] && [ "$((looks % 20))" = 19 ] && orphaned "$folder"; then over=orphaned; fi
        # Whoever ended it has its folder away, too.
        [ -d "$folder" ] || fail $REFUSED "gantry: attempt $attempt was ended by a newer one"
        pass_on "$folder/out" "$out"
        out=$passed
        pass_on "$folder/err" "$err" >&2
        err=$passed
        [ -z "$over" ] || break
        # Whoever called is gone, and this would be looked at by nobody to the run's end.
        if read -r _ _ _ parent _ 2>/dev/null <"/proc/$$/stat" && [ "$parent" != "$PPID" ]; then exit 0; fi
        looks=$((looks + 1))
        # Until the supervisor says that it is over; a signal that comes just before `wait` costs no more than the sleep.
        [ "$looks" -lt 50 ] || pause=0.5
        sleep "$pause" </dev/null >/dev/null 2>&1 &
        sleeper=$!
        [ -n "$woken" ] || wait "$sleeper"
        [ -z "$woken" ] || kill "$sleeper" 2>/dev/null
        woken=''
    done
    for stream in out err; do
        [ ! -f "$folder/$stream.cut" ] || say "[gantry: more output than this node keeps; what came after $MOST bytes may be missing]"
    done
    [ "$over" = ended ] || fail $ORPHANED "gantry: attempt $attempt has lost its supervisor on the node: the machine was restarted, its disk is full, or something killed it"
    [ "$4" != - ] || exit 0
    # It may come only now, and would break off the reading.
    trap '' USR1
    printf %s "$4"
    tell "$folder" "$5"
    printf %s "$4"
    # Whoever listened may be gone before it has kept anything: then it is there to be taken.
    read -r _ 2>/dev/null && rm -rf "$folder"
    exit 0
}

# The leader of the run's own session.
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

# How a run ended, and what it wrote to GANTRY_OUTPUT; also that what is there now can't be read.
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
        # A later attempt has overwritten what could have told.
        echo "started=unknown state=$l_state"
    else
        echo "started=no state=$l_state"
    fi
    unlock
    exit 0
}

# Ends this attempt, and what is left of earlier ones of its step.
end_up_to() { # STARTED GRACE; STARTED: the token that the ledger had for the last one that was started
    for left in "$HOME_DIR"/run/*; do
        read -r step _ 2>/dev/null <"$left/of" && [ "$step" = "$STEP" ] || continue
        token=${left##*/}
        case $token in
        *.*) ;;
        # A wrapper before this one made it. Of these, only the last one may still be the attempt that its number says.
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

# Whoever asked may want to know how it ended, and its supervisor will say so. Without one nobody clears away after it.
end_this() { # FOLDER GRACE
    true 2>/dev/null >"$1/cancelled"
    end_processes "$1" "$2"
    # Under the lock, who has no supervisor yet never gets one.
    if [ ! -f "$1/supervisor" ] && [ ! -f "$1/ended" ] || orphaned "$1"; then
        rm -rf "$1"
    fi
}

# What is taken meanwhile is not there any more, which is as true. An attempt that is gone is kept for whoever still follows it, without
# its input.
command_attempts() {
    STEP='' EPOCH=0 ATTEMPT=0
    clear_incoming
    for left in "$HOME_DIR"/run/*; do
        read -r of _ 2>/dev/null <"$left/of" || continue
        state=runs
        if [ -f "$left/ended" ]; then
            state=ended
        elif orphaned "$left"; then
            # Its supervisor may have been killed, and it not.
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
lacks) missing_scripts "$@" ;;
put) command_put "$@" ;;
ledger) cat "$HOME_DIR/ledger/$1" 2>/dev/null ;;
attempts) command_attempts ;;
*) fail $UNUSABLE "gantry: the wrapper has no command $COMMAND" ;;
esac
