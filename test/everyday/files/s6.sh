#!/bin/sh
# The entrypoint of an image with s6: its services are in a folder that can be written to.
cp -r /everyday/s6 /run/service
exec s6-svscan /run/service
