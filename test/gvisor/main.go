// Command gvisor is gVisor's shim, containerd-shim-runsc-v1, for a machine that does not let
// anybody lower an oom_score_adj: without CAP_SYS_RESOURCE the original does not start. All it
// does once it has started is gVisor's.
package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"github.com/containerd/containerd/namespaces"
	"github.com/containerd/containerd/runtime/v2/shim"
	"github.com/containerd/containerd/sys"
	v1 "gvisor.dev/gvisor/pkg/shim/v1"
)

// oomScore is what gVisor gives its shims.
const oomScore = -999

func main() {
	shim.Run("io.containerd.runsc.v1", func(ctx context.Context, id string, publisher shim.Publisher, cancel func()) (shim.Shim, error) {
		s, err := v1.New(ctx, id, publisher, cancel)
		return starter{s}, err
	})
}

// A starter is gVisor's shim but for how it is started.
type starter struct{ shim.Shim }

// StartShim starts the shim of a sandbox, or finds the one that the sandbox of the container
// has, and returns its address.
func (starter) StartShim(ctx context.Context, opts shim.StartOpts) (string, error) {
	address, err := shim.SocketAddress(ctx, opts.Address, opts.ID)
	if err != nil {
		return "", err
	}
	socket, err := shim.NewSocket(address)
	if shim.SocketEaddrinuse(err) && shim.CanConnect(address) {
		return address, shim.WriteAddress("address", address)
	}
	if err != nil {
		return "", err
	}
	socket.SetUnlinkOnClose(false) // the shim listens on it
	defer func() { _ = socket.Close() }()
	file, err := socket.File()
	if err != nil {
		return "", err
	}
	defer file.Close()
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return "", err
	}
	cmd := exec.Command(self, "-namespace", namespace, "-address", opts.Address, "-publish-binary", opts.ContainerdBinary)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	cmd.ExtraFiles = []*os.File{file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	err = sys.SetOOMScore(cmd.Process.Pid, oomScore)
	if errors.Is(err, fs.ErrPermission) {
		err = nil
	}
	err = errors.Join(err, shim.WritePidFile("shim.pid", cmd.Process.Pid), shim.WriteAddress("address", address))
	if err != nil {
		_ = cmd.Process.Kill()
		return "", err
	}
	return address, nil
}
