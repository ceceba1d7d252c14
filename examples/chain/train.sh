#!/bin/sh
#SBATCH --time=12:00:00
#SBATCH --nodes=1
#SBATCH --signal=B:USR1@300
# One link of a chain. It resumes from the checkpoint of the last link and writes one every SAVE_EVERY steps. Five minutes
# before its time limit it writes another one, releases its nodes and requests another link (exit status 85). After all
# STEPS it ends with status 0, which ends the chain. Replace `one_step` by the real work.
set -eu

cd "${BATON_CHAIN_DIR:?is set by baton-agent run}"

# Two links may run at once for a while. The one that holds this lock works and writes; the other waits here. The kernel
# releases the lock when its holder ends, however it ends.
exec 9> lock
flock 9

step=0
if [ -f checkpoint ]; then
    step=$(cat checkpoint)
fi
echo "link ${BATON_LINK:-?} of ${BATON_LINKS:-?} resumes at step $step"

save() { # atomic: write a temporary file, sync it to disk, rename it
    echo "$step" > checkpoint.new
    sync checkpoint.new
    mv checkpoint.new checkpoint
}

one_step() {
    sleep "${STEP_S:-1}" 9>&- & # the child must not hold the lock
    wait $! || true             # a signal ends the wait at once
}

must_end=
trap 'must_end=yes' USR1
while [ "$step" -lt "${STEPS:-100000}" ]; do
    if [ "$must_end" ]; then
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
