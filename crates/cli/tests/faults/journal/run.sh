#!/bin/sh
# Evidence for fault tests: records the events on this node, independent of the database.
#
# journal     start RUN ROLE EXCLUSIVE AT concurrent=RUN/EXCLUSIVE,... .
#                 `there`: earlier runs that had a live process when this run started
#             end RUN ROLE AT .
#                 A line without a full stop was cut, because the disk was full.
#             AT: uptime in hundredths of a second. All nodes of a test share a machine.
# sessions/   The session of each run
#
# A file wait-ROLE in the node's folder prevents runs of that role from ending. The role wipe is
# destructive and never fails: without disk space it waits. So any second start is a bug, because
# wipe never reports a failure.
run=$GANTRY_RUN role=$GANTRY_ROLE exclusive=1
[ "$role" != aside ] || exclusive=0

# Whether a process of that session has the run's number in its environment. Session ids are
# reused.
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

# Wipe may not fail, so it retries until there is space.
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
until printf '\n%s .' "start $run $role $exclusive $(now) concurrent=${others#,}" >>journal; do no_room; done
exec 8>&-
echo "run $run of $role"

# This process stays in the session and must end with the run.
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
