#!/bin/sh
# The entrypoint of a broker: when it is asked to stop, it puts the server into lame duck mode,
# in which that sends its clients away one by one, and waits for it.
nats-server -p 4222 -c /everyday/nats.conf &
server=$!
trap 'kill -USR2 $server; wait $server; wait $server; exit 0' TERM
wait $server
