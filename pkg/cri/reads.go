package cri

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// reads are the requests that this package makes, by their gRPC names. containerd's socket
// has no right to read only: whoever can connect may start and delete containers. So each
// request is compared with this list before it leaves, and a mistake in this program changes
// nothing on the node. It does not hold somebody who executes code of their own here.
var reads = []string{
	runtimeapi.RuntimeService_Version_FullMethodName,
	runtimeapi.RuntimeService_Status_FullMethodName,
	runtimeapi.RuntimeService_ListContainers_FullMethodName,
	runtimeapi.RuntimeService_ContainerStatus_FullMethodName,
	runtimeapi.RuntimeService_ListPodSandbox_FullMethodName,
	runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName,
	"/containerd.services.version.v1.Version/Version",
	"/containerd.services.containers.v1.Containers/Get",
	"/containerd.services.containers.v1.Containers/ListStream",
	"/containerd.services.tasks.v1.Tasks/Get",
	"/containerd.services.content.v1.Content/Info",
	"/containerd.services.content.v1.Content/Read",
	"/containerd.services.content.v1.Content/ListStatuses",
	"/containerd.services.namespaces.v1.Namespaces/List",
}

// requests counts those that have left, by the names of reads.
type requests map[string]*atomic.Uint64

func newRequests() requests {
	q := make(requests, len(reads))
	for _, method := range reads {
		q[method] = new(atomic.Uint64)
	}
	return q
}

// count returns an error for a request that is not in reads.
func (q requests) count(method string) error {
	n, ok := q[method]
	if !ok {
		return fmt.Errorf("nodeagent only reads, and does not ask containerd for %s", method)
	}
	n.Add(1)
	return nil
}

// Requests returns how often containerd was asked, by the request's gRPC name without the first slash, also of those that it was never
// asked. It asks the shim in turn for the state of a task (containerd.services.tasks.v1.Tasks/Get), and nobody for the rest.
func (r *Runtime) Requests() map[string]uint64 {
	out := make(map[string]uint64, len(r.requests))
	for method, n := range r.requests {
		out[method[1:]] = n.Load()
	}
	return out
}

// onlyReads makes a gRPC channel refuse what is not in reads, and count the rest.
func (q requests) onlyReads() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
			opts ...grpc.CallOption) error {
			if err := q.count(method); err != nil {
				return err
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer,
			opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if err := q.count(method); err != nil {
				return nil, err
			}
			return open(ctx, desc, cc, method, opts...)
		}),
	}
}
