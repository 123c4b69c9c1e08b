#!/bin/sh
# The evidence of tests: what happened on this node, in the order in which it happened, whatever anybody else believes.
#
# journal     start RUN ROLE EXCLUSIVE AT there=RUN/EXCLUSIVE,... .    who of the earlier ones still had a process, when this one began
#             end RUN ROLE AT .                                      a line without a full stop broke off: the disk was full
#             AT: hundredths of a second since the machine was started, a clock that nobody sets; the nodes of a test are one machine
# sessions/   which session each run had
#
# A file wait-ROLE in the node's folder keeps a run of that role from ending. The role wipe is destructive and never fails by itself:
# where it has no room it waits for some, so whatever starts it twice is no failure that it told of.
run=$GANTRY_RUN role=$GANTRY_ROLE exclusive=1
[ "$role" != aside ] || exclusive=0

# Something of that session which was born with that run's number: a session's number is used again some day.
there() {
    for pid in $(ps -eo pid=,sess=,stat= | awk -v session="$2" '$2 == session && $3 !~ /^Z/ {print $1}'); do
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "GANTRY_RUN=$1" && return 0
    done
    return 1
}

now() {
    read -r up _ </proc/uptime
    echo "${up%.*}${up#*.}"
}

# For one that may not fail: again, until there is room.
no_room() {
    [ "$role" = wipe ] || exit 9
    sleep 0.2
}

until mkdir -p sessions; do no_room; done
session=$(ps -o sess= -p $$) || exit 9
exec 8>>journal.lock || exit 9
flock 8 || exit 9
others=
for file in sessions/*; do
    [ -f "$file" ] || continue
    other=${file##*/}
    read -r its exclusively <"$file" || continue
    if there "$other" "$its"; then others="$others,$other/$exclusively"; else rm -f "$file"; fi
done
until echo $session "$exclusive" >"sessions/$run"; do no_room; done
until printf '\n%s .' "start $run $role $exclusive $(now) there=${others#,}" >>journal; do no_room; done
exec 8>&-
echo "run $run of $role"

# What it leaves running in its session ends with it.
sleep 300 &
sleep "0.$((run * 7 % 9 + 1))"
[ $((run % 11)) != 0 ] || sleep 2
while [ -e "wait-$role" ]; do sleep 0.05; done
if [ "$role" = flaky ] && [ $((run % 3)) = 0 ]; then
    echo "it is flaky" >&2
    exit 1
fi
until echo "{\"journal\": {\"$role\": $run}}" >"$GANTRY_OUTPUT"; do no_room; done
exec 8>>journal.lock || exit 9
flock 8 || exit 9
until printf '\n%s .' "end $run $role $(now)" >>journal; do no_room; done
