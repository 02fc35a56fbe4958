// Csidriver is a CSI driver that can be told to break. It publishes directories and block
// devices of the node by bind mounts and registers with the kubelet by itself, as a driver
// and its node-driver-registrar do together. It can be a DRA driver or a device plugin, too.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const usage = `csidriver NAME NODE  serves the CSI driver NAME on the node NODE until SIGTERM
csidriver -dra NAME  serves the DRA driver NAME
csidriver -device NAME  serves a device plugin with one device of the resource device.test/NAME
The file /run/csidriver/NAME says what becomes of NodeUnpublishVolume, NodeUnprepareResources or Allocate:
       fail: it returns an error; hang: it does not return; slow: it takes 20 seconds;
       lie: it does nothing and succeeds (CSI); error: it returns an error for each claim (DRA)
The file /run/csidriver/NAME.registered is made when the kubelet has registered the driver,
NAME.allocating when it has asked for a device.`

// slowness is how long a slow call takes. The kubelet waits for two minutes.
const slowness = 20 * time.Second

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	var err error
	switch os.Args[1] {
	case "-dra":
		err = runDRA(ctx, os.Args[2])
	case "-device":
		err = runDevice(ctx, os.Args[2])
	default:
		err = run(ctx, os.Args[1], os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const (
	plugins  = "/var/lib/kubelet/plugins"
	registry = "/var/lib/kubelet/plugins_registry"
)

// run serves the CSI driver.
func run(ctx context.Context, name, node string) error {
	d := &driver{name: name, node: node}
	return serve(ctx, name, "csi.sock", &registration.PluginInfo{Type: registration.CSIPlugin, SupportedVersions: []string{"1.0.0"}}, func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, d)
		csi.RegisterNodeServer(s, d)
	})
}

// serve serves the driver's socket and then the one by which the kubelet finds it.
// Both are removed at the end, from which the kubelet sees that the driver is gone.
func serve(ctx context.Context, name, socket string, info *registration.PluginInfo, register func(*grpc.Server)) error {
	dir := filepath.Join(plugins, name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	endpoint := filepath.Join(dir, socket)
	info.Name, info.Endpoint = name, endpoint
	service := grpc.NewServer()
	register(service)
	registrar := grpc.NewServer()
	registration.RegisterRegistrationServer(registrar, &registrant{info: info})

	failed := make(chan error, 2)
	for _, s := range []struct {
		*grpc.Server
		path string
	}{{service, endpoint}, {registrar, filepath.Join(registry, name+"-reg.sock")}} {
		if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "unix", s.path)
		if err != nil {
			return err
		}
		defer s.Stop() // closes the socket, which removes it
		go func() { failed <- s.Serve(l) }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// A driver is the CSI driver.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	name, node string
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "1"}, nil
}

func (*driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (*driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (*driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

// NodePublishVolume mounts the ext4 on the block device that the volume's attribute
// device names, or the directory that the attribute source names. A block volume is the
// device itself.
func (*driver) NodePublishVolume(_ context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if q.GetVolumeCapability().GetBlock() != nil {
		return publishDevice(q.GetVolumeContext()["device"], q.GetTargetPath())
	}
	source, fstype, flags := q.GetVolumeContext()["device"], "ext4", uintptr(0)
	dirs := []string{q.GetTargetPath()}
	if source == "" {
		source, fstype, flags = q.GetVolumeContext()["source"], "", unix.MS_BIND
		dirs = append(dirs, source)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, status.Errorf(codes.Internal, "make a directory: %v", err)
		}
	}
	if err := unix.Mount(source, q.GetTargetPath(), fstype, flags, ""); err != nil {
		return nil, status.Errorf(codes.Internal, "mount: %v", err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// publishDevice mounts a block device on a file.
func publishDevice(device, target string) (*csi.NodePublishVolumeResponse, error) {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return nil, status.Errorf(codes.Internal, "make a directory: %v", err)
	}
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		return nil, status.Errorf(codes.Internal, "make a file: %v", err)
	}
	if err := unix.Mount(device, target, "", unix.MS_BIND, ""); err != nil {
		return nil, status.Errorf(codes.Internal, "mount: %v", err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// mode returns what a driver is told to do, "" to work.
func mode(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join("/run/csidriver", name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", status.Error(codes.Internal, err.Error())
	}
	return strings.TrimSpace(string(text)), nil
}

// NodeUnpublishVolume unmounts the directory, or the file of a block volume, or does what the driver is told.
func (d *driver) NodeUnpublishVolume(ctx context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	told, err := mode(d.name)
	if err != nil {
		return nil, err
	}
	switch told {
	case "fail":
		return nil, status.Error(codes.Internal, "told to fail")
	case "hang":
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case "lie":
		return &csi.NodeUnpublishVolumeResponse{}, nil
	case "slow":
		time.Sleep(slowness)
	}
	target := q.GetTargetPath()
	awaitCopies(target)
	if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return nil, status.Errorf(codes.Internal, "unmount: %v", err)
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, status.Errorf(codes.Internal, "remove: %v", err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// awaitCopies waits until no mount namespace has a copy of a mount that does not go with it, or slowness has gone by. A container that is
// being started has one for a moment: the unmount is not the last one then, and does not wait for the device.
func awaitCopies(target string) {
	for begin := time.Now(); time.Since(begin) < slowness; time.Sleep(100 * time.Millisecond) {
		if !slices.ContainsFunc(mountTables(), func(table string) bool { return hasCopy(table, target) }) {
			return
		}
	}
}

// mountTables returns those of all processes, one for each mount namespace.
func mountTables() []string {
	tables := make(map[string]string)
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if namespace, err := os.Readlink(filepath.Join(dir, "ns/mnt")); err == nil && tables[namespace] == "" {
			text, _ := os.ReadFile(filepath.Join(dir, "mountinfo"))
			tables[namespace] = string(text)
		}
	}
	return slices.Collect(maps.Values(tables))
}

// hasCopy reports whether a mount table has a mount point that ends like that and is in no peer group (mount_namespaces(7)).
func hasCopy(table, target string) bool {
	return slices.ContainsFunc(strings.Split(table, "\n"), func(line string) bool {
		f := strings.Fields(line)
		return len(f) > 6 && strings.HasSuffix(f[4], target) && f[6] == "-" // no optional field
	})
}

// A registrant tells the kubelet where the driver is.
type registrant struct {
	registration.UnimplementedRegistrationServer
	info *registration.PluginInfo
}

func (r *registrant) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return r.info, nil
}

// NotifyRegistrationStatus leaves a file when the kubelet has registered the driver.
func (r *registrant) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		fmt.Fprintln(os.Stderr, "the kubelet has refused the registration:", s.GetError())
	} else if err := os.WriteFile(filepath.Join("/run/csidriver", r.info.GetName()+".registered"), nil, 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
