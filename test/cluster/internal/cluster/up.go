package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/artefact"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cache"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/controlplane"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/node"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/pki"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// tunnelName is the name of this program when it works as kube-apiserver's way to the nodes.
const tunnelName = "tunnel"

// Up starts the cluster, or gives the one that runs the nodes that it lacks. When it
// does not get there, nothing of what it started stays but the logs.
func (h Handle) Up(ctx context.Context, wanted []state.Spec) error {
	start := time.Now()
	unlock, err := cache.TryLock(h.lockPath())
	if errors.Is(err, cache.ErrLocked) {
		return fmt.Errorf("another `up` or `down` is at work on the cluster of %s; wait for it", h.Checkout)
	}
	if err != nil {
		return err
	}
	defer unlock()

	c, err := h.running(ctx)
	if err != nil {
		return err
	}
	missing := c.Missing(wanted)
	if c.Ready && len(missing) == 0 {
		say("already running: %s", describe(c.Nodes))
		return nil
	}
	if err := h.preflight(missing); err != nil {
		return err
	}
	if c.Ready {
		err = h.grow(ctx, &c, missing)
	} else {
		err = h.begin(ctx, &c, missing)
	}
	if err != nil {
		return err
	}
	say("cluster is up after %.0f s: %s", time.Since(start).Seconds(), describe(c.Nodes))
	say("  export KUBECONFIG=%s", h.Dir.Kubeconfig())
	return nil
}

// Build makes what a cluster is built from, and starts none. An `up` beside it waits for
// what is being made.
func (h Handle) Build(ctx context.Context) error {
	if err := h.preflight(nil); err != nil {
		return err
	}
	return h.artefacts(ctx, new(state.Cluster))
}

func describe(nodes []state.Node) string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Name+" ("+n.Spec.String()+")")
	}
	return strings.Join(all, ", ")
}

// running is the cluster that a second `up` finds. It removes the rest of one that was
// interrupted or whose machine has been switched off since.
func (h Handle) running(ctx context.Context) (state.Cluster, error) {
	c, err := h.Dir.Load()
	if err != nil && !errors.Is(err, state.ErrNone) {
		return c, err
	}
	if err == nil && c.Ready {
		dead := h.dead(c)
		if len(dead) == 0 {
			return c, nil
		}
		say("the cluster is broken, %s ended; starting anew", strings.Join(dead, ", "))
	}
	return state.Cluster{Checkout: h.Checkout}, h.remove(ctx)
}

// begin starts a cluster where there is none.
func (h Handle) begin(ctx context.Context, c *state.Cluster, wanted []state.Spec) error {
	if err := h.artefacts(ctx, c); err != nil {
		return err
	}
	err := h.start(ctx, c, wanted)
	if err == nil {
		return nil
	}
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

// grow gives a running cluster more nodes. Those that do not get ready are removed.
func (h Handle) grow(ctx context.Context, c *state.Cluster, wanted []state.Spec) error {
	before := slices.Clone(c.Nodes)
	authority, err := controlplane.Authority(h.Dir)
	if err != nil {
		return err
	}
	err = h.boot(ctx, c, wanted, authority)
	if err == nil {
		err = h.restartTunnel(ctx)
	}
	if err == nil {
		err = h.waitNodes(ctx, *c)
	}
	if err == nil {
		return nil
	}
	for _, n := range c.Nodes[len(before):] {
		err = errors.Join(err, node.Remove(context.WithoutCancel(ctx), h.Dir, n))
	}
	c.Nodes = before
	return errors.Join(err, h.Dir.Save(*c))
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

func (h Handle) preflight(wanted []state.Spec) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("this machine is %s/%s; the cluster needs Linux on amd64", runtime.GOOS, runtime.GOARCH)
	}
	if os.Geteuid() != 0 {
		return errors.New("`up` installs packages and makes a root file system, so it has to run as root; try sudo -E")
	}
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("the go command compiles the cluster: %w; put it into PATH", err)
	}
	if slices.ContainsFunc(wanted, func(s state.Spec) bool { return s.Kind == state.Native }) {
		return node.PreflightNative()
	}
	return nil
}

// artefacts makes what the cluster is built from. Compiling keeps the processors
// busy while Debian's packages come over the network.
func (h Handle) artefacts(ctx context.Context, c *state.Cluster) error {
	m := h.Maker()
	if err := m.HostPackages(ctx); err != nil {
		return err
	}
	var p artefact.Programs
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if p.Kubernetes, err = m.Kubernetes(groupCtx); err != nil {
			return err
		}
		if p.Containerd, err = m.Containerd(groupCtx, state.Containerds[0]); err != nil {
			return err
		}
		if p.Runc, err = m.Runc(groupCtx); err != nil {
			return err
		}
		p.Pause, err = m.Pause(groupCtx)
		return err
	})
	group.Go(func() error { return m.Rootfs(groupCtx) })
	if err := group.Wait(); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted; finished downloads and builds are kept")
		}
		return err
	}
	c.BinDir = p.Kubernetes
	var err error
	c.ImageDir, err = m.NodeDisk(ctx, p)
	return err
}

func (h Handle) start(ctx context.Context, c *state.Cluster, wanted []state.Spec) error {
	ports, err := state.FreePorts(5)
	if err != nil {
		return err
	}
	c.Ports = state.Ports{APIServer: ports[0], Etcd: ports[1], EtcdPeer: ports[2], ControllerManager: ports[3], Scheduler: ports[4]}
	if err := h.Dir.Make(); err != nil {
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
	if err := h.boot(ctx, c, wanted, authority); err != nil {
		return err
	}
	if err := h.startTunnel(); err != nil {
		return err
	}
	say("==> start the control plane: about 10 seconds")
	for _, part := range controlplane.Components(h.Dir, *c) {
		if err := h.startComponent(ctx, *c, part); err != nil {
			return err
		}
	}
	if err := h.waitNodes(ctx, *c); err != nil {
		return err
	}
	c.Ready = true
	return h.Dir.Save(*c)
}

// boot starts nodes. They are in the state file before they run, so that `down` finds
// them whatever happens.
func (h Handle) boot(ctx context.Context, c *state.Cluster, wanted []state.Spec, authority *pki.Authority) error {
	if err := h.containerds(ctx, c, wanted); err != nil {
		return err
	}
	ports, err := state.FreePorts(len(wanted))
	if err != nil {
		return err
	}
	for i, s := range wanted {
		if s.Kind == state.VM && c.Accel == "" {
			if c.Accel, err = node.Accel(ctx, h.Cache.Dir, c.ImageDir); err != nil {
				return err
			}
		}
		n, err := c.Add(s, ports[i])
		if err != nil {
			return err
		}
		if err := h.Dir.Save(*c); err != nil {
			return err
		}
		say("==> start %s (%s): about %s", n.Name, s, node.BootTime(*c, n))
		if err := node.Start(ctx, h.Dir, *c, n, authority); err != nil {
			return err
		}
	}
	return nil
}

// containerds makes those that nodes want and that are not on their disk.
func (h Handle) containerds(ctx context.Context, c *state.Cluster, wanted []state.Spec) error {
	for _, s := range wanted {
		if s.Containerd == state.Containerds[0] {
			continue
		}
		dir, err := h.Maker().Containerd(ctx, s.Containerd)
		if err != nil {
			return err
		}
		if c.Containerds == nil {
			c.Containerds = map[string]string{}
		}
		c.Containerds[s.Containerd] = dir
	}
	return nil
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

// restartTunnel lets the tunnel know of new nodes.
func (h Handle) restartTunnel(ctx context.Context) error {
	if err := h.Dir.Processes().Stop(ctx, tunnelName, 0); err != nil {
		return err
	}
	return h.startTunnel()
}

func baseName(path string) string { return filepath.Base(path) }

func nodeNames(c state.Cluster) []string {
	var names []string
	for _, n := range c.Nodes {
		names = append(names, n.Name)
	}
	return names
}
