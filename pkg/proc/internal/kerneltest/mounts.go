package kerneltest

// HostMounts are mounts of a host, as its mountinfo shows them. Two
// lines are bad.
const HostMounts = `27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 27 0:50 / /var/lib/kubelet/pods/u-1/volumes/kubernetes.io~nfs/vol\0401 rw,relatime shared:7 - nfs4 10.0.0.9:/export rw,vers=4.2,clientaddr=10.0.0.1,addr=10.0.0.9
41 27 0:50 / /var/lib/kubelet/pods/u-2/volumes/kubernetes.io~nfs/vol rw,relatime - nfs4 10.0.0.9:/export rw,addr=10.0.0.9
42 27 0:51 / /var/lib/kubelet/pods/u-1/volumes/kubernetes.io~csi/pvc-7/mount rw,relatime - fuse.s3 https://key:secret@s3.example/bucket rw,user_id=0
43 27 254:0 /data/x /var/lib/kubelet/pods/u-1/volume-subpaths/cfg/app/0 ro,relatime - ext4 /dev/vda rw,discard
44 27 0:52 / /run/containerd/o/rootfs rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/var/lib/containerd/7/fs,workdir=/w
45 27 254:16 / /var/lib/containerd rw - xfs /dev/vdb rw
this line is bad
46 27 0:53 / /mnt/share rw - cifs //user@files.example/share rw,password=secret
47 27 0:54 / /mnt/ceph rw - ceph 10.0.0.1:6789,10.0.0.2:6789:/dir rw
48 27 0:55 / /mnt/empty rw -  
49 27 0:56 / /mnt/nosource rw - tmpfs  rw
`

// ContainerMounts are those of a container on it.
const ContainerMounts = `100 90 0:52 / / rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/var/lib/containerd/7/fs,workdir=/w
101 100 0:50 /sub /data rw,relatime - nfs4 10.0.0.9:/export/sub rw,addr=10.0.0.9
102 100 254:0 /data/x /cfg ro,relatime - ext4 /dev/vda rw
103 100 254:0 /var/lib/kubelet/pods/u-1/etc-hosts /etc/hosts rw - ext4 /dev/vda rw
104 100 0:51 / /s3 rw - fuse.s3 x rw
`
