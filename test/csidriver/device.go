package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	device "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// resourceDomain is what the names of resources of device plugins begin with.
const resourceDomain = "device.test/"

// A devicePlugin is a device plugin with one device, which nothing has to be done to.
type devicePlugin struct {
	device.UnimplementedDevicePluginServer
	ctx  context.Context //nolint:containedctx // ends the stream
	name string
}

// runDevice serves the plugin and tells the kubelet of it, as device plugins do.
func runDevice(ctx context.Context, name string) error {
	endpoint := name + ".sock"
	path := filepath.Join(device.DevicePluginPath, endpoint)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	device.RegisterDevicePluginServer(s, &devicePlugin{ctx: ctx, name: name})
	defer s.Stop() // closes the socket, which removes it
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(l) }()

	kubelet, err := grpc.NewClient("unix://"+device.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	_, err = device.NewRegistrationClient(kubelet).Register(ctx, &device.RegisterRequest{Version: device.Version, Endpoint: endpoint,
		ResourceName: resourceDomain + name})
	if err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	if err := kubelet.Close(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

func (*devicePlugin) GetDevicePluginOptions(context.Context, *device.Empty) (*device.DevicePluginOptions, error) {
	return &device.DevicePluginOptions{}, nil
}

// ListAndWatch tells of the device, and leaves a file when the kubelet has asked.
func (p *devicePlugin) ListAndWatch(_ *device.Empty, out grpc.ServerStreamingServer[device.ListAndWatchResponse]) error {
	if err := out.Send(&device.ListAndWatchResponse{Devices: []*device.Device{{ID: "device", Health: device.Healthy}}}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join("/run/csidriver", p.name+".registered"), nil, 0o600); err != nil {
		return err
	}
	select {
	case <-p.ctx.Done():
	case <-out.Context().Done():
	}
	return nil
}

// Allocate gives the device away, or does what the plugin is told. It leaves a file when it has
// begun.
func (p *devicePlugin) Allocate(ctx context.Context, q *device.AllocateRequest) (*device.AllocateResponse, error) {
	told, err := mode(p.name)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join("/run/csidriver", p.name+".allocating"), nil, 0o600); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	switch told {
	case "hang":
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case "slow":
		time.Sleep(slowness)
	}
	out := new(device.AllocateResponse)
	for range q.GetContainerRequests() {
		out.ContainerResponses = append(out.ContainerResponses, new(device.ContainerAllocateResponse))
	}
	return out, nil
}
