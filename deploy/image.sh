#!/bin/sh
# Builds the agent's image from bin/nodeagent with docker, podman or buildah,
# whichever is there, and writes it to bin/nodeagent-image.tar.
set -eu
image=$1
archive=bin/nodeagent-image.tar
cd "$(dirname "$0")/.."
rm -f "$archive"

if docker info >/dev/null 2>&1; then
	docker build -q -t "$image" . >/dev/null
	docker save -o "$archive" "$image"
elif command -v podman >/dev/null; then
	podman build -q -t "$image" . >/dev/null
	podman save -q -o "$archive" "$image"
else
	if ! command -v buildah >/dev/null; then
		echo "installing buildah: neither docker nor podman runs here"
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends buildah >/dev/null
	fi
	# The vfs driver and chroot isolation need nothing of the machine.
	store=$(mktemp -d)
	trap 'rm -rf "$store"' EXIT
	b="buildah --storage-driver vfs --root $store/root --runroot $store/run"
	$b bud -q --isolation chroot -t "$image" . >/dev/null
	$b push -q "$image" "docker-archive:$archive:$image"
fi
echo "$image: $(wc -c <"$archive") bytes in $archive"
