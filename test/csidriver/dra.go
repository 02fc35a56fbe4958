package main

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// A claimDriver is a DRA driver whose devices need nothing done to them.
type claimDriver struct {
	dra.UnimplementedDRAPluginServer
	name string
}

// runDRA serves the driver as run does a CSI driver.
func runDRA(ctx context.Context, name string) error {
	return serve(ctx, name, "dra.sock", &registration.PluginInfo{Type: registration.DRAPlugin,
		SupportedVersions: []string{dra.DRAPluginService}}, func(s *grpc.Server) {
		dra.RegisterDRAPluginServer(s, &claimDriver{name: name})
	})
}

// NodePrepareResources says that all devices are ready.
func (*claimDriver) NodePrepareResources(_ context.Context, q *dra.NodePrepareResourcesRequest) (*dra.NodePrepareResourcesResponse, error) {
	out := &dra.NodePrepareResourcesResponse{Claims: map[string]*dra.NodePrepareResourceResponse{}}
	for _, c := range q.GetClaims() {
		out.Claims[c.GetUid()] = &dra.NodePrepareResourceResponse{Devices: []*dra.Device{{PoolName: "pool", DeviceName: "device"}}}
	}
	return out, nil
}

// NodeUnprepareResources releases all devices, or does what the driver is told.
func (d *claimDriver) NodeUnprepareResources(ctx context.Context, q *dra.NodeUnprepareResourcesRequest) (*dra.NodeUnprepareResourcesResponse, error) {
	told, err := mode(d.name)
	if err != nil {
		return nil, err
	}
	var wrong string
	switch told {
	case "fail":
		return nil, status.Error(codes.Internal, "told to fail")
	case "error":
		wrong = "told to fail" // as k8s.io/dynamic-resource-allocation answers for each claim
	case "hang":
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case "slow":
		time.Sleep(slowness)
	}
	out := &dra.NodeUnprepareResourcesResponse{Claims: map[string]*dra.NodeUnprepareResourceResponse{}}
	for _, c := range q.GetClaims() {
		out.Claims[c.GetUid()] = &dra.NodeUnprepareResourceResponse{Error: wrong}
	}
	return out, nil
}
