package probe

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// An OpenEmptyDir is an emptyDir volume of which the kubelet has directories open, the volume's own or some
// inside, as it does while it deletes what is in them (os.RemoveAll), or counts it.
//
// It shows that the kubelet deletes millions of files, which is slow and not stuck. No path is followed and nothing is
// listed. A kubelet that counts files changes no directory.
type OpenEmptyDir struct {
	Pod    string `json:"pod"` // the UID in the path
	Volume string `json:"volume"`
	// Changed is when a name was last made or removed in one of them, or anything else of it was changed, by the
	// node's clock (st_ctime): no program can set it.
	Changed time.Time `json:"changed"`
}

// maxEmptyDirs bounds the volumes that are told of.
const maxEmptyDirs = 256

// EmptyDirs asks for the emptyDir volumes of which the kubelet has a directory open. dir is the kubelet's directory as
// the host names it.
func (p *Prober) EmptyDirs(ctx context.Context, proc string, t *evidence.Task, owner, dir string) (Seen, error) {
	key := hungKey{what: emptyDirs, pid: t.PID, tid: t.TID, state: t.State, switches: t.Switches}
	return p.remember(ctx, request{What: emptyDirs, Proc: proc, PID: t.PID, TID: t.TID, Owner: owner, Dir: dir}, key)
}

// emptyDirs reads of which emptyDir volumes the task has directories open, and when these changed last. They are found by
// the texts of links, and no path is followed. A time to come is of before the clock was put back.
func (p *probe) emptyDirs() {
	p.opened(func(fd int, text string) {
		pod, volume, ok := emptyDirOf(p.Dir, text)
		if !ok {
			return
		}
		st, ok := p.statx(fd, unix.STATX_TYPE|unix.STATX_CTIME)
		changed := time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec))
		// Now, and not when this began: the one in which files are deleted changes meanwhile.
		if !ok || st.Mode&unix.S_IFMT != unix.S_IFDIR || changed.After(time.Now()) {
			return
		}
		i := slices.IndexFunc(p.seen.EmptyDirs, func(d OpenEmptyDir) bool { return d.Pod == pod && d.Volume == volume })
		switch {
		case i < 0 && len(p.seen.EmptyDirs) < maxEmptyDirs:
			p.seen.EmptyDirs = append(p.seen.EmptyDirs, OpenEmptyDir{pod, volume, changed})
		case i >= 0 && changed.After(p.seen.EmptyDirs[i].Changed):
			p.seen.EmptyDirs[i].Changed = changed
		}
	})
}

// emptyDirOf returns the pod's UID and the name of the emptyDir volume in or below which a path is.
func emptyDirOf(kubelet, file string) (pod, volume string, ok bool) {
	rest, ok := strings.CutPrefix(file, strings.TrimSuffix(kubelet, "/")+"/pods/")
	f := strings.SplitN(rest, "/", 5)
	if !ok || len(f) < 4 || f[1] != "volumes" || f[2] != "kubernetes.io~empty-dir" {
		return "", "", false
	}
	return f[0], f[3], true
}
