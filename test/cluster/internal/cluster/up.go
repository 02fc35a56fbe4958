package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cache"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/controlplane"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/node"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/pki"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// tunnelName is the name of this program when it works as kube-apiserver's way to the nodes.
const tunnelName = "tunnel"

// Up starts the cluster, or finds that it runs. When it does not get there, nothing
// of the cluster stays but its logs.
func (h Handle) Up(ctx context.Context, o state.Options) error {
	start := time.Now()
	unlock, err := cache.TryLock(h.lockPath())
	if errors.Is(err, cache.ErrLocked) {
		return fmt.Errorf("another `up` or `down` is at work on the cluster of %s; wait for it", h.Checkout)
	}
	if err != nil {
		return err
	}
	defer unlock()

	if running, err := h.alreadyUp(ctx, o); running || err != nil {
		return err
	}
	if err := h.preflight(); err != nil {
		return err
	}
	c, err := h.artefacts(ctx, o)
	if err != nil {
		return err
	}
	if err := h.start(ctx, c); err != nil {
		// What was started is ended, in a context that a Ctrl-C did not end.
		kept := h.keepLogs()
		if clean := h.remove(context.WithoutCancel(ctx)); clean != nil {
			err = errors.Join(err, clean)
		}
		if ctx.Err() != nil {
			return errors.New("interrupted; the unfinished cluster is removed, finished downloads and builds are kept")
		}
		// What the error names has moved with them.
		text := strings.ReplaceAll(err.Error(), h.Dir.Logs(), kept)
		return fmt.Errorf("%s\n  logs: %s\n  next: run `up` again; finished steps are not repeated", text, kept)
	}
	say("cluster is up after %.0f s: %d node(s), cgroup %s, %s", time.Since(start).Seconds(), o.Nodes, o.Cgroup, c.Accel)
	say("  export KUBECONFIG=%s", h.Dir.Kubeconfig())
	return nil
}

// alreadyUp answers for a second `up`. It removes the rest of a cluster that was
// interrupted or whose machine has been switched off since.
func (h Handle) alreadyUp(ctx context.Context, o state.Options) (bool, error) {
	c, err := h.Dir.Load()
	if err != nil && !errors.Is(err, state.ErrNone) {
		return false, err
	}
	if err == nil && c.Ready {
		dead := h.dead(c)
		if len(dead) == 0 {
			if c.Options != o {
				return false, fmt.Errorf("the cluster of this checkout runs with %s, not with %s; run `down` first", c.Options, o)
			}
			say("already running: %s", c.Options)
			return true, nil
		}
		say("the cluster is broken, %s ended; starting anew", strings.Join(dead, ", "))
	}
	return false, h.remove(ctx)
}

// dead lists what ended without being asked to. `stop` takes the pid file away.
func (h Handle) dead(c state.Cluster) []string {
	var dead []string
	for _, name := range h.Dir.Processes().Names() {
		if p, err := h.Dir.Processes().Find(name); err != nil || !p.Alive() {
			dead = append(dead, name)
		}
	}
	for _, n := range append([]string{tunnelName}, nodeNames(c)...) {
		if p, err := h.Dir.Processes().Find(n); err == nil && p.PID == 0 {
			dead = append(dead, n)
		}
	}
	return dead
}

func (h Handle) preflight() error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("this machine is %s/%s; the cluster needs Linux on amd64", runtime.GOOS, runtime.GOARCH)
	}
	if os.Geteuid() != 0 {
		return errors.New("`up` installs packages and makes a root file system, so it has to run as root; try sudo -E")
	}
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("the go command compiles the cluster: %w; put it into PATH", err)
	}
	return nil
}

// artefacts makes what the cluster is built from. Compiling keeps the processors
// busy while Debian's packages come over the network.
func (h Handle) artefacts(ctx context.Context, o state.Options) (state.Cluster, error) {
	c := state.Cluster{Checkout: h.Checkout, Options: o}
	m := h.Maker()
	if err := m.HostPackages(ctx); err != nil {
		return c, err
	}
	var containerd, pause string
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if c.BinDir, err = m.Kubernetes(groupCtx); err != nil {
			return err
		}
		if containerd, err = m.Containerd(groupCtx); err != nil {
			return err
		}
		pause, err = m.Pause(groupCtx)
		return err
	})
	group.Go(func() error { return m.Rootfs(groupCtx) })
	if err := group.Wait(); err != nil {
		if ctx.Err() != nil {
			return c, errors.New("interrupted; finished downloads and builds are kept")
		}
		return c, err
	}
	var err error
	if c.ImageDir, err = m.NodeDisk(ctx, c.BinDir, containerd, pause); err != nil {
		return c, err
	}
	c.Accel, err = node.Accel(ctx, h.Cache.Dir, c.ImageDir)
	return c, err
}

func (h Handle) start(ctx context.Context, c state.Cluster) error {
	ports, err := state.FreePorts(5 + c.Options.Nodes)
	if err != nil {
		return err
	}
	c.Ports = state.Ports{APIServer: ports[0], Etcd: ports[1], EtcdPeer: ports[2], ControllerManager: ports[3], Scheduler: ports[4]}
	for i := range c.Options.Nodes {
		n := state.NodeNumber(i + 1)
		n.SSHPort = ports[5+i]
		c.Nodes = append(c.Nodes, n)
	}
	if err := h.Dir.Make(); err != nil {
		return err
	}
	if err := h.Dir.Save(c); err != nil {
		return err
	}
	authority, err := pki.New("nodeagent test cluster")
	if err != nil {
		return err
	}
	if err := controlplane.WriteIdentities(h.Dir, authority, c.Ports); err != nil {
		return err
	}
	if err := controlplane.WriteConfig(h.Dir); err != nil {
		return err
	}
	if err := node.WriteKeys(h.Dir); err != nil {
		return err
	}

	// The nodes boot while the control plane starts; kubelet asks until it is answered.
	say("==> boot %d node(s) with %s: about %s", c.Options.Nodes, c.Accel, bootTime(c))
	for _, n := range c.Nodes {
		if err := node.Boot(ctx, h.Dir, c, n, authority); err != nil {
			return err
		}
	}
	if err := h.startTunnel(); err != nil {
		return err
	}
	say("==> start the control plane: about 10 seconds")
	for _, part := range controlplane.Components(h.Dir, c) {
		if err := h.startComponent(ctx, c, part); err != nil {
			return err
		}
	}
	if err := h.waitNodes(ctx, c); err != nil {
		return err
	}
	c.Ready = true
	return h.Dir.Save(c)
}

func bootTime(c state.Cluster) string {
	if c.Accel == "kvm" {
		return "15 seconds"
	}
	return fmt.Sprintf("%d seconds, since this machine has to emulate their processors", 30+25*c.Options.Nodes)
}

func (h Handle) startComponent(ctx context.Context, c state.Cluster, part controlplane.Component) error {
	client, err := controlplane.AdminClient(h.Dir)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	if err := controlplane.Start(h.Dir, c, part); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	return controlplane.WaitReady(ctx, h.Dir, part, client)
}

// startTunnel runs this program once more, in the background.
func (h Handle) startTunnel() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// `go run` removes its program when it ends; the tunnel may have to be started later.
	own := h.Dir.File("tunnel")
	data, err := os.ReadFile(self)
	if err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	if err := os.WriteFile(own, data, 0o700); err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	_, err = h.Dir.Processes().Start(tunnelName, []string{own, "tunnel", h.Dir.Path}, nil)
	return err
}

func baseName(path string) string { return filepath.Base(path) }

func nodeNames(c state.Cluster) []string {
	var names []string
	for _, n := range c.Nodes {
		names = append(names, n.Name)
	}
	return names
}
