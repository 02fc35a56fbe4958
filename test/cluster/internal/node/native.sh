# The first process of a native node: in namespaces of its own, still on the file
# system of the machine. It gets
#   3  a line when `up` has written down who this process is, and the network is there
#   4  open for as long as the node lives: slirp4netns ends with it
#   5  for a line when the node's services start
set -eu
mount --make-rprivate /
# Without `up` there is no node.
read -r go <&3
for dir in $CGROUPS; do
	echo 0 > "$dir/cgroup.procs"
done
# What a flush is for, a crash of this machine, `down` throws away anyhow.
mount -t ext4 -o loop,noatime,nobarrier "$DISK" "$ROOT"
cp "$SEED" "$ROOT/root/seed.tar"
cd "$ROOT"
pivot_root . mnt
# The namespace of cgroups begins where this process is now.
exec chroot . unshare --cgroup env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	HIERARCHIES="$HIERARCHIES" /usr/local/sbin/native-init
