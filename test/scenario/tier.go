package scenario

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// sentinels are the incidents of the first tier that do not say so themselves, as those that are
// made from another one. tier_test.go says what they have to cover and may cost.
var sentinels = strings.Fields(`
	bash-trap-deferred blocks-term dash-ignores-term shell-pid1 sleep-pid1 stop-signal-mismatch stopped tini-over-trap traced zombie-tracer
	pre-stop-shell-slept pre-stop-then-slow pre-stop-waits slow-child-ignores
	post-start-hangs pre-stop-sleeps slow-shutdown throttled-cpu
	core-dump exec-stuck exit-fuse-flush frozen-pod fuse-read fuse-zombie-leader leader-exited nfs-server-gone pidns-parent
	containerd-stopped exec-outlives exit-untold gvisor-stopped hostpid-leftover kubelet-stopped mirror-pod-deleted rootfs-busy
	runc-kill-fails runc-kill-hangs shim-dead stdio-held-open
	cni-add-hangs cni-del-fails cni-del-hangs cni-del-scanned netns-immutable
	block-mounted csi-driver-gone csi-record-lost csi-unmount-hangs csi-unpublish-fails csi-unpublish-hangs dra-driver-gone image-volume-busy
	sub-path-left volume-busy volume-dir-mount
	finalizer finalizer-denied

	ash-trap-and-wait bash-trap-and-wait bash-trap-on-exit bash-trap-over-tee bash-trap-resets bash-trap-resets-at-once dash-sleeps-in-loop
	dash-trap-and-wait dash-trap-ignores dumb-init dumb-init-group handles-term python-handler-ignores python-handler-resets-at-once
	python-handles-term reads-signalfd stopped-and-continued tini-group tini-group-drains tini-over-shell traced-and-runs
	vfork-parent waits-in-sigwait
	dra-unprepare-slow grace-shortened gvisor-gofers-stopped gvisor-killed gvisor-no-trap gvisor-stopped-and-continued
	advice-exec-in-script advice-tini-over-shell advice-trap-in-loop in-grace-drains pre-stop-drains pre-stop-ends slow-child-ends
	hostpid-silent-leftover rootfs-used-privately runc-kill-scanned-slowly shim-killed slow-io status-webhook-late uring-slow
`)

// tiered puts the incidents into their tiers.
func tiered(all []bed.Scenario) []bed.Scenario {
	for i := range all {
		if slices.Contains(sentinels, all[i].Name) {
			all[i].Tier = bed.Sentinel
		}
	}
	return all
}
