#!/bin/sh
# A preStop hook: it waits until nobody has had a connection to the port for three seconds.
port=$(printf ':%04X' "$1")
quiet=0
while [ $quiet -lt 3 ]; do
  sleep 1
  quiet=$((quiet + 1))
  if cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v port="$port" '$4 == "01" && $2 ~ port "$" {found = 1} END {exit !found}'; then
    quiet=0
  fi
done
