#!/bin/bash
# A stand-in for a CI runner: it runs a job, tells it to stop when it is asked to itself
# ("in-time"), or lets the job come to its end ("too-slow").
python3 /everyday/job.py "$1" &
job=$!
stop() {
  [ "$how" = too-slow ] || kill -TERM "$job"
  wait "$job"
  exit 0
}
how=$1
trap stop TERM
wait "$job"
