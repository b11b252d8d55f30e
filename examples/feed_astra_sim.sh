#!/bin/sh
# Link every rank of a job, stop if a link is not good enough, convert the job for ASTRA-sim, check and simulate it.
#
#   sh feed_astra_sim.sh TRACES OUTPUT
#
# TRACES contains rankN.et.json and rankN.kineto.json for each rank, gzipped or not. ASTRA_SIM is the simulator's
# executable; without it, the job is only converted and checked.
set -eu
traces=$1 output=$2

for et in "$traces"/rank*.et.json*; do
  name=${et##*/}
  rank=${name%%.*}
  kineto=$traces/$rank.kineto${name#"$rank".et}
  # If too few operators are linked or certain, the exit status is 3, which ends the script.
  trace-link --et-file "$et" --kineto-file "$kineto" -o "$output/linked/$rank.json" --exact-match \
    --min-match 0.99 --min-certain 0.95 --quiet --json "$output/reports/$rank.json"
done

etplus convert "$output"/linked/rank*.json --to astra-sim --network bandwidth=25,latency=5us -o "$output/job"

if [ -n "${ASTRA_SIM:-}" ]; then
  # ASTRA-sim exits with status 0 even if ranks wait forever; `check --run` exits with 1 if a node never ran.
  etplus check "$output/job" --profile astra-sim --run
else
  etplus check "$output/job" --profile astra-sim
  echo "not simulated: set ASTRA_SIM to the executable of ASTRA-sim (https://github.com/astra-sim/astra-sim)"
fi
