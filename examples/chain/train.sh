#!/bin/sh
#SBATCH --time=12:00:00
#SBATCH --nodes=1
#SBATCH --signal=B:USR1@300
# One link of a chain. It goes on from the checkpoint that the last link left, writes one every SAVE_EVERY steps, and
# five minutes before its limit once more; then it gives its nodes back and asks for another link (exit status 85).
# With all STEPS done it ends with status 0, and with it the chain. Replace `one_step` by the real work.
set -eu

cd "${BATON_CHAIN_DIR:?is set by baton-agent run}"

# Two links may run at once for a while. The one that holds this lock works and writes; the other waits here. The kernel
# gives the lock back when the holder ends, however it ends.
exec 9> lock
flock 9

step=0
if [ -f checkpoint ]; then
    step=$(cat checkpoint)
fi
echo "link ${BATON_LINK:-?} of ${BATON_LINKS:-?} goes on at step $step"

save() { # a checkpoint is whole or not there: written beside, forced to disk, renamed
    echo "$step" > checkpoint.new
    sync checkpoint.new
    mv checkpoint.new checkpoint
}

one_step() {
    sleep "${STEP_S:-1}" 9>&- & # no child keeps the lock
    wait $! || true             # a signal ends the wait at once
}

told_to_end=
trap 'told_to_end=yes' USR1
while [ "$step" -lt "${STEPS:-100000}" ]; do
    if [ "$told_to_end" ]; then
        save
        exit 85
    fi
    one_step
    step=$((step + 1))
    if [ $((step % ${SAVE_EVERY:-60})) -eq 0 ]; then
        save
    fi
done
save
