#!/bin/sh
# The entrypoint of a container with cron: when it is asked to stop, it stops cron, and waits for the jobs that run.
install -m 644 /everyday/crontab /etc/cron.d/everyday
cron -f &
cron=$!
stop() {
  kill "$cron"
  while pgrep -f /everyday/job.py >/dev/null; do
    sleep 1
  done
  exit 0
}
trap stop TERM
wait "$cron"
